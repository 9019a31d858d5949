"""Losses and measures: numbers that compare a network's blobs with labels; and those of forks and writers, which are left out.

Accuracy: fraction of correct labels.
ContrastiveLoss: distance of similar pairs, lack of distance of others.
DetectionEvaluate: SSD's true and false positives.
EuclideanLoss: half the squared distance of two blobs per item.
HDF5Output: blobs written to a file.
HingeLoss: one against all.
InfogainLoss: cross entropy weighted by a matrix.
MultiBoxLoss: SSD's loss of boxes and classes.
MultinomialLogisticLoss: cross entropy of probabilities.
SegmentationEvaluate: agreement of segmented areas.
SigmoidCrossEntropyLoss: cross entropy of a sigmoid with targets between 0 and 1.
SoftmaxWithLoss: cross entropy of a softmax.
YoloSeg: a segmentation loss.
Yolov3: the loss of YOLOv3.
YoloV3Loss: the loss of YOLOv3.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph import Layer
from ..graph.params import MessageFields, axis_index, choice, within
from ..util.lazy_numpy import np
from .softmax import Softmax, softmax

TINY = 1e-20  # smallest probability whose logarithm Caffe takes (kLOG_THRESHOLD)


class Loss(Layer):
    """A number without axes. ``bottoms[1]`` are labels or targets; a second top, if the type has one, is its detail."""

    training_only = True
    bottoms_allowed = (2, 2)
    tops_allowed = (0, 1)  # without a top Caffe makes one up
    elementwise = False  # compares its bottoms number by number

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return one scalar. Raises ShapeError unless the first two bottoms have the same number of items."""
        if self.elementwise:
            self.same_items(*bottoms)
        if self.loss.weight_by_label_freqs:
            raise self.wrong("weight_by_label_freqs is not supported", hint="leave it out, or do not feed the labels")
        if not bottoms[0]:
            raise self.wrong("its first bottom is a scalar, expected an axis of items")
        if bottoms[0][:1] != bottoms[1][:1]:
            raise self.wrong(f"data {show(bottoms[0])} and labels {show(bottoms[1])} have different numbers of items")
        return ((),) * len(self.tops)

    def same_items(self, *bottoms: Shape) -> None:
        """Raise ShapeError unless the first two bottoms have the same number of elements."""
        if prod(bottoms[0]) != prod(bottoms[1]):
            raise self.wrong(f"its bottoms {show(bottoms[0])} and {show(bottoms[1])} differ in size")

    def one_label_each(self, axis: int, *bottoms: Shape) -> None:
        """Raise ShapeError unless there is a label for each position of a blob with the classes along ``axis``."""
        axis = self.axis(axis, bottoms[0])
        expected = prod(bottoms[0][:axis]) * prod(bottoms[0][axis + 1 :])
        if prod(bottoms[1]) != expected:
            what = f"{prod(bottoms[1])} labels ({show(bottoms[1])}) for {expected} positions of {show(bottoms[0])}"
            raise self.wrong(what, hint=f"a label each: every axis of the data but axis {axis}, the classes")

    def by_class(self, axis: int, data: Array, labels: Array, ignore: int | None) -> tuple[Array, Array, Array]:
        """Return the data as (outer, classes, inner), labels as integers (outer, inner), and which of them count.

        Raises ModelError for a label that is no class.
        """
        axis = self.axis(axis, data.shape)
        classes = data.shape[axis]
        flat = data.reshape(prod(data.shape[:axis]), classes, -1)
        index = labels.astype(np.int64).reshape(flat.shape[0], -1)
        counts = np.ones(index.shape, bool) if ignore is None else index != ignore
        wrong = index[counts & ((index < 0) | (index >= classes))]
        if wrong.size:
            what = f"label {wrong[0]} is outside 0 .. {classes - 1}"
            raise self.failure(ModelError(what, hint="loss_param { ignore_label: N } for labels that do not count"))
        return flat, np.where(counts, index, 0), counts

    def divisor(self, positions: Shape, valid: int, default: str) -> float:
        """Return the number that the sum is divided by (get_normalizer in Caffe's loss layers), at least 1."""
        p = self.loss
        mode = p.normalization or (default if p.normalize is None else "VALID" if p.normalize else "BATCH_SIZE")
        return float(max({"FULL": prod(positions), "VALID": valid, "BATCH_SIZE": positions[0], "NONE": 1}[mode], 1))


class FlatLoss(Loss):
    """A Loss over classes in all axes after the first: an item's blob is one vector of them."""

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.one_label_each(1, (*bottoms[0][:1], prod(bottoms[0][1:])), bottoms[1])
        return super().shapes(*bottoms)

    def flat(self, data: Array, labels: Array) -> tuple[Array, Array]:
        """Return data (items, classes, 1) and labels (items, 1) as ``by_class`` does."""
        return self.by_class(1, data.reshape(len(data), -1), labels, None)[:2]


def taken(values: Array, index: Array) -> Array:
    """Return, of values (outer, classes, inner), those of the class ``index`` (outer, inner) in float64."""
    chosen: Array = np.take_along_axis(values, index[:, None], 1)[:, 0].astype(np.float64)
    return chosen


class Accuracy(Loss):
    """A second top has the fraction of each class. A score equal to the label's ranks before it, as in Caffe."""

    tops_allowed = (0, 2)

    class Params(MessageFields):
        """A label is correct if it is among the ``top_k`` highest scores along ``axis``."""

        top_k: int = within(1, 2**31 - 1, 1)
        axis: int = axis_index(1)
        ignore_label: int | None = None

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.one_label_each(self.params.axis, *bottoms)
        classes = bottoms[0][self.axis(self.params.axis, bottoms[0])]
        if self.params.top_k > classes:
            raise self.wrong(f"top_k {self.params.top_k} is more than its {classes} classes")
        return ((), (classes,))[: len(self.tops)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        data, labels, counts = self.by_class(p.axis, bottoms[0], bottoms[1], p.ignore_label)
        before = (data >= taken(data, labels)[:, None]).sum(1) - 1
        right = (before < p.top_k) & counts
        share = right.sum() / max(int(counts.sum()), 1)
        classes = data.shape[1]
        of_class = [np.bincount(labels[which], minlength=classes) for which in (right, counts)]
        per_class = of_class[0] / np.maximum(of_class[1], 1)
        return (np.asarray(np.float32(share)), per_class.astype(np.float32))[: len(self.tops)]


class ContrastiveLoss(Loss):
    """Bottoms: two blobs (N, C) or (N, C, 1, 1), and N labels, 1 for a similar pair."""

    bottoms_allowed = (3, 3)

    class Params(MessageFields):
        """Other pairs cost nothing from ``margin`` on; the legacy version subtracts the squared distance from it."""

        margin: float = 1.0
        legacy_version: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.same_items(*bottoms)
        if len(bottoms[0]) < 2 or any(d != 1 for d in bottoms[0][2:]):
            raise self.wrong(f"expected a vector per item (N, C), found {bottoms[0]}")
        self.one_label_each(1, bottoms[0][:2], bottoms[2])
        return super().shapes(*bottoms)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        a, b = (bottom.reshape(len(bottom), -1).astype(np.float64) for bottom in bottoms[:2])
        squared = ((a - b) ** 2).sum(1)
        margin = self.params.margin
        if self.params.legacy_version:
            apart = np.maximum(margin - squared, 0)
        else:
            apart = np.maximum(margin - np.sqrt(squared), 0) ** 2
        each = np.where(bottoms[2].reshape(-1).astype(np.int64) != 0, squared, apart)
        return (np.asarray(np.float32(each.sum() / (2 * len(a)))),)[: len(self.tops)]


class EuclideanLoss(Loss):
    """sum((a - b)^2) / 2N."""

    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        a, b = (bottom.reshape(-1).astype(np.float64) for bottom in bottoms)
        return (np.asarray(np.float32(((a - b) ** 2).sum() / (2 * len(bottoms[0])))),)[: len(self.tops)]


class HingeLoss(FlatLoss):
    """The sum of max(0, 1 + x), with x negated for the labelled class, per item."""

    class Params(MessageFields):
        """L1: margins are summed, L2: their squares."""

        norm: str = choice("L1", "L2", default="L1")

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels = self.flat(*bottoms)
        signed = data[:, :, 0].astype(np.float64)
        signed[np.arange(len(signed)), labels[:, 0]] *= -1
        margins = np.maximum(0, 1 + signed)
        total = margins.sum() if self.params.norm == "L1" else (margins**2).sum()
        return (np.asarray(np.float32(total / len(signed))),)[: len(self.tops)]


class MultinomialLogisticLoss(FlatLoss):
    """Minus the mean logarithm of the labels' probabilities, which are the first bottom."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels = self.flat(*bottoms)
        each = np.log(np.maximum(taken(data, labels), TINY))
        return (np.asarray(np.float32(-each.sum() / len(data))),)[: len(self.tops)]


class SigmoidCrossEntropyLoss(Loss):
    """The sum over all elements, divided by the batch unless loss_param says otherwise."""

    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, target = (b.reshape(b.shape[0], -1).astype(np.float64) for b in bottoms)
        ignore = self.loss.ignore_label
        counts = np.ones(target.shape, bool) if ignore is None else target.astype(np.int64) != ignore
        positive = (x >= 0).astype(np.float64)  # 1 or 0
        each = x * (target - positive) - np.log1p(np.exp(-np.abs(x)))
        divisor = self.divisor(x.shape, int(counts.sum()), "BATCH_SIZE")
        return (np.asarray(np.float32(-each[counts].sum() / divisor)),)[: len(self.tops)]


class SoftmaxWithLoss(Loss):
    """Minus the mean logarithm of the labels' probabilities; a second top has all probabilities."""

    message = "softmax_param"
    Params: ClassVar[type] = Softmax.Params
    tops_allowed = (0, 2)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        super().shapes(*bottoms)
        self.one_label_each(self.params.axis, *bottoms[:2])
        return ((), bottoms[0])[: len(self.tops)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels, counts = self.by_class(self.params.axis, bottoms[0], bottoms[1], self.loss.ignore_label)
        probabilities = softmax(data, 1)
        each = self.logarithms(probabilities, labels, *bottoms[2:])
        loss = np.float32(-each[counts].sum() / self.divisor(counts.shape, int(counts.sum()), "VALID"))
        return (np.asarray(loss), probabilities.reshape(bottoms[0].shape))[: len(self.tops)]

    def logarithms(self, probabilities: Array, labels: Array, *matrix: Array) -> Array:
        """Return what counts for each position (outer, inner), of probabilities (outer, classes, inner) and its label."""
        return np.asarray(np.log(np.maximum(taken(probabilities, labels), np.finfo(np.float32).tiny)))


class InfogainLoss(SoftmaxWithLoss):
    """Bottoms: scores, labels, and the matrix H of classes x classes. A second top has the softmax of the scores.

    The loss is the mean over positions of -sum_k H[label, k] log(p_k), as in Caffe since 2017.
    """

    message = "infogain_loss_param"
    bottoms_allowed = (2, 3)

    class Params(MessageFields):
        """``source`` names a file with the matrix, which is never opened: the third bottom has it."""

        source: str = ""
        axis: int = axis_index(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        tops = super().shapes(*bottoms)
        classes = bottoms[0][self.axis(self.params.axis, bottoms[0])]
        if len(bottoms) < 3:
            raise self.wrong("its matrix is in a file, which is not opened", hint="give it as the third bottom")
        if prod(bottoms[2]) != classes * classes:
            raise self.wrong(f"the matrix is {show(bottoms[2])}, expected {classes}x{classes}")
        return tops

    def logarithms(self, probabilities: Array, labels: Array, *matrix: Array) -> Array:
        rows = matrix[0].reshape(probabilities.shape[1], -1).astype(np.float64)[labels]  # (outer, inner, classes)
        logs = np.log(np.maximum(probabilities, TINY).astype(np.float64))
        return np.asarray((rows * logs.transpose(0, 2, 1)).sum(2))


class TrainingLayer(Layer):
    """Dropped with its tops, in phase TEST, too."""

    training_only = skipped = True
    bottoms_allowed = (1, None)
    tops_allowed = (0, None)


class DetectionEvaluate(TrainingLayer):
    """Dropped at TEST."""


class HDF5Output(TrainingLayer):
    """Dropped at TEST."""


class MultiBoxLoss(TrainingLayer):
    """Dropped at TEST."""


class SegmentationEvaluate(TrainingLayer):
    fork = "eric612/MobileNet-YOLO"


class YoloSeg(TrainingLayer):
    fork = "eric612/MobileNet-YOLO"


class YoloV3Loss(TrainingLayer):
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"


class Yolov3(TrainingLayer):
    fork = "eric612/MobileNet-YOLO"
