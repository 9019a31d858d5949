"""Rules of GEMM instructions."""

from __future__ import annotations

import numpy as np

from ..by_hand import ACC, ADD, INP, SHR, UOP, WGT, Image, Machine, uop
from .common import IDENTITY, LANES, ZEROS, copied, entry, rule


@rule
def gemm_by_the_identity_copies(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(INP, 0, LANES).put(UOP, 0, [uop()])
    assert m.compute(image, [m.asm.gemm(0, 1)], 1).outputs(0, 1) == [LANES]


@rule
def weights_are_outputs_by_inputs(m: Machine) -> None:
    weights = np.zeros((16, 16), np.int8)
    weights[2, 5], weights[7, 0] = 3, -2  # output 2 reads input 5, output 7 input 0
    image = Image().put(WGT, 0, weights).put(INP, 0, LANES).put(UOP, 0, [uop()])
    expected = [0, 0, 18, 0, 0, 0, 0, -2, *[0] * 8]
    assert m.compute(image, [m.asm.gemm(0, 1)], 1).outputs(0, 1) == [expected]
    image.put(UOP, 0, [uop(), uop(1, 0, 1)]).put(WGT, 1, IDENTITY)
    assert m.compute(image, [m.asm.gemm(0, 2)], 2).outputs(0, 2) == [expected, LANES]


@rule
def codes_and_weights_are_signed(m: Machine) -> None:
    image = Image().put(WGT, 0, -IDENTITY).put(INP, 0, entry(-7)).put(UOP, 0, [uop()])
    assert m.compute(image, [m.asm.gemm(0, 1)], 1).outputs(0, 1) == [entry(7)]


@rule
def gemm_adds_to_the_accumulator(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(INP, 0, LANES).put(UOP, 0, [uop()]).put(ACC, 0, entry(40))
    assert m.compute(image, [m.asm.gemm(0, 1)], 1).outputs(0, 1) == [[40 + i for i in LANES]]


@rule
def a_sum_of_the_largest_products_is_exact(m: Machine) -> None:
    image = Image().put(WGT, 0, np.full((16, 16), -128)).put(INP, 0, entry(-128)).put(UOP, 0, [uop()])
    image.put(ACC, 0, entry(1))  # 16 * 128 * 128 + 1 = 2^18 + 1
    words = [m.asm.gemm(0, 1), m.asm.alu(ADD, 0, 1, 0)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(1)]
    words = [m.asm.gemm(0, 1), m.asm.alu(SHR, 0, 1, 15)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(8)]


@rule
def micro_ops_name_accumulator_input_and_weights(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(WGT, 3, 2 * IDENTITY)
    image.put(INP, 0, entry(1)).put(INP, 5, entry(5)).put(INP, 9, entry(9))
    image.put(UOP, 0, [uop(0, 5, 3), uop(1, 9, 0), uop(2, 9, 3)])
    assert m.compute(image, [m.asm.gemm(0, 3)], 3).outputs(0, 3) == [entry(10), entry(9), entry(18)]


@rule
def micro_ops_run_from_first_to_before_end(m: Machine) -> None:
    image = copied(Image().put(WGT, 0, IDENTITY).put(INP, 0, [entry(i + 1) for i in range(8)]))
    words = [m.asm.gemm(0, 8, reset=1), m.asm.alu(ADD, 0, 8, 0), m.asm.gemm(2, 5)]
    expected = [ZEROS, ZEROS, entry(3), entry(4), entry(5), ZEROS]
    assert m.compute(image, words, 6).outputs(0, 6) == expected


@rule
def gemm_loops_step_each_index(m: Machine) -> None:
    """acc = 4o + i, inp = 1o + 10i, wgt = 2o + 1i."""
    image = Image().put(UOP, 0, [uop()])
    for i in range(8):
        image.put(WGT, i, (i + 1) * IDENTITY)
    image.put(INP, 0, [entry(i % 20) for i in range(40)])
    words = [m.asm.gemm(0, 1, 3, 2, (4, 1, 1, 10, 2, 1))]
    for k in range(12):
        image.put(UOP, 1 + k, [uop(k)])
    words = [m.asm.alu(ADD, 1, 13, 0), *words]
    # (o, i): input o + 10 i, weights 2 o + i + 1
    expected = [[0, 20, 0, 0], [3, 44, 0, 0], [10, 72, 0, 0]]
    entries = m.compute(image, words, 12).outputs(0, 12)
    assert entries == [entry(v) for row in expected for v in row]


@rule
def one_accumulator_may_be_added_to_twice(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(INP, 0, [entry(3), entry(4)]).put(UOP, 0, [uop(0, 0), uop(0, 1)])
    assert m.compute(image, [m.asm.gemm(0, 2)], 1).outputs(0, 1) == [entry(7)]
    assert m.compute(image, [m.asm.gemm(0, 1, 2, 3)], 1).outputs(0, 1) == [entry(18)]


@rule
def a_reset_clears_acc_but_not_out(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(INP, 0, LANES).put(UOP, 0, [uop()]).put(ACC, 0, entry(20))
    assert m.compute(image, [m.asm.gemm(0, 1, reset=1)], 1).outputs(0, 1) == [[20 + i for i in LANES]]
    words = [m.asm.gemm(0, 1, reset=1), m.asm.alu(ADD, 0, 1, 5)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(5)]


@rule
def a_reset_of_one_accumulator_twice(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(INP, 0, [entry(3), entry(4)]).put(UOP, 0, [uop(0, 0), uop(0, 1)])
    image.put(ACC, 0, entry(50))
    assert m.compute(image, [m.asm.gemm(0, 2, reset=1)], 1).outputs(0, 1) == [entry(4)]


@rule
def sums_wrap_around(m: Machine) -> None:
    image = Image().put(WGT, 0, IDENTITY).put(INP, 0, entry(1)).put(UOP, 0, [uop()]).put(ACC, 0, entry(2**31 - 1))
    shifts = [m.asm.alu(SHR, 0, 1, 15), m.asm.alu(SHR, 0, 1, 15)]
    assert m.compute(image, [m.asm.gemm(0, 1), *shifts], 1).outputs(0, 1) == [entry(-2)]
    assert m.compute(image, [m.asm.alu(ADD, 0, 1, 1), *shifts], 1).outputs(0, 1) == [entry(-2)]
