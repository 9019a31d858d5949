"""Turn the work of a Task into instructions of the three units, with the tokens between them.

Loads run two passes ahead of GEMMs, since INP and WGT hold two parts each; stores run during the next group, since ACC and
OUT do. Instructions of the units are interleaved, so that no queue fills up. Between Tasks everything finishes, and the last
STORE of each writes a mark: bytes that the host made for this run, so that it sees which Tasks have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from ..blob import Array
from ..codegen.memory_map import MARKS, REGION
from ..errors import DeviceError
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from .isa import (
    ENTRY_BYTES,
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
    encode_micro_ops,
)
from .loops import FORGET
from .program import MARK

NO_INPUT, NO_WEIGHT = 2047, 1023  # entries that nothing loads: those of a GEMM that only clears


@dataclass
class GemmPass:
    """Entries to load, and the GEMMs (and ALU instructions between them) that read them."""

    loads: list[Load]
    gemms: Sequence[Instruction]


@dataclass
class Group:
    """Positions that are computed and stored together: what precedes and follows their passes, and the STOREs."""

    before: Sequence[Instruction]
    passes: list[GemmPass]
    after: Sequence[Instruction]
    stores: list[Store]


@dataclass
class ConstantPool:
    """Weights, accumulators and micro-ops in DRAM, at addresses from ``start`` on; equal ones are stored once."""

    start: int
    size: int = 0
    parts: list[tuple[int, bytes]] = field(default_factory=list)
    known: dict[bytes, int] = field(default_factory=dict)

    def load(self, memory: Memory, entry: int, values: Array) -> Load:
        """Return the LOAD of constants into consecutive entries."""
        data, size = np.ascontiguousarray(values).tobytes(), ENTRY_BYTES[memory]
        if data not in self.known:
            self.size = round_up(self.size, max(ENTRY_BYTES))
            self.known[data] = self.start + self.size
            self.parts.append((self.size, data))
            self.size += len(data)
        return Load(memory, entry, self.known[data] // size, 1, len(data) // size)


class MicroOps:
    """The micro-ops of one Task, which are loaded when it begins, and the constants of its segment."""

    def __init__(self, depth: int, constants: ConstantPool) -> None:
        self.depth, self.constants = depth, constants
        self.listed: list[MicroOp] = []
        self.tables: dict[tuple[MicroOp, ...], int] = {}

    def table(self, micro_ops: Iterable[MicroOp]) -> tuple[int, int]:
        """Return (first, end) of these micro-ops in UOP."""
        key = tuple(micro_ops)
        if key not in self.tables:
            self.tables[key] = len(self.listed)
            self.listed += key
            if len(self.listed) > self.depth:
                raise DeviceError(f"{len(self.listed)} micro-ops are more than the {self.depth} of UOP")
        first = self.tables[key]
        return first, first + len(key)

    def clear(self, dst: int, count: int) -> Gemm:
        """Return the GEMM that clears ``count`` accumulators, a multiple of 16."""
        micro_ops = (MicroOp(dst + i, NO_INPUT, NO_WEIGHT) for i in range(FORGET))
        return Gemm(*self.table(micro_ops), count // FORGET, 1, FORGET, reset=1)

    def apply(self, operation: AluOperation, dst: int, count: int, immediate: int) -> Alu:
        """Return the ALU instruction for ``count`` accumulators, a multiple of 16, and an immediate."""
        micro_ops = (MicroOp(dst + i) for i in range(FORGET))
        return Alu(operation, *self.table(micro_ops), immediate, count // FORGET, 1, FORGET)

    def combine(self, operation: AluOperation, dst: int, count: int, src: int) -> Alu:
        """Return the ALU instruction for two runs of ``count`` accumulators, a multiple of 16."""
        micro_ops = (MicroOp(dst + i, src + i) for i in range(FORGET))
        return Alu(operation, *self.table(micro_ops), None, count // FORGET, 1, FORGET, 0, FORGET)

    def spread(self, operation: AluOperation, dst: int, count: int, src: int, groups: int) -> Alu:
        """Return the ALU instruction for ``groups`` runs of ``count`` accumulators, each with one entry from ``src`` on."""
        micro_ops = (MicroOp(dst + i, src) for i in range(FORGET))
        return Alu(operation, *self.table(micro_ops), None, groups, count // FORGET, count, FORGET, 1)


def task(number: int, groups: Sequence[Group], micro_ops: MicroOps) -> list[Instruction]:
    """Return the instructions of a segment's Task of this number: all tokens that they give are taken."""
    packets = [
        _linked(each.loads or [Load(Memory.INP, 0, 0)], "pop_next" if i >= 2 else "", "push_next")
        for i, each in enumerate(chain.from_iterable(group.passes for group in groups))
    ]
    mark = _mark(number, micro_ops)
    loaded = np.frombuffer(encode_micro_ops(micro_ops.listed), np.uint8)
    program: list[Instruction] = [micro_ops.constants.load(Memory.UOP, 0, loaded)] if len(loaded) else []
    program += chain.from_iterable(packets[:2])
    ahead = iter(packets[2:])
    for s, group in enumerate(groups):
        computing = [*group.before]
        ends, following = [0], []  # of the passes, and the packets after them
        for each in group.passes:
            following.append(next(ahead, []))
            computing += _linked(each.gemms, "pop_prev", "push_prev" if following[-1] else "")
            ends.append(len(computing))
        computing = _linked([*computing, *group.after], "pop_next" if s >= 2 else "", "push_next")
        for (begin, end), packet in zip(pairwise(ends), following):
            program += computing[begin:end] + packet
        program += computing[ends[-1] :] + _linked(group.stores, "pop_prev", "push_prev")
    stored = [_with(NOTHING, pop_next=1)] * min(2, len(groups))
    return [*program, *stored, *mark, _with(NOTHING, pop_next=1), _with(NOTHING, push_prev=1), WAIT]


def _mark(number: int, micro_ops: MicroOps) -> list[Instruction]:
    """Return the instructions that write the mark of a Task after its other STOREs."""
    begin = MARKS << REGION
    copy = Alu(AluOperation.ADD, *micro_ops.table([MicroOp()]), 0)
    target = (begin + MARK) // ENTRY_BYTES[Memory.OUT] + number
    load = Load(Memory.ACC, 0, begin // ENTRY_BYTES[Memory.ACC], 1, 1)
    return [load, _with(copy, push_next=1), _with(Store(0, target, 1, 1), pop_prev=1, push_prev=1)]


NOTHING = Load(Memory.UOP, 0, 0)
WAIT = Load(Memory.INP, 0, 0, tokens=Tokens(pop_next=1))


def finished(program: Sequence[Instruction]) -> list[Instruction]:
    """Return the Tasks' instructions with an end: the last WAIT of LOAD is answered, and FINISH comes last."""
    return [*_linked(program, "", "push_next"), _with(NOTHING, pop_prev=1), Finish()] if program else [Finish()]


def _linked(instructions: Sequence[Instruction], first: str, last: str) -> list[Instruction]:
    """Return instructions of which the first takes and the last gives a token; the names are those of Tokens, "" for none."""
    linked = [*instructions]
    for i, token in ((0, first), (-1, last)):
        if token:
            linked[i] = _with(linked[i], **{token: 1})
    return linked


def _with(instruction: Instruction, **tokens: int) -> Instruction:
    return instruction._replace(tokens=instruction.tokens._replace(**tokens))
