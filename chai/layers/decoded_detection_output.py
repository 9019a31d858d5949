"""DecodedDetectionOutput: boxes that the network has decoded, and their scores."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._detections import around, few
from ._heads import HeadLayer, HeadParams

ROUNDING = 1e-3  # by which a probability may exceed 1


class DecodedDetectionOutput(HeadLayer):
    """Bottom: (N, 4 + classes, boxes), or (N, boxes, 4 + classes) with channels_last.

    Centre x and y, width and height are in pixels of the input, scores are probabilities. With objectness there is one more
    number after the size, which multiplies them.
    """

    @dataclass(frozen=True)
    class Params(HeadParams):
        """height and width of the network's input in pixels."""

        height: int = within(0, SIZE, 0)
        width: int = within(0, SIZE, 0)
        objectness: bool = False
        channels_last: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        (bottom,), p = bottoms, self.params
        if not (p.height and p.width):
            raise self.wrong("height and width of the network's input are missing")
        if len(bottom) != 3 or self.box_classes(bottom) < 1:
            raise self.wrong(f"expected {4 + p.objectness} numbers of each box and its classes, found {show(bottom)}")
        boxes = bottom[1] if p.channels_last else bottom[2]
        few(self, boxes=boxes, scores=boxes * self.box_classes(bottom))
        return ((1, 1, 1, 7),)

    def box_classes(self, *bottoms: Shape) -> int:
        channels = bottoms[0][2] if self.params.channels_last else bottoms[0][1]
        return channels - 4 - int(self.params.objectness)

    def candidates(self, *bottoms: Array) -> tuple[Array, Array, Array]:
        p = self.params
        values = bottoms[0].T if p.channels_last else bottoms[0]
        first, least = 4 + p.objectness, np.float32(p.confidence_threshold)
        which = np.flatnonzero((values[4] if p.objectness else values[4:].max(0)) > least)
        values = values[:, which]  # of few
        scores = values[first:] * values[4] if p.objectness else values[first:]
        if values[4:].max(initial=0) > 1 + ROUNDING:
            what = f"a score of {values[4:].max():.4g}; expected probabilities of boxes that are decoded"
            hint = "a head that is not decoded has maps, or needs its number of classes: [detect] classes = N"
            raise self.failure(ModelError(what, hint=hint))
        label, kept = self.chosen(scores)
        size = np.array([[p.width], [p.height]], np.float32)
        corners = around(values[:2, kept] / size, values[2:4, kept] / size)
        return corners, scores[label, kept], label
