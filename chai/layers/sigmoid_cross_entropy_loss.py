"""SigmoidCrossEntropyLoss: cross entropy of a sigmoid with targets between 0 and 1."""

from __future__ import annotations

from ..blob import Array
from ..util.lazy_numpy import np
from ._loss import Loss


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
