"""Heads of detectors: candidates whose scores exceed a threshold, and suppression within each class.

AnchorFreeDetectionOutput: boxes of YOLOv8 and its successors from distances to the sides of a box.
AnchoredDetectionOutput: boxes of YOLOv2, v3, v4 and v5 from their maps.
DecodedDetectionOutput: boxes that the network has decoded, and their scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

from ..blob import Array, Shape, count, show
from ..errors import ModelError
from ..graph.params import SIZE, MessageFields, choice, within
from ..kernels.boxes import Suppression, runs, suppress
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from ._detections import DetectionLayer, around, few, rows_of, table
from .softmax import sigmoid, softmax

MARGIN = 1e-3  # of logits below the threshold, which rounding may lift above it


class HeadParams(MessageFields):
    """The parameters of every head.

    ``confidence_threshold``   scores must exceed it
    ``nms_threshold``   overlap with a better box of the class beyond which a box is dropped
    ``top_k``, ``keep_top_k``   boxes of an image that suppression begins with, and that are kept
    ``multi_label``     whether each class of a box above the threshold counts, or its best one alone
    """

    confidence_threshold: float = within(0, 1, 0.25)
    nms_threshold: float = within(0, 1, 0.45)
    top_k: int = within(1, 2**31 - 1, 30_000)
    keep_top_k: int = within(1, 2**31 - 1, 300)
    multi_label: bool = False


class HeadLayer(DetectionLayer):
    """Labels are classes from 0, corners fractions of the network's input; rows are sorted by image, then by descending score."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        with np.errstate(over="ignore", invalid="ignore"):  # of boxes that are no numbers, which are dropped
            parts = [self._rows(image, self.candidates(*maps)) for image, maps in enumerate(zip(*bottoms))]
        return table(parts, len(bottoms[0]))

    def candidates(self, *bottoms: Array) -> tuple[Array, Array, Array]:
        """Return the boxes of an image whose scores exceed the threshold: corners (4, boxes), scores and classes (boxes,)."""
        raise NotImplementedError(self.type)

    def chosen(self, scores: Array) -> tuple[Array, Array]:
        """Return class and place of the scores (classes, boxes) that exceed the threshold."""
        least = np.float32(self.params.confidence_threshold)
        if self.params.multi_label:
            label, box = np.nonzero(scores > least)
            return label, box
        best = scores.argmax(0)
        box = np.flatnonzero(np.take_along_axis(scores, best[None], 0)[0] > least)
        return best[box], box

    @property
    def least_logit(self) -> float:
        """Return the number that the logit of a score above the threshold exceeds."""
        least = float(np.float32(self.params.confidence_threshold))
        return log(least / (1 - least)) - MARGIN if 0 < least < 1 else inf if least else -inf

    def _rows(self, image: int, candidates: tuple[Array, Array, Array]) -> Array:
        corners, scores, labels = candidates
        number = np.isfinite(corners).all(0)
        best = np.argsort(-scores[number], kind="stable")[: self.params.top_k]
        which = np.flatnonzero(number)[best]
        which = which[np.argsort(labels[which], kind="stable")]
        corners, scores, labels = corners[:, which], scores[which], labels[which]
        low, high, kept = corners[:2], corners[2:], list[int]()
        area = np.prod(high - low, 0)
        rule = Suppression(self.params.nms_threshold)
        for part in runs(labels):
            kept += [part.start + i for i in suppress(low[:, part], high[:, part], area[part], rule)]
        order = np.array(kept, np.intp)[np.argsort(-scores[kept], kind="stable")[: self.params.keep_top_k]]
        return rows_of(image, labels[order], scores[order], corners[:, order])


def joined(parts: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Return the candidates of several maps as those of one."""
    corners, scores, labels = zip(*parts)
    return np.concatenate(corners, 1), np.concatenate(scores), np.concatenate(labels)


class AnchorFreeDetectionOutput(HeadLayer):
    """Bottoms: 4 * reg_max bins of distances and the logits of classes, in one of these forms.

    1. a map per stride, (N, 4 * reg_max + classes, H, W)
    2. two maps per stride, one after the other: (N, 4 * reg_max, H, W) and (N, classes, H, W)
    3. one blob of all strides, (N, 4 * reg_max + classes, cells), or two: (N, 4 * reg_max, cells) and (N, classes, cells)

    A distance (left, top, right, bottom, in cells from a cell's centre) is the expectation of its bins' softmax; with reg_max 1
    it is the number itself. A class's score is its sigmoid.
    """

    bottoms_allowed = (1, None)

    class Params(HeadParams):
        """stride, and height and width of the input, are for form 3 alone, where they give the cells of each map."""

        reg_max: int = within(1, SIZE, 16)
        stride: tuple[int, ...] = within(1, SIZE, ())
        height: int = within(0, SIZE, 0)
        width: int = within(0, SIZE, 0)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        bins, first, listed = 4 * self.params.reg_max, bottoms[0], " and ".join(map(show, bottoms))
        if {len(shape) for shape in bottoms} not in ({3}, {4}) or len({shape[0] for shape in bottoms}) != 1:
            raise self.wrong(f"expected maps or blobs of all maps of the same images, found {listed}")
        if len(first) == 3 and len(bottoms) > 2:
            raise self.wrong(f"expected distances and classes of all cells, found {listed}")
        pairs = self._pairs(bottoms)
        if any(boxes[1] != bins or boxes[2:] != scores[2:] for boxes, scores in pairs):
            raise self.wrong(f"{listed}: expected {bins} channels of distances beside those of classes")
        classes, cells = {scores[1] for _, scores in pairs}, sum(count(scores[2:]) for _, scores in pairs)
        if len(classes) != 1 or min(classes) < 1:
            raise self.wrong(f"{listed}: expected {bins} channels of distances and some classes, alike in all")
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


class AnchoredDetectionOutput(HeadLayer):
    """Bottoms: a map per stride (N, anchors * (5 + classes), H, W), or (N, anchors, H, W, 5 + classes), logits.

    With s = scale_x_y, a centre is (cell + sigmoid(x, y) * s - (s - 1) / 2) * stride, a size exp(w, h) * anchor or
    (2 * sigmoid(w, h))^2 * anchor, a class's score sigmoid(objectness) * sigmoid(class) or * softmax(classes).
    """

    bottoms_allowed = (1, None)

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
                f"{number_of(len(p.anchor), 'number')} of anchors; expected as many widths and heights for each of {maps} maps"
            )
        for what, values in (("stride", p.stride), ("scale_x_y", p.scale_x_y)):
            if len(values) != maps and (values or what == "stride"):
                raise self.wrong(f"{number_of(len(values), 'number')} of {what} for {maps} maps")
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


ROUNDING = 1e-3  # by which a probability may exceed 1


class DecodedDetectionOutput(HeadLayer):
    """Bottom: (N, 4 + classes, boxes), or (N, boxes, 4 + classes) with channels_last.

    Centre x and y, width and height are in pixels of the input, scores are probabilities. With objectness there is one more
    number after the size, which multiplies them.
    """

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
