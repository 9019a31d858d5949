"""Base of the heads of detectors: candidates whose scores exceed a threshold, and suppression within each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

from ..blob import Array
from ..graph.params import within
from ..kernels.boxes import Suppression, runs, suppress
from ..util.lazy_numpy import np
from ._detections import DetectionLayer, rows_of, table

MARGIN = 1e-3  # of logits below the threshold, which rounding may lift above it


@dataclass(frozen=True)
class HeadParams:
    """The parameters of every head.

    ``confidence_threshold``   scores must exceed it
    ``nms_threshold``   overlap with a better box of the class beyond which a box is dropped
    ``top_k``, ``keep_top_k``   boxes of an image that suppression begins with, and that are kept
    ``multi_label``     whether each class of a box above the threshold counts, or its best one alone
    """

    confidence_threshold: float = within(0, 1, 0.25)
    nms_threshold: float = within(0, 1, 0.45)
    top_k: int = within(1, 2**31 - 1, 30_000)
    keep_top_k: int = within(1, 2**31 - 1, 300)
    multi_label: bool = False


class HeadLayer(DetectionLayer):
    """Labels are classes from 0, corners fractions of the network's input; rows are sorted by image, then by descending score."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        with np.errstate(over="ignore", invalid="ignore"):  # of boxes that are no numbers, which are dropped
            parts = [self._rows(image, self.candidates(*maps)) for image, maps in enumerate(zip(*bottoms))]
        return table(parts, len(bottoms[0]))

    def candidates(self, *bottoms: Array) -> tuple[Array, Array, Array]:
        """Return the boxes of an image whose scores exceed the threshold: corners (4, boxes), scores and classes (boxes,)."""
        raise NotImplementedError(self.type)

    def chosen(self, scores: Array) -> tuple[Array, Array]:
        """Return class and place of the scores (classes, boxes) that exceed the threshold."""
        least = np.float32(self.params.confidence_threshold)
        if self.params.multi_label:
            label, box = np.nonzero(scores > least)
            return label, box
        best = scores.argmax(0)
        box = np.flatnonzero(np.take_along_axis(scores, best[None], 0)[0] > least)
        return best[box], box

    @property
    def least_logit(self) -> float:
        """Return the number that the logit of a score above the threshold exceeds."""
        least = float(np.float32(self.params.confidence_threshold))
        return log(least / (1 - least)) - MARGIN if 0 < least < 1 else inf if least else -inf

    def _rows(self, image: int, candidates: tuple[Array, Array, Array]) -> Array:
        """Return the rows of an image from its candidates."""
        corners, scores, labels = candidates
        number = np.isfinite(corners).all(0)
        best = np.argsort(-scores[number], kind="stable")[: self.params.top_k]
        which = np.flatnonzero(number)[best]
        which = which[np.argsort(labels[which], kind="stable")]
        corners, scores, labels = corners[:, which], scores[which], labels[which]
        low, high, kept = corners[:2], corners[2:], list[int]()
        area = np.prod(high - low, 0)
        rule = Suppression(self.params.nms_threshold)
        for part in runs(labels):
            kept += [part.start + i for i in suppress(low[:, part], high[:, part], area[part], rule)]
        order = np.array(kept, np.intp)[np.argsort(-scores[kept], kind="stable")[: self.params.keep_top_k]]
        return rows_of(image, labels[order], scores[order], corners[:, order])


def joined(parts: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Return the candidates of several maps as those of one."""
    corners, scores, labels = zip(*parts)
    return np.concatenate(corners, 1), np.concatenate(scores), np.concatenate(labels)
