"""Instructions of VTA as tables of bit fields, and their bytes.

A bitstream understands one of two encodings, which differ in the width of two fields. Facts are those of the accelerator's
published hardware (Apache-2.0): batch 1, blocks of 16 x 16, int8 inputs and weights, int32 accumulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import DeviceError

BYTES = 16  # of an instruction
UOP_BYTES = 4
BLOCK = 16  # inputs and outputs of a GEMM, lanes of an ALU operation
LEFT, RIGHT = 16, 30  # bits that sums are shifted by: SHR takes -16 to 15, and two follow each other
WORD = 64  # bits: a field that does not fit a word starts the next

ENCODINGS: Mapping[str, int] = {"old": 2, "new": 3}  # bits of the fields ``memory`` and ``operation``


class Opcode(IntEnum):
    """The first three bits of an instruction."""

    LOAD, STORE, GEMM, FINISH, ALU = range(5)


class Memory(IntEnum):
    """The memories on the chip."""

    UOP, WGT, INP, ACC, OUT = range(5)


class Operation(IntEnum):
    """The operations of ALU instructions."""

    MIN, MAX, ADD, SHR = range(4)


ENTRY_BYTES: Mapping[Memory, int] = {
    Memory.UOP: UOP_BYTES,
    Memory.WGT: BLOCK * BLOCK,
    Memory.INP: BLOCK,
    Memory.ACC: 4 * BLOCK,
    Memory.OUT: BLOCK,
}


class Tokens(NamedTuple):
    """The tokens that an instruction waits for and gives, from and to the unit before (``prev``) and after (``next``)."""

    pop_prev: int = 0
    pop_next: int = 0
    push_prev: int = 0
    push_next: int = 0


class Load(NamedTuple):
    """Copy ``rows`` x ``columns`` entries from DRAM into on-chip ``memory``; zeros around them, for INP only.

    ``entry`` on the chip and ``dram`` count entries of the memory, ``stride`` is from row to row in DRAM.
    """

    memory: Memory
    entry: int
    dram: int
    rows: int = 1
    columns: int = 0
    stride: int = 0
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0
    tokens: Tokens = Tokens()


class Store(NamedTuple):
    """Copy consecutive entries of OUT to ``rows`` x ``columns`` entries in DRAM."""

    entry: int
    dram: int
    rows: int = 1
    columns: int = 0
    stride: int = 0
    tokens: Tokens = Tokens()


class Gemm(NamedTuple):
    """For o < outer, i < inner, micro-ops from ``first`` to before ``end``: ACC[dst] += WGT[wgt] * INP[src].

    Each index is the micro-op's field + o * the outer step + i * the inner step. With ``reset`` ACC[dst] = 0.
    """

    first: int
    end: int
    outer: int = 1
    inner: int = 1
    acc_outer: int = 0
    acc_inner: int = 0
    inp_outer: int = 0
    inp_inner: int = 0
    wgt_outer: int = 0
    wgt_inner: int = 0
    reset: int = 0
    tokens: Tokens = Tokens()


class Alu(NamedTuple):
    """For the same loops: ACC[dst] = ACC[dst] operation (``immediate``, or ACC[src] if it is None), in 16 lanes."""

    operation: Operation
    first: int
    end: int
    immediate: int | None = None
    outer: int = 1
    inner: int = 1
    dst_outer: int = 0
    dst_inner: int = 0
    src_outer: int = 0
    src_inner: int = 0
    tokens: Tokens = Tokens()


class Finish(NamedTuple):
    """Set the done flag; the last instruction of a program."""

    tokens: Tokens = Tokens()


Instruction = Load | Store | Gemm | Alu | Finish


class MicroOp(NamedTuple):
    """One step of a GEMM or ALU: indices of ACC, of INP (ALU: of ACC), and of WGT (ALU: unused)."""

    dst: int = 0
    src: int = 0
    wgt: int = 0


class Field(NamedTuple):
    """``width`` bits from ``position`` of an instruction."""

    name: str
    width: int
    position: int
    signed: bool = False


_HEAD = (("opcode", 3), *((name, 1) for name in Tokens._fields))
_LOOPS = (("reset", 1), ("first", 13), ("end", 14), ("outer", 14), ("inner", 14))
_SIGNED = ("immediate",)


@lru_cache(maxsize=2)
def fields(encoding: str) -> dict[Opcode, tuple[Field, ...]]:
    """Return the fields of each opcode's instructions in an encoding, ``old`` or ``new``."""
    kind = ENCODINGS[encoding]
    move = (
        *(("memory", kind), ("entry", 16), ("dram", 32), ("rows", 16), ("columns", 16), ("stride", 16)),
        *((side, 4) for side in ("top", "bottom", "left", "right")),
    )
    steps = [(f"{name}_{loop}", 10 if name == "wgt" else 11) for name in ("acc", "inp", "wgt") for loop in _NESTED]
    tensor = [(f"{name}_{loop}", 11) for name in ("dst", "src") for loop in _NESTED]
    return {
        Opcode.LOAD: _placed(*_HEAD, *move),
        Opcode.STORE: _placed(*_HEAD, *move),
        Opcode.GEMM: _placed(*_HEAD, *_LOOPS, *steps),
        Opcode.FINISH: _placed(*_HEAD),
        Opcode.ALU: _placed(*_HEAD, *_LOOPS, *tensor, ("operation", kind), ("is_immediate", 1), ("immediate", BLOCK)),
    }


_NESTED = ("outer", "inner")
MICRO_OP = (Field("dst", 11, 0), Field("src", 11, 11), Field("wgt", 10, 22))
_CLASSES: Mapping[Opcode, type[Instruction]] = {
    Opcode.LOAD: Load,
    Opcode.STORE: Store,
    Opcode.GEMM: Gemm,
    Opcode.ALU: Alu,
    Opcode.FINISH: Finish,
}


def _placed(*sizes: tuple[str, int]) -> tuple[Field, ...]:
    """Return fields one after the other; one that does not fit a word starts the next."""
    placed, position = [], 0
    for name, width in sizes:
        if position % WORD + width > WORD:
            position += WORD - position % WORD
        placed.append(Field(name, width, position, name in _SIGNED))
        position += width
    return tuple(placed)


# -- to bytes


def encode(program: Iterable[Instruction], encoding: str) -> bytes:
    """Return the bytes of a program. Raises DeviceError for a value that its field cannot hold."""
    return b"".join(_bytes(instruction, encoding) for instruction in program)


def _bytes(instruction: Instruction, encoding: str) -> bytes:
    values: dict[str, int] = {**instruction._asdict(), **instruction.tokens._asdict(), "reset": 0}
    opcode = next(opcode for opcode, cls in _CLASSES.items() if isinstance(instruction, cls))
    del values["tokens"]
    values["opcode"] = opcode
    if isinstance(instruction, Store):
        values |= {"memory": Memory.OUT & (1 << ENCODINGS[encoding]) - 1, **dict.fromkeys(_PADS, 0)}
    if isinstance(instruction, Gemm):
        values["reset"] = instruction.reset
    if isinstance(instruction, Alu):
        immediate = instruction.immediate
        values |= {"is_immediate": int(immediate is not None), "immediate": immediate or 0}
    total = 0
    for field in fields(encoding)[opcode]:
        value = values[field.name]
        low, high = _range(field)
        if not low <= value <= high:
            raise DeviceError(f"{opcode.name}: {field.name} = {value} is outside {low}..{high}")
        total |= (value & high - low) << field.position
    return total.to_bytes(BYTES, "little")


def encode_micro_ops(micro_ops: Iterable[MicroOp]) -> bytes:
    """Return the bytes of micro-ops. Raises DeviceError for an index that its field cannot hold."""
    words = bytearray()
    for micro_op in micro_ops:
        total = 0
        for field, value in zip(MICRO_OP, micro_op):
            if not 0 <= value < 1 << field.width:
                raise DeviceError(f"micro-op: {field.name} = {value} is outside 0..{(1 << field.width) - 1}")
            total |= value << field.position
        words += total.to_bytes(UOP_BYTES, "little")
    return bytes(words)


def _range(field: Field) -> tuple[int, int]:
    half = 1 << field.width - 1
    return (-half, half - 1) if field.signed else (0, 2 * half - 1)


# -- from bytes

_PADS = ("top", "bottom", "left", "right")


def decode(data: bytes | bytearray | memoryview, encoding: str) -> list[Instruction]:
    """Return the instructions in these bytes. Raises DeviceError, with the instruction's number, for anything else."""
    if len(data) % BYTES:
        raise DeviceError(f"{len(data)} bytes are no whole number of instructions of {BYTES}")
    return [*_decoded(data, encoding)]


def _decoded(data: bytes | bytearray | memoryview, encoding: str) -> Iterator[Instruction]:
    for number in range(len(data) // BYTES):
        total = int.from_bytes(data[number * BYTES : (number + 1) * BYTES], "little")
        try:
            yield _instruction(total, encoding)
        except DeviceError as error:
            raise DeviceError(f"instruction {number}: {error.message}") from error


def _instruction(total: int, encoding: str) -> Instruction:
    if total & 7 not in _CLASSES:
        raise DeviceError(f"opcode {total & 7} is unknown")
    opcode = Opcode(total & 7)
    values: dict[str, Any] = {}
    for field in fields(encoding)[opcode]:
        mask = (1 << field.width) - 1
        value = total >> field.position & mask
        total &= ~(mask << field.position)
        if field.signed and value >> field.width - 1:
            value -= 1 << field.width
        values[field.name] = value
    if total:
        raise DeviceError(f"{opcode.name}: bit {(total & -total).bit_length() - 1} is set, but belongs to no field")
    del values["opcode"]
    tokens = Tokens(*(values.pop(name) for name in Tokens._fields))
    if opcode == Opcode.STORE:
        _check_unused(opcode, values, _PADS)
        if values.pop("memory") != Memory.OUT & (1 << ENCODINGS[encoding]) - 1:
            raise DeviceError("STORE: memory is not OUT")
        for side in _PADS:
            del values[side]
    if opcode == Opcode.LOAD:
        if values["memory"] not in range(Memory.OUT):
            raise DeviceError(f"LOAD: memory {values['memory']} cannot be loaded")
        values["memory"] = Memory(values["memory"])
        if values["memory"] != Memory.INP:
            _check_unused(opcode, values, _PADS)
    if opcode == Opcode.ALU:
        _check_unused(opcode, values, ("reset",))
        del values["reset"]
        if values["operation"] not in range(len(Operation)):
            raise DeviceError(f"ALU: operation {values['operation']} is not in the hardware")
        values["operation"] = Operation(values["operation"])
        if not values.pop("is_immediate"):
            _check_unused(opcode, values, _SIGNED)
            values["immediate"] = None
    return _CLASSES[opcode](**values, tokens=tokens)


def _check_unused(opcode: Opcode, values: Mapping[str, int], names: Iterable[str]) -> None:
    for name in names:
        if values[name]:
            raise DeviceError(f"{opcode.name}: {name} = {values[name]} where the hardware has none")


def decode_micro_op(word: int) -> MicroOp:
    """Return the micro-op in 32 bits."""
    return MicroOp(*(word >> field.position & (1 << field.width) - 1 for field in MICRO_OP))


def listing(program: Iterable[Instruction]) -> Iterator[str]:
    """Yield one line of text for each instruction: its number, name, values that are not 0, and tokens."""
    for number, instruction in enumerate(program):
        words = [f"{number:5}", type(instruction).__name__.upper().ljust(6)]
        for name, value in instruction._asdict().items():
            if name != "tokens" and value is not None and (value or name in ("immediate", "memory", "operation")):
                words.append(f"{name} {getattr(value, 'name', value)}")
        words += [name for name, flag in instruction.tokens._asdict().items() if flag]
        yield " ".join(words)
