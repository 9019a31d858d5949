"""Base of the YOLO detection layers: boxes of grids, and their suppression over all classes."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ..blob import Shape, show
from ..graph import Layer, OutputKind
from ..limits import limits
from ..util.lazy_numpy import np
from ._boxes import suppress

if TYPE_CHECKING:
    from ..blob import Array


class YoloLayer(Layer):
    """Bottoms: per grid (N, boxes of a cell * (5 + classes), S, S): x, y, w, h, objectness and classes.

    Top: (1, 1, found, 7), a row per box: image, label (from 1), score, xmin, ymin, xmax, ymax; sorted by image, then by
    descending score. If no box is found, there is one row per image: its number and six times -1. The number of rows is
    known only at run time; the shape rule gives 1. (The forks mix the boxes of a batch and call them all image 0; here
    every image is searched separately, which is the same for a batch of one.)
    """

    fork = "eric612/MobileNet-YOLO"
    tops_allowed = (1, 1)
    dynamic = True

    def output_kind(self, top: Shape) -> OutputKind | None:
        return "boxes"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        scores = 0
        for shape in bottoms:
            n, c, h, w = self.spatial(shape)
            if c != p.num_box * (5 + p.num_classes):
                raise self.wrong(
                    f"{c} channels for {p.num_box} boxes of {p.num_classes} classes; "
                    f"expected {p.num_box * (5 + p.num_classes)}"
                )
            if h != w or n != bottoms[0][0]:
                raise self.wrong(f"expected square grids of the same images, found {show(shape)}")
            scores += p.num_box * h * w * p.num_classes
        if scores > limits().scores:
            raise self.wrong("too many boxes: " + limits().exceeded("scores", scores))
        return ((1, 1, 1, 7),)

    def grid(self, x: Array) -> tuple[Array, Array, Array]:
        """Return a bottom as (N, boxes of a cell, S, S, 5 + classes), and the cells' columns and rows."""
        n, _, side, _ = x.shape
        cells = np.arange(side, dtype=np.float32)
        return x.reshape(n, self.params.num_box, -1, side, side).transpose(0, 1, 3, 4, 2), cells, cells.reshape(-1, 1)

    def found(self, boxes: Array, scores: Array, labels: Array, image: int) -> list[tuple[float, ...]]:
        """Return the rows of one image from its candidates: centre and size (boxes, 4), score and label."""
        order = np.argsort(-scores, kind="stable")
        boxes, scores, labels = boxes[order], scores[order], labels[order]
        half = boxes[:, 2:] / 2
        low, high, area = boxes[:, :2] - half, boxes[:, :2] + half, boxes[:, 2] * boxes[:, 3]
        kept = suppress(low, high, area, self.params.nms_threshold, exceeds=operator.ge)
        return [(image, labels[i] + 1, scores[i], *low[i], *high[i]) for i in kept]

    @staticmethod
    def top(rows: list[tuple[float, ...]], images: int) -> tuple[Array, ...]:
        """Return the top from the rows of all images."""
        rows = rows or [(image, *(-1,) * 6) for image in range(images)]
        return (np.array(rows, np.float32).reshape(1, 1, -1, 7),)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow."""
    y: Array = 0.5 * np.tanh(0.5 * x) + np.float32(0.5)
    return y


def by_cell(values: Array) -> Array:
    """Reorder (N, boxes of a cell, S, S, k) to (N, S * S * boxes of a cell, k)."""
    return values.transpose(0, 2, 3, 1, 4).reshape(len(values), -1, values.shape[-1])
