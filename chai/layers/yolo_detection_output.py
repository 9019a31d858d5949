"""YoloDetectionOutput: YOLOv2's boxes after thresholds and suppression."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._yolo import YoloLayer
from .sigmoid import sigmoid


class YoloDetectionOutput(YoloLayer):
    """A box's size is relative to (W, H).

    Its label is the most likely class, its score sigmoid(objectness) * softmax(class); it is a candidate if the score
    reaches confidence_threshold. A second bottom is another grid with the same anchors.
    """

    message = "yolo_detection_output_param"
    bottoms_allowed = (1, 2)

    @dataclass(frozen=True)
    class Params:
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
            raise self.wrong(f"{len(p.biases)} biases for {p.num_box} boxes; expected {2 * p.num_box}")
        return super().shapes(*bottoms)

    def candidates(self, x: Array, i: int) -> tuple[Array, Array]:
        values, boxes = self.grid(x, np.array(self.params.biases[: 2 * self.params.num_box], np.float32))
        share = np.exp(values[..., 5:] - values[..., 5:].max(-1, keepdims=True))
        share *= sigmoid(values[..., 4:5]) / share.sum(-1, keepdims=True)
        return boxes, share

    def chosen(self, scores: Array) -> tuple[Array, Array]:
        box = np.flatnonzero(scores.max(1) >= np.float32(self.params.confidence_threshold))
        return box, scores.argmax(1)[box]
