"""Arrange the Tasks of a segment for two engines: in which order, and which of them image by image.

A pooling of one image then runs while another image is convolved. Nothing is added: a cut Task names some images of the
same blobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ..blob import outermost
from ..util.rounding import ceil_div
from .chain import Piece, arranged
from .cycles import INSTANT, Effort, Engines, effort
from .dependencies import Finished

if TYPE_CHECKING:
    from ..blob import Shape, View
    from ..overlay import Overlay
    from ..tasks import Task

PIECES = 8  # of a Task at most: larger batches are cut into runs of images
LOSS = 0.05  # of a Task's cycles: the weights of some are fetched again for each piece


class Arrangement(NamedTuple):
    """Pieces in the order in which they begin, and the cycles until the last one ends."""

    pieces: list[Piece]
    cycles: int


def arrangements(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], views: Mapping[str, View]
) -> Iterator[Arrangement]:
    """Yield the arrangements to compare: no Task cut, all, and those that lose little, each ordered by two rules.

    Their cycles are those of the cycle model where no two blobs share bytes. The rules say which Task an engine takes of
    those that it could begin: the first given, or the one that the most work waits for (list scheduling by longest paths).
    """
    whole = [[Piece(i)] for i in range(len(tasks))]
    cut = [[*_pieces(i, shapes[task.output][0])] for i, task in enumerate(tasks)]
    efforts = {
        piece: effort(overlay, task, shapes)
        for every in (whole, cut)
        for pieces in every
        for piece, task in zip(pieces, arranged(tasks, pieces))
    }

    def loses(i: int) -> bool:
        return sum(efforts[piece].cycles for piece in cut[i]) > (1 + LOSS) * efforts[Piece(i)].cycles

    little = [[Piece(i)] if loses(i) else pieces for i, pieces in enumerate(cut)]
    for choice in [whole] if cut == whole else [whole, cut, little]:
        pieces = [piece for part in choice for piece in part]
        costs = [efforts[piece] for piece in pieces]
        needs = _needs(tasks, pieces, shapes, views, overlay.layout.channels_per_word)
        for ranks in ([0] * len(pieces), _paths(costs, needs)):
            order, cycles = _begun(costs, needs, ranks)
            yield Arrangement([pieces[i] for i in order], cycles)


def _pieces(index: int, batch: int) -> Iterator[Piece]:
    step = ceil_div(batch, PIECES)
    for first in range(0, batch, step):
        count = min(step, batch - first)
        yield Piece(index, None if count == batch else (first, count))


def _needs(
    tasks: Sequence[Task],
    pieces: Sequence[Piece],
    shapes: Mapping[str, Shape],
    views: Mapping[str, View],
    word: int,
) -> list[set[int]]:
    """Return for each piece those before it that write what it reads. No part of a blob is written twice."""

    def parts(piece: Piece, blob: str, channels: tuple[int, int]) -> Iterator[tuple[str, int, int]]:
        """Yield each run of images and each plane of channels (first, count), of the outermost blob."""
        whole, start = outermost(blob, views)
        batch = shapes[blob][0]
        first, images = piece.images or (0, batch)
        for run in range(first // ceil_div(batch, PIECES), ceil_div(first + images, ceil_div(batch, PIECES))):
            for plane in range((start + channels[0]) // word, ceil_div(start + sum(channels), word)):
                yield whole, run, plane

    wrote: dict[tuple[str, int, int], int] = {}
    every = []
    for i, piece in enumerate(pieces):
        task = tasks[piece.task]
        read = {part for blob in task.inputs for part in parts(piece, blob, (0, shapes[blob][1]))}
        every.append({wrote[part] for part in read & wrote.keys()})
        wrote.update(dict.fromkeys(parts(piece, task.output, task.channels(shapes)), i))
    return every


def _paths(efforts: Sequence[Effort], needs: Sequence[set[int]]) -> list[int]:
    """Return ranks: less for a piece with a longer way, in cycles, from its begin to the end of all that waits for it."""
    after = [0] * len(needs)
    ranks = [0] * len(needs)
    for i in reversed(range(len(needs))):
        ranks[i] = after[i] - efforts[i].cycles
        for k in needs[i]:
            after[k] = min(after[k], ranks[i])
    return ranks


def _begun(efforts: Sequence[Effort], needs: Sequence[set[int]], ranks: Sequence[int]) -> tuple[list[int], int]:
    """Return the order in which pieces begin, and the last cycle; of those that it could begin an engine takes the least rank."""
    followers: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for k in before:
            followers[k].append(i)
    missing = [*map(len, needs)]
    free = [i for i, count in enumerate(missing) if not count]
    # a window Task is first where both engines begin one at once: what it reads is needed for less long then
    ready: dict[str, list[tuple[int, int]]] = {engine: [] for engine in reversed(Finished._fields)}
    engines, order, left = Engines(efforts), list[int](), len(needs)
    while left:
        for i in free:
            heappush(ready[efforts[i].engine], (ranks[i], i))
        for engine, waiting in ready.items():
            if waiting and engines.free(engine):
                order.append(heappop(waiting)[1])
                engines.start(order[-1])
        free = []
        for ended in engines.advance():
            left -= 1
            for i in followers[ended]:
                missing[i] -= 1
                free += [i] * (not missing[i])
    return order, ceil(engines.now - INSTANT)
