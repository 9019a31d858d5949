"""Convolutions whose rows do not fit the overlay's memory, as several that do: with the same codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..blob import Array, Shape
from ..graph import Arithmetic
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ._pick import pick_place, picks, stepping, writing
from ._squares import Squares
from ._window import WindowLayer, conv_refused

if TYPE_CHECKING:
    from ..tasks.conv import Conv

FACTORS = (2, 4, 8)


@dataclass(frozen=True)
class ByChannels:
    """A depthwise convolution: ``channels`` of the bottom at a time, whose rows are shorter words."""

    channels: int

    def lower(self, layer: WindowLayer, target: Arithmetic, whole: Conv) -> list[Task]:
        """Return a Task for each piece, and what joins their tops by address."""
        bottom, top, work, joins = layer.bottoms[0], layer.tops[0], list[Task](), list[Task]()
        n, total, *size = target.shapes[top]
        r = whole.requantization
        for first in range(0, total, self.channels):
            count = min(self.channels, total - first)
            source = target.part(bottom, first, count)
            name = target.blob_between(top, f"channels from {first}", (n, count, *size), target.formats[top])
            own = slice(first, first + count)
            below = None if r.negative is None else _of(r.negative, own)
            weights, part = (
                np.asarray(whole.weights)[own],
                r._replace(multiplier=_of(r.multiplier, own), negative=below),
            )
            piece = replace(whole, weights=weights, bias=whole.bias[own], group=count, requantization=part)
            work.append(replace(piece, inputs=(source,), output=name))
            joins.append(target.copy(layer, name, first))
        return [*work, *joins]


@dataclass(frozen=True)
class BySquares:
    """A dilated convolution: each ``factor``-th row and column of the bottom alone, with a dilation as much smaller."""

    factor: int

    def window(self, window: Window) -> Window:
        """Return the window over the pixels of one place in the squares."""
        pad, dilation = ((pair[0] // self.factor, pair[1] // self.factor) for pair in (window.pad, window.dilation))
        return Window(window.kernel, (1, 1), pad, dilation)

    def lower(self, layer: WindowLayer, target: Arithmetic, whole: Conv) -> list[Task]:
        """Return what picks the pixels of each place, a convolution of these, and what joins their maps."""
        bottom, top, f = layer.bottoms[0], layer.tops[0], self.factor
        n, channels, height, width = target.shapes[bottom]
        squares = Squares(layer, target.overlay, whole.weights.shape[0], (f, f))
        _, _, *size = target.shapes[top]
        parts = target.blob_between(top, "parts", (n, squares.total, size[0] // f, size[1] // f), target.formats[top])
        own = replace(whole, window=self.window(whole.window))
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


def smaller(layer: WindowLayer, overlay: Overlay, bottom: Shape) -> ByChannels | BySquares | None:
    """Return how an overlay can run a convolution whose rows do not fit in pieces that do; None if it cannot."""
    if not picks(overlay):
        return None
    window, group, outputs = layer.window, layer.params.group, layer.params.num_output
    step = overlay.array.inputs
    joined = layer.beyond(overlay, "copy", size=max(window.sizes(bottom[2:])), channels=outputs)
    if step < group == outputs == bottom[1] and not joined:
        for channels in range(round_up(group, step) - step, 0, -step):
            piece = (bottom[0], channels, *bottom[2:])
            if not conv_refused(layer, overlay, window, (channels, channels), piece, whole=True):
                return ByChannels(channels)
    for f in FACTORS if window.stride == (1, 1) else ():
        whole = (*window.dilation, *window.pad, *bottom[2:], *window.sizes(bottom[2:]))
        if any(number % f for number in whole) or Squares(layer, overlay, outputs, (f, f)).refused(
            layer, overlay, bottom
        ):
            continue
        pixels = (*bottom[:2], bottom[2] // f, bottom[3] // f)
        own = conv_refused(layer, overlay, BySquares(f).window(window), (outputs, group), pixels, whole=True)
        if not own and not conv_refused(layer, overlay, stepping(f), (bottom[1], bottom[1]), bottom):
            return BySquares(f)
    return None


def _of(multipliers: Array, outputs: slice) -> Array:
    """Return the multipliers of some outputs, of which there is one for all, or one each."""
    return multipliers if multipliers.size == 1 else multipliers[outputs]
