"""PReLU: max(x, 0) + a[c] * min(x, 0) with a trained slope per channel."""

from __future__ import annotations

from copy import copy

from .. import kernels, tasks
from ..blob import Array, Shape, on_device
from ..errors import ModelError
from ..graph import Arithmetic, Layer
from ..graph.params import Filler, MessageFields, nested
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..text import number_of
from ..util.lazy_numpy import np
from .batch_norm import affine_refused


class PReLU(Layer):
    """Channels are axis 1."""

    follows = True

    class Params(MessageFields):
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

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if not getattr(tasks.find("affine").limits(overlay), "prelu", False):
            return self.without_unit
        shape = on_device(bottoms[0])
        if len(shape) != 4:
            return f"a blob of {number_of(len(shape), 'axis')}"
        return affine_refused(self, overlay, shape, leaky=True)

    def lower(self, target: Arithmetic) -> list[Task]:
        channels = target.shapes[self.bottoms[0]][1]
        alone = copy(self)
        alone.slopes = self.slopes_of(channels)
        if alone.slopes is None:
            raise ModelError("a slope is not a finite number; it has no fixed-point code")
        return [target.affine(alone, np.ones(channels), np.zeros(channels))]

    def slopes_of(self, channels: int) -> Array | None:
        slopes = np.broadcast_to(self.blobs[0].astype(np.float64).reshape(-1), (channels,))
        return slopes if np.isfinite(slopes).all() else None

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        return kernels.floats.leaky(bottoms[0], self.blobs[0])

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        slope = self.blobs[0].reshape(-1, *(1,) * (x.ndim - 2))
        return (np.maximum(x, 0) + slope * np.minimum(x, 0),)
