"""A segment's Tasks as one program for VTA: instructions, constants and blobs in DRAM.

Addresses are a region's number and an offset in it, as in ``codegen.memory_map``, until ``relocated`` knows where the regions
are. FIXED holds the constants, then the instructions; MARKS the bytes of a mark, then the mark of each Task that has ended. In
a file addresses count from the first of all regions (``linear``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice, pairwise

from ..blob import Array, Shape
from ..codegen.memory_map import BOTH, FIXED, MARKS, OUTPUT, PROGRAM, REGION, REGIONS, WORK, HostBlobs, Regions, split
from ..errors import DeviceError
from ..overlay import Overlay
from ..tasks import Task
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from .checks import Area, Checked, Machine, checked
from .cycles import ProgramCycles, times
from .isa import BYTES, ENTRY_BYTES, Instruction, Load, Memory, Store, decode, encode, listing

CONSTANTS = frozenset([Memory.UOP, Memory.WGT, Memory.ACC])
ALIGNMENT = 256  # bytes, of every region: a multiple of each memory's entries
MOST = 32 << 20  # bytes of instructions: what the fetch unit counts
MARK = ENTRY_BYTES[Memory.ACC]  # offset of the first mark in MARKS: before it are its bytes, as an entry of ACC


@dataclass(frozen=True)
class VtaSegment(HostBlobs):
    """The Tasks of one segment as a program.

    ``program``    instructions with addresses relative to regions
    ``ends``       the number of instructions when each Task has ended
    ``constants``  (offset in FIXED, bytes)
    """

    overlay: Overlay
    machine: Machine
    tasks: tuple[Task, ...]
    shapes: Mapping[str, Shape]
    regions: Regions
    program: Sequence[Instruction]
    ends: Sequence[int]
    constants: Sequence[tuple[int, bytes | memoryview]]

    @property
    def start(self) -> int:
        """Return the offset of the instructions in FIXED."""
        return round_up(max((at + len(data) for at, data in self.constants), default=0), ALIGNMENT)

    @property
    def sizes(self) -> dict[int, int]:
        return _sizes(self.start + len(self.program) * BYTES, self.regions, self.tasks)

    @cached_property
    def times(self) -> ProgramCycles:
        """Return the modelled cycles of a run, and of what they are spent on."""
        return times(self.program, self.machine, self.overlay.machine.rates, self.ends)

    @property
    def cycles(self) -> int:
        return self.times.total

    @property
    def spent(self) -> list[int]:
        return [end - begin for begin, end in pairwise((0, *self.times.ends))]

    def listing(self) -> Iterator[str]:
        """Yield the instructions as text, those of each Task after its name."""
        offsets = dict.fromkeys(self.sizes, 0)
        wheres = (f" in {REGIONS[_region(i)]}" if _region(i) else "" for i in self.program)
        lines = map("".join, zip(listing(relocated(self.program, offsets)), wheres))
        begin = 0
        for each, end in zip(self.tasks, self.ends):
            yield f"{'+'.join(each.origin) or each.output} ({each.kind}): {end - begin} instructions"
            yield from islice(lines, end - begin)
            begin = end
        yield "end"
        yield from lines

    def fill(self, out: Array) -> None:
        for at, data in self.constants:
            out[at : at + len(data)] = np.frombuffer(data, np.uint8)

    @property
    def program_span(self) -> tuple[int, int]:
        """Return the place of the instructions in FIXED, and their bytes."""
        return self.start, len(self.program) * BYTES

    def relocate(self, base: Mapping[int, int], out: Array) -> None:
        out[:] = np.frombuffer(encode(relocated(self.program, base), self.machine.encoding), np.uint8)

    def checked(self, base: Mapping[int, int], memory: Mapping[int, Array]) -> list[Checked]:
        """Return the program in these regions, after all checks of the bytes that are there."""
        areas = [Area(base[FIXED], memory[FIXED], CONSTANTS)]
        areas += [Area(base[PROGRAM], memory[PROGRAM])] if PROGRAM in base else []
        inputs = frozenset([Memory.INP])
        # an input can be a part of a blob of which Tasks write other parts
        stored = {OUTPUT, BOTH, WORK, *(split(self.regions.blobs[task.output].offset)[0] for task in self.tasks)}
        areas += [Area(base[r], memory[r], inputs, writable=r in stored) for r in self.regions.sizes]
        areas.append(Area(base[MARKS], memory[MARKS][:MARK], frozenset([Memory.ACC])))
        areas.append(Area(base[MARKS] + MARK, memory[MARKS][MARK:], writable=True))
        try:
            steps = checked(self.entry(base), len(self.program), self.machine, areas)
            self._check_mark(base[MARKS], steps)
            return steps
        except DeviceError as error:
            names = [name for task in self.tasks for name in task.origin]
            whole = f"the program of layers {names[0]} to {names[-1]}" if names else "the program of no layers"
            raise DeviceError(f"{whole}: {error.message}", layer=names[0] if names else None) from error

    def _check_mark(self, marks: int, steps: Sequence[Checked]) -> None:
        """Raise DeviceError unless the last STORE, and no other, writes the mark of the last Task."""
        word = ENTRY_BYTES[Memory.OUT]
        last = (marks + MARK) // word + len(self.tasks) - 1
        stores = [s.instruction for s in steps if isinstance(s.instruction, Store) and s.instruction.columns]
        spans = [range(s.dram, s.dram + (s.rows - 1) * s.stride + s.columns) for s in stores]
        if self.tasks and [i for i, span in enumerate(spans) if last in span] != [len(stores) - 1]:
            raise DeviceError("the mark of the last Task is not written by the last STORE alone")


def _sizes(fixed: int, laid: Regions, tasks: Sequence[Task]) -> dict[int, int]:
    return {FIXED: fixed, **laid.sizes, MARKS: MARK + len(tasks) * ENTRY_BYTES[Memory.OUT]}


def _region(instruction: Instruction) -> int:
    """Return the region that an instruction with relative addresses moves entries of; 0 if none."""
    if not isinstance(instruction, (Load, Store)) or not instruction.columns:
        return 0
    return split(instruction.dram * ENTRY_BYTES[instruction.memory])[0]


def relocated(program: Sequence[Instruction], base: Mapping[int, int]) -> Iterator[Instruction]:
    """Yield the instructions with the addresses of regions at these bases."""

    def address(_: int, relative: int) -> int:
        region, offset = split(relative)
        return base[region] + offset

    return _readdressed(program, address)


def _readdressed(program: Sequence[Instruction], address: Callable[[int, int], int]) -> Iterator[Instruction]:
    """Yield the instructions with other addresses: those of their numbers and addresses."""
    for i, instruction in enumerate(program):
        if isinstance(instruction, (Load, Store)) and instruction.columns:
            size = ENTRY_BYTES[instruction.memory]
            yield instruction._replace(dram=address(i, instruction.dram * size) // size)
        else:
            yield instruction


def linear(sizes: Mapping[int, int]) -> dict[int, int]:
    """Return the bases that regions of these sizes have in a file: one after the other, from 0."""
    base, end = {}, 0
    for region in sorted(sizes):
        base[region] = end
        end += round_up(sizes[region], ALIGNMENT)
    return base


def saved(segment: VtaSegment) -> tuple[list[int], dict[str, bytes | Array]]:
    """Return a segment for a file: the instructions of each Task, and as sections all of them and the constants in FIXED."""
    constants = np.zeros(segment.start, np.uint8)
    segment.fill(constants)
    instructions = relocated(segment.program, linear(segment.sizes))
    counts = [end - begin for begin, end in pairwise([0, *segment.ends])]
    return counts, {"instructions": encode(instructions, segment.machine.encoding), "constants": constants}


def restored(
    overlay: Overlay,
    tasks: Sequence[Task],
    shapes: Mapping[str, Shape],
    laid: Regions,
    counts: Sequence[int],
    sections: Mapping[str, memoryview],
) -> VtaSegment:
    """Return the segment that was ``saved``; ``counts`` are the instructions of each Task. Nothing is lowered.

    Raises DeviceError, with the instruction's number, for what cannot be a program in these regions. ``VtaSegment.checked``
    checks the rest, where the regions are.
    """
    machine: Machine = overlay.machine.machine
    listed, constants = sections["instructions"], sections["constants"]
    if len(listed) > MOST:
        raise DeviceError(f"{len(listed):,} bytes of instructions are more than {MOST:,}")
    if len(constants) % ALIGNMENT:
        raise DeviceError(f"{len(constants):,} bytes of constants are not a multiple of {ALIGNMENT}")
    program = decode(listed, machine.encoding)
    ends = [*accumulate(counts)]
    if not program or len(counts) != len(tasks) or min(counts, default=0) < 0 or ends[-1:] > [len(program)]:
        raise DeviceError(
            f"{len(program)} instructions are not those of {number_of(len(tasks), 'Task')} of {[*counts][:8]}"
        )
    sizes = _sizes(len(constants) + len(listed), laid, tasks)
    parts = [(0, constants)] if len(constants) else []
    return VtaSegment(overlay, machine, tuple(tasks), shapes, laid, [*_unlinked(program, sizes)], ends, parts)


def _unlinked(program: Sequence[Instruction], sizes: Mapping[int, int]) -> Iterator[Instruction]:
    """Yield the instructions of a file with addresses relative to regions."""
    base = linear(sizes)
    numbers, starts = [*base], [*base.values()]

    def relative(i: int, address: int) -> int:
        region = numbers[bisect_right(starts, address) - 1]
        offset = address - base[region]
        if offset >= sizes[region]:
            raise DeviceError(f"instruction {i}: byte {address:,} is in no region of the segment")
        return (region << REGION) + offset

    return _readdressed(program, relative)
