"""x minus its mean, or not, divided by its deviation or norm.

LayerNorm: x minus its mean, divided by its standard deviation, over the last axes.
MVN: x minus its mean, divided by its standard deviation.
Normalize: x / sqrt(sum of squares + eps), times a trained scale (SSD).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..blob import Array, Shape, show
from ..fixed import Format
from ..graph import Layer
from ..graph.params import Filler, MessageFields, axis_index, nested, within
from ..util.lazy_numpy import np


class LayerNorm(Layer):
    """y = (x - mean) / sqrt(mean of (x - mean)^2 + eps), as ONNX's LayerNormalization before scale and bias."""

    fork = "ONNX"

    class Params(MessageFields):
        """axis is the first; without centered the mean is not subtracted, and the divisor is the root of the mean square."""

        axis: int = axis_index(-1)
        eps: float = within(0, 1e30, 1e-5)
        centered: bool = True

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


class MVN(Layer):
    """y = (x - mean) / (sqrt(mean of (x - mean)^2) + eps); without normalize_variance y = x - mean."""

    class Params(MessageFields):
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


class Normalize(Layer):
    """The squares are summed over channels, and over pixels too if across_spatial."""

    class Params(MessageFields):
        """across_spatial: one norm per image instead of one per pixel; channel_shared: one scale for all channels."""

        across_spatial: bool = True
        scale_filler: Filler | None = nested(Filler)
        channel_shared: bool = True
        eps: float = within(0, 1e30, 1e-10)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if len(bottoms[0]) < 2:
            raise self.wrong(f"expected a blob with channels, found {show(bottoms[0])}")
        return bottoms

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        # Caffe stores a shared scale as a blob without axes
        return ((),) if self.params.channel_shared else ((bottoms[0][1],),)

    def fillers(self) -> tuple[Filler | None, ...]:
        return (self.params.scale_filler or Filler(value=1.0),)

    def beside(self, functions: Mapping[str, Callable[..., Array]]) -> Layer:
        return self if self.params.across_spatial else super().beside(functions)

    def takes_codes(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.other is not None

    def on_codes(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> Callable[..., tuple[Array, ...]]:
        stated, other = None if self.precision is None else self.precision.side("in"), self.other
        assert other is not None
        source, target = formats[self.bottoms[0]] if stated is None else Format(*stated), formats[self.tops[0]]
        return lambda codes: (other(codes, self.blobs[0].reshape(-1), source, target),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        axes = tuple(range(1, x.ndim)) if self.params.across_spatial else (1,)
        norm = np.sqrt((x * x).sum(axes, keepdims=True) + np.float32(self.params.eps))
        return (x / norm * self.blobs[0].reshape(-1, *(1,) * (x.ndim - 2)),)
