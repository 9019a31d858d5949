"""Arrange the pieces of a segment's Tasks for two engines by list scheduling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

from ..blob import outermost
from ..overlay.layout import Span
from ..tasks.work import Work
from ..util.log import meter
from ..util.rounding import ceil_div
from .chain import Piece, arranged, sharing
from .cut import PIECES, Cuts, Way
from .cycles import Effort, first_cycle, makespan
from .dependencies import NONE, Finished

SAVED = 60  # cycles that a further piece saves at least by the model, which is no more exact: by assumption, seen with digits
PARTS = 32  # of a segment at most, each of which may be cut in another way
ALONE = 72  # Tasks at most, the longest ones, each of which is cut by itself at last: all of ResNet-50's

Box = tuple[int, int, int, int]  # the first plane and the end of the planes, the same of rows
Access = tuple[tuple[str, int], Box]  # a blob and a run of its images, and the box


class Arrangement(NamedTuple):
    """A schedule of the Tasks that are cut in a ``way``, ``by_paths`` or not.

    ``pieces``   in the order in which they begin
    ``efforts``  of each piece
    ``cycles``   the makespan
    """

    way: Way
    by_paths: bool
    pieces: list[Piece]
    efforts: list[Effort]
    cycles: int

    @property
    def cost(self) -> int:
        """Return the cycles, and those that each piece has to save."""
        return self.cycles + SAVED * len(self.pieces)


def best_arrangement(work: Work) -> Arrangement:
    """Return the arrangement of a segment's Tasks with the lowest cost of those that a coordinate descent compares.

    It begins with the best way to cut all Tasks. Then it cuts the Tasks of each part of the segment as another way does, and
    at last each of the longest Tasks into another number of bands: into more pieces or into fewer, as long as that costs less.
    Cycles are those of the cycle model where no two blobs share bytes.
    """
    arranger, tasks = Arranger(work), work.tasks
    ways = [*arranger.cuts.ways()]
    starts = [(way, by_paths) for way in ways for by_paths in (False, True)]
    size = max(1, ceil_div(len(tasks), PARTS))
    parts = [slice(first, first + size) for first in range(0, len(tasks), size)]
    alone = min(ALONE, len(tasks))
    steps = len(starts) + len(parts) + alone
    with meter("steps of planning") as tell:
        candidates = []
        for done, (way, by_paths) in enumerate(starts):
            tell(done, steps)
            candidates.append(arranger.arrangement(way, by_paths))
        best = min(candidates, key=lambda arrangement: arrangement.cost)
        for done, part in enumerate(parts, len(starts)):
            tell(done, steps)
            best = arranger.improved(best, part, [way[part] for way in ways])
        lengths = [sum(arranger.cuts.effort(piece).cycles for piece in pieces) for pieces in best.way]
        longest = sorted(range(len(tasks)), key=lambda i: -lengths[i])[:alone]
        for done, i in enumerate(sorted(longest), len(starts) + len(parts)):
            tell(done, steps)
            best = arranger.improved(best, slice(i, i + 1), arranger.cuts.bands_of(best.way[i]), tries=2)
    return best


class Arranger:
    """Arranges the pieces of a segment's Tasks.

    ``cuts``  ways to cut them
    """

    def __init__(self, work: Work) -> None:
        self.cuts, self._work = Cuts(work), work
        self._accesses: dict[Piece, tuple[list[Access], list[Access]]] = {}

    def arrangement(self, way: Way, by_paths: bool) -> Arrangement:
        """Return the pieces of a way in the order of list scheduling: by the lengths of critical paths, or as they come."""
        pieces = [*chain.from_iterable(way)]
        costs = [self.cuts.effort(piece) for piece in pieces]
        predecessors = self._predecessors(pieces)
        priorities = _critical_paths(costs, predecessors) if by_paths else [0.0] * len(pieces)
        order = _strips_in_order(_list_schedule(costs, predecessors, priorities), pieces)
        after = _counts([costs[i].engine for i in order], [predecessors[i] for i in order], order)
        ordered = sharing(self._work.overlay, self._work.tasks, [pieces[i] for i in order])
        efforts = [self.cuts.effort(piece) for piece in ordered]
        return Arrangement(way, by_paths, ordered, efforts, makespan(efforts, after, first_cycle(self._work.overlay)))

    def improved(self, best: Arrangement, part: slice, options: Iterable[Way], tries: int = 1) -> Arrangement:
        """Return the arrangement with the Tasks of a part cut as another of the options, if that costs less.

        It looks at options with more pieces, then at those with fewer, until so many one after the other do not cost less.
        """
        options = sorted(dict.fromkeys((best.way[part], *options)), key=lambda cut: sum(map(len, cut)))
        for step in (1, -1):
            at, left = options.index(best.way[part]) + step, tries
            while left and 0 <= at < len(options):
                mixed = (*best.way[: part.start], *options[at], *best.way[part.stop :])
                arrangement = self.arrangement(mixed, best.by_paths)
                at, left = at + step, left - 1
                if arrangement.cost < best.cost:
                    best, left = arrangement, tries
        return best

    def _predecessors(self, pieces: Sequence[Piece]) -> list[set[int]]:
        """Return for each piece those before it that write what it reads. No part of a blob is written twice, but for strips."""
        writers: dict[tuple[str, int], list[tuple[Box, int]]] = {}
        predecessors = []
        for i, piece in enumerate(pieces):
            if piece not in self._accesses:
                self._accesses[piece] = self._read_and_written(piece)
            reads, writes = self._accesses[piece]
            predecessors.append(
                {writer for place, box in reads for other, writer in writers.get(place, ()) if _overlap(box, other)}
            )
            for place, box in writes:
                writers.setdefault(place, []).append((box, i))
        return predecessors

    def _read_and_written(self, piece: Piece) -> tuple[list[Access], list[Access]]:
        (task,), shapes = arranged(self._work.tasks, [piece]), self._work.shapes
        reads = [
            access
            for blob in task.inputs
            for access in self._boxes(piece, blob, (0, shapes[blob][1]), task.rows_read(shapes, blob))
        ]
        rows = task.rows or (0, shapes[task.output][2])
        return reads, [*self._boxes(piece, task.output, task.channels(shapes), rows)]

    def _boxes(self, piece: Piece, blob: str, channels: Span, rows: Span) -> Iterator[Access]:
        """Yield the outermost blob of each run of images, with the run, and the box of what is accessed there."""
        word = self._work.overlay.layout.channels_per_word
        whole, start = outermost(blob, self._work.views)
        batch = self._work.shapes[blob][0]
        first, images = piece.images or (0, batch)
        planes = (start + channels[0]) // word, ceil_div(start + sum(channels), word)
        for run in range(first // ceil_div(batch, PIECES), ceil_div(first + images, ceil_div(batch, PIECES))):
            yield (whole, run), (*planes, rows[0], sum(rows))


def _overlap(a: Box, b: Box) -> bool:
    """Return whether two boxes have a plane and a row in common."""
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def _strips_in_order(order: Sequence[int], pieces: Sequence[Piece]) -> list[int]:
    """Return an order in which the strips of a Task's images have changed places: the left ones are first."""
    strips: dict[tuple[object, ...], list[int]] = {}
    for i in sorted(order, reverse=True):
        strips.setdefault(pieces[i][:3], []).append(i)
    return [strips[pieces[i][:3]].pop() for i in order]


def _critical_paths(efforts: Sequence[Effort], predecessors: Sequence[set[int]]) -> list[float]:
    """Return the cycles of each piece's critical path: the longest chain of successors, from its begin to their end."""
    after = [0.0] * len(predecessors)  # the longest path of a piece's successors
    lengths = [0.0] * len(predecessors)
    for i in reversed(range(len(predecessors))):
        lengths[i] = efforts[i].cycles + after[i]
        for k in predecessors[i]:
            after[k] = max(after[k], lengths[i])
    return lengths


def _counts(engines: Sequence[str], predecessors: Sequence[set[int]], order: Sequence[int]) -> list[Finished]:
    """Return, for each piece in ``order``, how many pieces of each engine must have finished before it."""
    counted = dict[int, Finished]()
    done, after = dict.fromkeys(Finished._fields, 0), []
    for number, engine, before in zip(order, engines, predecessors):
        done[engine] += 1
        counted[number] = Finished(**{engine: done[engine]})
        waits = NONE
        for i in before:
            waits |= counted[i]
        after.append(waits)
    return after


def _list_schedule(
    efforts: Sequence[Effort], predecessors: Sequence[set[int]], priorities: Sequence[float]
) -> list[int]:
    """Return the order in which pieces begin.

    A piece is ready when its predecessors have finished and its first rows are there. A free engine begins the ready piece
    with the highest priority, of several the first.
    """
    successors: list[list[int]] = [[] for _ in predecessors]
    for i, before in enumerate(predecessors):
        for k in before:
            successors[k].append(i)
    # if both engines begin a Task in one cycle, that of the window engine is listed first: its input is then needed for less time
    ready: dict[str, list[tuple[float, int]]] = {engine: [] for engine in reversed(Finished._fields)}
    begins = [0.0] * len(predecessors)  # when all predecessors so far have finished
    unfinished = [len(before) for before in predecessors]  # predecessors of each piece that have not ended
    # when pieces are ready, and when they end
    moments = [(0.0, False, i) for i, count in enumerate(unfinished) if not count]
    order, busy = list[int](), set[str]()
    while moments:
        now = moments[0][0]
        while moments and moments[0][0] <= now:
            _, ends, i = heappop(moments)
            if not ends:
                heappush(ready[efforts[i].engine], (-priorities[i], i))
                continue
            busy.remove(efforts[i].engine)
            for k in successors[i]:
                begins[k] = max(begins[k], now + efforts[i].waits.tail)
                unfinished[k] -= 1
                if not unfinished[k]:
                    heappush(moments, (begins[k] + efforts[k].waits.lead, False, k))
        for engine, queue in ready.items():
            if queue and engine not in busy:
                _, i = heappop(queue)
                busy.add(engine)
                order.append(i)
                heappush(moments, (now + efforts[i].busy, True, i))
    return order
