"""A segment's Tasks as one program for VTA: instructions, constants and blobs in DRAM.

Addresses are a region's number and an offset in it, as in ``codegen.memory_map``, until ``relocated`` knows where the regions
are. FIXED holds the constants, then the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from ..codegen.chain import wanted
from ..codegen.memory_map import FIXED, INPUT, READ, REGION, REGIONS, WRITTEN, Regions, regions, split
from ..errors import DeviceError
from ..fixed import Requantization
from ..overlay.layout import fetch, store
from ..tasks.conv import Conv
from ..tasks.copy import Copy
from ..tasks.eltwise import Eltwise
from ..tasks.fields import Memory as Blobs
from ..tasks.pool import Pool
from ..util.lazy_dataclass import dataclass
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from .checks import Area, Checked, Machine, checked
from .conv import Convolution, Plane
from .cycles import Times, times
from .emit import Constants, Group, MicroOps, finished, task
from .isa import BLOCK, BYTES, ENTRY_BYTES, Instruction, Load, Memory, Store, encode, listing
from .pool import Maximum
from .requantize import Shift, shift_of
from .sums import Sum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..blob import Array, Shape, View
    from ..overlay import Layout, Overlay
    from ..tasks import Task

CONSTANTS = frozenset([Memory.UOP, Memory.WGT, Memory.ACC])


def refusal(task: Task) -> str | None:
    """Return why VTA cannot run a Task; None if it can."""
    found = _shift(task)
    if isinstance(found, str):
        return found
    if isinstance(task, (Conv, Pool)) and any(pad >= size for pad, size in zip(task.window.pad, task.window.kernel)):
        return "its padding is not smaller than its window"
    if isinstance(task, (Conv, Pool)) and task.window.dilation != (1, 1):
        return "its window is dilated: the loops of a GEMM step by single pixels"
    return None


def _shift(task: Task) -> Shift | str | None:
    if isinstance(task, Conv):
        weights = np.asarray(task.weights)
        silent = ~weights.reshape(len(weights), -1).any(1) & (task.bias == 0)
        return shift_of(task.requantization, len(weights), silent)
    if isinstance(task, Pool):
        return None if task.requantization is None else "an average: VTA has no multiplier after its accumulators"
    if isinstance(task, Copy):
        return None if task.requantization is None else _scaled(task, task.requantization)[1]
    if isinstance(task, Eltwise):
        if task.negative is not None:
            return "a leaky ReLU: VTA has no multiplier after its accumulators"
        return _scaled(task, task.requantization)[1]
    return f"no {task.kind} unit"


def _scaled(task: Copy | Eltwise, r: Requantization) -> tuple[list[int], Shift | str]:
    """Return a sum's factors without their common power of two, and the Shift without it."""
    factors = [int(r.multiplier)] if isinstance(task, Copy) else [*task.factors]
    common = min((factor & -factor for factor in factors if factor), default=1 << r.shift)
    right = Requantization(np.array(common), r.shift, r.low, r.high, r.negative, r.zero)
    return [factor // common for factor in factors], shift_of(right, BLOCK)


@dataclass(frozen=True)
class Segment:
    """The Tasks of one segment as a program.

    ``program``    instructions with addresses relative to regions
    ``ends``       the number of instructions when each Task has ended
    ``constants``  (offset in FIXED, bytes)
    ``wanted``     the outputs that the host can ``load`` after a run: (blob, first channel, channels)
    """

    overlay: Overlay
    machine: Machine
    tasks: tuple[Task, ...]
    shapes: Mapping[str, Shape]
    regions: Regions
    wanted: Sequence[tuple[str, int, int]]
    program: Sequence[Instruction]
    ends: Sequence[int]
    constants: Sequence[tuple[int, bytes]]

    @property
    def start(self) -> int:
        """Return the offset of the instructions in FIXED."""
        return round_up(max((at + len(data) for at, data in self.constants), default=0), 256)

    @property
    def sizes(self) -> dict[int, int]:
        """Return the bytes of each region in use."""
        return {FIXED: self.start + len(self.program) * BYTES, **self.regions.sizes}

    @cached_property
    def times(self) -> Times:
        """Return the modelled cycles of a run, and of what they are spent on."""
        return times(self.program, self.machine, self.overlay.machine.rates)

    @property
    def cycles(self) -> int:
        """Return the clock cycles of a run in the cycle model."""
        return self.times.total

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

    def fix(self, base: Mapping[int, int], out: Array) -> None:
        """Write constants and instructions, relocated to regions at these base addresses, into FIXED (uint8)."""
        for at, data in self.constants:
            out[at : at + len(data)] = np.frombuffer(data, np.uint8)
        data = encode(relocated(self.program, base), self.machine.encoding)
        out[self.start : self.start + len(data)] = np.frombuffer(data, np.uint8)

    def checked(self, base: Mapping[int, int], memory: Mapping[int, Array]) -> list[Checked]:
        """Return the program in these regions, after all checks of the bytes that are there."""
        areas = [Area(base[FIXED], memory[FIXED], CONSTANTS)]
        inputs = frozenset([Memory.INP])
        areas += [Area(base[r], memory[r], inputs, writable=r != INPUT) for r in self.regions.sizes]
        return checked(base[FIXED] + self.start, len(self.program), self.machine, areas)

    @property
    def written(self) -> list[int]:
        """Return the regions that the host writes before a run."""
        return [region for region in self.regions.sizes if region in WRITTEN]

    @property
    def read(self) -> list[int]:
        """Return the regions that the host reads after a run."""
        return [region for region in self.regions.sizes if region in READ]

    def store(self, blob: str, codes: Array, memory: Mapping[int, Array]) -> None:
        """Store a blob's codes (int8, NCHW) into the regions' bytes (uint8)."""
        store(codes, *self._memory(blob, memory))

    def load(self, blob: str, first: int, out: Array, memory: Mapping[int, Array]) -> None:
        """Load a blob's codes into ``out``, from channel ``first``."""
        bytes, layout, start, channels = self._memory(blob, memory)
        fetch(bytes, out, layout, start + first, channels)

    def _memory(self, blob: str, memory: Mapping[int, Array]) -> tuple[Array, Layout, int, int]:
        region, offset = split(self.regions.blobs[blob].offset)
        whole, first = self.regions.whole(blob)
        return memory[region][offset:], self.overlay.layout, first, self.shapes[whole][1]


def _region(instruction: Instruction) -> int:
    """Return the region that an instruction with relative addresses moves entries of; 0 if none."""
    if not isinstance(instruction, (Load, Store)) or not instruction.columns:
        return 0
    memory = instruction.memory if isinstance(instruction, Load) else Memory.OUT
    return split(instruction.dram * ENTRY_BYTES[memory])[0]


def relocated(program: Sequence[Instruction], base: Mapping[int, int]) -> Iterator[Instruction]:
    """Yield the instructions with the addresses of regions at these bases."""
    for instruction in program:
        if isinstance(instruction, (Load, Store)) and instruction.columns:
            memory = instruction.memory if isinstance(instruction, Load) else Memory.OUT
            size = ENTRY_BYTES[memory]
            region, offset = split(instruction.dram * size)
            yield instruction._replace(dram=(base[region] + offset) // size)
        else:
            yield instruction


def segment(
    overlay: Overlay,
    machine: Machine,
    tasks: Sequence[Task],
    shapes: Mapping[str, Shape],
    views: Mapping[str, View],
    reads: Collection[str],
    writes: Collection[str],
) -> Segment:
    """Return the program of a segment with inputs ``reads`` and outputs ``writes``. Raises DeviceError, with the Task."""
    moves = [(each.inputs, each.output) for each in tasks]
    laid = regions(overlay.layout, shapes, views, moves, reads, writes)
    blobs, constants = Blobs(overlay, laid.blobs, shapes), Constants(FIXED << REGION)
    program: list[Instruction] = []
    ends = []
    for each in tasks:
        micro_ops = MicroOps(machine.depths[Memory.UOP])
        try:
            program += task([*_groups(each, blobs, constants)(micro_ops)], micro_ops, constants)
        except DeviceError as error:
            name = "+".join(each.origin) or each.output
            raise DeviceError(f"task {name} ({each.kind}): {error.message}", layer=name) from error
        ends.append(len(program))
    whole = finished(program)
    outputs = wanted(laid, tasks, shapes)
    return Segment(overlay, machine, tuple(tasks), shapes, laid, outputs, whole, ends, constants.parts)


def _groups(each: Task, blobs: Blobs, constants: Constants) -> Callable[[MicroOps], Iterator[Group]]:
    """Return what yields the groups of a Task."""
    reason, shift = refusal(each), _shift(each)
    if reason is not None:
        raise DeviceError(reason)
    sources = [Plane(*blobs.view(blob)) for blob in each.inputs]
    target = Plane(*blobs.view(each.output))
    if isinstance(each, Conv):
        assert isinstance(shift, Shift)
        weights = np.asarray(each.weights)
        return Convolution(sources[0], target, weights, each.bias, each.window, each.group, shift, constants).groups
    if isinstance(each, Pool):
        return Maximum(sources[0], target, each.window, constants).groups
    assert shift is None or isinstance(shift, Shift)
    if isinstance(each, Copy):
        target = target._replace(address=target.address + each.first // BLOCK * target.pitch)
        factors = [1] if each.requantization is None else _scaled(each, each.requantization)[0]
        return Sum(sources, target, factors, shift, constants).groups
    assert isinstance(each, Eltwise)
    return Sum(sources, target, _scaled(each, each.requantization)[0], shift, constants).groups
