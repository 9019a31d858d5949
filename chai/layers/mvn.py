"""MVN: x minus its mean, divided by its standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import within
from ..util.lazy_numpy import np


class MVN(Layer):
    """y = (x - mean) / (sqrt(mean of (x - mean)^2) + eps); without normalize_variance y = x - mean."""

    @dataclass(frozen=True)
    class Params:
        """across_channels: one mean per image instead of one per channel."""

        normalize_variance: bool = True
        across_channels: bool = False
        eps: float = within(0, 1e30, 1e-9)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (self.spatial(bottoms[0]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        axes = (1, 2, 3) if self.params.across_channels else (2, 3)
        y = bottoms[0] - bottoms[0].mean(axes, keepdims=True, dtype=np.float32)
        if self.params.normalize_variance:
            y /= np.sqrt((y * y).mean(axes, keepdims=True, dtype=np.float32)) + np.float32(self.params.eps)
        return (y,)
