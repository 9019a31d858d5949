"""Convolutions.

Convolution: y[m] = b[m] + sum over c, i, j of w[m, c, i, j] * x[c, s*h + d*i - p, s*w + d*j - p].
ConvolutionDepthwise: a Convolution that multiplies each channel with weights of its own.
DepthwiseConvolution: a Convolution with one group per channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from .. import kernels
from ..blob import Array, Shape, count
from ..graph import Arithmetic
from ..kernels.convolution import conv2d
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import Filtering, Window
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ._pick import pick_place, picks, stepping, writing
from ._squares import Squares
from ._window import WindowLayer, conv_refused

if TYPE_CHECKING:
    from ..tasks.conv import Conv

    Pieces = Callable[[WindowLayer, Arithmetic, Conv], list[Task]]

FACTORS = (2, 4, 8)  # of dilations that ``by_squares`` takes apart


class Convolution(WindowLayer):
    """Sizes round down; ``group`` splits channels and outputs alike; padding is zero."""

    can_clamp = can_bend = weighted = new_tops = rectifies = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.check(bottoms)
        window = self.window
        return tuple((n, self.params.num_output, *self.places(window, tuple(size))) for n, _, *size in bottoms)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        m = self.params.num_output
        weights = (m, bottoms[0][1] // self.params.group, *self.kernel)
        return (weights, (m,)) if self.params.bias_term else (weights,)

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        per_output = count(self.weight_shapes(*bottoms)[0][1:])
        return sum(count(top) for top in tops) * per_output

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms) != 1:
            return "more than one bottom"
        reason = self.refused(overlay, self.window, bottoms[0])
        return reason and (None if smaller(self, overlay, bottoms[0]) else reason)

    def lower(self, target: Arithmetic) -> list[Task]:
        bias = self.blobs[1] if self.params.bias_term else None
        task = target.conv(self, self.evened(self.blobs[0]), bias, self.window, self.params.group)
        bottom = target.shapes[self.bottoms[0]]
        whole = self.refused(target.overlay, self.window, bottom, whole=True) is None
        pieces = None if whole else smaller(self, target.overlay, bottom)
        return pieces(self, target, cast("Conv", task)) if pieces else [task]

    @property
    def convolution(self) -> tuple[Window, int] | None:
        return self.window, self.params.group

    @property
    def bias_blob(self) -> int | None:
        return 1 if self.params.bias_term else None

    def multiplies_channels(self, bottom: Shape) -> bool:
        return len(self.bottoms) == 1

    def rescaled(self, into: Array | None, out: Array | None) -> list[Array]:
        if into is None and out is None:
            return self.blobs
        weights, bias = self.blobs[0].astype(np.float64), self.blobs[1:]
        if into is not None:
            each = np.repeat(into.reshape(self.params.group, -1), len(weights) // self.params.group, 0)
            weights = weights * each[:, :, None, None]
        if out is not None:
            weights = weights / out[:, None, None, None]
            bias = [(b / out).astype(np.float32) for b in bias]
        return [weights.astype(np.float32), *bias]

    def forward(self, *bottoms: Array, rectified: bool = False) -> tuple[Array, ...]:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        filtering = Filtering(self.window, self.params.group, rectified)
        return tuple([conv2d(x, weights, bias, filtering) for x in bottoms])

    def rectified(self, *bottoms: Array) -> tuple[Array, ...]:
        return self.forward(*bottoms, rectified=True)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        weights, bias = self.evened(self.blobs[0]), self.blobs[1] if self.params.bias_term else None
        if len(bottoms) > 1 or weights is not self.blobs[0]:
            return None
        return kernels.floats.convolution(
            bottoms[0], weights, bias, Filtering(self.window, self.params.group, rectified)
        )


class ConvolutionDepthwise(Convolution):
    """Has as many outputs as channels, and as many groups, whatever ``group`` is; other parameters are Convolution's.

    The fork takes the channels for ``num_output`` without a word; OpenCV refuses another number, as here.
    """

    fork = "farmingyard/caffe-mobilenet"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params = replace(self.params, group=max(self.params.num_output, 1))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        tops = super().shapes(*bottoms)
        if bottoms[0][1] != self.params.num_output:
            what = f"num_output {self.params.num_output} for {bottoms[0][1]} channels"
            raise self.wrong(f"{what}: both are the same here")
        return tops


class DepthwiseConvolution(Convolution):
    """Type of forks that have a faster kernel for it; parameters and results are Convolution's."""

    fork = "yonghenglh6/DepthwiseConvolution"


def by_channels(channels: int, layer: WindowLayer, target: Arithmetic, whole: Conv) -> list[Task]:
    """Return the Tasks of a depthwise convolution with some channels of the bottom at a time, whose rows are shorter words.

    After one for each piece there is what joins their tops by address.
    """
    bottom, top, work, joins = layer.bottoms[0], layer.tops[0], list[Task](), list[Task]()
    n, total, *size = target.shapes[top]
    for first in range(0, total, channels):
        count = min(channels, total - first)
        source = target.part(bottom, first, count)
        name = target.blob_between(top, f"channels from {first}", (n, count, *size), target.formats[top])
        own = slice(first, first + count)
        weights, r = np.asarray(whole.weights)[own], whole.requantization.of(own)
        piece = replace(whole, weights=weights, bias=whole.bias[own], group=count, requantization=r)
        work.append(replace(piece, inputs=(source,), output=name))
        joins.append(target.copy(layer, name, first))
    return [*work, *joins]


def by_squares(f: int, layer: WindowLayer, target: Arithmetic, whole: Conv) -> list[Task]:
    """Return the Tasks of a dilated convolution, of each ``f``-th row and column of the bottom alone.

    They pick the pixels of each place, convolve them with a dilation as much smaller, and join their maps.
    """
    bottom, top = layer.bottoms[0], layer.tops[0]
    n, channels, height, width = target.shapes[bottom]
    squares = Squares(layer, target.overlay, whole.weights.shape[0], (f, f))
    _, _, *size = target.shapes[top]
    parts = target.blob_between(top, "parts", (n, squares.total, size[0] // f, size[1] // f), target.formats[top])
    own = replace(whole, window=_of_place(whole.window, f))
    work, joins = list[Task](), list[Task]()
    for i, (row, column) in enumerate(squares.places()):
        shape = n, channels, height // f, width // f
        pixels = target.blob_between(top, f"pixels {row} {column}", shape, target.formats[bottom])
        shape = n, squares.channels, size[0] // f, size[1] // f
        part = target.blob_between(top, f"part {row} {column}", shape, target.formats[top])
        work += [pick_place(layer, target, (bottom, pixels), stepping(f), (row, column))]
        work += [replace(own, inputs=(pixels,), output=part)]
        joins.append(target.copy(writing(layer, parts), part, i * squares.apart))
    return [*work, *joins, *squares.interleave(layer, target, parts)]


def _of_place(window: Window, f: int) -> Window:
    """Return the window over the pixels of one place in the squares."""
    pad, dilation = ((pair[0] // f, pair[1] // f) for pair in (window.pad, window.dilation))
    return Window(window.kernel, (1, 1), pad, dilation)


def smaller(layer: WindowLayer, overlay: Overlay, bottom: Shape) -> Pieces | None:
    """Return what lowers a convolution, whose rows do not fit an overlay, in pieces that do; None if there are none."""
    if not picks(overlay):
        return None
    window, group, outputs = layer.window, layer.params.group, layer.params.num_output
    step = overlay.array.inputs
    joined = layer.beyond(overlay, "copy", size=max(window.sizes(bottom[2:])), channels=outputs)
    if step < group == outputs == bottom[1] and not joined:
        for channels in range(round_up(group, step) - step, 0, -step):
            piece = (bottom[0], channels, *bottom[2:])
            if not conv_refused(layer, overlay, window, (channels, channels), piece, whole=True):
                return partial(by_channels, channels)
    for f in FACTORS if window.stride == (1, 1) else ():
        whole = (*window.dilation, *window.pad, *bottom[2:], *window.sizes(bottom[2:]))
        if any(number % f for number in whole) or Squares(layer, overlay, outputs, (f, f)).refused(
            layer, overlay, bottom
        ):
            continue
        pixels = (*bottom[:2], bottom[2] // f, bottom[3] // f)
        own = conv_refused(layer, overlay, _of_place(window, f), (outputs, group), pixels, whole=True)
        if not own and not conv_refused(layer, overlay, stepping(f), (bottom[1], bottom[1]), bottom):
            return partial(by_squares, f)
    return None
