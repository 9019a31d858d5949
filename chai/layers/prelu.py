"""PReLU: max(x, 0) + a[c] * min(x, 0) with a trained slope per channel."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import Filler, nested
from ..kernels.elements import native_leaky
from ..kernels.native import NativeLayer
from ..util.lazy_numpy import np


class PReLU(Layer):
    """Channels are axis 1."""

    message = "prelu_param"

    @dataclass(frozen=True)
    class Params:
        """channel_shared: one slope for all channels. Without a caffemodel the slope is 0.25."""

        filler: Filler | None = nested(Filler)
        channel_shared: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if len(bottoms[0]) < 2:
            raise self.wrong("the bottom has no channel axis")
        return bottoms

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        # Caffe stores a shared slope as a blob without axes
        return ((),) if self.params.channel_shared else ((bottoms[0][1],),)

    def fillers(self) -> tuple[Filler | None, ...]:
        return (self.params.filler or Filler(value=0.25),)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        return native_leaky(bottoms[0], self.blobs[0])

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        slope = self.blobs[0].reshape(-1, *(1,) * (x.ndim - 2))
        return (np.maximum(x, 0) + slope * np.minimum(x, 0),)
