"""Rules of ALU instructions, and of the loops that both kinds have."""

from __future__ import annotations

from ..by_hand import ACC, ADD, MAX, MIN, SHR, UOP, Image, Machine, uop
from .common import LANES, entry, rule


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
