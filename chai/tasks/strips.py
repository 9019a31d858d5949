"""Strips: the columns of an image that an overlay convolves at a time, where its input buffer does not hold whole rows.

A strip is a descriptor of its own. It reads the columns that its windows see, and writes its columns of the same blob; its tiles
are single rows of the output, each of which is one piece of memory.
"""

from __future__ import annotations

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.layout import Span
from ..util.rounding import ceil_div
from .tiling import beyond_ring, ring_words, row_words
from .window import Window


def row_step(overlay: Overlay, window: Window, width: int) -> int:
    """Return the rows of an image from one that windows of a single row read to the next: the others are not fetched.

    It is 1 where windows have several rows, or the overlay's descriptors have no field for it, or one with too few bits.
    """
    step, field = window.stride[0], overlay.descriptor.values.get("input_row")
    apart = window.kernel[0] == 1 and not window.pad[0] and field is not None and step * width <= field.mask
    return step if apart else 1


def strips(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> list[Span]:
    """Return the fewest strips of a convolution's output, of nearly the same width; none if the overlay has none that fit.

    The input buffer holds the rows of one row of the output and the new ones of the next.
    """
    if "input_row" not in overlay.descriptor.zeros:
        return []
    _, columns = window.sizes(source[2:])
    stride, extent = window.stride[1], window.extent(1)
    rows = min(source[2], window.stride[0] + window.extent(0))
    widest = (ring_words(overlay) // (rows * row_words(overlay, weights, group, 1)) - extent) // stride + 1
    if widest < 1:
        return []
    each = ceil_div(columns, ceil_div(columns, widest))
    pieces = [(first, min(each, columns - first)) for first in range(0, columns, each)]
    return [] if pieces[-1][0] * stride - window.pad[1] >= source[3] else pieces  # the last one would be padding alone


def beyond_strips(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> str | None:
    """Return why the input buffer can hold neither the rows that a window reads nor those of a strip; None if it can."""
    reason = beyond_ring(overlay, window, weights, group, source)
    return None if reason and strips(overlay, window, weights, group, source) else reason
