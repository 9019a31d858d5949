"""Assign the blobs of a segment to addresses in a device's memory, and access them there.

Blobs that the host writes, those it reads and those it never accesses are in separate regions, because caches are
flushed and invalidated by whole regions. Until the regions are allocated, an address is a region's number, above bit
``REGION``, and an offset in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

from ..blob import Array, Shape, View, outermost
from ..errors import DeviceError
from ..overlay import Layout, Overlay
from ..overlay.layout import DeviceBlob, Placed, blob_bytes, share, spaced
from ..tasks import Task

Moves = Sequence[tuple[Collection[str], str]]
Channels = tuple[str, int, int]  # of a blob: the first of them, and how many


class Buffers(Protocol):
    """One buffer per region: the host's bytes (uint8), and the addresses that the accelerator knows.

    ``own``  the regions that no other set of buffers has, too
    """

    @property
    def bytes(self) -> Mapping[int, Array]: ...

    @property
    def addresses(self) -> Mapping[int, int]: ...

    @property
    def own(self) -> Collection[int]: ...

    def flush(self, regions: Collection[int]) -> None:
        """Let the accelerator see what the host wrote."""

    def invalidate(self, regions: Collection[int]) -> None:
        """Let the host see what the accelerator wrote."""

    def free(self) -> None:
        """Release the buffers."""


REGION = 40  # bits of an offset
# 0 remains the address of unused fields of a descriptor; a further set has a PROGRAM, for the constants of the first
FIXED, INPUT, OUTPUT, BOTH, WORK, MARKS, PROGRAM = range(1, 8)
# for people
REGIONS = "", "constants", "inputs", "outputs", "inputs and outputs", "blobs between Tasks", "marks", "program"
WRITTEN, READ = (INPUT, BOTH), (OUTPUT, BOTH)  # by the host
EXCHANGED = INPUT, OUTPUT, BOTH  # which each set has for itself
# by whether the host writes it, and whether it reads it
_REGION = {(True, True): BOTH, (True, False): INPUT, (False, True): OUTPUT, (False, False): WORK}


def split(address: int) -> tuple[int, int]:
    return address >> REGION, address & (1 << REGION) - 1


class Regions(NamedTuple):
    """The blobs of a segment, each in a region.

    ``blobs``  every blob in use, at addresses as above; a view of a blob that the segment does not use is a separate blob
    ``given``  those that the host must store before every run
    ``asked``  those that it loads after every run
    ``sizes``  bytes of each region in use except FIXED
    """

    blobs: Mapping[str, Placed]
    given: Sequence[str]
    asked: Sequence[str]
    sizes: Mapping[int, int]

    @property
    def offsets(self) -> dict[str, int]:
        """Return the offset in its region of each blob that is not a view."""
        return {blob: split(placed.offset)[1] for blob, placed in self.blobs.items() if placed.parent is None}

    @property
    def total(self) -> int:
        """Return the bytes of all blobs without sharing."""
        return sum(placed.bytes for placed in self.blobs.values() if placed.parent is None)

    def whole(self, blob: str) -> View:
        """Return a blob as a view of the outermost blob that it is a part of, which may be itself."""
        placed = self.blobs[blob]
        return View(placed.parent or blob, placed.first_channel)


class Usage(NamedTuple):
    """The use of blobs by a segment: (blobs read, blob written) of each Task in order, its inputs, and its outputs."""

    moves: Moves
    reads: Collection[str]
    writes: Collection[str]


class HostBlobs:
    """Blobs in regions, as the host stores and loads them; base of what an overlay runs for a segment.

    ``tasks`` are as they are compiled: some in pieces, some joined. FIXED holds the program, whose place and size in bytes
    ``program_span`` has, and the constants.
    """

    overlay: Overlay
    tasks: tuple[Task, ...]
    shapes: Mapping[str, Shape]
    regions: Regions

    @cached_property
    def wanted(self) -> list[Channels]:
        """Return the outputs that the host can load after a run."""
        return wanted(self.regions, self.tasks, self.shapes)

    @property
    def cycles(self) -> int:
        """Return the clock cycles of a run in the cycle model."""
        raise NotImplementedError

    @property
    def spent(self) -> Sequence[int]:
        """Return the clock cycles of each of ``tasks``, some of which may run beside each other."""
        raise NotImplementedError

    @property
    def sizes(self) -> Mapping[int, int]:
        """Return the bytes of each region in use."""
        raise NotImplementedError

    def listing(self) -> Iterable[str]:
        """Return what the accelerator fetches as lines of text."""
        raise NotImplementedError

    @property
    def program_span(self) -> tuple[int, int]:
        raise NotImplementedError

    def fill(self, out: Array) -> None:
        """Write the constants into FIXED (uint8)."""
        raise NotImplementedError

    def relocate(self, base: Mapping[int, int], out: Array) -> None:
        """Write the program for regions at these base addresses into ``out`` (uint8, as long as the program)."""
        raise NotImplementedError

    def fix(self, base: Mapping[int, int], out: Array) -> None:
        """Write the content of FIXED (uint8) for regions at these base addresses; constants directly from their source."""
        begin, size = self.program_span
        self.fill(out)
        self.relocate(base, out[begin : begin + size])

    def entry(self, base: Mapping[int, int]) -> int:
        """Return the address of the program."""
        return base[PROGRAM] if PROGRAM in base else base[FIXED] + self.program_span[0]

    @property
    def further(self) -> dict[int, int]:
        """Return the bytes of each region that another set of the same program needs."""
        own = {region: size for region, size in self.regions.sizes.items() if region in EXCHANGED}
        return {PROGRAM: self.program_span[1], **own}

    @property
    def written(self) -> list[int]:
        return [region for region in self.regions.sizes if region in WRITTEN]

    @property
    def read(self) -> list[int]:
        return [region for region in self.regions.sizes if region in READ]

    def blob(self, name: str, memory: Mapping[int, Array], first: int = 0, channels: int | None = None) -> DeviceBlob:
        """Return a blob, or ``channels`` of it from ``first``, in the regions' bytes (uint8)."""
        region, offset = split(self.regions.blobs[name].offset)
        whole, start = self.regions.whole(name)
        n, c, *size = self.shapes[name]
        shape = (n, c if channels is None else channels, *size)
        return DeviceBlob(memory[region][offset:], self.overlay.layout, self.shapes[whole][1], shape, start + first)


def wanted(regions: Regions, tasks: Iterable[Task], shapes: Mapping[str, Shape]) -> list[Channels]:
    """Return the channels of the host's outputs that it can load: those that it stores itself, or that a Task writes."""
    written = [(task.output, *task.channels(shapes)) for task in tasks]
    return filled(regions.asked, [*stored(regions, shapes), *written], regions.whole, shapes)


def stored(regions: Regions, shapes: Mapping[str, Shape]) -> list[Channels]:
    """Return the channels of outermost blobs that the host stores, each once: parts of a blob may have some in common."""
    parts = [(blob, 0, shapes[blob][1]) for blob in regions.given]
    return filled(dict.fromkeys(regions.whole(blob).base for blob in regions.given), parts, regions.whole, shapes)


def filled(
    blobs: Iterable[str], written: Iterable[Channels], whole: Callable[[str], View], shapes: Mapping[str, Shape]
) -> list[Channels]:
    """Return the runs of channels of some blobs that are ``written``, there or in others that are parts of the same ``whole``."""
    spans: dict[str, list[tuple[int, int]]] = {}  # of each outermost blob: the first of some channels, and their end
    for blob, first, count in written:
        base, start = whole(blob)
        spans.setdefault(base, []).append((start + first, start + first + count))
    channels = []
    for blob in blobs:
        base, start = whole(blob)
        runs: list[list[int]] = []
        for begin, end in sorted(spans.get(base, ())):
            first, last = max(begin - start, 0), min(end - start, shapes[blob][1])
            if first < last and runs and first <= runs[-1][1]:
                runs[-1][1] = max(runs[-1][1], last)
            elif first < last:
                runs.append([first, last])
        channels += [(blob, first, last - first) for first, last in runs]
    return channels


def regions(
    layout: Layout,
    shapes: Mapping[str, Shape],
    views: Mapping[str, View],
    usage: Usage,
    offsets: Mapping[str, int] | None = None,
    apart: int = 0,
) -> Regions:
    """Lay out a segment.

    ``views`` are the blobs that are parts of others. ``offsets`` restore an earlier layout, and raise DeviceError if they are
    out of range (``dependencies`` finds a blob that is overwritten before its last reader). Without them only blobs that the
    host never accesses share bytes, and not before ``apart`` further moves: a Task that overwrites a blob
    waits for its last reader.
    """
    moves, reads, writes = usage
    blobs = dict.fromkeys([*reads, *writes, *(b for sources, target in moves for b in (*sources, target))])
    blobs.update(dict.fromkeys(_in_common(blobs, shapes, views)))
    wholes = {blob: outermost(blob, views, blobs) for blob in blobs}
    inputs = _outer(reads, wholes, shapes)
    written, read = ({wholes[blob].base for blob in some} for some in (inputs, writes))
    regions = {whole: _REGION[whole in written, whole in read] for whole, _ in wholes.values()}
    lengths = {blob: blob_bytes(shapes[blob], layout) for blob in blobs}
    room = {blob: spaced(length) for blob, length in lengths.items()}
    if offsets is None:
        starts = _shared(regions, room, [([wholes[b][0] for b in ins], wholes[out][0]) for ins, out in moves], apart)
    else:
        starts = dict(offsets)
        _check_offsets(starts, regions, room, layout)
    sizes: dict[int, int] = {}
    for whole, region in regions.items():
        sizes[region] = max(sizes.get(region, 0), starts[whole] + lengths[whole])
    places = {}
    for blob, (whole, first) in wholes.items():
        parent = None if blob == whole else whole
        places[blob] = Placed((regions[whole] << REGION) + starts[whole], lengths[blob], parent, first)
    return Regions(places, inputs, list(writes), sizes)


def _outer(blobs: Iterable[str], wholes: Mapping[str, View], shapes: Mapping[str, Shape]) -> list[str]:
    """Return the blobs that are no parts of others among them."""
    ends: dict[str, int] = {}  # of each outermost blob, where the parts so far end
    outer = set()
    for blob in sorted(blobs, key=lambda blob: (wholes[blob].first_channel, -shapes[blob][1])):
        whole, first = wholes[blob]
        if first + shapes[blob][1] > ends.get(whole, 0):
            ends[whole] = first + shapes[blob][1]
            outer.add(blob)
    return [blob for blob in blobs if blob in outer]


def _in_common(blobs: Collection[str], shapes: Mapping[str, Shape], views: Mapping[str, View]) -> list[str]:
    """Return blobs that no Task uses but of which parts in use overlap: a Concat of which only slices are read."""
    parts: dict[str, list[tuple[int, int]]] = {}
    for blob in filter(views.__contains__, blobs):
        whole, first = outermost(blob, views)
        if whole not in blobs and outermost(blob, views, blobs).base == blob:
            parts.setdefault(whole, []).append((first, first + shapes[blob][1]))
    runs = {whole: sorted(spans) for whole, spans in parts.items()}
    return [whole for whole, spans in runs.items() if any(b[0] < a[1] for a, b in pairwise(spans))]


def _shared(regions: Mapping[str, int], lengths: Mapping[str, int], moves: Moves, apart: int) -> dict[str, int]:
    """Return the offset of each blob: those in WORK share bytes, the others are contiguous."""
    lives: dict[str, tuple[int, int]] = {}
    for moment, (sources, target) in enumerate(moves):
        for whole in (*sources, target):
            if regions[whole] == WORK:
                lives[whole] = lives.get(whole, (moment,))[0], moment + apart
    starts, _ = share(lives, lengths)
    ends: dict[int, int] = {}
    for whole in sorted(regions.keys() - lives.keys()):
        region = regions[whole]
        starts[whole] = ends.get(region, 0)
        ends[region] = starts[whole] + lengths[whole]
    return starts


def _check_offsets(
    offsets: Mapping[str, int], regions: Mapping[str, int], lengths: Mapping[str, int], layout: Layout
) -> None:
    """Check offsets from a file: one for each blob, aligned to words and within the size that any layout could need."""
    if offsets.keys() != regions.keys():
        wrong = min(offsets.keys() ^ regions.keys())
        raise DeviceError(f"blob {wrong!r} {'has a place and no use' if wrong in offsets else 'has no place'}")
    capacity: dict[int, int] = {}
    for whole, region in regions.items():
        capacity[region] = capacity.get(region, 0) + lengths[whole]
    for whole, offset in offsets.items():
        end = capacity[regions[whole]]
        if offset % layout.alignment or not 0 <= offset <= end - lengths[whole]:
            raise DeviceError(f"blob {whole!r}: {lengths[whole]:,} bytes at {offset:,} do not lie in {end:,}")
