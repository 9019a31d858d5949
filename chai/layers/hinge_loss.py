"""HingeLoss: one against all."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array
from ..graph.params import choice
from ..util.lazy_numpy import np
from ._loss import FlatLoss


class HingeLoss(FlatLoss):
    """The sum of max(0, 1 + x), with x negated for the labelled class, per item."""

    message = "hinge_loss_param"

    @dataclass(frozen=True)
    class Params:
        """L1: margins are summed, L2: their squares."""

        norm: str = choice("L1", "L2", default="L1")

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        data, labels = self.flat(*bottoms)
        signed = data[:, :, 0].astype(np.float64)
        signed[np.arange(len(signed)), labels[:, 0]] *= -1
        margins = np.maximum(0, 1 + signed)
        total = margins.sum() if self.params.norm == "L1" else (margins**2).sum()
        return (np.asarray(np.float32(total / len(signed))),)[: len(self.tops)]
