"""Rules of LOAD and STORE instructions."""

from __future__ import annotations

from ..by_hand import (
    ACC,
    ADD,
    FINISH,
    INP,
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    TAKE,
    UOP,
    WGT,
    Image,
    Machine,
    uop,
)
from .common import IDENTITY, LANES, ZEROS, copied, entry, rule


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
    entries = m.run(image, words).outputs(0, 12)
    assert entries == [entry(v) for v in (0, 0, 4, 5, 6, 0, 0, 7, 8, 9, 0, 0)]


@rule
def loads_of_every_kind_have_rows_and_strides(m: Machine) -> None:
    a = m.asm
    image = Image().put(INP, 0, [entry(i) for i in range(64)]).put(ACC, 0, [entry(i) for i in range(64)])
    for i in range(8):
        image.put(WGT, i, (i + 1) * IDENTITY)
    image.put(UOP, 0, [uop(15 - i, 15 - i) for i in range(32) if i < 16])
    image.put(UOP, 20, [uop(0, 0, 0), uop(1, 1, 1), uop(2, 2, 2), uop(3, 3, 3)])
    words = [
        a.load(WGT, 0, 1, 2, 2, 3),  # 1 2, 4 5: factors 2 3 5 6
        a.load(INP, 0, 3, 2, 2, 7, tokens=PUSH_NEXT),  # 3 4, 10 11
        a.load(ACC, 0, 1, 1, 4, 10, tokens=POP_PREV),  # 1 11 21 31
        a.load(UOP, 5, 20, 4),  # in one row: the hardware knows no other
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
