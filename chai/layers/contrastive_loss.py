"""ContrastiveLoss: distance of similar pairs, lack of distance of others."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ._loss import Loss


class ContrastiveLoss(Loss):
    """Bottoms: two blobs (N, C) or (N, C, 1, 1), and N labels, 1 for a similar pair."""

    message = "contrastive_loss_param"
    bottoms_allowed = (3, 3)

    @dataclass(frozen=True)
    class Params:
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
