"""VTA's instructions: bytes made by hand, and everything that can be encoded comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from chai.errors import DeviceError
from chai.vta.isa import (
    Alu,
    AluOperation,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    MicroOp,
    Store,
    Tokens,
    decode,
    encode,
    encode_micro_ops,
    listing,
)
from tests.conftest import examples

from .by_hand import Assembler, uop

GEMM = 2 | 15 << 3 | 1 << 7 | 1 << 8 | 2 << 21 | 3 << 35 | 5 << 49
# one of each kind, and its two words by hand: opcode | tokens << 3 | the rest, in hexadecimal
BY_HAND: list[tuple[Instruction, tuple[int, int], tuple[int, int]]] = [
    (
        Load(Memory.INP, 0x123, 0x89ABCDEF, 2, 3, 4, 5, 6, 7, 8, Tokens(0, 1, 0, 1)),
        (2 << 3 | 8 << 3 | 2 << 7 | 0x123 << 9 | 0x89ABCDEF << 25, 0x8765_0004_0003_0002),
        (2 << 3 | 8 << 3 | 2 << 7 | 0x123 << 10 | 0x89ABCDEF << 26, 0x8765_0004_0003_0002),
    ),
    (
        Store(0x123, 0x89ABCDEF, 2, 3, 4, Tokens(1, 0, 1, 0)),
        (1 | 5 << 3 | 0x123 << 9 | 0x89ABCDEF << 25, 0x0000_0004_0003_0002),
        (1 | 5 << 3 | 4 << 7 | 0x123 << 10 | 0x89ABCDEF << 26, 0x0000_0004_0003_0002),
    ),
    (
        Gemm(1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 1, Tokens(1, 1, 1, 1)),
        *[(GEMM, 7 | 11 << 11 | 13 << 22 | 17 << 33 | 19 << 44 | 23 << 54)] * 2,
    ),
    (
        Alu(AluOperation.SHR, 1, 2, -3, 5, 7, 11, 13, 17, 19),
        (4 | 1 << 8 | 2 << 21 | 5 << 35 | 7 << 49, 11 | 13 << 11 | 17 << 22 | 19 << 33 | 3 << 44 | 1 << 46 | 0xFFFD << 47),
        (4 | 1 << 8 | 2 << 21 | 5 << 35 | 7 << 49, 11 | 13 << 11 | 17 << 22 | 19 << 33 | 3 << 44 | 1 << 47 | 0xFFFD << 48),
    ),
    (
        Alu(AluOperation.ADD, 1, 2),
        *[(4 | 1 << 8 | 2 << 21 | 1 << 35 | 1 << 49, 2 << 44)] * 2,
    ),
    (Finish(), (3, 0), (3, 0)),
]  # fmt: skip


@pytest.mark.parametrize("which", range(len(BY_HAND)))
def test_bytes_made_by_hand(which: int) -> None:
    instruction, *words = BY_HAND[which]
    for encoding, (low, high) in zip(("old", "new"), words):
        data = (low | high << 64).to_bytes(16, "little")
        assert encode([instruction], encoding) == data
        assert decode(data, encoding) == [instruction]


def bits(width: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << width) - 1)


PADS = "top", "bottom", "left", "right"
NO_PADS = dict.fromkeys(PADS, st.just(0))
TOKENS = st.builds(Tokens, *[bits(1)] * 4)
LOOPS = {"first": bits(13), "end": bits(14), "outer": bits(14), "inner": bits(14), "tokens": TOKENS}
MOVES: dict[str, Any] = {name: bits(16) for name in ("entry", "rows", "columns", "stride")}
MOVES |= {"dram": bits(32), "tokens": TOKENS}
STEPS = {f"{n}_{loop}": bits(10 if n == "wgt" else 11) for n in ("acc", "inp", "wgt") for loop in ("outer", "inner")}
TENSOR = {f"{name}_{loop}": bits(11) for name in ("dst", "src") for loop in ("outer", "inner")}
NUMBER = st.none() | st.integers(-(1 << 15), (1 << 15) - 1)
PROGRAMS = st.lists(
    st.one_of(
        st.builds(Load, st.sampled_from([Memory.WGT, Memory.INP, Memory.ACC]), **MOVES, **NO_PADS),
        st.builds(Load, st.just(Memory.UOP), **{**MOVES, "rows": bits(1)}, **NO_PADS),
        st.builds(
            Load, st.just(Memory.INP), **{**MOVES, "columns": st.integers(1, 65535)}, **dict.fromkeys(PADS, bits(4))
        ),
        st.builds(Store, **MOVES),
        st.builds(Gemm, **LOOPS, **STEPS, reset=bits(1)),
        st.builds(Alu, st.sampled_from(AluOperation), **LOOPS, **TENSOR, immediate=NUMBER),
        st.builds(Finish, TOKENS),
    ),
    max_size=3,
)


@settings(max_examples=examples(60))
@given(PROGRAMS, st.sampled_from(["old", "new"]))
def test_decoding_inverts_encoding(program: list[Instruction], encoding: str) -> None:
    data = encode(program, encoding)
    assert len(data) == 16 * len(program)
    assert decode(data, encoding) == program
    assert len([*listing(program)]) == len(program)


@settings(max_examples=examples(60))
@given(st.binary(min_size=16, max_size=16), st.sampled_from(["old", "new"]))
def test_bytes_are_an_instruction_or_refused(data: bytes, encoding: str) -> None:
    try:
        program = decode(data, encoding)
    except DeviceError as error:
        assert "instruction 0" in str(error)
    else:
        assert encode(program, encoding) == data


@settings(max_examples=examples(8))
@given(PROGRAMS, st.sampled_from(["old", "new"]))
def test_a_wrong_bit_is_another_instruction_or_refused_in_words(program: list[Instruction], encoding: str) -> None:
    for number, data in enumerate(encode([each], encoding) for each in program[:3]):
        before = encode(program[:number], encoding)
        for bit in range(128):
            wrong = (int.from_bytes(data, "little") ^ 1 << bit).to_bytes(16, "little")
            try:
                instructions = decode(before + wrong, encoding)
            except DeviceError as error:
                assert error.message.startswith(f"instruction {number}: ")
            else:
                assert encode(instructions, encoding) == before + wrong


@given(st.lists(st.builds(MicroOp, bits(11), bits(11), bits(10)), max_size=4))
def test_micro_ops(micro_ops: list[MicroOp]) -> None:
    data = encode_micro_ops(micro_ops)
    words = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    assert words == [uop(*micro_op) for micro_op in micro_ops]


def test_values_beyond_their_field_are_refused() -> None:
    for wrong, what in (
        (Load(Memory.INP, 1 << 16, 0), "entry"),
        (Store(0, 1 << 32), "dram"),
        (Gemm(0, 1 << 14), "end"),
        (Gemm(0, 1, wgt_outer=1 << 10), "wgt_outer"),
        (Alu(AluOperation.ADD, 0, 1, 1 << 15), "immediate"),
        (Alu(AluOperation.ADD, 0, 1, -(1 << 15) - 1), "immediate"),
        (Load(Memory.INP, -1, 0), "entry"),
    ):
        with pytest.raises(DeviceError, match=f"{what} = "):
            encode([wrong], "old")
    with pytest.raises(DeviceError, match="dst = 2048"):
        encode_micro_ops([MicroOp(2048)])
    with pytest.raises(DeviceError, match="17 bytes"):
        decode(bytes(17), "old")


def test_a_listing_has_names_and_tokens() -> None:
    a = Assembler("new")
    words = [a.load(2, 7, 0, 3, tokens=8), a.gemm(0, 4, 2), a.alu(3, 0, 4, -2), a.store(5, 0, 2), (3, 0)]
    data = b"".join((low | high << 64).to_bytes(16, "little") for low, high in words)
    assert [*listing(decode(data, "new"))] == [
        "    0 LOAD   memory INP entry 7 dram 256 rows 1 columns 3 push_next",
        "    1 GEMM   end 4 outer 2 inner 1",
        "    2 ALU    operation SHR end 4 immediate -2 outer 1 inner 1",
        "    3 STORE  entry 5 dram 3072 rows 1 columns 2 pop_prev push_prev",
        "    4 FINISH",
    ]
