"""MultinomialLogisticLoss: cross entropy of probabilities."""

from __future__ import annotations

from ..blob import Array
from ..util.lazy_numpy import np
from ._loss import TINY, FlatLoss, taken


class MultinomialLogisticLoss(FlatLoss):
    """Minus the mean logarithm of the labels' probabilities, which are the first bottom."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels = self.flat(*bottoms)
        each = np.log(np.maximum(taken(data, labels), TINY))
        return (np.asarray(np.float32(-each.sum() / len(data))),)[: len(self.tops)]
