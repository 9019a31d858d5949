"""AnchorFreeDetectionOutput: boxes of YOLOv8 and its successors from distances to the sides of a box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
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

    message = "anchor_free_detection_output_param"
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
        pairs = self._pairs(*[shape[1:] for shape in bottoms])
        classes, cells = set(), 0
        for boxes, scores in pairs:
            if scores is None:
                scores = (boxes[0] - bins, *boxes[1:])
            elif boxes[0] != bins or boxes[1:] != scores[1:]:
                raise self.wrong(
                    f"{self._listed(bottoms)}: expected {bins} channels of distances beside those of classes"
                )
            classes.add(scores[0])
            cells += int(np.prod(scores[1:]))
        if len(classes) != 1 or min(classes) < 1:
            raise self.wrong(
                f"{self._listed(bottoms)}: expected {bins} channels of distances and some classes, alike in all"
            )
        if len(first) == 3 and sum(h * w for h, w in self._grids()) != cells:
            raise self.wrong(
                f"{cells} cells; expected {sum(h * w for h, w in self._grids())} for strides {list(self.params.stride)} and "
                f"an input of {self.params.height}x{self.params.width}"
            )
        few(self, boxes=cells, scores=cells * classes.pop())
        return ((1, 1, 1, 7),)

    def _listed(self, shapes: tuple[Shape, ...]) -> str:
        return " and ".join(map(show, shapes))

    def _grids(self) -> list[tuple[int, int]]:
        """Return height and width in cells of each map of form 3."""
        p = self.params
        return [(-(-p.height // stride), -(-p.width // stride)) for stride in p.stride]

    def _pairs(self, *items: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...] | None]]:
        """Return the shapes of an image's distances, and of its classes if they have a bottom of their own."""
        if items[0][0] == 4 * self.params.reg_max and len(items) % 2 == 0:
            return list(zip(items[::2], items[1::2]))
        return [(item, None) for item in items]

    def _maps(self, *bottoms: Array) -> Iterator[tuple[Array, Array, int, int]]:
        """Yield distances (4 * reg_max, cells), classes (classes, cells), height and width of each map: views."""
        bins = 4 * self.params.reg_max
        apart = self._pairs(*[bottom.shape for bottom in bottoms])[0][1] is not None
        boxes = bottoms[::2] if apart else [bottom[:bins] for bottom in bottoms]
        scores = bottoms[1::2] if apart else [bottom[bins:] for bottom in bottoms]
        if bottoms[0].ndim == 3:
            for distances, classes in zip(boxes, scores):
                height, width = distances.shape[1:]
                yield distances.reshape(bins, -1), classes.reshape(len(classes), -1), height, width
            return
        start = 0
        for height, width in self._grids():
            part = slice(start, start + height * width)
            yield boxes[0][:, part], scores[0][:, part], height, width
            start = part.stop

    def candidates(self, *bottoms: Array) -> tuple[Array, Array, Array]:
        return joined([self._of_map(*one) for one in self._maps(*bottoms)])

    def _of_map(self, boxes: Array, classes: Array, height: int, width: int) -> tuple[Array, Array, Array]:
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
