"""EuclideanLoss: half the squared distance of two blobs per item."""

from __future__ import annotations

from ..blob import Array
from ..util.lazy_numpy import np
from ._loss import Loss


class EuclideanLoss(Loss):
    """sum((a - b)^2) / 2N."""

    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        a, b = (bottom.reshape(-1).astype(np.float64) for bottom in bottoms)
        return (np.asarray(np.float32(((a - b) ** 2).sum() / (2 * len(bottoms[0])))),)[: len(self.tops)]
