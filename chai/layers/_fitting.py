"""Convolutions whose rows do not fit the overlay's memory, as several that do: with the same codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..blob import Shape
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

    Pieces = Callable[[WindowLayer, Arithmetic, Conv], list[Task]]

FACTORS = (2, 4, 8)


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
