"""Yolov3DetectionOutput: YOLOv3's boxes after thresholds and suppression."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._yolo import YoloLayer
from .sigmoid import sigmoid


class Yolov3DetectionOutput(YoloLayer):
    """A box's size is relative to (W, H) * anchors_scale.

    A class's score is sigmoid(objectness) * sigmoid(class); each one above confidence_threshold is a candidate.
    """

    message = "yolov3_detection_output_param"
    bottoms_allowed = (1, None)

    @dataclass(frozen=True)
    class Params:
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
                f"{len(bottoms)} bottoms and {len(p.anchors_scale)} anchors_scale for mask_group_num {grids}"
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
