"""Reduction: the sum, mean, product or extreme over all axes from ``axis``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import axis_index, choice
from ..util.lazy_numpy import np


class Reduction(Layer):
    """coeff times the sum, sum of magnitudes, sum of squares, mean, ... over ``axis`` and all axes after it."""

    @dataclass(frozen=True)
    class Params:
        """ASUM sums magnitudes, SUMSQ squares. MAX, MIN and PROD are chai's own."""

        operation: str = choice("SUM", "ASUM", "SUMSQ", "MEAN", "MAX", "MIN", "PROD", default="SUM")
        axis: int = axis_index(0)
        coeff: float = 1.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (bottoms[0][: self.axis(self.params.axis, bottoms[0])],)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, p = bottoms[0], self.params
        x = np.abs(x) if p.operation == "ASUM" else x * x if p.operation == "SUMSQ" else x
        axes = tuple(range(self.axis(p.axis, x.shape), x.ndim))
        if p.operation in ("MAX", "MIN"):
            y = x.max(axes, initial=-np.inf) if p.operation == "MAX" else x.min(axes, initial=np.inf)
        else:
            combine: Any = {"MEAN": np.mean, "PROD": np.prod}.get(p.operation, np.sum)
            y = combine(x, axes, dtype=np.float32)
        return (np.float32(p.coeff) * y,)
