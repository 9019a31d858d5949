"""InnerProduct: y = x W' + b over all axes from ``axis``."""

from __future__ import annotations

from .. import kernels
from ..blob import Array, Shape, count, on_device
from ..graph import Arithmetic, Layer
from ..graph.params import Filler, MessageFields, axis_index, nested, within
from ..kernels.convolution import inner_product
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.tiling import beyond_ring
from ..tasks.window import Window
from ..text import number_of
from ..util.lazy_numpy import np


class InnerProduct(Layer):
    """Axes before ``axis`` stay, the rest is one vector of length K; weights (num_output, K).

    On an overlay it is a convolution whose kernel is the whole map.
    """

    can_clamp = can_bend = weighted = new_tops = rectifies = own_format = computes_scores = True

    class Params(MessageFields):
        """With ``transpose`` the weights are stored as (K, num_output)."""

        num_output: int = within(0, 2**31 - 1, 0)
        bias_term: bool = True
        weight_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)
        axis: int = axis_index(1)
        transpose: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.num_output < 1:
            raise self.wrong("num_output is missing")
        return ((*bottoms[0][: self.axis(self.params.axis, bottoms[0])], self.params.num_output),)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        m, k = self.params.num_output, count(bottoms[0][self.axis(self.params.axis, bottoms[0]) :])
        weights = (k, m) if self.params.transpose else (m, k)
        return (weights, (m,)) if self.params.bias_term else (weights,)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.axis(self.params.axis, bottoms[0]) == 0

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        return count(bottoms[0]) * int(self.params.num_output)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        shape = bottoms[0]
        if len(shape) not in (2, 4) or self.axis(self.params.axis, shape) != 1:
            return f"axis {self.params.axis} of a blob of {number_of(len(shape), 'axis')}; the overlay takes axis 1 of 2 or 4"
        _, c, *size = on_device(shape)
        channels = max(c, self.params.num_output)
        reason = self.beyond(overlay, "conv", kernel=max(size), channels=channels, **self.bends)
        weights = self.params.num_output, c, *size
        return reason or beyond_ring(overlay, self._window(shape), weights, 1, on_device(shape))

    def lower(self, target: Arithmetic) -> list[Task]:
        shape = target.shapes[self.bottoms[0]]
        weights = self.weight_rows.reshape(-1, *on_device(shape)[1:])
        bias = self.blobs[1] if self.params.bias_term else None
        return [target.inner_product(self, weights, bias, self._window(shape))]

    @staticmethod
    def _window(bottom: Shape) -> Window:
        h, w = on_device(bottom)[2:]
        return Window((h, w), (1, 1), (0, 0))

    def convolved(self, bottom: Shape) -> tuple[Window, int] | None:
        alike = len(bottom) in (2, 4) and self.axis(self.params.axis, bottom) == 1
        return (self._window(bottom), 1) if alike else None

    @property
    def weight_rows(self) -> Array:
        return self.blobs[0].T if self.params.transpose else self.blobs[0]

    def with_rows(self, rows: Array) -> list[Array]:
        return [np.ascontiguousarray(rows.T) if self.params.transpose else rows, *self.blobs[1:]]

    @property
    def bias_blob(self) -> int | None:
        return 1 if self.params.bias_term else None

    def multiplies_channels(self, bottom: Shape) -> bool:
        return self.axis(self.params.axis, bottom) == 1 and not self.params.transpose

    def rescaled(self, into: Array | None, out: Array | None) -> list[Array]:
        if into is None:
            return self.blobs
        weights = self.blobs[0].reshape(len(self.blobs[0]), len(into), -1) * into[None, :, None]
        return [weights.reshape(self.blobs[0].shape).astype(np.float32), *self.blobs[1:]]

    def forward(self, *bottoms: Array, rectified: bool = False) -> tuple[Array, ...]:
        shape = bottoms[0].shape
        axis = self.axis(self.params.axis, shape)
        lead, bias = shape[:axis], self.blobs[1] if self.params.bias_term else None
        y = inner_product(bottoms[0].reshape(count(lead), count(shape[axis:])), self.weight_rows, bias, rectified)
        return (y.reshape(*lead, self.params.num_output),)

    def rectified(self, *bottoms: Array) -> tuple[Array, ...]:
        return self.forward(*bottoms, rectified=True)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        lead = count(bottoms[0][: self.axis(self.params.axis, bottoms[0])])
        bias = self.blobs[1] if self.params.bias_term else None
        return kernels.floats.inner_product(
            (lead, count(bottoms[0]) // max(lead, 1)), self.weight_rows, bias, rectified
        )
