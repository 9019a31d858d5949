"""InfogainLoss: cross entropy weighted by a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..blob import Array, Shape, show
from ..graph.params import axis_index
from ..util.lazy_numpy import np
from ._loss import TINY, Loss
from .softmax import softmax


class InfogainLoss(Loss):
    """Bottoms: scores, labels, and the matrix H of classes x classes. A second top has the softmax of the scores.

    The loss is the mean over positions of -sum_k H[label, k] log(p_k), as in Caffe since 2017.
    """

    message = "infogain_loss_param"
    bottoms_allowed = (2, 3)
    tops_allowed = (0, 2)

    @dataclass(frozen=True)
    class Params:
        """``source`` names a file with the matrix, which is never opened: the third bottom has it."""

        source: str = ""
        axis: int = axis_index(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        super().shapes(*bottoms)
        self.one_label_each(self.params.axis, *bottoms[:2])
        classes = bottoms[0][self.axis(self.params.axis, bottoms[0])]
        if len(bottoms) < 3:
            raise self.wrong("its matrix is in a file, which is not opened", hint="give it as the third bottom")
        if prod(bottoms[2]) != classes * classes:
            raise self.wrong(f"the matrix is {show(bottoms[2])}, expected {classes}x{classes}")
        return ((), bottoms[0])[: len(self.tops)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels, counts = self.by_class(self.params.axis, bottoms[0], bottoms[1], self.loss.ignore_label)
        probabilities = softmax(data, 1)
        rows = bottoms[2].reshape(data.shape[1], -1).astype(np.float64)[labels]  # (outer, inner, classes)
        logs = np.log(np.maximum(probabilities, TINY).astype(np.float64))
        each = (rows * logs.transpose(0, 2, 1)).sum(2)
        divisor = self.divisor(counts.shape, int(counts.sum()), "VALID")
        loss = np.float32(-each[counts].sum() / divisor)
        return (np.asarray(loss), probabilities.reshape(bottoms[0].shape))[: len(self.tops)]
