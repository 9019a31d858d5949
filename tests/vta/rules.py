"""Every rule of VTA as a program made by hand, with results computed by hand.

Each function takes a Machine and asserts; wrong simulators must fail one of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from chai.errors import DeviceError

from .by_hand import (
    ACC,
    ADD,
    FINISH,
    INP,
    MAX,
    MIN,
    OUT,
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    SHR,
    TAKE,
    UOP,
    WGT,
    Image,
    Machine,
    uop,
)

IDENTITY = np.eye(16, dtype=np.int8)
LANES = list(range(1, 17))
ZEROS = [0] * 16
RULES: list[Callable[[Machine], None]] = []


def rule(test: Callable[[Machine], None]) -> Callable[[Machine], None]:
    RULES.append(test)
    return test


def entry(value: int) -> list[int]:
    return [value] * 16


def copied(image: Image, count: int = 16) -> Image:
    """Let micro-op i be for accumulator i, input i and weights 0."""
    return image.put(UOP, 0, [uop(i, i) for i in range(count)])


# -- GEMM


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
    found = m.compute(image, words, 12).outputs(0, 12)
    assert found == [entry(v) for row in expected for v in row]


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


# -- ALU


@rule
def operations_with_an_immediate(m: Machine) -> None:
    values = [-100, -3, -1, 0, 1, 3, 100, 5, *[0] * 8]
    for operation, number, expected in (
        (MIN, 2, [-100, -3, -1, 0, 1, 2, 2, 2, *[0] * 8]),
        (MIN, -2, [-100, -3, *[-2] * 14]),
        (MAX, -2, [-2, -2, -1, 0, 1, 3, 100, 5, *[0] * 8]),
        (ADD, -7, [-107, -10, -8, -7, -6, -4, 93, -2, *[-7] * 8]),
        (ADD, 27, [-73, 24, 26, 27, 28, 30, 127, 32, *[27] * 8]),
    ):
        image = Image().put(UOP, 0, [uop()]).put(ACC, 0, values)
        assert m.compute(image, [m.asm.alu(operation, 0, 1, number)], 1).outputs(0, 1) == [expected]


@rule
def immediates_have_sixteen_bits_and_a_sign(m: Machine) -> None:
    image = Image().put(UOP, 0, [uop()]).put(ACC, 0, entry(0))
    words = [m.asm.alu(ADD, 0, 1, -32768), m.asm.alu(SHR, 0, 1, 10)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(-32)]
    words = [m.asm.alu(ADD, 0, 1, 32767), m.asm.alu(SHR, 0, 1, 10)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(31)]


@rule
def operations_with_an_accumulator(m: Machine) -> None:
    image = Image().put(UOP, 0, [uop(0, 1)]).put(ACC, 0, [LANES, [9] * 16])
    for operation, expected in ((MIN, [min(i, 9) for i in LANES]), (MAX, [max(i, 9) for i in LANES])):
        assert m.compute(image, [m.asm.alu(operation, 0, 1)], 1).outputs(0, 1) == [expected]
    assert m.compute(image, [m.asm.alu(ADD, 0, 1)], 1).outputs(0, 1) == [[i + 9 for i in LANES]]


@rule
def a_right_shift_is_arithmetic(m: Machine) -> None:
    values = [-5, -4, -1, 5, 7, 8, -100, 100, *[0] * 8]
    image = Image().put(UOP, 0, [uop()]).put(ACC, 0, values)
    expected = [-3, -2, -1, 2, 3, 4, -50, 50, *[0] * 8]
    assert m.compute(image, [m.asm.alu(SHR, 0, 1, 1)], 1).outputs(0, 1) == [expected]
    assert m.compute(image, [m.asm.alu(SHR, 0, 1, 15)], 1).outputs(0, 1) == [[-1 if v < 0 else 0 for v in values]]


@rule
def a_shift_amount_is_signed_and_has_five_bits(m: Machine) -> None:
    """16 to 31 are -16 to -1: shifts to the left."""
    for amount, then, expected in (
        (-1, 0, 6),
        (-5, 0, 96),
        (31, 0, 6),
        (30, 0, 12),
        (27, 0, 96),
        (16, 15, 6),
        (-16, 15, 6),
        (17, 14, 6),
        (32, 0, 3),
        (33, 0, 1),
        (-32, 0, 3),
        (-31, 0, 1),
    ):
        image = Image().put(UOP, 0, [uop()]).put(ACC, 0, entry(3))
        words = [m.asm.alu(SHR, 0, 1, amount), m.asm.alu(SHR, 0, 1, then)]
        assert m.compute(image, words, 1).outputs(0, 1) == [entry(expected)], amount


@rule
def a_left_shift_drops_high_bits(m: Machine) -> None:
    image = Image().put(UOP, 0, [uop()]).put(ACC, 0, entry(0x18001))
    words = [m.asm.alu(SHR, 0, 1, -16), m.asm.alu(SHR, 0, 1, 15), m.asm.alu(SHR, 0, 1, 15)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(-2)]  # 0x80010000 >> 30


@rule
def a_shift_by_an_accumulator_is_per_lane(m: Machine) -> None:
    amounts = [0, 1, 2, 15, 31, 30, 28, 33, -1, -4, 63, 64, 6, 7, 3, 4]
    image = Image().put(UOP, 0, [uop(0, 1)]).put(ACC, 0, [entry(5), amounts])
    expected = [5, 2, 1, 0, 10, 20, 80, 2, 10, 80, 10, 5, 0, 0, 0, 0]
    assert m.compute(image, [m.asm.alu(SHR, 0, 1)], 1).outputs(0, 1) == [expected]


@rule
def alu_loops_step_each_index(m: Machine) -> None:
    """Dst = 6o + 2i + u, src = 20 + 9o + 3i + u."""
    image = Image().put(UOP, 0, [uop(0, 20), uop(1, 21)]).put(ACC, 0, [entry(i) for i in range(64)])
    words = [m.asm.alu(ADD, 0, 2, None, 2, 3, (6, 2, 9, 3))]
    dst = [6 * o + 2 * i + u for o in range(2) for i in range(3) for u in range(2)]
    src = [20, 21, 23, 24, 26, 27, 29, 30, 32, 33, 35, 36]
    assert dst == [*range(12)]
    assert m.compute(image, words, 12).outputs(0, 12) == [entry(d + s) for d, s in zip(dst, src)]


@rule
def loops_run_outer_inner_micro_ops(m: Machine) -> None:
    """Shifts to and fro lose bits: their order shows. Amounts are at 8 + 4o + 2i + u."""
    amounts = [1, -2, 3, -1, -3, 2, 1, -4]
    image = Image().put(UOP, 0, [uop(0, 8), uop(0, 9)]).put(ACC, 0, entry(0b1011011))
    image.put(ACC, 8, [entry(a) for a in amounts])
    words = [m.asm.alu(SHR, 0, 2, None, 2, 2, (0, 0, 4, 2))]
    # 91 >>1 45 <<2 180 >>3 22 <<1 44 <<3 352 >>2 88 >>1 44 <<4 704 = 2 * 256 + 192 = -64 in 8 bits
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(-64)]
    image.put(UOP, 0, [uop(0, 8), uop(0, 12)])
    words = [m.asm.alu(SHR, 0, 2, None, 2, 2, (0, 0, 1, 2))]
    # order 0 4 2 6 1 5 3 7: 91 >>1 45 <<3 360 >>3 45 >>1 22 <<2 88 >>2 22 <<1 44 <<4 704
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(-64)]
    image.put(ACC, 0, entry(0b1011011)).put(UOP, 0, [uop(0, 8), uop(0, 8)])
    words = [m.asm.alu(SHR, 0, 1, None, 2, 3, (0, 0, 3, 1))]
    # amounts 0..5: 91 >>1 45 <<2 180 >>3 22 <<1 44 <<3 352 >>2 88
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(88)]
    words = [m.asm.alu(SHR, 0, 1, None, 3, 2, (0, 0, 1, 3))]
    # amounts 0 3 1 4 2 5: 91 >>1 45 <<1 90 <<2 360 <<3 2880 >>3 360 >>2 90
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(90)]


@rule
def a_micro_op_sees_the_ones_before_it(m: Machine) -> None:
    """Running sums; the model has no pipeline."""
    image = Image().put(UOP, 0, [uop(i + 1, i) for i in range(5)]).put(ACC, 0, [entry(i + 1) for i in range(6)])
    words = [m.asm.alu(ADD, 0, 5)]
    image.put(UOP, 8, [uop(0)])
    words = [m.asm.alu(ADD, 8, 9, 0), *words]
    expected = [1, 3, 6, 10, 15, 21]
    assert m.compute(image, words, 6).outputs(0, 6) == [entry(v) for v in expected]


@rule
def a_micro_op_reads_before_later_ones_write(m: Machine) -> None:
    image = Image().put(UOP, 0, [uop(0, 1), uop(1, 2), uop(2, 3)]).put(ACC, 0, [entry(i) for i in (1, 10, 20, 30)])
    assert m.compute(image, [m.asm.alu(ADD, 0, 3)], 3).outputs(0, 3) == [entry(11), entry(30), entry(50)]


# -- moving


@rule
def store_keeps_the_low_eight_bits(m: Machine) -> None:
    values = [127, 128, 129, 255, 256, 257, -128, -129, -130, 1000, -1000, 65535, 2**31 - 1, -(2**31), 0, 1]
    image = Image().put(UOP, 0, [uop()]).put(ACC, 0, values)
    expected = [127, -128, -127, -1, 0, 1, -128, 127, 126, -24, 24, -1, -1, 0, 0, 1]
    assert m.compute(image, [m.asm.alu(ADD, 0, 1, 0)], 1).outputs(0, 1) == [expected]


@rule
def load_acc_does_not_touch_out(m: Machine) -> None:
    image = Image().put(UOP, 0, [uop()]).put(ACC, 0, [entry(7), entry(99)])
    words = [m.asm.alu(ADD, 0, 1, 0), m.asm.load(ACC, 0, 1, 1)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(7)]
    words = [*words, m.asm.alu(ADD, 0, 1, 0)]
    assert m.compute(image, words, 1).outputs(0, 1) == [entry(99)]


@rule
def store_takes_consecutive_entries_into_strided_rows(m: Machine) -> None:
    image = copied(Image().put(ACC, 0, [entry(i + 1) for i in range(16)]))
    a = m.asm
    words = [
        a.load(UOP, 0, 0, 16),
        a.load(ACC, 0, 0, 16),
        a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT),
        a.store(3, 2, 3, 2, 5),
        TAKE,
        FINISH,
    ]
    found = m.run(image, words).outputs(0, 12)
    assert found == [entry(v) for v in (0, 0, 4, 5, 6, 0, 0, 7, 8, 9, 0, 0)]


@rule
def loads_of_every_kind_have_rows_and_strides(m: Machine) -> None:
    a = m.asm
    image = Image().put(INP, 0, [entry(i) for i in range(64)]).put(ACC, 0, [entry(i) for i in range(64)])
    for i in range(8):
        image.put(WGT, i, (i + 1) * IDENTITY)
    image.put(UOP, 0, [uop(15 - i, 15 - i) for i in range(32) if i < 16])
    image.put(UOP, 20, [uop(0, 0, 0), uop(1, 1, 1), uop(63, 63, 63), uop(2, 2, 2), uop(3, 3, 3)])
    words = [
        a.load(WGT, 0, 1, 2, 2, 3),  # 1 2, 4 5: factors 2 3 5 6
        a.load(INP, 0, 3, 2, 2, 7, tokens=PUSH_NEXT),  # 3 4, 10 11
        a.load(ACC, 0, 1, 1, 4, 10, tokens=POP_PREV),  # 1 11 21 31
        a.load(UOP, 5, 20, 2, 2, 3),  # the first two and the last two
        a.gemm(5, 9, tokens=PUSH_NEXT),
        a.store(0, 0, 4),
        TAKE,
        FINISH,
    ]
    assert m.run(image, words).outputs(0, 4) == [entry(v) for v in (1 + 6, 11 + 12, 21 + 50, 31 + 66)]


@rule
def pads_are_zeros_around_the_rows(m: Machine) -> None:
    """Top 1, bottom 2, left 3, right 1 around 2 x 2: 5 rows of 6; other entries stay."""
    a = m.asm
    image = copied(Image().put(INP, 0, [entry(9)] * 40).put(INP, 40, [entry(v) for v in (1, 2, 3, 4, 5)]), 40)
    image.put(WGT, 0, IDENTITY)
    words = [
        a.load(INP, 0, 0, 40),
        a.load(WGT, 0, 0, 1),
        a.load(INP, 2, 40, 2, 2, 3, (1, 2, 3, 1), tokens=PUSH_NEXT),
        a.load(UOP, 0, 0, 40),
        a.load(ACC, 0, 0, 40, tokens=POP_PREV),
        a.gemm(0, 40, tokens=PUSH_NEXT),
        a.store(0, 0, 40),
        TAKE,
        FINISH,
    ]
    rows = [[0] * 6, [0, 0, 0, 1, 2, 0], [0, 0, 0, 4, 5, 0], [0] * 6, [0] * 6]
    expected = [9, 9, *(v for row in rows for v in row), *[9] * 8]
    assert m.run(image, words).outputs(0, 40) == [entry(v) for v in expected]


@rule
def no_columns_move_nothing_but_tokens(m: Machine) -> None:
    a = m.asm
    image = Image().put(UOP, 0, [uop()]).put(WGT, 0, IDENTITY).put(INP, 0, LANES).put(INP, 1, entry(77))
    words = [
        a.load(INP, 0, 0, 1),
        a.load(WGT, 0, 0, 1),
        a.load(INP, 0, 1, 0, tokens=PUSH_NEXT),
        a.load(UOP, 0, 0, 1),
        a.load(ACC, 0, 0, 1),
        a.load(ACC, 0, 5, 0, tokens=POP_PREV),
        a.gemm(0, 1, tokens=PUSH_NEXT),
        a.store(0, 3, 0, tokens=POP_PREV | PUSH_PREV),
        a.load(UOP, 0, 9, 0, tokens=POP_NEXT | PUSH_NEXT),
        a.store(0, 1, 1),
        TAKE,
        FINISH,
    ]
    assert m.run(image, words).outputs(0, 4) == [ZEROS, LANES, ZEROS, ZEROS]


@rule
def nothing_is_cleared_between_programs(m: Machine) -> None:
    image = Image().put(WGT, 0, 3 * IDENTITY).put(INP, 0, LANES).put(UOP, 0, [uop()]).put(ACC, 0, entry(10))
    a = m.asm
    m.compute(image, [], 0)
    image.put(INP, 0, ZEROS).put(WGT, 0, 0 * IDENTITY).put(ACC, 0, ZEROS)
    words = [a.load(UOP, 0, 0, 1), a.gemm(0, 1, tokens=PUSH_NEXT), a.store(0, 0, 1), TAKE, FINISH]
    assert m.run(image, words).outputs(0, 1) == [[10 + 3 * i for i in LANES]]


# -- what the hardware would do silently


def refuses(m: Machine, image: Image, words: list[tuple[int, int]], why: str, distance: bool = False) -> None:
    before = image.bytes.copy()
    with pytest.raises(DeviceError, match=why):
        m.run(image, words, distance)
    assert (image.bytes[0x400:] == before[0x400:]).all()


def ready() -> Image:
    return copied(Image().put(WGT, 0, IDENTITY).put(INP, 0, [LANES] * 64), 128)


@rule
def tokens_that_never_come_or_stay(m: Machine) -> None:
    a = m.asm
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=POP_PREV), FINISH], "would hang.*waits for a token from LOAD")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=POP_NEXT), FINISH], "would hang.*waits for a token from STORE")
    refuses(m, ready(), [a.load(INP, 0, 0, 0, tokens=POP_NEXT), FINISH], "waits for a token from COMPUTE")
    refuses(m, ready(), [a.store(0, 0, 0, tokens=POP_PREV), FINISH], "waits for a token from COMPUTE")
    refuses(m, ready(), [a.load(INP, 0, 0, 0, tokens=PUSH_NEXT), FINISH], "leaves 1 tokens from LOAD to COMPUTE")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=PUSH_PREV), FINISH], "leaves 1 tokens from COMPUTE to LOAD")
    refuses(m, ready(), [a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT), FINISH], "leaves 1 tokens from COMPUTE to STORE")
    refuses(m, ready(), [a.store(0, 0, 0, tokens=PUSH_PREV), FINISH], "leaves 1 tokens from STORE to COMPUTE")


@rule
def tokens_of_units_that_are_not_there(m: Machine) -> None:
    a = m.asm
    for tokens in (POP_PREV, PUSH_PREV):
        refuses(m, ready(), [a.load(INP, 0, 0, 0, tokens=tokens), FINISH], "no unit before LOAD")
    for tokens in (POP_NEXT, PUSH_NEXT):
        refuses(m, ready(), [a.store(0, 0, 0, tokens=tokens), FINISH], "no unit after STORE")


@rule
def finish_is_last_and_bare(m: Machine) -> None:
    a = m.asm
    refuses(m, ready(), [a.load(UOP, 0, 0, 0)], "has no FINISH")
    refuses(m, ready(), [FINISH, a.load(UOP, 0, 0, 0)], "FINISH is not the last")
    refuses(m, ready(), [FINISH, FINISH], "FINISH is not the last")
    for tokens in (POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT):
        refuses(m, ready(), [(3 | tokens << 3, 0), FINISH], "FINISH is not the last")
        refuses(m, ready(), [(3 | tokens << 3, 0)], "no tokens")
    refuses(m, ready(), [a.load(INP, 0, 0, 1), FINISH], "FINISH does not wait for the last instructions of LOAD")
    words = [a.load(UOP, 0, 0, 1), a.alu(ADD, 0, 1, 0, tokens=PUSH_NEXT), a.store(0, 0, 1, tokens=POP_PREV), FINISH]
    refuses(m, ready(), words, "FINISH does not wait for the last instructions of STORE")


@rule
def addresses_are_those_of_the_program(m: Machine) -> None:
    a = m.asm
    ends = {UOP: 0x100, INP: 0x100, ACC: 0x80, WGT: 0x80}  # entries of each part of the image
    for memory, count in ends.items():
        tokens = PUSH_NEXT if memory in (INP, WGT) else 0
        take = [a.load(UOP, 0, 0, 0, tokens=POP_PREV)] if tokens else []
        m.run(ready(), [a.load(memory, 0, count - 2, 2, tokens=tokens), *take, FINISH])
        for dram, columns, rows, stride in ((count - 2, 3, 1, 0), (count, 1, 1, 0), (-1, 2, 1, 0), (0, 1, 2, count)):
            word = a.load(memory, 0, dram, columns, rows, stride, tokens=tokens)
            refuses(m, ready(), [word, *take, FINISH], "may be loaded into")
    words = [a.load(UOP, 0, 0, 16), a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT)]
    most = (0x10000 - 0xC000) // 16
    for dram, columns, rows, stride in ((most - 1, 2, 1, 0), (-1, 1, 1, 0), (most, 1, 1, 0), (0, 1, 2, most)):
        store = a.store(0, dram, columns, rows, stride)
        refuses(m, ready(), [*words, store, TAKE, FINISH], "may be stored to")
    m.run(ready(), [*words, a.store(0, most - 2, 2), TAKE, FINISH])
    refuses(m, ready(), [*words, a.store(0, 0, 3, 2, 2), TAKE, FINISH], "overlap")


@rule
def a_buffer_is_for_its_kind(m: Machine) -> None:
    a = m.asm
    for memory, place in ((UOP, 0x1000 // 4), (ACC, 0x4000 // 64), (INP, 0x2000 // 16), (WGT, 0x1000 // 256)):
        tokens = PUSH_NEXT if memory in (INP, WGT) else 0
        take = [a.load(UOP, 0, 0, 0, tokens=POP_PREV)] if tokens else []
        base = {UOP: 0xC00 // 4, INP: 0x100, ACC: 0x80, WGT: 0x40}[memory]
        refuses(m, ready(), [a.load(memory, 0, place - base, 1, tokens=tokens), *take, FINISH], "may be loaded into")


@rule
def on_chip_indices_end_with_their_memory(m: Machine) -> None:
    a = m.asm
    take = a.load(UOP, 0, 0, 0, tokens=POP_PREV)
    for memory, depth in ((UOP, 8192), (ACC, 2048)):
        m.run(ready(), [a.load(memory, depth - 2, 0, 2), FINISH])
        refuses(m, ready(), [a.load(memory, depth - 2, 0, 3), FINISH], f"beyond the {depth} of")
    for memory, depth in ((INP, 2048), (WGT, 1024)):
        m.run(ready(), [a.load(memory, depth - 2, 0, 2, tokens=PUSH_NEXT), take, FINISH])
        refuses(m, ready(), [a.load(memory, depth - 2, 0, 3, tokens=PUSH_NEXT), take, FINISH], f"beyond the {depth} of")
    m.run(ready(), [a.load(INP, 2048 - 12, 0, 2, 1, 0, (1, 1, 1, 1), PUSH_NEXT), take, FINISH])
    refuses(m, ready(), [a.load(INP, 2048 - 11, 0, 2, 1, 0, (1, 1, 1, 1), PUSH_NEXT), take, FINISH], "beyond the 2048")
    words = [a.load(UOP, 0, 0, 16), a.alu(ADD, 0, 1, 0, tokens=PUSH_NEXT)]
    refuses(m, ready(), [*words, a.store(2047, 0, 2), TAKE, FINISH], "beyond the 2048 of OUT")


@rule
def micro_ops_with_steps_end_with_their_memory(m: Machine) -> None:
    a = m.asm
    load = a.load(UOP, 0, 0, 128)
    for steps, what in (((1, 0, 0, 0, 0, 0), "dst"), ((0, 0, 1, 0, 0, 0), "src")):
        m.run(ready(), [load, a.gemm(0, 16, 2033, 1, steps), FINISH])
        refuses(m, ready(), [load, a.gemm(0, 16, 2034, 1, steps), FINISH], f"index 2048 of {what}")
    m.run(ready(), [load, a.gemm(0, 16, 1024, 1, (0, 0, 0, 0, 1, 0)), FINISH])
    refuses(m, ready(), [load, a.gemm(0, 16, 1025, 1, (0, 0, 0, 0, 1, 0)), FINISH], "index 1024 of wgt")
    m.run(ready(), [load, a.gemm(0, 1, 3, 2, (1000, 47, 0, 0, 0, 0)), FINISH])
    refuses(m, ready(), [load, a.gemm(0, 1, 3, 2, (1000, 48, 0, 0, 0, 0)), FINISH], "index 2048 of dst")
    m.run(ready(), [load, a.alu(ADD, 0, 1, 0, 3, 2, (0, 0, 2000, 2000)), FINISH])  # src is not read
    refuses(m, ready(), [load, a.alu(ADD, 0, 1, None, 3, 2, (0, 0, 1000, 48)), FINISH], "index 2048 of src")
    refuses(m, ready(), [load, a.alu(ADD, 0, 1, 0, 3, 2, (1000, 48, 0, 0)), FINISH], "index 2048 of dst")


@rule
def micro_ops_are_the_programs_own(m: Machine) -> None:
    a = m.asm
    refuses(m, ready(), [a.gemm(0, 1), FINISH], "not all loaded")
    refuses(m, ready(), [a.load(UOP, 4, 0, 4), a.gemm(4, 9), FINISH], "not all loaded")
    refuses(m, ready(), [a.load(UOP, 4, 0, 4), a.alu(ADD, 3, 8, 0), FINISH], "not all loaded")
    m.run(ready(), [a.load(UOP, 4, 0, 4), a.alu(ADD, 4, 8, 0), FINISH])


@rule
def only_computed_entries_are_stored(m: Machine) -> None:
    a = m.asm
    load = [a.load(UOP, 0, 0, 16), a.load(ACC, 0, 0, 64)]
    words = [*load, a.alu(ADD, 0, 4, 0, tokens=PUSH_NEXT)]
    m.run(ready(), [*words, a.store(0, 0, 4), TAKE, FINISH])
    refuses(m, ready(), [*words, a.store(0, 0, 5), TAKE, FINISH], "no GEMM or ALU has written")
    words = [*load, a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT)]
    refuses(m, ready(), [*words, a.store(0, 0, 1), TAKE, FINISH], "no GEMM or ALU has written")


@rule
def sixteen_micro_ops_lie_between_write_and_read(m: Machine) -> None:
    a = m.asm
    load = a.load(UOP, 0, 0, 128)
    for word in (a.gemm(0, 16, 2), a.alu(ADD, 0, 16, 1, 2), a.gemm(0, 16, 2, reset=1), a.alu(ADD, 0, 1, 1)):
        m.run(ready(), [load, word, FINISH], distance=True)
    for word in (a.gemm(0, 15, 2), a.alu(ADD, 0, 15, 1, 1, 2), a.gemm(0, 15, 1, 2, reset=1), a.alu(ADD, 0, 1, 1, 2)):
        refuses(m, ready(), [load, word, FINISH], "reads an accumulator (15|1) micro-ops after", distance=True)
        m.run(ready(), [load, word, FINISH])
    image = Image().put(UOP, 0, [uop(i, 40 + i) for i in range(15)]).put(UOP, 15, [uop(20, 0), uop(21, 0)])
    refuses(m, image, [load, a.alu(ADD, 0, 16), FINISH], "15 micro-ops after", distance=True)
    image.put(UOP, 15, [uop(20, 41), uop(21, 0)])
    m.run(image, [load, a.alu(ADD, 0, 17), FINISH], distance=True)
    m.run(ready(), [load, a.gemm(0, 1), a.gemm(0, 1), FINISH], distance=True)


@rule
def queues_of_instructions_hold_512(m: Machine) -> None:
    a = m.asm
    wait, give = a.store(0, 0, 0, tokens=POP_PREV), a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT)
    last = [a.store(0, 0, 0, tokens=PUSH_PREV), TAKE, FINISH]
    _long(m, [*[wait] * 512, *[give] * 512, *last])
    with pytest.raises(DeviceError, match="would hang"):
        _long(m, [*[wait] * 513, *[give] * 513, *last])


@rule
def queues_of_tokens_hold_1024(m: Machine) -> None:
    """Compute waits for a STORE that is fetched after the LOADs: 1,024 give their tokens, 512 more are queued."""
    a = m.asm
    give, take = a.load(INP, 0, 0, 0, tokens=PUSH_NEXT), a.load(UOP, 0, 0, 0, tokens=POP_PREV)
    _long(m, [TAKE, *[give] * 1536, a.store(0, 0, 0, tokens=PUSH_PREV), *[take] * 1536, FINISH])
    with pytest.raises(DeviceError, match=r"would hang.*no room for its token to COMPUTE"):
        _long(m, [TAKE, *[give] * 1537, a.store(0, 0, 0, tokens=PUSH_PREV), *[take] * 1537, FINISH])


def _long(m: Machine, words: list[tuple[int, int]]) -> None:
    """Run a program that is too long for the image."""
    data = np.array(words, np.uint64).view(np.uint8).reshape(-1)
    m.chip.run(m.m.checks.checked(0, len(words), m.machine, [m.m.checks.Area(0, data)]))


@rule
def units_wait_for_each_other(m: Machine) -> None:
    """Entries that two units use are ordered by tokens, or the program is refused."""
    a = m.asm
    uops, inputs = a.load(UOP, 0, 0, 16), a.load(INP, 0, 0, 16, tokens=PUSH_NEXT)
    wait = a.load(UOP, 0, 0, 0, tokens=POP_PREV)
    early = [uops, a.load(INP, 0, 0, 16, tokens=PUSH_NEXT), a.gemm(0, 16), wait, FINISH]
    refuses(m, ready(), early, "reads INP without waiting for LOAD")
    again = [uops, inputs, a.gemm(0, 16, tokens=POP_PREV), inputs, wait, FINISH]
    refuses(m, ready(), again, "INP without waiting for (LOAD|COMPUTE)")
    weights = [uops, a.load(WGT, 0, 0, 1, tokens=PUSH_NEXT), a.gemm(0, 16), wait, FINISH]
    refuses(m, ready(), weights, "reads WGT without waiting for LOAD")
    apart = [uops, inputs, a.gemm(0, 16, tokens=POP_PREV), a.load(INP, 16, 0, 16, tokens=PUSH_NEXT), wait, FINISH]
    m.run(ready(), apart)
    ordered = [
        uops,
        inputs,
        a.gemm(0, 16, tokens=POP_PREV | PUSH_PREV),
        a.load(INP, 0, 0, 16, tokens=POP_NEXT | PUSH_NEXT),
        wait,
        FINISH,
    ]
    m.run(ready(), ordered)
    out = [uops, a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT), a.store(0, 0, 4), a.alu(ADD, 0, 16, 0), TAKE, FINISH]
    refuses(m, ready(), out, "OUT without waiting for (STORE|COMPUTE)")
    # a STORE and a LOAD of the same bytes: through compute, since they give each other no tokens
    stored = [uops, a.alu(ADD, 0, 16, 0, tokens=PUSH_NEXT), a.store(0, 0, 4)]
    place = (0xC000 - 0x1000) // 16
    refuses(
        m,
        ready(),
        [*stored, a.load(INP, 0, place, 4, tokens=PUSH_NEXT), wait, TAKE, FINISH],
        "without waiting for (STORE|LOAD)",
    )
    through = a.load(UOP, 0, 0, 0, tokens=POP_NEXT | PUSH_PREV)
    m.run(ready(), [*stored, through, a.load(INP, 0, place, 4, tokens=POP_NEXT | PUSH_NEXT), wait, FINISH])


@rule
def what_the_hardware_lacks(m: Machine) -> None:
    a, k = m.asm, m.asm.k
    for opcode in (5, 6, 7):
        refuses(m, ready(), [(opcode, 0), FINISH], f"opcode {opcode} is unknown")
    for memory in (UOP, WGT, ACC):
        for pads in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
            refuses(m, ready(), [a.load(memory, 0, 0, 1, pads=pads), FINISH], "where the hardware has none")
    first, second = a.store(0, 0, 1)
    refuses(m, ready(), [(first, second | 1 << 48), FINISH], "top = 1")
    refuses(m, ready(), [(first ^ 1 << 7, second), FINISH], "memory is not OUT")
    first, second = a.alu(ADD, 0, 1, 0)
    refuses(m, ready(), [(first | 1 << 7, second), FINISH], "reset = 1")
    for high in range(61 + k, 64):
        refuses(m, ready(), [(first, second | 1 << high), FINISH], "belongs to no field")
    if k == 3:
        for operation in (4, 5, 6, 7):
            refuses(m, ready(), [a.alu(operation, 0, 1, 0), FINISH], "is not in the hardware")
        for memory in (OUT, 5, 6, 7):
            refuses(m, ready(), [(memory << 7, 1 | 1 << 16), FINISH], "cannot be loaded")
    refuses(m, ready(), [a.load(UOP, 0, 0, 16), a.gemm(0, 16, 16383, 16383), FINISH], "micro-ops in one instruction")
