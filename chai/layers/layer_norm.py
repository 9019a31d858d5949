"""LayerNorm: x minus its mean, divided by its standard deviation, over the last axes."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import axis_index, within
from ..util.lazy_numpy import np


@dataclass(frozen=True)
class LayerNormParams:
    """The first of the axes; without ``centered`` the mean is not subtracted, and the divisor is the root of the mean square."""

    axis: int = axis_index(-1)
    eps: float = within(0, 1e30, 1e-5)
    centered: bool = True


class LayerNorm(Layer):
    """y = (x - mean) / sqrt(mean of (x - mean)^2 + eps), as ONNX's LayerNormalization before scale and bias."""

    Params = LayerNormParams
    fork = "ONNX"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.axis(self.params.axis, bottoms[0])
        return bottoms

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.axis(self.params.axis, bottoms[0]) == 0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        axes = tuple(range(self.axis(self.params.axis, x.shape), x.ndim))
        if self.params.centered:
            x = x - x.mean(axes, keepdims=True, dtype=np.float32)
        square = (x * x).mean(axes, keepdims=True, dtype=np.float32)
        return (x / np.sqrt(square + np.float32(self.params.eps)),)
