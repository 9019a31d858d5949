"""A segment as an accelerator fetches it: descriptors and constants in DDR, and where its blobs lie there.

What the host writes, what it reads and what it never looks at lie in regions of their own, because caches are flushed
and invalidated by whole regions. Descriptors are made before anybody knows where the regions will lie: an address in
them is the region's number, above bit ``REGION``, and an offset. ``fix`` puts the real ones in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .descriptor import pack, unpack
from .encoding import encode_parts
from .lazy import np
from .memory import Placed, blob_bytes, fetch, round_up, share, store

if TYPE_CHECKING:
    from .graph import Array, Shape
    from .overlay import Layout, Overlay
    from .packing import Packed
    from .tasks import Task

REGION = 40  # bits of an offset
FIXED, INPUT, OUTPUT, BOTH, WORK = range(1, 6)  # 0 stays the address of what a descriptor has no use for
WRITTEN, READ = (FIXED, INPUT, BOTH), (OUTPUT, BOTH)  # by the host
_ON_ARRAY = ("conv", "affine")  # the other kinds run on the window engine


@dataclass
class Chain:
    """The Tasks of one segment, ready to be put into memory.

    ``tasks``    in the order of the descriptors: the tag of a descriptor is the Task's index
    ``sizes``    bytes of each region that there is; FIXED holds the descriptors, then the constants
    ``given``    blobs that the host has to ``store`` before every run
    ``wanted``   what the host can ``load`` after it: (blob, first channel, channels)
    ``constants``  in the order of the Tasks: (offset in FIXED, bytes or weights that are to be read)
    """

    overlay: Overlay
    tasks: tuple[Task, ...]
    shapes: Mapping[str, Shape]
    blobs: dict[str, Placed] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    wanted: list[tuple[str, int, int]] = field(default_factory=list)
    descriptors: list[bytes] = field(default_factory=list)
    constants: list[tuple[int, bytes | Packed]] = field(default_factory=list)

    @property
    def written(self) -> list[int]:
        """Regions of blobs that the host writes before a run."""
        return [region for region in self.sizes if region in WRITTEN and region != FIXED]

    @property
    def read(self) -> list[int]:
        """Regions that the host reads after a run."""
        return [region for region in self.sizes if region in READ]

    def fix(self, base: Mapping[int, int], out: Array) -> None:
        """Write what stands in FIXED when the regions begin at these addresses into its bytes (uint8).

        Packed weights go there from where they are, with nothing in between.
        """
        record = self.overlay.descriptor
        addresses = [f.name for f in record.fields if f.multiple > 1]
        end = 0
        for descriptor in self.descriptors:
            values = unpack(record, descriptor)
            for name in addresses:
                if values[name]:
                    values[name] = base[values[name] >> REGION] + (values[name] & (1 << REGION) - 1)
            out[end : end + record.bytes] = np.frombuffer(pack(record, values), np.uint8)
            end += record.bytes
        for start, part in self.constants:
            out[end:start] = 0
            if isinstance(part, bytes):
                end = start + len(part)
                out[start:end] = np.frombuffer(part, np.uint8)
            else:
                end = start + part.bytes
                part.read(out[start:end])
        out[end : self.sizes[FIXED]] = 0

    def store(self, blob: str, codes: Array, memory: Mapping[int, Array]) -> None:
        """Put a blob's codes (int8, NCHW) into the regions' bytes (uint8)."""
        store(codes, *self._memory(blob, memory))

    def load(self, blob: str, first: int, out: Array, memory: Mapping[int, Array]) -> None:
        """Get a blob's codes from channel ``first`` on."""
        bytes, layout, start, channels = self._memory(blob, memory)
        fetch(bytes, out, layout, start + first, channels)

    def _memory(self, blob: str, memory: Mapping[int, Array]) -> tuple[Array, Layout, int, int]:
        placed = self.blobs[blob]
        offset = placed.offset & (1 << REGION) - 1
        whole = self.shapes[placed.parent or blob]
        return memory[placed.offset >> REGION][offset:], self.overlay.layout, placed.first_channel, whole[1]

    @property
    def _begin(self) -> int:
        """Where the constants begin, behind the descriptors."""
        return round_up(len(self.tasks) * self.overlay.descriptor.bytes, self.overlay.layout.alignment)


def chain(
    overlay: Overlay,
    tasks: Sequence[Task],
    shapes: Mapping[str, Shape],
    places: Mapping[str, tuple[str, int]],
    reads: Collection[str],
    writes: Collection[str],
) -> Chain:
    """Lay out a segment that is given the blobs ``reads`` and asked for ``writes``.

    ``places`` says which blobs are parts of others: (the other, first channel). A part of a blob that nobody here has a
    use for is a blob of its own. Raises DeviceError for a Task that the overlay's descriptors cannot say.
    """
    made = Chain(overlay, tuple(tasks), shapes)
    blobs = dict.fromkeys([*reads, *writes, *(b for task in tasks for b in (*task.inputs, task.output))])
    wholes = {blob: _whole(blob, places, blobs) for blob in blobs}
    made.given = [blob for blob in reads if wholes[blob][0] == blob or wholes[blob][0] not in reads]
    _place(made, wholes, writes)
    filled: dict[str, list[tuple[int, int]]] = {}  # channels of a whole that the host or a Task writes
    for blob in made.given:
        filled.setdefault(wholes[blob][0], []).append((wholes[blob][1], shapes[blob][1]))
    for task in tasks:
        whole, start = wholes[task.output]
        filled.setdefault(whole, []).append(_channels(task, start, shapes))
    for blob in writes:
        whole, start = wholes[blob]
        made.wanted += [(blob, a, b - a) for a, b in _inside(filled.get(whole, []), start, start + shapes[blob][1])]
    _encode(made)
    return made


def _whole(blob: str, places: Mapping[str, tuple[str, int]], used: Collection[str]) -> tuple[str, int]:
    """The outermost blob in use that a blob is a part of, and its first channel there."""
    found, first = (blob, 0), 0
    while blob in places:
        blob, start = places[blob]
        first += start
        if blob in used:
            found = blob, first
    return found


def _channels(task: Task, start: int, shapes: Mapping[str, Shape]) -> tuple[int, int]:
    """First channel and number of channels that a Task writes, in the whole whose channel ``start`` its output begins at."""
    first = int(getattr(task, "first", 0))
    count = shapes[task.inputs[0] if task.kind == "copy" else task.output][1]
    return start + first, count


def _inside(filled: Sequence[tuple[int, int]], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of filled channels within a blob, counted from its first."""
    runs: list[list[int]] = []
    for start, count in sorted(filled):
        begin, stop = max(start, first), min(start + count, end)
        if begin < stop and runs and begin <= runs[-1][1]:
            runs[-1][1] = max(runs[-1][1], stop)
        elif begin < stop:
            runs.append([begin, stop])
    return ((a - first, b - first) for a, b in runs)


def _place(made: Chain, wholes: Mapping[str, tuple[str, int]], writes: Collection[str]) -> None:
    """A region and an offset for every whole; only what the host never sees shares bytes."""
    layout, shapes = made.overlay.layout, made.shapes
    sizes = {whole: blob_bytes(shapes[whole], layout) for whole, _ in wholes.values()}
    given, wanted = ({wholes[blob][0] for blob in blobs} for blobs in (made.given, writes))
    lives: dict[str, tuple[int, int]] = {}
    offsets: dict[str, int] = {}
    for moment, task in enumerate(made.tasks):
        for blob in (*task.inputs, task.output):
            whole = wholes[blob][0]
            if whole not in given and whole not in wanted:
                lives[whole] = lives.get(whole, (moment,))[0], moment
    inside, made.sizes[WORK] = share(lives, sizes)
    offsets.update((blob, (WORK << REGION) + offset) for blob, offset in inside.items())
    for whole in dict.fromkeys([*sorted(given), *sorted(wanted)]):
        region = BOTH if whole in given and whole in wanted else INPUT if whole in given else OUTPUT
        end = made.sizes.setdefault(region, 0)
        offsets[whole] = (region << REGION) + end
        made.sizes[region] = end + sizes[whole]
    made.sizes = {region: size for region, size in made.sizes.items() if size}
    for blob, (whole, first) in wholes.items():
        parent = None if blob == whole else whole
        made.blobs[blob] = Placed(offsets[whole], blob_bytes(shapes[blob], layout), parent, first)


def _encode(made: Chain) -> None:
    """Descriptors and constants. Where the engine changes, the next Task waits for the last one's token."""
    alignment = made.overlay.layout.alignment
    end = made._begin
    engines = [task.kind in _ON_ARRAY for task in made.tasks]
    for i, task in enumerate(made.tasks):
        wait = i > 0 and engines[i] != engines[i - 1]
        signal = i + 1 < len(engines) and engines[i] != engines[i + 1]
        where = (FIXED << REGION) + end
        descriptor, parts = encode_parts(
            task, made.overlay, made.blobs, made.shapes, where, tag=i, wait=wait, signal=signal
        )
        made.descriptors.append(descriptor)
        for part in parts:
            made.constants.append((end, part))
            end += len(part) if isinstance(part, bytes) else part.bytes
        end = round_up(end, alignment)
    made.sizes[FIXED] = end


def codes_of(
    blob: str, blobs: dict[str, Array], shapes: Mapping[str, Shape], places: Mapping[str, tuple[str, int]]
) -> Array:
    """The codes of a blob, made where they are missing; those of a part are a view of the whole's."""
    if blob not in blobs:
        place = places.get(blob)
        shape = shapes[blob]
        if place is None:
            blobs[blob] = np.empty(shape, np.int8)
        else:
            whole = codes_of(place[0], blobs, shapes, places)
            blobs[blob] = whole[:, place[1] : place[1] + shape[1]]
    return blobs[blob]
