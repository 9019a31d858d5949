"""Reduction: the sum or mean over all axes from ``axis``."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import axis_index, choice
from ..util.lazy_numpy import np


class Reduction(Layer):
    """coeff times the sum, sum of magnitudes, sum of squares or mean over ``axis`` and all axes after it."""

    message = "reduction_param"

    @dataclass(frozen=True)
    class Params:
        """ASUM sums magnitudes, SUMSQ squares."""

        operation: str = choice("SUM", "ASUM", "SUMSQ", "MEAN", default="SUM")
        axis: int = axis_index(0)
        coeff: float = 1.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (bottoms[0][: self.axis(self.params.axis, bottoms[0])],)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, p = bottoms[0], self.params
        x = np.abs(x) if p.operation == "ASUM" else x * x if p.operation == "SUMSQ" else x
        axes = tuple(range(self.axis(p.axis, x.shape), x.ndim))
        y = x.mean(axes, dtype=np.float32) if p.operation == "MEAN" else x.sum(axes, dtype=np.float32)
        return (np.float32(p.coeff) * y,)
