"""AnchoredDetectionOutput: boxes of YOLOv2, v3, v4 and v5 from their maps."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph.params import SIZE, choice, within
from ..util.lazy_numpy import np
from ._detections import around, few
from ._heads import HeadLayer, HeadParams, joined
from .sigmoid import sigmoid
from .softmax import softmax


class AnchoredDetectionOutput(HeadLayer):
    """Bottoms: a map per stride (N, anchors * (5 + classes), H, W), or (N, anchors, H, W, 5 + classes), logits.

    With s = scale_x_y, a centre is (cell + sigmoid(x, y) * s - (s - 1) / 2) * stride, a size exp(w, h) * anchor or
    (2 * sigmoid(w, h))^2 * anchor, a class's score sigmoid(objectness) * sigmoid(class) or * softmax(classes).
    """

    bottoms_allowed = (1, None)

    @dataclass(frozen=True)
    class Params(HeadParams):
        """anchor: widths and heights in pixels of the input, map by map; stride: pixels of the input in a cell of each map."""

        anchor: tuple[float, ...] = within(0, 1e6, ())
        stride: tuple[int, ...] = within(1, SIZE, ())
        scale_x_y: tuple[float, ...] = within(0, 100, ())
        size: str = choice("EXPONENT", "SQUARE", default="EXPONENT")
        score: str = choice("SIGMOID", "SOFTMAX", default="SIGMOID")

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p, maps = self.params, len(bottoms)
        if not p.anchor or len(p.anchor) % (2 * maps):
            raise self.wrong(
                f"{len(p.anchor)} numbers of anchors; expected as many widths and heights for each of {maps} maps"
            )
        for what, values in (("stride", p.stride), ("scale_x_y", p.scale_x_y)):
            if len(values) != maps and (values or what == "stride"):
                raise self.wrong(f"{len(values)} numbers of {what} for {maps} maps")
        anchors, first = len(p.anchor) // 2 // maps, self.box_classes(*bottoms)
        boxes = 0
        for shape in bottoms:
            if self.box_classes(shape) != first or shape[0] != bottoms[0][0]:
                raise self.wrong(f"maps of different classes or images: {show(bottoms[0])} and {show(shape)}")
            boxes += anchors * shape[2] * shape[3]
        few(self, boxes=boxes, scores=boxes * first)
        return ((1, 1, 1, 7),)

    def box_classes(self, *bottoms: Shape) -> int:
        shape = bottoms[0]
        anchors = len(self.params.anchor) // 2 // max(1, len(self.params.stride))
        if len(shape) == 5 and shape[1] == anchors and shape[4] > 5:
            return shape[4] - 5
        if len(shape) == 4 and shape[1] % anchors == 0 and shape[1] // anchors > 5:
            return shape[1] // anchors - 5
        raise self.wrong(f"{show(shape)} is no map of {anchors} anchors with 5 numbers and its classes each")

    def candidates(self, *bottoms: Array) -> tuple[Array, Array, Array]:
        p = self.params
        anchors = np.array(p.anchor, np.float32).reshape(len(bottoms), -1, 2)
        scales = p.scale_x_y or (1.0,) * len(bottoms)
        return joined([self._of_map(*one) for one in zip(bottoms, anchors, p.stride, scales)])

    def _of_map(self, x: Array, anchors: Array, stride: int, scale: float) -> tuple[Array, Array, Array]:
        count = len(anchors)
        if x.ndim == 4:  # (anchors, H, W, 5 + classes)
            height, width = x.shape[1:3]
            values = x.reshape(count, height * width, -1).transpose(0, 2, 1)
        else:
            height, width = x.shape[1:]
            values = x.reshape(count, -1, height * width)
        anchor, cell = np.nonzero(values[:, 4] > self.least_logit)
        v = values[anchor, :, cell]  # (boxes, 5 + classes), of few
        shares = sigmoid(v[:, 5:]) if self.params.score == "SIGMOID" else softmax(v[:, 5:], 1)
        shares *= sigmoid(v[:, 4:5])
        label, which = self.chosen(shares.T)
        v, row, column = v[which, :4].T, cell[which] // width, cell[which] % width
        grid = np.array([[width], [height]], np.float32)
        shift = np.float32((scale - 1) / 2)
        center = (np.stack([column, row]).astype(np.float32) + sigmoid(v[:2]) * np.float32(scale) - shift) / grid
        size = np.exp(v[2:]) if self.params.size == "EXPONENT" else np.square(2 * sigmoid(v[2:]))
        size = size * anchors[anchor[which]].T / (grid * np.float32(stride))
        return around(center, size), shares[which, label], label
