"""SoftmaxWithLoss: cross entropy of a softmax."""

from __future__ import annotations

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ._loss import Loss, taken
from .softmax import Softmax, softmax


class SoftmaxWithLoss(Loss):
    """Minus the mean logarithm of the labels' probabilities; a second top has all probabilities."""

    message = "softmax_param"
    Params = Softmax.Params
    tops_allowed = (0, 2)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        super().shapes(*bottoms)
        self.one_label_each(self.params.axis, *bottoms)
        return ((), bottoms[0])[: len(self.tops)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels, counts = self.by_class(self.params.axis, bottoms[0], bottoms[1], self.loss.ignore_label)
        probabilities = softmax(data, 1)
        each = np.log(np.maximum(taken(probabilities, labels), np.finfo(np.float32).tiny))
        divisor = self.divisor(counts.shape, int(counts.sum()), "VALID")
        loss = np.float32(-each[counts].sum() / divisor)
        return (np.asarray(loss), probabilities.reshape(bottoms[0].shape))[: len(self.tops)]
