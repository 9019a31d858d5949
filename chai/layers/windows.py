"""Windows of pixels that have no weights, or weights of their own.

Im2col: the pixels under each position of a window, as channels.
Local: a convolution with separate weights at every position.
"""

from __future__ import annotations

from math import prod

from ..blob import Array, Shape, count, show
from ..graph import Layer
from ..graph.params import Filler, MessageFields, margin, nested, size, within
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ._window import WindowLayer


class Im2col(WindowLayer):
    """Channel (c * kh + i) * kw + j is pixel (i, j) of the window in channel c; padding is zero.

    Only the window is read from convolution_param.
    """

    bottoms_allowed = (1, 1)
    tops_allowed = (1, 1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.check_axis()
        n, c, *size = self.spatial(bottoms[0])
        padded = tuple(map(sum, zip(size, *self._sides)))
        return ((n, c * prod(self.kernel), *self.places(self._inside, padded)),)

    @property
    def _inside(self) -> Window:
        """Return the window over an image that is already padded, perhaps asymmetrically."""
        return Window(self.kernel, self.pair("stride", 1), (0, 0), self.pair("dilation", 1))

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, window = bottoms[0], self._inside
        padded = np.pad(x, ((0, 0), (0, 0), *zip(*self._sides)))
        extent = window.extent(0), window.extent(1)
        (sh, sw), (dh, dw) = window.stride, window.dilation
        views = np.lib.stride_tricks.sliding_window_view(padded, extent, (2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
        y = np.empty(self.shapes(x.shape)[0], np.float32)
        y.reshape(*x.shape[:2], *window.kernel, *y.shape[2:])[...] = views.transpose(0, 1, 4, 5, 2, 3)
        return (y,)


class Local(Layer):
    """Weights (M, 1, C * k * k, OH * OW), bias (1, 1, M, OH * OW); sizes round down."""

    fork = "happynear/caffe-windows"

    class Params(MessageFields):
        num_output: int = within(0, 2**31 - 1, 0)
        bias_term: bool = True
        pad: int = margin(0)
        kernel_size: int | None = size()
        stride: int = size(1)
        weight_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)

    def _window(self) -> Window:
        p = self.params
        return Window((p.kernel_size, p.kernel_size), (p.stride, p.stride), (p.pad, p.pad))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        n, _, *old = self.spatial(bottoms[0])
        if p.num_output < 1 or p.kernel_size is None:
            raise self.wrong("num_output or kernel_size is missing")
        if p.kernel_size > min(old):
            raise self.wrong(f"kernel {p.kernel_size} is larger than the input {show(tuple(old))}")
        return ((n, p.num_output, *self._window().sizes(tuple(old))),)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        m, places = self.params.num_output, count(self.shapes(*bottoms)[0][2:])
        weights = (m, 1, bottoms[0][1] * self.params.kernel_size**2, places)
        return (weights, (1, 1, m, places)) if self.params.bias_term else (weights,)

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        return bottoms[0][0] * count(self.weight_shapes(*bottoms)[0])

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, p = bottoms[0], self.params
        n, m, oh, ow = self.shapes(x.shape)[0]
        k, s = p.kernel_size, p.stride
        padded = np.pad(x, ((0, 0), (0, 0), (p.pad, p.pad), (p.pad, p.pad)))
        weights = self.blobs[0].reshape(m, x.shape[1], k, k, oh, ow)
        y = np.zeros((n, m, oh, ow), np.float32)
        if p.bias_term:
            y += self.blobs[1].reshape(m, oh, ow)
        for i in range(k):
            for j in range(k):
                tap = padded[:, :, i : i + s * (oh - 1) + 1 : s, j : j + s * (ow - 1) + 1 : s]
                y += np.einsum("nchw,mchw->nmhw", tap, weights[:, :, i, j])
        return (y,)
