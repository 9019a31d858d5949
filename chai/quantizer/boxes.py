"""Judge a detector by its boxes: how far those in fixed point are from float's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..blob import Array
from ..errors import UsageError
from ..evaluate.boxes import IOU, Box, overlap, pairs
from ..graph import Graph
from ..util.lazy_numpy import np


class BoxCounts(NamedTuple):
    """Numbers of boxes in float and in fixed point, and of those that both have: of one class, with an IoU of IOU or more."""

    in_float: int
    in_fixed: int
    same: int

    def sentence(self) -> str:
        """Return what the numbers say."""
        return (
            f"boxes: {self.same} of float's {self.in_float} are found (class, IoU of at least {IOU:g}); "
            f"{self.in_fixed} in fixed point"
        )


def box_outputs(graph: Graph) -> list[str]:
    """Return the outputs that are boxes. Raises UsageError if there is none."""
    rows = (1, 1, 1, 7)
    blobs = [
        b for b in graph.output_blobs if (layer := graph.writers[b]).dynamic and layer.output_kind(rows) == "boxes"
    ]
    if not blobs:
        message = f"judge boxes: {graph.name} has no output of boxes"
        raise UsageError(message, hint="leave it out, or name the head of a detector: [detect] in its .toml")
    return blobs


def of_images(rows: Array, images: int) -> list[list[Box]]:
    """Return the boxes [class, score, corners] of each image, of rows (..., 7) as detection layers write them."""
    rows = rows.reshape(-1, 7)
    rows = rows[rows[:, 1] >= 0]
    return [rows[rows[:, 0] == image, 1:].tolist() for image in range(images)]


def disagreement(exact: Array, fixed: Array, images: int) -> Array:
    """Return by how much the boxes of each image differ, float64 (images,): 0 if they are the same, 1 if none has a partner.

    Partners are matched as ``chai evaluate`` does. With the scores s in float and t in fixed point it is

        1 - 2 * (sum over pairs of IoU * min(s, t)) / (sum of all s + sum of all t)

    so a box whose score is near the threshold of the head counts less than a sure one, whether it is just kept or just not.
    """
    return np.array([_of_image(*both) for both in zip(of_images(exact, images), of_images(fixed, images))], np.float64)


def _of_image(exact: Sequence[Box], fixed: Sequence[Box]) -> float:
    weight = sum(box[1] for box in (*exact, *fixed))
    common = sum(overlap(box[2:], other[2:]) * min(box[1], other[1]) for box, other in pairs(fixed, exact))
    return float(1 - 2 * common / weight) if weight else 0.0


def counted(batches: Iterable[tuple[Array, Array, int]]) -> BoxCounts:
    """Return the numbers of boxes of all batches: rows in float and in fixed point, and the number of images."""
    both = [pair for exact, fixed, n in batches for pair in zip(of_images(exact, n), of_images(fixed, n))]
    return BoxCounts(sum(len(a) for a, _ in both), sum(len(b) for _, b in both), sum(len(pairs(b, a)) for a, b in both))
