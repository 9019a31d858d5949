"""Dependencies: how many Tasks of each engine must have finished before a Task may read or write its blobs.

They follow from the bytes that Tasks access, not from names: blobs share bytes, and two engines run apart. A Task waits
for those that wrote what it reads, and for those that wrote or read what it overwrites. An engine starts and finishes its
Tasks in order, so the last one of each engine is enough. It may start one before the one before it has finished, so
dependencies on its own engine count too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ..blob import Shape
from ..errors import DeviceError
from ..limits import limits
from ..overlay import Layout, Overlay
from ..overlay.layout import Span, planes, spans
from ..tasks import Task
from .memory_map import Regions, stored, wanted


class Finished(NamedTuple):
    """Tasks of each engine, counted from the first of the chain."""

    array: int = 0
    window: int = 0

    def __or__(self, other: Finished) -> Finished:
        """Return the larger count of each engine."""
        (array, window), (others, windows) = self, other
        if array >= others and window >= windows:
            return self
        if others >= array and windows >= window:
            return other
        return Finished(max(array, others), max(window, windows))


NONE = Finished()


class Budget:
    """The accesses to memory that may still be examined: ``limits().accesses`` at first."""

    def __init__(self) -> None:
        self.spent, self.limit = 0, limits().accesses

    def spend(self, count: int) -> None:
        """Count accesses. Raises DeviceError if they are too many."""
        self.spent += count
        if self.spent > self.limit:
            excess = limits().exceeded("accesses", self.spent)
            raise DeviceError(f"the Tasks access too many pieces of memory: {excess}")


def dependencies(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], regions: Regions, budget: Budget | None = None
) -> list[Finished]:
    """Return, for each Task, the Tasks that must have finished before it accesses a blob.

    The segments of one file share a ``budget``. Raises DeviceError if it is spent, or if a Task or the host would read
    bytes that hold another blob, or nothing: so offsets from a file are checked here.
    """
    memory = _ByteHistory(budget or Budget(), shapes, regions, overlay.layout)
    for blob, first, channels in stored(regions, shapes):
        memory.write(_Access(blob, (first, channels), (0, shapes[blob][0])), NONE)
    waits, done = [], dict.fromkeys(Finished._fields, 0)
    for task in tasks:
        batch = shapes[task.output][0]
        if batch > overlay.batch_max:
            what = f"{batch} images: overlay {overlay.name} runs {overlay.batch_max} at a time"
            raise DeviceError(what, hint=f"a batch of {overlay.batch_max} or fewer")
        done[task.engine] += 1
        me = Finished(**{task.engine: done[task.engine]})
        images = task.images or (0, batch)
        after = NONE
        for blob in dict.fromkeys(task.inputs):
            rows = task.rows and task.rows_read(shapes, blob)
            after |= memory.read(_Access(blob, (0, shapes[blob][1]), images, rows), me)
        result = _Access(task.output, task.channels(shapes), images, task.rows)
        waits.append(after | memory.write(result, me, task.columns))
    for blob, first, channels in wanted(regions, tasks, shapes):
        memory.read(_Access(blob, (first, channels), (0, shapes[blob][0])), NONE)
    return waits


def check_listed(
    layout: Layout, tasks: Iterable[Task], shapes: Mapping[str, Shape], regions: Regions, budget: Budget
) -> None:
    """Check the order in which Tasks are listed for devices where blobs share no bytes, unless one is a part of another.

    Each Task is for all images of its blobs. Raises DeviceError if one reads what none before it has written, or writes
    what is written.
    """
    written = dict.fromkeys(regions.blobs, 0)  # of each outermost blob: bit i is its plane i

    def planes_of(blob: str, first: int, channels: int) -> tuple[str, int]:
        whole, start = regions.whole(blob)
        begin, end = (start + first) // layout.channels_per_word, planes(start + first + channels, layout)
        budget.spend(1 + end // 10_000)
        return whole, (1 << end) - (1 << begin)

    def write(blob: str, first: int, channels: int) -> None:
        whole, bits = planes_of(blob, first, channels)
        if written[whole] & bits:
            raise DeviceError(f"blob {whole!r} is written twice")
        written[whole] |= bits

    for blob, first, channels in stored(regions, shapes):
        write(blob, first, channels)
    for task in tasks:
        for blob in task.inputs:
            whole, bits = planes_of(blob, 0, shapes[blob][1])
            if bits & ~written[whole]:
                raise DeviceError(f"blob {blob!r} is read before anything has written it")
        write(task.output, *task.channels(shapes))


@dataclass(eq=False, repr=False, slots=True)
class _Bytes:
    """Bytes with one history: the outermost blob they hold, the Task that wrote it, the last Tasks that read it.

    ``columns`` are those that strips have written so far, 0 if nothing is missing.
    """

    blob: str | None = None
    written: Finished = NONE
    read: Finished = NONE
    columns: int = 0


class _Access(NamedTuple):
    """A part of a blob that is read or written: channels, images and rows, each (first, count), or all ``rows``."""

    blob: str
    channels: Span
    images: Span
    rows: Span | None = None


class _ByteHistory:
    """The history of every byte: ``history[i]`` is that of the bytes from ``bounds[i]`` to ``bounds[i + 1]``."""

    def __init__(self, budget: Budget, shapes: Mapping[str, Shape], regions: Regions, layout: Layout) -> None:
        self.budget, self.shapes, self.regions, self.layout = budget, shapes, regions, layout
        self.bounds = [0, inf]
        self.history = [_Bytes()]

    def read(self, access: _Access, reader: Finished) -> Finished:
        """Record a read; return the Tasks that wrote these bytes. Raises DeviceError unless they hold the blob."""
        (whole, runs), blob = self._bytes(access), access.blob
        after, history = NONE, self.history
        known: dict[_Bytes, _Bytes] = {}  # the new history for each old one, of which many runs have few
        for first, last in self._cut(runs):
            for i in range(first, last):
                piece = history[i]
                now = known.get(piece)
                if now is None:
                    if piece.blob is None or piece.columns:
                        raise DeviceError(f"blob {blob!r} is read before anything has written it")
                    if piece.blob != whole:
                        raise DeviceError(f"another blob is written over {blob!r}, which is still read")
                    after |= piece.written
                    now = known[piece] = _Bytes(whole, piece.written, piece.read | reader)
                history[i] = now
        return after

    def write(self, access: _Access, writer: Finished, strip: Span | None = None) -> Finished:
        """Record a write; return the Tasks that wrote or read these bytes before.

        A ``strip`` has some columns, after those before it: it waits for nothing that the first one did not. Raises DeviceError
        if the bytes hold the blob, or if the writer would wait for itself.
        """
        whole, runs = self._bytes(access)
        first_column, end_column = (0, 0) if strip is None else (strip[0], sum(strip))
        now = _Bytes(whole, writer, columns=end_column % self.shapes[access.blob][3])
        after, bounds, history = NONE, self.bounds, self.history
        before: set[_Bytes] = set()
        for first, last in self._cut(runs):
            before.add(history[first])
            history[first] = now
            if last - first > 1:
                before.update(history[first + 1 : last])
                del history[first + 1 : last], bounds[first + 1 : last]
        for piece in before:
            if first_column:
                if (piece.blob, piece.columns) != (whole, first_column):
                    raise DeviceError(f"blob {whole!r} is not written strip by strip")
            elif piece.blob == whole:
                raise DeviceError(f"blob {whole!r} is written twice")
            else:
                after |= piece.written | piece.read
        if after.array >= writer.array > 0 or after.window >= writer.window > 0:
            raise DeviceError(f"blob {whole!r} is written over what it is made of")
        return after

    def _bytes(self, access: _Access) -> tuple[str, Iterable[tuple[int, int]]]:
        """Return the outermost blob of these channels, and where their bytes are."""
        blob, (first, count), images, rows = access
        whole, start = self.regions.whole(blob)
        offset = self.regions.blobs[blob].offset
        return whole, spans(offset, self.shapes[whole], (start + first, count), images, rows, self.layout)

    def _cut(self, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield, for each run of bytes, the first of the pieces in it, and the one after the last; cut at its ends."""
        bounds, history, spend = self.bounds, self.history, self.budget.spend
        for begin, end in runs:
            first = bisect_left(bounds, begin)
            if bounds[first] != begin:
                bounds.insert(first, begin)
                history.insert(first, history[first - 1])
            last = first + 1
            if bounds[last] < end:
                last = bisect_left(bounds, end, last)
            if bounds[last] != end:
                bounds.insert(last, end)
                history.insert(last, history[last - 1])
            # inserting moves the entries after it: some thousand of them take the time of one access
            spend(last - first + len(history) // 2000)
            yield first, last
