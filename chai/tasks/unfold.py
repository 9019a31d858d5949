"""Unfold: kernel taps of a convolution side by side as channels, for blobs with fewer channels than the array has inputs.

The array sums ``array.inputs`` channels in a cycle. A 7x7 kernel over 3 channels takes 49 passes with 3 of 16 inputs in
use; over 42 channels it takes 4 kernel rows of 3 blocks, 12 passes. Only integers move, so no bit changes.
"""

from __future__ import annotations

from typing import NamedTuple

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from .window import Window


class Unfold(NamedTuple):
    """The blob for a convolution with ``window`` (dilation 1): all columns of the kernel, and ``rows`` of its rows, as channels.

    Pixel (y, x) of channel (i * columns + j) * C + c is pixel (y * stride + i - pad, x * stride + j - pad) of channel c.
    ``rows`` is the stride, so that the kernel's other rows are the next rows of the blob, or all rows of the kernel.
    """

    window: Window
    rows: int

    @staticmethod
    def choices(window: Window) -> set[int]:
        """Return the possible ``rows``."""
        return {min(window.stride[0], window.kernel[0]), window.kernel[0]}

    @property
    def kernel(self) -> Window:
        """Return the window of the convolution over the unfolded blob."""
        return Window((ceil_div(self.window.kernel[0], self.rows), 1), (1, 1), (0, 0))

    def channels(self, source: int) -> int:
        """Return the channels of the unfolded blob for a blob of so many."""
        return self.rows * self.window.kernel[1] * source

    def shape(self, source: Shape) -> Shape:
        """Return the shape of the unfolded blob for a blob (N, C, H, W)."""
        n, c, *size = source
        height, width = self.window.sizes(tuple(size))
        return n, self.channels(c), height + self.kernel.kernel[0] - 1, width

    def weights(self, weights: Array) -> Array:
        """Return weights (M, C, kh, kw) for the unfolded blob; rows beyond the kernel are zeros."""
        m, c, height, columns = weights.shape
        taps = self.kernel.kernel[0]
        padded = np.pad(weights, ((0, 0), (0, 0), (0, taps * self.rows - height), (0, 0)))
        apart = padded.reshape(m, c, taps, self.rows, columns).transpose(0, 3, 4, 1, 2)
        return np.ascontiguousarray(apart).reshape(m, -1, taps, 1)

    def plain_weights(self, weights: Array) -> Array | None:
        """Return weights (M, C, kh, kw) for the blob as it was: the inverse of ``weights``, None if they are none of its."""
        m, _, taps, _ = weights.shape
        height, columns = self.window.kernel
        together = weights.reshape(m, self.rows, columns, -1, taps).transpose(0, 3, 4, 1, 2)
        rows = together.reshape(m, -1, taps * self.rows, columns)
        return None if rows[:, :, height:].any() else np.ascontiguousarray(rows[:, :, :height])
