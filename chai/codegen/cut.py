"""Cut the Tasks of a segment into pieces, so that two engines work at once: into images, and these into bands of rows.

A pooling of one image then runs while another one is convolved, and an LRN of an image's upper rows while the convolution before
it computes the lower ones. Nothing is added: a piece names some images, rows or columns of the same blobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..tasks.work import Work
from ..util.rounding import ceil_div
from .chain import Piece, arranged
from .cycles import Effort, effort

PIECES = 8  # of a Task at most: larger batches are cut into runs of images
LOSS = 0.05  # of a Task's cycles, in images: weights are fetched again for a piece that cannot share them
# bands of a piece at most, the cycles of a band at least, and what may be lost of them: rows between bands are read twice. None
# is the best of every network and overlay; the best of these is within 1.3 % of that of 60 by the model, for five networks
# on four overlays
BANDINGS = (
    (2, 500, 0.4),
    (3, 1000, 0.4),
    (4, 100, 0.15),
    (4, 100, 0.4),
    (6, 2000, 0.4),
    (8, 1000, 0.003),
    (16, 2000, 0.15),
)

COUNTS = 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24  # of the bands of a Task, when all others are cut

Way = Sequence[Sequence[Piece]]  # to cut the Tasks: the pieces of each


class Cuts:
    """Ways to cut the Tasks, and what each piece costs."""

    def __init__(self, work: Work) -> None:
        self._overlay, self._tasks, self._shapes = work.overlay, work.tasks, work.shapes
        self._efforts: dict[Piece, Effort] = {}
        strips = [task.strips(self._overlay, self._shapes) for task in self._tasks]
        self._whole = [[Piece(i, columns=some) for some in every] for i, every in enumerate(strips)]

    def effort(self, piece: Piece) -> Effort:
        if piece not in self._efforts:
            (task,) = arranged(self._tasks, [piece])
            self._efforts[piece] = effort(self._overlay, task, self._shapes)
        return self._efforts[piece]

    def ways(self) -> Iterator[Way]:
        """Yield each way that differs.

        No Task is cut, but for strips; all are cut into images, or those that lose little; and these into bands.
        """
        images = [[*self._images(i)] for i in range(len(self._tasks))]
        little = [whole if self._loses(some, whole, LOSS) else some for some, whole in zip(images, self._whole)]
        banded = (
            [[band for piece in pieces for band in self._bands(piece, *banding)] for pieces in little]
            for banding in BANDINGS
        )
        yield from dict.fromkeys(tuple(map(tuple, way)) for way in (self._whole, images, little, *banded))

    def bands_of(self, pieces: Sequence[Piece]) -> Iterator[Way]:
        """Yield ways to cut the Task of these pieces, of the same images, into ``COUNTS`` of bands; none if it is in strips."""
        images = [*dict.fromkeys(piece._replace(rows=None) for piece in pieces)]
        if images[0].columns is None:
            bands = self._tasks[images[0].task].bands
            for count in COUNTS:
                rows = bands(self._overlay, self._shapes, count)
                yield (tuple(piece._replace(rows=some) for piece in images for some in rows),)

    def _images(self, i: int) -> Iterator[Piece]:
        """Yield runs of images of a Task, each with its strips."""
        batch = self._shapes[self._tasks[i].output][0]
        step = ceil_div(batch, PIECES)
        for first in range(0, batch, step):
            count = min(step, batch - first)
            for piece in self._whole[i]:
                yield piece._replace(images=None if count == batch else (first, count))

    def _bands(self, piece: Piece, most: int, least: int, loss: float) -> list[Piece]:
        """Return at most so many bands of at least so many cycles that a piece is cut into, where that loses no more."""
        count = min(most, int(self.effort(piece).busy // least))
        while count > 1 and piece.columns is None:
            rows = self._tasks[piece.task].bands(self._overlay, self._shapes, count)
            bands = [piece._replace(rows=some) for some in rows]
            if not self._loses(bands, [piece], loss):
                return bands
            count //= 2
        return [piece]

    def _loses(self, pieces: Sequence[Piece], whole: Sequence[Piece], most: float) -> bool:
        apart, together = (sum(self.effort(piece).busy for piece in some) for some in (pieces, whole))
        return apart > (1 + most) * together
