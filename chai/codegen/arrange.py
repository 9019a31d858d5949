"""Arrange the pieces of a segment's Tasks for two engines by list scheduling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from ..blob import Shape, View, outermost
from ..overlay import Overlay
from ..tasks import Task
from ..util.rounding import ceil_div
from .chain import Piece, arranged, sharing
from .cut import PIECES, Cuts
from .cycles import INSTANT, Effort, Engines, first_cycle, makespan
from .dependencies import NONE, Finished

Box = tuple[int, int, int, int]  # the first plane and the end of the planes, the same of rows


class Arrangement(NamedTuple):
    """A schedule: pieces in the order in which they begin, the effort of each, and the makespan in cycles."""

    pieces: list[Piece]
    efforts: list[Effort]
    cycles: int


def arrangements(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], views: Mapping[str, View]
) -> Iterator[Arrangement]:
    """Yield the arrangements to compare: for each way to cut the Tasks, the pieces ordered by two rules.

    Their cycles are those of the cycle model where no two blobs share bytes. The rules are priorities of list scheduling:
    the order of the Tasks as they come, or the length of their critical paths.
    """
    cuts = Cuts(overlay, tasks, shapes)
    for pieces in cuts.ways():
        costs = [cuts.effort(piece) for piece in pieces]
        predecessors = _predecessors(tasks, pieces, shapes, views, overlay.layout.channels_per_word)
        for priorities in ([0] * len(pieces), _critical_paths(costs, predecessors)):
            order = _strips_in_order(_list_schedule(costs, predecessors, priorities), pieces)
            after = _counts([costs[i].engine for i in order], [predecessors[i] for i in order], order)
            arrangement = sharing(overlay, tasks, [pieces[i] for i in order])
            efforts = [cuts.effort(piece) for piece in arrangement]
            yield Arrangement(arrangement, efforts, makespan(efforts, after, first_cycle(overlay)))


def _predecessors(
    tasks: Sequence[Task],
    pieces: Sequence[Piece],
    shapes: Mapping[str, Shape],
    views: Mapping[str, View],
    word: int,
) -> list[set[int]]:
    """Return for each piece those before it that write what it reads. No part of a blob is written twice, but for strips."""

    def boxes(
        piece: Piece, blob: str, channels: tuple[int, int], rows: tuple[int, int]
    ) -> Iterator[tuple[tuple[str, int], Box]]:
        """Yield the outermost blob of each run of images, with the run, and the box of what is accessed there."""
        whole, start = outermost(blob, views)
        batch = shapes[blob][0]
        first, images = piece.images or (0, batch)
        planes = (start + channels[0]) // word, ceil_div(start + sum(channels), word)
        for run in range(first // ceil_div(batch, PIECES), ceil_div(first + images, ceil_div(batch, PIECES))):
            yield (whole, run), (*planes, rows[0], sum(rows))

    writers: dict[tuple[str, int], list[tuple[Box, int]]] = {}
    predecessors = []
    for i, piece in enumerate(pieces):
        task = arranged(tasks, [piece])[0]
        before = set()
        for blob in task.inputs:
            for place, box in boxes(piece, blob, (0, shapes[blob][1]), task.rows_read(shapes, blob)):
                before |= {writer for other, writer in writers.get(place, ()) if _overlap(box, other)}
        predecessors.append(before)
        rows = task.rows or (0, shapes[task.output][2])
        for place, box in boxes(piece, task.output, task.channels(shapes), rows):
            writers.setdefault(place, []).append((box, i))
    return predecessors


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

    def release(i: int) -> None:
        heappush(ready[efforts[i].engine], (-priorities[i], i))

    begins = [0.0] * len(predecessors)  # when all predecessors so far have finished
    unfinished = [len(before) for before in predecessors]  # predecessors of each piece that have not ended
    for i, count in enumerate(unfinished):
        if not count:
            release(i)
    engines, order, left = Engines(efforts), list[int](), len(predecessors)
    coming: list[tuple[float, int]] = []  # when pieces are ready
    while len(order) < left:
        while coming and coming[0][0] <= engines.now + INSTANT:
            release(heappop(coming)[1])
        for engine, queue in ready.items():
            if queue and engines.free(engine):
                _, i = heappop(queue)
                engines.start(i)
                order.append(i)
        if len(order) < left:
            for _, i in engines.advance(coming[0][0] if coming else inf):
                for k in successors[i]:
                    begins[k] = max(begins[k], engines.now + efforts[i].waits.tail)
                    unfinished[k] -= 1
                    if not unfinished[k]:
                        heappush(coming, (begins[k] + efforts[k].waits.lead, k))
    return order
