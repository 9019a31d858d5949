"""Instructions of VTA as tables of bit fields, and their bytes.

A bitstream understands one of two encodings, which differ in the width of two fields. Facts are those of the accelerator's
published hardware (Apache-2.0): batch 1, blocks of 16 x 16, int8 inputs and weights, int32 accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from ..blob import Array
from ..errors import DeviceError
from ..overlay.records import values_of
from ..overlay.sections import BitField
from ..util.lazy_numpy import np

BYTES = 16  # of an instruction
UOP_BYTES = 4
BLOCK = 16  # inputs and outputs of a GEMM, lanes of an ALU operation
LEFT, RIGHT = 16, 30  # bits that sums are shifted by: SHR takes -16 to 15, and two follow each other
WORD = 64  # bits: a field that does not fit a word starts the next

ENCODINGS: Mapping[str, int] = {"old": 2, "new": 3}  # bits of the fields ``memory`` and ``operation``


class Memory(IntEnum):
    """The memories on the chip."""

    UOP, WGT, INP, ACC, OUT = range(5)


class AluOperation(IntEnum):
    """The operations of ALU instructions."""

    MIN, MAX, ADD, SHR = range(4)


ENTRY_BYTES = UOP_BYTES, BLOCK * BLOCK, BLOCK, 4 * BLOCK, BLOCK  # by Memory


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

    @property
    def memory(self) -> Memory:
        return Memory.OUT


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

    operation: AluOperation
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
CLASSES: tuple[type[Instruction], ...] = (Load, Store, Gemm, Finish, Alu)  # by opcode, the first three bits


class MicroOp(NamedTuple):
    """One step of a GEMM or ALU: indices of ACC, of INP (ALU: of ACC), and of WGT (ALU: unused)."""

    dst: int = 0
    src: int = 0
    wgt: int = 0


_HEAD = (("opcode", 3), *((name, 1) for name in Tokens._fields))
_LOOPS = (("reset", 1), ("first", 13), ("end", 14), ("outer", 14), ("inner", 14))
_PADS = ("top", "bottom", "left", "right")
_NESTED = ("outer", "inner")
_SIGNED = ("immediate",)


@lru_cache(maxsize=2)
def fields(encoding: str) -> dict[type[Instruction], tuple[BitField, ...]]:
    """Return the fields of each class of instructions in an encoding, ``old`` or ``new``."""
    kind = ENCODINGS[encoding]
    move = (
        *(("memory", kind), ("entry", 16), ("dram", 32), ("rows", 16), ("columns", 16), ("stride", 16)),
        *((side, 4) for side in _PADS),
    )
    steps = [(f"{name}_{loop}", 10 if name == "wgt" else 11) for name in ("acc", "inp", "wgt") for loop in _NESTED]
    tensor = [(f"{name}_{loop}", 11) for name in ("dst", "src") for loop in _NESTED]
    return {
        Load: _placed(*_HEAD, *move),
        Store: _placed(*_HEAD, *move),
        Gemm: _placed(*_HEAD, *_LOOPS, *steps),
        Finish: _placed(*_HEAD),
        Alu: _placed(*_HEAD, *_LOOPS, *tensor, ("operation", kind), ("is_immediate", 1), ("immediate", BLOCK)),
    }


def _placed(*sizes: tuple[str, int]) -> tuple[BitField, ...]:
    """Return fields one after the other; one that does not fit a word starts the next."""
    placed, position = [], 0
    for name, width in sizes:
        if position % WORD + width > WORD:
            position += WORD - position % WORD
        placed.append(BitField(name, *divmod(position, 32), width, name in _SIGNED, about=""))
        position += width
    return tuple(placed)


MICRO_OP = _placed(("dst", 11), ("src", 11), ("wgt", 10))


# -- to bytes


def encode(program: Iterable[Instruction], encoding: str) -> bytes:
    """Return the bytes of a program. Raises DeviceError for a value that its field cannot hold."""
    return b"".join(_bytes(instruction, encoding) for instruction in program)


def _bytes(instruction: Instruction, encoding: str) -> bytes:
    cls = type(instruction)
    values: dict[str, int] = {
        "opcode": CLASSES.index(cls),
        "reset": 0,
        **instruction._asdict(),
        **instruction.tokens._asdict(),
    }
    if isinstance(instruction, Store):
        values |= {"memory": Memory.OUT & (1 << ENCODINGS[encoding]) - 1, **dict.fromkeys(_PADS, 0)}
    if isinstance(instruction, Alu):
        immediate = instruction.immediate
        values |= {"is_immediate": int(immediate is not None), "immediate": immediate or 0}
    known = fields(encoding)[cls]
    return _packed(cls.__name__.upper(), known, (values[field.name] for field in known)).to_bytes(BYTES, "little")


def encode_micro_ops(micro_ops: Iterable[MicroOp]) -> bytes:
    """Return the bytes of micro-ops. Raises DeviceError for an index that its field cannot hold."""
    words = (_packed("micro-op", MICRO_OP, micro_op) for micro_op in micro_ops)
    return b"".join(word.to_bytes(UOP_BYTES, "little") for word in words)


def _packed(what: str, fields: Iterable[BitField], values: Iterable[int]) -> int:
    """Return values at the places of their fields."""
    total = 0
    for field, value in zip(fields, values):
        low, high = field.range
        if not low <= value <= high:
            raise DeviceError(f"{what}: {field.name} = {value} is outside {low}..{high}")
        total |= (value & field.mask) << field.position
    return total


# -- from bytes


def decode(data: bytes | bytearray | memoryview, encoding: str) -> list[Instruction]:
    """Return the instructions in these bytes. Raises DeviceError, with the instruction's number, for anything else."""
    if len(data) % BYTES:
        raise DeviceError(f"{len(data)} bytes are no whole number of instructions of {BYTES}")
    words = np.frombuffer(data, "<u4").reshape(-1, BYTES // 4)
    opcodes = words[:, 0] & 7
    program: list[Any] = [None] * len(words)
    refusals = [(int(i), f"opcode {opcodes[i]} is unknown") for i in np.flatnonzero(opcodes >= len(CLASSES))[:1]]
    for opcode, cls in enumerate(CLASSES):
        chosen = np.flatnonzero(opcodes == opcode)
        own = words[chosen]
        values = {field.name: values_of(own, field) for field in fields(encoding)[cls]}
        for refused, reason in _rules(cls, own, values, encoding):
            refusals += [(int(chosen[i]), f"{cls.__name__.upper()}: {reason(i)}") for i in np.flatnonzero(refused)[:1]]
        if not refusals:
            for number, row in zip(chosen.tolist(), zip(*(_column(name, values) for name in cls._fields))):
                program[number] = cls._make(row)
    if refusals:
        number, text = min(refusals, key=itemgetter(0))  # of the first instruction, the first rule
        raise DeviceError(f"instruction {number}: {text}")
    return program


# which instructions are refused, bool (n,), and what is wrong with one of them
Rule = tuple[Any, Callable[[int], str]]


def _rules(cls: type[Instruction], words: Array, values: Mapping[str, Array], encoding: str) -> Iterator[Rule]:
    """Yield the rules for instructions of one class: they refuse what the hardware lacks, or does in another way."""
    used = sum(field.mask << field.position for field in fields(encoding)[cls])
    excess = words & ~np.frombuffer(used.to_bytes(BYTES, "little"), "<u4")

    def bit(i: int) -> str:
        bits = int.from_bytes(excess[i].tobytes(), "little")
        return f"bit {(bits & -bits).bit_length() - 1} is set, but belongs to no field"

    def unused(name: str, where: Array | bool = True) -> Rule:
        return (values[name] != 0) & where, lambda i: f"{name} = {values[name][i]} where the hardware has none"

    yield excess.any(1), bit
    if cls is Store:
        yield from map(unused, _PADS)
        yield values["memory"] != Memory.OUT & (1 << ENCODINGS[encoding]) - 1, lambda _: "memory is not OUT"
    if cls is Load:
        memory, rows = values["memory"], values["rows"]
        yield memory >= Memory.OUT, lambda i: f"memory {memory[i]} cannot be loaded"
        yield from (unused(side, memory != Memory.INP) for side in _PADS)
        padded = np.any([values[side] != 0 for side in _PADS], 0)
        yield padded & (values["columns"] == 0), lambda _: "columns = 0 with pads, which the hardware would write"
        yield (memory == Memory.UOP) & (rows > 1), lambda i: f"rows = {rows[i]} of micro-ops: the hardware loads one"
    if cls is Alu:
        operation = values["operation"]
        yield unused("reset")
        yield operation >= len(AluOperation), lambda i: f"operation {operation[i]} is not in the hardware"
        yield unused("immediate", values["is_immediate"] == 0)


def _column(name: str, values: Mapping[str, Array]) -> list[Any]:
    """Return what instructions of one class have in an attribute."""
    if name == "tokens":
        flags = sum(values[flag] << i for i, flag in enumerate(Tokens._fields))
        return [_TOKENS[i] for i in np.asarray(flags).tolist()]
    column: list[Any] = values[name].tolist()
    if name == "memory":
        return [*map(Memory, column)]
    if name == "operation":
        return [*map(AluOperation, column)]
    if name == "immediate":
        return [value if has else None for value, has in zip(column, values["is_immediate"].tolist())]
    return column


_TOKENS = [Tokens(*(i >> bit & 1 for bit in range(4))) for i in range(16)]


def listing(program: Iterable[Instruction]) -> Iterator[str]:
    """Yield one line of text for each instruction: its number, name, values that are not 0, and tokens."""
    for number, instruction in enumerate(program):
        words = [f"{number:5}", type(instruction).__name__.upper().ljust(6)]
        for name, value in instruction._asdict().items():
            if name != "tokens" and value is not None and (value or name in ("immediate", "memory", "operation")):
                words.append(f"{name} {getattr(value, 'name', value)}")
        words += [name for name, flag in instruction.tokens._asdict().items() if flag]
        yield " ".join(words)
