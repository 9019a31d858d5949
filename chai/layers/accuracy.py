"""Accuracy: fraction of correct labels."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import axis_index, within
from ..util.lazy_numpy import np
from ._loss import Loss, taken


class Accuracy(Loss):
    """A second top has the fraction of each class. A score equal to the label's ranks before it, as in Caffe."""

    message = "accuracy_param"
    tops_allowed = (0, 2)

    @dataclass(frozen=True)
    class Params:
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
