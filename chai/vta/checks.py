"""Checks of a program before it starts: the hardware would do silently what is refused here.

It compares no address, clears nothing, waits for ever for a token that never comes, and reads old values of accumulators
that were written a moment before. A checked program can run as often as its instructions and micro-ops stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..blob import Array
from ..errors import DeviceError
from ..limits import limits
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .isa import BLOCK, BYTES, ENTRY_BYTES, Alu, Gemm, Instruction, Load, Memory, Store, decode
from .loops import FORGET, Entries, Indices, Nest, indices, nest
from .units import Dispatch, Unit, steps

_OTHERS = [[other for other in Unit if other != unit] for unit in Unit]
ROOM = 1 << 23  # micro-ops of different instructions that a checked program keeps, some 40 bytes each


@dataclass(frozen=True)
class Machine:
    """A configuration of VTA: its encoding, the entries of each memory, and the room of its queues."""

    encoding: str
    depths: tuple[int, ...]  # by Memory
    instructions: int = 512
    tokens: int = 1024


@dataclass(frozen=True, eq=False)
class Area:
    """Bytes of DRAM (uint8) from an address on, which LOADs into the memories ``loads`` may read."""

    start: int
    data: Array
    loads: frozenset[Memory] = frozenset()
    writable: bool = False


class Checked(NamedTuple):
    """A step of a checked program: its micro-ops (GEMM, ALU), or the bytes in DRAM (rows, bytes) that it moves."""

    instruction: Instruction
    indices: Indices | None
    dram: Array | None
    step: Dispatch


def checked(start: int, count: int, machine: Machine, areas: Sequence[Area], *, distance: bool = True) -> list[Checked]:
    """Return the steps of the program of ``count`` instructions at an address, in an order in which they can run.

    ``distance`` False allows what no model shows: accumulators read soon after they were written. Raises DeviceError, with
    the instruction's number, for anything that the hardware does not do, or does where it must not.
    """
    home = next((a for a in areas if a.start <= start <= a.start + len(a.data) - count * BYTES), None)
    if home is None or count < 1:
        raise DeviceError(f"{count} instructions at {start:#x} lie in no memory of the program")
    data = home.data[start - home.start :][: count * BYTES].tobytes()
    program = decode(data, machine.encoding)
    loops = [i for i in program if isinstance(i, (Gemm, Alu))]
    macs = BLOCK * BLOCK * sum(i.outer * i.inner * max(1, i.end - i.first) for i in loops)
    if macs > limits().macs:
        raise DeviceError(limits().exceeded("macs", macs))
    checker = _Checker(machine, areas, distance)
    return [checker.check(step) for step in steps(program, machine.instructions, machine.tokens)]


class _Order:
    """The last instructions of each unit that read and wrote each entry of a memory, by their sequence."""

    def __init__(self, entries: int) -> None:
        self.read = [np.zeros(entries, np.int32) for _ in Unit]
        self.wrote = [np.zeros(entries, np.int32) for _ in Unit]
        self.last = [0] * len(Unit)  # access of each unit to any entry

    def access(self, what: Memory | None, entries: Entries, step: Dispatch, write: bool) -> None:
        """Record an access to ``what``, None for DRAM.

        Raises DeviceError if tokens do not order it after those of other units.
        """
        for other in _OTHERS[step.unit]:
            if self.last[other] <= step.finished[other]:
                continue
            last = int(self.wrote[other][entries].max(initial=0))
            if write:
                last = max(last, int(self.read[other][entries].max(initial=0)))
            if last > step.finished[other]:
                doing = "writes" if write else "reads"
                where = "memory" if what is None else what.name
                raise DeviceError(f"it {doing} {where} without waiting for {other.name}, which uses the same entries")
        (self.wrote if write else self.read)[step.unit][entries] = step.sequence
        self.last[step.unit] = step.sequence


class _Checker:
    def __init__(self, machine: Machine, areas: Sequence[Area], distance: bool) -> None:
        self.machine, self.areas, self.distance = machine, areas, distance
        self.nests: dict[tuple[object, ...], Indices] = {}
        self.recent: dict[tuple[object, ...], Indices] = {}  # since micro-ops were loaded last
        self.kept = 0  # micro-ops in ``nests``
        depths = machine.depths
        self.micro_ops = np.zeros(depths[Memory.UOP], np.uint32)
        # entries that the program has loaded, or computed from such: the others hold what earlier programs left
        self.filled = [np.zeros(depth, bool) for depth in depths]
        self.orders = [_Order(depths[memory]) for memory in Memory]
        self.stored = {
            area.start: _Order(ceil_div(len(area.data), ENTRY_BYTES[Memory.OUT])) for area in areas if area.writable
        }

    def check(self, step: Dispatch) -> Checked:
        instruction = step.instruction
        known: Indices | None = None
        dram: Array | None = None
        try:
            if isinstance(instruction, (Gemm, Alu)):
                known = self._compute(instruction, step)
            elif isinstance(instruction, Load) and instruction.columns:
                dram = self._load(instruction, step)
            elif isinstance(instruction, Store) and instruction.columns:
                dram = self._store(instruction, step)
        except DeviceError as error:
            name = type(instruction).__name__.upper()
            raise DeviceError(f"instruction {step.number} ({name}): {error.message}") from error
        return Checked(instruction, known, dram, step)

    def _load(self, load: Load, step: Dispatch) -> Array:
        memory = load.memory
        height, width = load.top + load.rows + load.bottom, load.left + load.columns + load.right
        entries = self._entries(memory, load.entry, height * width)
        data = self._dram(load, step)
        if step.unit == Unit.LOAD:
            self.orders[memory].access(memory, entries, step, write=True)
        self.filled[memory][entries] = True
        if memory == Memory.UOP:
            self.micro_ops[entries] = np.ascontiguousarray(data).view("<u4").reshape(-1)
            self.recent.clear()
        return data

    def _store(self, store: Store, step: Dispatch) -> Array:
        entries = self._entries(Memory.OUT, store.entry, store.rows * store.columns)
        if not self.filled[Memory.OUT][entries].all():
            raise DeviceError("it stores entries of OUT that no GEMM or ALU has written from entries that were loaded")
        self.orders[Memory.OUT].access(Memory.OUT, entries, step, write=False)
        return self._dram(store, step)

    def _compute(self, instruction: Gemm | Alu, step: Dispatch) -> Indices:
        where = instruction.first, instruction.end, nest(instruction)
        if where not in self.recent:
            self.recent[where] = self._indices(*where)
        known = self.recent[where]
        if self.distance and known.distance < FORGET:
            raise DeviceError(
                f"it reads an accumulator {known.distance} micro-ops after it was written, expected at least {FORGET}"
            )
        accumulators, inputs, weights = known.used
        if isinstance(instruction, Gemm):
            self.orders[Memory.INP].access(Memory.INP, inputs, step, write=False)
            self.orders[Memory.WGT].access(Memory.WGT, weights, step, write=False)
        self.orders[Memory.OUT].access(Memory.OUT, accumulators, step, write=True)
        self._fill(instruction, known)
        return known

    def _fill(self, instruction: Gemm | Alu, known: Indices) -> None:
        """Record which of the accumulators that an instruction writes it has computed from filled entries alone."""
        _, wgt, inp, acc, out = self.filled
        accumulators, sources, weights = known.used
        if isinstance(instruction, Gemm):
            if not (inp[sources].all() and wgt[weights].all()):
                acc[known.dst[~(inp[known.src] & wgt[known.wgt])]] = False
        elif known.reads_src and not acc[sources].all():
            for run in known.runs:
                acc[known.dst[run]] &= acc[known.src[run]]
        out[accumulators] = acc[accumulators]
        if isinstance(instruction, Gemm) and instruction.reset:
            acc[accumulators] = True

    def _indices(self, first: int, end: int, loops: Nest) -> Indices:
        """Return the indices of micro-ops that are loaded now."""
        loaded = self.filled[Memory.UOP]
        if end > len(loaded) or not loaded[first:end].all():
            raise DeviceError(f"micro-ops {first} to {end} were not all loaded by the program")
        key = self.micro_ops[first:end].tobytes(), loops
        if key not in self.nests:
            depths, unread = self.machine.depths, 1 << 32  # unread: any number fits
            src = unread if loops.source is None else depths[loops.source]
            limits = depths[Memory.ACC], src, depths[Memory.WGT] if loops.source == Memory.INP else unread
            self.nests[key] = indices(self.micro_ops[first:end], loops, limits)
            self.kept += len(self.nests[key].dst)
            if self.kept > ROOM:
                raise DeviceError(f"{self.kept:,} micro-ops of different instructions, expected at most {ROOM:,}")
        return self.nests[key]

    def _entries(self, memory: Memory, index: int, count: int) -> slice:
        depth = self.machine.depths[memory]
        if index + count > depth:
            raise DeviceError(f"{count} entries from {index} on are beyond the {depth} of {memory.name}")
        return slice(index, index + count)

    def _dram(self, move: Load | Store, step: Dispatch) -> Array:
        """Return a view (rows, bytes) of the rows in DRAM that an instruction moves, of one area."""
        memory, stores = move.memory, isinstance(move, Store)
        size = ENTRY_BYTES[memory]
        if not move.rows:
            raise DeviceError(f"it has {move.columns} columns and no rows")
        begin, bytes, stride = move.dram * size, move.columns * size, move.stride * size
        end = begin + (move.rows - 1) * stride + bytes
        for area in self.areas:
            allowed = area.writable if stores else memory in area.loads
            if allowed and area.start <= begin and end <= area.start + len(area.data):
                break
        else:
            what = "may be stored to" if stores else "may be loaded into " + memory.name
            raise DeviceError(f"bytes {begin:#x} to {end:#x} are not all of one buffer that {what}")
        if stores and move.rows > 1 and move.stride < move.columns:
            raise DeviceError(f"rows of {move.columns} entries that are {move.stride} apart overlap")
        if area.start in self.stored:
            word = ENTRY_BYTES[Memory.OUT]
            if memory == Memory.UOP:
                raise DeviceError("it loads micro-ops from a buffer that the program writes")
            first, columns = (begin - area.start) // word, bytes // word
            words: Entries = slice(first, first + columns)
            if move.rows > 1:
                rows = np.arange(move.rows) * (stride // word) + first
                words = np.add.outer(rows, np.arange(columns)).reshape(-1)
            self.stored[area.start].access(None, words, step, write=stores)
        return np.ndarray((move.rows, bytes), np.uint8, area.data, begin - area.start, (stride, 1))
