"""Detection layers of forks for YOLO: boxes of grids, and their suppression over all classes.

YoloDetectionOutput: YOLOv2's boxes after thresholds and suppression.
Yolov3DetectionOutput: YOLOv3's boxes after thresholds and suppression.
"""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..graph.params import SIZE, MessageFields, within
from ..kernels.boxes import Suppression, suppress
from ..text import number_of
from ..util.lazy_numpy import np
from ._detections import DetectionLayer, around, few, rows_of, table
from .softmax import sigmoid


class YoloLayer(DetectionLayer):
    """Bottoms: per grid (N, boxes of a cell * (5 + classes), H, W): x, y, w, h, objectness and classes.

    Labels count from 1; rows are sorted by image, then by descending score. (The forks mix the boxes of a batch and call them
    all image 0; here every image is searched separately, which is the same for a batch of one.)
    """

    fork = "eric612/MobileNet-YOLO"
    first_class = 1

    def box_classes(self, *bottoms: Shape) -> int:
        return int(self.params.num_classes)

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
            if n != bottoms[0][0]:
                raise self.wrong(
                    f"grids of {bottoms[0][0]} and of {number_of(n, 'image')}: {show(bottoms[0])} and {show(shape)}"
                )
            scores += p.num_box * h * w * p.num_classes
        few(self, scores=scores)
        return ((1, 1, 1, 7),)

    def grid(self, x: Array, anchors: Array, scale: int = 1) -> tuple[Array, Array]:
        """Return a bottom as (N, boxes of a cell, H, W, 5 + classes), and its boxes: centre and size, relative to the image.

        A centre is (cell + sigmoid(x, y)) / (W, H), a size exp(w, h) * anchor / (W, H) / scale.
        """
        n, c, h, w = x.shape
        values = x.reshape(n, self.params.num_box, c // self.params.num_box, h, w).transpose(0, 1, 3, 4, 2)
        columns, rows = (np.arange(cells, dtype=np.float32) for cells in (w, h))
        boxes = np.empty((*values.shape[:-1], 4), np.float32)
        boxes[..., 0] = (columns + sigmoid(values[..., 0])) / w
        boxes[..., 1] = (rows.reshape(-1, 1) + sigmoid(values[..., 1])) / h
        boxes[..., 2:] = (
            np.exp(values[..., 2:4]) * anchors.reshape(-1, 1, 1, 2) / np.array((w * scale, h * scale), np.float32)
        )
        return values, boxes

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        # by cell, then box of the cell: the order of candidates with equal scores
        grids = [map(by_cell, self.candidates(x, i)) for i, x in enumerate(bottoms)]
        boxes_of, scores_of = (np.concatenate(parts, 1) for parts in zip(*grids))
        return table([self._rows(*image) for image in enumerate(zip(boxes_of, scores_of))], len(bottoms[0]))

    def candidates(self, x: Array, i: int) -> tuple[Array, Array]:
        """Return the boxes of grid ``i`` as ``grid`` does, and their scores (N, boxes of a cell, H, W, classes)."""
        raise NotImplementedError(self.type)

    def chosen(self, scores: Array) -> tuple[Array, Array]:
        """Return box and class of the scores (boxes, classes) of an image that suppression begins with."""
        raise NotImplementedError(self.type)

    def _rows(self, image: int, candidates: tuple[Array, Array]) -> Array:
        """Return the rows of an image from its boxes, centre and size (boxes, 4), and their scores (boxes, classes)."""
        box, label = self.chosen(candidates[1])
        score = candidates[1][box, label]
        order = np.argsort(-score, kind="stable")
        boxes, score, label = candidates[0][box[order]].T, score[order], label[order]
        corners, rule = around(boxes[:2], boxes[2:]), Suppression(self.params.nms_threshold, inclusive=True)
        kept = suppress(corners[:2], corners[2:], boxes[2] * boxes[3], rule)
        return rows_of(image, label[kept] + 1, score[kept], corners[:, kept])


def by_cell(values: Array) -> Array:
    """Reorder (N, boxes of a cell, H, W, k) to (N, H * W * boxes of a cell, k)."""
    return values.transpose(0, 2, 3, 1, 4).reshape(len(values), count(values.shape[1:-1]), values.shape[-1])


class YoloDetectionOutput(YoloLayer):
    """A box's size is relative to (W, H).

    Its label is the most likely class, its score sigmoid(objectness) * softmax(class); it is a candidate if the score
    reaches confidence_threshold. A second bottom is another grid with the same anchors.
    """

    bottoms_allowed = (1, 2)

    class Params(MessageFields):
        """biases are the anchors' widths and heights in cells."""

        num_classes: int = within(1, SIZE, 20)
        num_box: int = within(1, SIZE, 5)
        coords: int = within(4, 4, 4)
        confidence_threshold: float = 0.01
        nms_threshold: float = within(0, 1e6, 0.45)
        biases: tuple[float, ...] = ()

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        if len(p.biases) < 2 * p.num_box:
            raise self.wrong(f"{number_of(len(p.biases), 'bias')} for {p.num_box} boxes; expected {2 * p.num_box}")
        return super().shapes(*bottoms)

    def candidates(self, x: Array, i: int) -> tuple[Array, Array]:
        values, boxes = self.grid(x, np.array(self.params.biases[: 2 * self.params.num_box], np.float32))
        share = np.exp(values[..., 5:] - values[..., 5:].max(-1, keepdims=True))
        share *= sigmoid(values[..., 4:5]) / share.sum(-1, keepdims=True)
        return boxes, share

    def chosen(self, scores: Array) -> tuple[Array, Array]:
        box = np.flatnonzero(scores.max(1) >= np.float32(self.params.confidence_threshold))
        return box, scores.argmax(1)[box]


class Yolov3DetectionOutput(YoloLayer):
    """A box's size is relative to (W, H) * anchors_scale.

    A class's score is sigmoid(objectness) * sigmoid(class); each one above confidence_threshold is a candidate.
    """

    bottoms_allowed = (1, None)

    class Params(MessageFields):
        """biases are the anchors' widths and heights in pixels; mask holds the anchors' indices, grid by grid.

        anchors_scale: pixels per cell, one number per grid.
        """

        num_classes: int = within(1, SIZE, 20)
        num_box: int = within(1, SIZE, 3)
        confidence_threshold: float = 0.01
        nms_threshold: float = within(0, 1e6, 0.45)
        biases: tuple[float, ...] = ()
        anchors_scale: tuple[int, ...] = within(1, SIZE, ())
        mask_group_num: int = within(1, SIZE, 2)
        mask: tuple[int, ...] = within(0, SIZE, ())

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        grids = p.mask_group_num
        if len(bottoms) != grids or len(p.anchors_scale) != grids:
            raise self.wrong(
                f"{number_of(len(bottoms), 'bottom')} and {len(p.anchors_scale)} anchors_scale for mask_group_num {grids}"
            )
        if len(p.mask) != grids * p.num_box or max(p.mask) >= len(p.biases) // 2:
            raise self.wrong(
                f"mask {list(p.mask)}: expected {p.num_box} of {len(p.biases) // 2} anchors for each of {grids} grids"
            )
        return super().shapes(*bottoms)

    def candidates(self, x: Array, i: int) -> tuple[Array, Array]:
        p = self.params
        anchors = np.array(p.biases, np.float32)[: len(p.biases) // 2 * 2].reshape(-1, 2)
        mask = np.array(p.mask).reshape(p.mask_group_num, -1)[i]
        values, boxes = self.grid(x, anchors[mask], p.anchors_scale[i])
        return boxes, sigmoid(values[..., 4:5]) * sigmoid(values[..., 5:])

    def chosen(self, scores: Array) -> tuple[Array, Array]:
        if self.params.nms_threshold < 0.99:  # a box suppresses its own copies: only its best class can be kept
            best = scores.argmax(1)
            scores = np.where(np.arange(scores.shape[1]) == best.reshape(-1, 1), scores, -np.inf)
        box, label = np.nonzero(scores > np.float32(self.params.confidence_threshold))
        return box, label
