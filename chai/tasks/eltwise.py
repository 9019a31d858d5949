"""Eltwise: v = sum of x_i * m_i, rounded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fixed import Requantization, requantize
from ..util.lazy_numpy import np
from . import Task

if TYPE_CHECKING:
    from ..blob import Array


@dataclass(frozen=True, eq=False)
class Eltwise(Task):
    """``factors`` are the signed multipliers of the inputs, at the shift of ``requantization``.

    The multiplier of ``requantization`` is 1; a leaky ReLU has multipliers of its own for negative sums: ``negative``.
    """

    kind = "eltwise"
    factors: tuple[int, ...]
    negative: tuple[int, ...] | None
    requantization: Requantization

    def define(self, *codes: Array) -> Array:
        total = sum(x.astype(np.int64) * m for x, m in zip(codes, self.factors))
        if self.negative is not None:
            below = sum(x.astype(np.int64) * m for x, m in zip(codes, self.negative))
            total = np.where(np.asarray(total) < 0, below, total)
        return requantize(np.asarray(total), self.requantization)
