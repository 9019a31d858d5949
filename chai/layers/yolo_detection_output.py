"""YoloDetectionOutput: YOLOv2's boxes after thresholds and suppression."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._yolo import YoloLayer, by_cell, sigmoid


@dataclass(frozen=True)
class YoloDetectionOutputParams:
    """biases are the anchors' widths and heights in cells."""

    num_classes: int = within(1, SIZE, 20)
    num_box: int = within(1, SIZE, 5)
    coords: int = within(4, 4, 4)
    confidence_threshold: float = 0.01
    nms_threshold: float = within(0, 1e6, 0.45)
    biases: tuple[float, ...] = ()


class YoloDetectionOutput(YoloLayer):
    """A box's size is relative to (W, H).

    Its label is the most likely class, its score sigmoid(objectness) * softmax(class); it is a candidate if the score
    reaches confidence_threshold. A second bottom is another grid with the same anchors.
    """

    message = "yolo_detection_output_param"
    Params = YoloDetectionOutputParams
    bottoms_allowed = (1, 2)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        if len(p.biases) < 2 * p.num_box:
            raise self.wrong(f"{len(p.biases)} biases for {p.num_box} boxes; expected {2 * p.num_box}")
        return super().shapes(*bottoms)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        anchors = np.array(p.biases[: 2 * p.num_box], np.float32)
        grids = []
        for x in bottoms:
            values, boxes = self.grid(x, anchors)
            share = np.exp(values[..., 5:] - values[..., 5:].max(-1, keepdims=True))
            share *= sigmoid(values[..., 4:5]) / share.sum(-1, keepdims=True)
            grids.append((by_cell(boxes), by_cell(share)))
        lines: list[tuple[float, ...]] = []
        for image in range(len(bottoms[0])):
            boxes = np.concatenate([b[image] for b, _ in grids])
            scores = np.concatenate([s[image] for _, s in grids])
            label, score = scores.argmax(1), scores.max(1)
            kept = score >= np.float32(p.confidence_threshold)
            lines += self.found(boxes[kept], score[kept], label[kept], image)
        return self.top(lines, len(bottoms[0]))
