"""Losses and measures: numbers that compare a network's blobs with labels."""

from __future__ import annotations

from math import prod

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph import Layer
from ..util.lazy_numpy import np

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
