"""AnchorFreeDetectionOutput: boxes of YOLOv8 and its successors from distances to the sides of a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..blob import Array, Shape, count, show
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from ._detections import few
from ._heads import HeadLayer, HeadParams, joined
from .sigmoid import sigmoid


class AnchorFreeDetectionOutput(HeadLayer):
    """Bottoms: 4 * reg_max bins of distances and the logits of classes, in one of these forms.

    1. a map per stride, (N, 4 * reg_max + classes, H, W)
    2. two maps per stride, one after the other: (N, 4 * reg_max, H, W) and (N, classes, H, W)
    3. one blob of all strides, (N, 4 * reg_max + classes, cells), or two: (N, 4 * reg_max, cells) and (N, classes, cells)

    A distance (left, top, right, bottom, in cells from a cell's centre) is the expectation of its bins' softmax; with reg_max 1
    it is the number itself. A class's score is its sigmoid.
    """

    bottoms_allowed = (1, None)

    @dataclass(frozen=True)
    class Params(HeadParams):
        """stride, and height and width of the input, are for form 3 alone, where they give the cells of each map."""

        reg_max: int = within(1, SIZE, 16)
        stride: tuple[int, ...] = within(1, SIZE, ())
        height: int = within(0, SIZE, 0)
        width: int = within(0, SIZE, 0)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        bins, first = 4 * self.params.reg_max, bottoms[0]
        if {len(shape) for shape in bottoms} not in ({3}, {4}) or len({shape[0] for shape in bottoms}) != 1:
            raise self.wrong(f"expected maps or blobs of all maps of the same images, found {self._listed(bottoms)}")
        if len(first) == 3 and len(bottoms) > 2:
            raise self.wrong(f"expected distances and classes of all cells, found {self._listed(bottoms)}")
        pairs = self._pairs(bottoms)
        if any(boxes[1] != bins or boxes[2:] != scores[2:] for boxes, scores in pairs):
            raise self.wrong(f"{self._listed(bottoms)}: expected {bins} channels of distances beside those of classes")
        classes, cells = {scores[1] for _, scores in pairs}, sum(count(scores[2:]) for _, scores in pairs)
        if len(classes) != 1 or min(classes) < 1:
            raise self.wrong(
                f"{self._listed(bottoms)}: expected {bins} channels of distances and some classes, alike in all"
            )
        expected = sum(h * w for h, w in self._grids())
        if len(first) == 3 and expected != cells:
            raise self.wrong(
                f"{cells} cells; expected {expected} for strides {list(self.params.stride)} and "
                f"an input of {self.params.height}x{self.params.width}"
            )
        few(self, boxes=cells, scores=cells * classes.pop())
        return ((1, 1, 1, 7),)

    def box_classes(self, *bottoms: Shape) -> int:
        return self._pairs(bottoms)[0][1][1]

    def _pairs(self, bottoms: Sequence[Shape]) -> list[tuple[Shape, Shape]]:
        """Return the shapes of distances and of classes of each map or blob."""
        bins = 4 * self.params.reg_max
        if self._apart(bottoms[0][1], len(bottoms)):
            return [*zip(bottoms[::2], bottoms[1::2])]
        return [((n, bins, *cells), (n, channels - bins, *cells)) for n, channels, *cells in bottoms]

    def _listed(self, shapes: tuple[Shape, ...]) -> str:
        return " and ".join(map(show, shapes))

    def _grids(self) -> list[tuple[int, int]]:
        """Return height and width in cells of each map of form 3."""
        p = self.params
        return [(ceil_div(p.height, stride), ceil_div(p.width, stride)) for stride in p.stride]

    def _apart(self, channels: int, bottoms: int) -> bool:
        """Return whether distances and classes have bottoms of their own, of which the first has so many channels."""
        return bool(channels == 4 * self.params.reg_max and bottoms % 2 == 0)

    def candidates(self, *bottoms: Array) -> tuple[Array, Array, Array]:
        bins = 4 * self.params.reg_max
        if self._apart(len(bottoms[0]), len(bottoms)):
            pairs = [*zip(bottoms[::2], bottoms[1::2])]
        else:
            pairs = [(bottom[:bins], bottom[bins:]) for bottom in bottoms]
        if bottoms[0].ndim == 3:
            grids = [boxes.shape[1:] for boxes, _ in pairs]
        else:
            grids = self._grids()
            ends = np.cumsum([height * width for height, width in grids])[:-1]
            pairs = [*zip(*(np.split(blob, ends, 1) for blob in pairs[0]))]
        return joined([self._of_map(*pair, *grid) for pair, grid in zip(pairs, grids)])

    def _of_map(self, boxes: Array, classes: Array, height: int, width: int) -> tuple[Array, Array, Array]:
        boxes, classes = boxes.reshape(len(boxes), -1), classes.reshape(len(classes), -1)
        cell = np.flatnonzero(classes.max(0) > self.least_logit)
        scores = sigmoid(classes[:, cell])
        label, which = self.chosen(scores)
        cell = cell[which]
        bins = boxes[:, cell].reshape(4, self.params.reg_max, -1)
        if self.params.reg_max > 1:
            shares = np.exp(bins - bins.max(1, keepdims=True))
            places = np.arange(self.params.reg_max, dtype=np.float32).reshape(-1, 1)
            distances = (shares * places).sum(1) / shares.sum(1)
        else:
            distances = bins[:, 0]
        center = np.stack([cell % width, cell // width]).astype(np.float32) + np.float32(0.5)
        grid = np.array([[width], [height]], np.float32)
        corners = np.concatenate([(center - distances[:2]) / grid, (center + distances[2:]) / grid])
        return corners, scores[label, which], label
