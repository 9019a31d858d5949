"""The convolutions of which a Deconvolution with a stride consists: one for each place in a square of its top's pixels.

The stride puts zeros between the bottom's pixels, so a pixel of the top sees the kernel's taps at every stride-th place only.
Which of them follows from its row and column modulo the stride: its phase. Pixels of one phase are a convolution of the bottom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div

if TYPE_CHECKING:
    from ..tasks.conv import Conv

    Pair = tuple[int, int]


class Axis(NamedTuple):
    """A phase along one axis: ``taps`` of the whole kernel from ``first``, of its own kernel from ``place``.

    Its own kernel has ``length`` taps, others than these are 0, and ``pad``: a window has the same padding on both sides.
    """

    first: int
    taps: int
    place: int
    length: int
    pad: int


class Phase(NamedTuple):
    """The phase at a row and a column."""

    rows: Axis
    columns: Axis

    @property
    def window(self) -> Window:
        """Return the window over the bottom."""
        return Window((self.rows.length, self.columns.length), (1, 1), (self.rows.pad, self.columns.pad))

    def of(self, task: Conv, stride: Pair) -> Conv:
        """Return the convolution of this phase; ``task`` is that of the bottom with zeros between its pixels."""
        whole = np.asarray(task.weights)
        weights = np.zeros((*whole.shape[:2], self.rows.length, self.columns.length), whole.dtype)
        rows, columns = (
            slice(axis.first, axis.first + (axis.taps - 1) * step + 1, step) if axis.taps else slice(0)
            for axis, step in zip(self, stride)
        )
        own = tuple(slice(axis.place, axis.place + axis.taps) for axis in self)
        weights[:, :, own[0], own[1]] = whole[:, :, rows, columns]
        # a bias holds minus the zero point times the weights
        bias = task.bias + task.zero * (whole.sum((1, 2, 3), np.int64) - weights.sum((1, 2, 3), np.int64))
        own_size = whole.shape[0] * whole.shape[1] * self.rows.taps * self.columns.taps
        return replace(task, weights=weights, bias=bias, window=self.window, zero_weights=weights.size - own_size)


def phase_along(phase: int, stride: int, taps: int, pad: int, sizes: Pair) -> Axis:
    """Return a phase along an axis of a convolution with ``taps`` and ``pad`` of a bottom with zeros between its pixels.

    ``sizes`` are those of the bottom and of the phase's part of the top.
    """
    first = (pad - phase) % stride
    count = max(0, ceil_div(taps - first, stride))
    offset = (phase + first - pad) // stride if count else 0  # of the pixel that the first tap sees, from the top's
    own = max(0, -offset)
    more = sizes[0] - sizes[1] + 1  # taps of a window without padding
    while more + 2 * own < max(1, offset + own + count):
        own += 1
    return Axis(first, count, offset + own, more + 2 * own, own)


def phases(places: Sequence[Pair], stride: Pair, taps: Pair, pad: Pair, sizes: tuple[Pair, Pair]) -> list[Phase]:
    """Return the phases at these places in a square; ``sizes`` are height and width of the bottom and of a phase's part."""
    return [
        Phase(*(phase_along(place[i], stride[i], taps[i], pad[i], (sizes[0][i], sizes[1][i])) for i in range(2)))
        for place in places
    ]
