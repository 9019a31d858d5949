"""MultinomialLogisticLoss: cross entropy of probabilities."""

from __future__ import annotations

from math import prod

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ._loss import TINY, Loss, taken


class MultinomialLogisticLoss(Loss):
    """Minus the mean logarithm of the labels' probabilities, which are the first bottom."""

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.one_label_each(1, (*bottoms[0][:1], prod(bottoms[0][1:])), bottoms[1])
        return super().shapes(*bottoms)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels, _ = self.by_class(1, bottoms[0].reshape(len(bottoms[0]), -1), bottoms[1], None)
        each = np.log(np.maximum(taken(data, labels), TINY))
        return (np.asarray(np.float32(-each.sum() / len(data))),)[: len(self.tops)]
