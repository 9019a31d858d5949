"""Base class of the layers that write boxes, and limits on the number of boxes."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Array, Shape
from ..graph import Layer, OutputKind
from ..limits import limits
from ..util.lazy_numpy import np


class DetectionLayer(Layer):
    """Top: (1, 1, boxes, 7), a row per box: image, label, score, xmin, ymin, xmax, ymax.

    If no box is found, there is one row per image: its number and six times -1. The number of rows is known only at run time;
    the shape rule gives 1.
    """

    dynamic = True
    whole_batch = True  # rows have the numbers of their images

    def output_kind(self, top: Shape) -> OutputKind | None:
        return "boxes"


def table(parts: Sequence[Array], images: int) -> tuple[Array]:
    """Return the top from the rows (boxes, 7) of its parts, for this number of images."""
    table = np.concatenate([np.empty((0, 7), np.float32), *parts])
    if not len(table):
        table = np.full((images, 7), -1, np.float32)
        table[:, 0] = np.arange(images)
    return (table.reshape(1, 1, -1, 7),)


def rows_of(image: Array | int, label: Array, score: Array, corners: Array) -> Array:
    """Return the rows (boxes, 7) of boxes with these corners (4, boxes)."""
    rows = np.empty((len(score), 7), np.float32)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:] = image, label, score, corners.T
    return rows


def around(center: Array, size: Array) -> Array:
    """Return corners (4, boxes) from centres and sizes (2, boxes)."""
    half = size / 2
    corners: Array = np.concatenate([center - half, center + half])
    return corners


def few(layer: Layer, **sizes: int) -> None:
    """Raise ShapeError for more ``boxes`` or ``scores`` than the limits."""
    for limit, size in sizes.items():
        if size > getattr(limits(), limit):
            raise layer.wrong("too many boxes: " + limits().exceeded(limit, size))
