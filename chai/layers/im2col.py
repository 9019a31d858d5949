"""Im2col: the pixels under each position of a window, as channels."""

from __future__ import annotations

from math import prod

from ..blob import Array, Shape
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
        return Window(self.kernel, self._stride, (0, 0), self._dilation)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, window = bottoms[0], self._inside
        padded = np.pad(x, ((0, 0), (0, 0), *zip(*self._sides)))
        extent = window.extent(0), window.extent(1)
        (sh, sw), (dh, dw) = window.stride, window.dilation
        views = np.lib.stride_tricks.sliding_window_view(padded, extent, (2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
        y = np.empty(self.shapes(x.shape)[0], np.float32)
        y.reshape(*x.shape[:2], *window.kernel, *y.shape[2:])[...] = views.transpose(0, 1, 4, 5, 2, 3)
        return (y,)
