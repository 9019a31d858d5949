"""Arrange the Tasks of a segment for two engines: in which order, and which of them image by image.

A pooling of one image then runs while the next image is convolved. Nothing is added: a cut Task names some images of the
same blobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..blob import outermost
from ..util.rounding import ceil_div

if TYPE_CHECKING:
    from ..blob import Shape, View
    from ..overlay import Overlay
    from ..tasks import Task

PIECES = 8  # of a Task at most: larger batches are cut into runs of images
LOSS = 0.05  # of a Task's cycles: the weights of some are fetched again for each piece


class Piece(NamedTuple):
    """Images (first, count) of a Task, which is a number among those of its segment; None for all."""

    task: int
    images: tuple[int, int] | None = None


def arrangements(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], views: Mapping[str, View]
) -> Iterator[list[Piece]]:
    """Yield the arrangements to compare: as given, with early window Tasks, all of these cut, and those that lose little."""
    yield [Piece(i) for i in range(len(tasks))]
    order = _early(tasks, views)
    yield [Piece(i) for i in order]
    if len(tasks) < 2 or max(shapes[task.output][0] for task in tasks) < 2:
        return
    pieces = {i: list(_pieces(i, shapes[tasks[i].output][0])) for i in order}
    yield [piece for i in order for piece in pieces[i]]

    def loses(i: int) -> bool:
        cut = sum(task.cycles(overlay, shapes) for task in arranged(tasks, pieces[i]))
        return cut > (1 + LOSS) * tasks[i].cycles(overlay, shapes)

    yield [piece for i in order for piece in ([Piece(i)] if loses(i) else pieces[i])]


def arranged(tasks: Sequence[Task], pieces: Sequence[Piece]) -> list[Task]:
    """Return the Tasks of an arrangement."""
    return [replace(tasks[i], images=images) if images else tasks[i] for i, images in pieces]


def _early(tasks: Sequence[Task], views: Mapping[str, View]) -> list[int]:
    """Return the order in which each window Task follows the last Task that writes what it reads."""
    order = [i for i, task in enumerate(tasks) if task.engine == "array"]
    for i, task in enumerate(tasks):
        if task.engine != "array":
            wholes = {outermost(blob, views).base for blob in task.inputs}
            writers = [k for k in order if k < i and outermost(tasks[k].output, views).base in wholes]
            at = max((order.index(k) + 1 for k in writers), default=0)
            while at < len(order) and tasks[order[at]].engine != "array":
                at += 1
            order.insert(at, i)
    return order


def _pieces(index: int, batch: int) -> Iterator[Piece]:
    step = ceil_div(batch, PIECES)
    for first in range(0, batch, step):
        count = min(step, batch - first)
        yield Piece(index, None if count == batch else (first, count))
