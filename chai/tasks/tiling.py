"""Tiles: the pieces of an image that an overlay convolves at a time, and what stays in its memories meanwhile.

The host computes them, so that hardware needs no multiplier and no divider; descriptors and cycle model use the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.weights import is_depthwise, weight_bytes
from ..util.rounding import ceil_div
from .window import Window

NOTHING, IMAGE, IMAGES, WEIGHTS = range(4)  # what stays on chip for a Task


@dataclass(eq=False, slots=True)
class Tiling:
    """Tiles of whole rows of one image; a row that exceeds the accumulators is cut into columns.

    ``rows``     of the output in a tile; the last tile of an image may have fewer
    ``columns``  of the output in a tile: all, unless a row exceeds the accumulators
    ``tiles``    of an image
    ``stays``    NOTHING, IMAGE or IMAGES (of the input: blocks of outputs are the outer loop), or WEIGHTS
    ``waits``    whether the ring of input rows holds one window only, so that fetching and computing take turns
    """

    rows: int
    columns: int
    tiles: int
    stays: int
    waits: bool


def tiling(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> Tiling:
    """Return the tiles of a convolution with weights (M, C/group, kh, kw) of a blob (N, C, H, W).

    The input buffer is a ring of rows. It holds those of a tile and the new ones of the next, or a whole image.
    """
    n, _, height, width = source
    oh, ow = window.sizes((height, width))
    oh, ow = max(1, oh), max(1, ow)  # a blob may be empty
    pixels = overlay.buffers.accumulators.depth * overlay.array.lanes
    room, row = ring_words(overlay), row_words(overlay, weights, group, width)
    extent, stride = window.extent(0), window.stride[0]

    def held(rows: int) -> int:
        return min(height, (2 * rows - 1) * stride + extent) * row

    rows = max(1, min(oh, pixels // ow))
    if held(rows) > room:  # then the image does not fit either
        rows = max(1, ((room // row - extent) // stride + 1) // 2)
    rows = ceil_div(oh, ceil_div(oh, rows))
    columns = ceil_div(ow, ceil_div(ow, pixels))
    if n * height * row <= room:
        stays = IMAGES
    elif weight_bytes(weights, group, overlay.array) <= overlay.buffers.weights.bytes:
        stays = WEIGHTS
    else:
        stays = IMAGE if height * row <= room else NOTHING
    return Tiling(rows, columns, ceil_div(oh, rows) * ceil_div(ow, columns), stays, held(rows) > room)


def beyond_ring(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> str | None:
    """Return why the input buffer cannot hold the rows that a window reads; None if it can."""
    rows = min(source[2], window.extent(0))
    need, has = rows * row_words(overlay, weights, group, source[3]), ring_words(overlay)
    if need <= has:
        return None
    word = overlay.array.inputs
    return f"{rows} input rows take {need * word:,} bytes, the overlay stages {has * word:,}"


def beyond_pool(
    overlay: Overlay,
    window: Window,
    size: Sequence[int],
    out: Sequence[int],
    average: bool,
    whole: bool = False,
) -> str | None:
    """Return why the overlay cannot pool an image (height, width) to the size ``out``; None if it can.

    ``whole``: windows may be outside of the image.
    """
    area = window.kernel[0] * window.kernel[1]
    if average and area * (255 if overlay.unsigned else 128) >= overlay.accumulator_bound:
        return f"an average over {area} pixels could leave the accumulator"
    if not whole and any((out[i] - 1) * window.stride[i] - window.pad[i] >= size[i] for i in range(2)):
        return "its last window is outside the image"
    if window.dilation != (1, 1):
        return "a pooling has no dilation"
    need = ceil_div(window.kernel[0], window.stride[0]) * out[1]
    has = overlay.buffers.pool.depth
    if need > has and not window.covers(tuple(size)):
        return f"its unfinished windows take {need:,} columns, the overlay holds {has:,}"
    return None


def ring_words(overlay: Overlay) -> int:
    """Return the words of the input buffer, of ``array.inputs`` channels of a pixel each."""
    return overlay.buffers.input.depth  # each lane has a copy of all of them


def row_words(overlay: Overlay, weights: Shape, group: int, width: int) -> int:
    """Return the words of the input buffer that a row of the input takes: each group begins in a word of its own."""
    if is_depthwise(weights, group):
        return width * ceil_div(group, overlay.array.inputs)
    return width * group * ceil_div(weights[1], overlay.array.inputs)


def passes(overlay: Overlay, weights: Shape, group: int) -> tuple[int, int]:
    """Return the passes over the pixels of a tile, and the blocks of output channels.

    The array holds inputs x outputs weights: each kernel tap and block of input channels takes one pass.
    """
    m, c, kh, kw = weights
    array = overlay.array
    if is_depthwise(weights, group):  # a diagonal of the array, one output per input
        return kh * kw, ceil_div(m, min(array.inputs, array.outputs))
    return kh * kw * ceil_div(c, array.inputs), ceil_div(m // group, array.outputs) * group


def array_cycles(
    overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape, wide: bool = False
) -> int:
    """Estimate passes * max(pixels of a tile / lanes, cycles to load next weights), or draining, per tile and block.

    A ``wide`` sum is drained in two cycles.
    """
    tile = tiling(overlay, window, weights, group, source)
    oh, ow = window.sizes(source[2:])
    taps, blocks = passes(overlay, weights, group)
    drain = ceil(overlay.array.outputs / overlay.requant.lanes) * (2 if wide else 1)
    total = 0
    for rows, down in _pieces(oh, tile.rows):
        for columns, across in _pieces(ow, tile.columns):
            cycles = max(ceil_div(rows * columns, overlay.array.lanes), overlay.array.inputs)
            busy = max(taps * cycles, drain * rows * columns)
            total += down * across * (busy + overlay.overhead.tile_cycles)
    return source[0] * blocks * total


def weight_traffic(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> int:
    """Return the bytes of weights that are fetched: again for each tile where neither they nor the input stay."""
    tile = tiling(overlay, window, weights, group, source)
    times = {NOTHING: source[0] * tile.tiles, IMAGE: source[0], IMAGES: 1, WEIGHTS: 1}[tile.stays]
    return times * weight_bytes(weights, group, overlay.array)


def _pieces(length: int, size: int) -> list[tuple[int, int]]:
    """Return (size, number) of the pieces of a length: equal ones, and a smaller one at the end."""
    full, rest = divmod(length, size)
    return [(size, full)] + ([(rest, 1)] if rest else [])
