"""Tiles: the pieces of an image that an overlay convolves at a time, and what stays in its memories meanwhile.

The host computes them, so that hardware needs no multiplier and no divider; descriptors and cycle model use the same.

Where the input buffer does not hold whole rows, an image is convolved in strips. A strip is a descriptor of its own. It reads
the columns that its windows see, and writes its columns of the same blob; its tiles are single rows of the output, each of
which is one piece of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.layout import Span, planes
from ..overlay.weights import is_depthwise, weight_bytes
from ..util.rounding import ceil_div
from .pooling import PooledCodes
from .window import Window

NOTHING, IMAGE, IMAGES, WEIGHTS = range(4)  # what stays on chip for a Task


class Tiling(NamedTuple):
    """Tiles of whole rows of one image, or of a strip of it; a row that exceeds the accumulators is cut into columns.

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

    @property
    def one_by_one(self) -> bool:
        """Return whether blocks of outputs are the outer loop."""
        return self.stays in (IMAGE, IMAGES)


def beyond_ring(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> str | None:
    """Return why the input buffer cannot hold the rows that a window reads; None if it can."""
    rows = min(source[2], window.extent(0))
    need, has = rows * row_words(overlay, weights, group, source[3]), ring_words(overlay)
    if need <= has:
        return None
    word = overlay.array.inputs
    return f"{rows} input rows take {need * word:,} bytes, the overlay stages {has * word:,}"


def row_step(overlay: Overlay, window: Window, width: int) -> int:
    """Return the rows of an image from one that windows of a single row read to the next: the others are not fetched.

    It is 1 where windows have several rows, or the overlay's descriptors have no field for it, or one with too few bits.
    """
    step, field = window.stride[0], overlay.descriptor.values.get("input_row")
    apart = window.kernel[0] == 1 and not window.pad[0] and field is not None and step * width <= field.mask
    return step if apart else 1


def strips(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> list[Span]:
    """Return the fewest strips of a convolution's output, of nearly the same width; none if the overlay has none that fit.

    They are two at least, even where windows with a stride leave out so many columns that one would fit. The input buffer holds
    the rows of one row of the output and the new ones of the next.
    """
    if "input_row" not in overlay.descriptor.zeros:
        return []
    _, columns = window.sizes(source[2:])
    stride, extent = window.stride[1], window.extent(1)
    rows = min(source[2], window.stride[0] + window.extent(0))
    widest = (ring_words(overlay) // (rows * row_words(overlay, weights, group, 1)) - extent) // stride + 1
    if widest < 1:
        return []
    each = ceil_div(columns, max(2, ceil_div(columns, widest)))
    pieces = [(first, min(each, columns - first)) for first in range(0, columns, each)]
    # the last one would be padding alone
    return [] if len(pieces) == 1 or pieces[-1][0] * stride - window.pad[1] >= source[3] else pieces


def beyond_strips(overlay: Overlay, window: Window, weights: Shape, group: int, source: Shape) -> str | None:
    """Return why the input buffer can hold neither the rows that a window reads nor those of a strip; None if it can."""
    reason = beyond_ring(overlay, window, weights, group, source)
    return None if reason and strips(overlay, window, weights, group, source) else reason


def beyond_pool(
    overlay: Overlay, window: Window, size: Sequence[int], out: Sequence[int], average: bool, whole: bool = False
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


def passes(overlay: Overlay, weights: Shape) -> int:
    """Return the passes over the pixels of a tile for a block of outputs.

    The array holds inputs x outputs weights: each kernel tap and block of input channels takes one pass.
    """
    _, c, kh, kw = weights
    return kh * kw * ceil_div(c, overlay.array.inputs)


class TileBlock(NamedTuple):
    """A tile for a block of outputs: what the array computes at a time.

    ``rows``     of codes
    ``computes``, ``drains``  cycles
    ``run``      words that are written contiguously
    ``written``  words of its planes at the memory port that has the most
    ``times``    number of such jobs, one after the other
    """

    rows: int
    computes: int
    drains: int
    run: int
    written: int
    times: int


class Convolved(NamedTuple):
    """The shapes of a convolution: those of weights (M, C/group, kh, kw) and input (N, C, H, W), and what follows it.

    Of a band or a strip the input is what it reads, from row and column ``first`` on, with the padding before that. ``size`` is
    height and width of its codes. ``shares`` and ``shared`` are those of the Task. ``plane_words`` are those of a whole plane
    of the input and of the output.
    """

    window: Window
    weights: Shape
    group: int
    source: Shape
    size: tuple[int, int]
    strip: bool = False
    first: tuple[int, int] = (0, 0)
    pooling: PooledCodes | None = None
    wide: bool = False
    shares: bool = False
    shared: bool = False
    plane_words: tuple[int, int] = (0, 0)

    def tiling(self, overlay: Overlay) -> Tiling:
        """Return its tiles.

        The input buffer is a ring of rows. It holds those of a tile and the new ones of the next, or a whole image. Where the
        weights stay, half of it is enough, and the first rows of the next Task arrive meanwhile. A strip has tiles of single
        rows.
        """
        n, _, height, width = self.source
        oh, ow = max(1, self.size[0]), max(1, self.size[1])  # a blob may be empty
        pixels = overlay.buffers.accumulators.depth * overlay.array.lanes
        room, row = ring_words(overlay), row_words(overlay, self.weights, self.group, width)
        extent, stride = self.window.extent(0), self.window.stride[0]

        def held(rows: int) -> int:
            return min(height, (2 * rows - 1) * stride + extent) * row

        def most(words: int) -> int:
            """Return the most rows of a tile, at least 1, for so many words of the ring."""
            rows = 1 if self.strip else max(1, min(oh, pixels // ow))
            return rows if held(rows) <= words else max(1, ((words // row - extent) // stride + 1) // 2)

        fit = weight_bytes(self.weights, self.group, overlay.array) <= overlay.buffers.weights.bytes
        # tiles with fewer pixels than that would wait for weights
        if fit and n * height * row > room // 2 and most(room // 2) * ow >= overlay.load_cycles * overlay.array.lanes:
            room //= 2
        rows = most(room)
        rows = ceil_div(oh, ceil_div(oh, rows))
        columns = ceil_div(ow, ceil_div(ow, pixels))
        if self.shares or self.shared:
            stays = WEIGHTS
        elif n * height * row <= room:
            stays = IMAGES
        elif fit:
            stays = WEIGHTS
        else:
            stays = IMAGE if height * row <= room else NOTHING
        tiles = ceil_div(oh, rows) * ceil_div(ow, columns)
        return Tiling(rows, columns, tiles, stays, held(rows) > ring_words(overlay))


def blocks(overlay: Overlay, weights: Shape, group: int) -> list[tuple[int, int]]:
    """Return (channels, number) of the blocks of outputs: full ones, and the last of each group."""
    array, deep = overlay.array, is_depthwise(weights, group)
    block = min(array.inputs, array.outputs) if deep else array.outputs  # deep: a diagonal, one output per input
    groups, channels = (1, weights[0]) if deep else (group, weights[0] // group)
    return [(size, groups * times) for size, times in pieces(channels, block) if times]


def sweeps(overlay: Overlay, channels: int) -> int:
    """Return how many times the pixels of a tile are drained for a block with so many output channels."""
    return ceil_div(planes(channels, overlay.layout), overlay.planes_at_once)


def drained_planes(overlay: Overlay, weights: Shape, group: int) -> int:
    """Return the number of drained planes: those of all outputs, and empty ones that are drained along with them."""
    every = blocks(overlay, weights, group)
    return overlay.planes_at_once * sum(sweeps(overlay, channels) * times for channels, times in every)


def jobs(overlay: Overlay, conv: Convolved) -> Iterator[list[TileBlock]]:
    """Yield, for each tile of an image, its jobs: one for each block of outputs."""
    tile, (oh, ow) = conv.tiling(overlay), conv.size
    taps = passes(overlay, conv.weights)
    array, every = overlay.array, blocks(overlay, conv.weights, conv.group)
    rows_left = oh
    while rows_left > 0:
        rows = min(tile.rows, rows_left)
        rows_left -= rows
        for columns, across in pieces(ow, tile.columns):
            computes = taps * max(ceil_div(rows * columns, array.lanes), overlay.load_cycles)
            pooling, plane = conv.pooling, rows * columns
            each = 2 if conv.wide else 1  # cycles of a sum in the lanes
            drains = pooling.drained(rows, (oh, ow), not rows_left, each) if pooling else each * plane
            run, written = (pooling.out[1], pooling.out[0] * pooling.out[1] * rows / oh) if pooling else (plane, plane)
            yield [
                TileBlock(
                    rows,
                    computes,
                    sweeps(overlay, channels) * drains,
                    run,
                    ceil(ceil_div(planes(channels, overlay.layout), overlay.ports.outputs) * written),
                    across * times,
                )
                for channels, times in every
            ]


def array_cycles(overlay: Overlay, conv: Convolved) -> int:
    """Estimate passes * max(pixels of a tile / lanes, cycles to load next weights), or draining if longer, per tile and block."""
    over = overlay.overhead.tile_cycles
    busy = (job.times * (max(job.computes, job.drains) + over) for tile in jobs(overlay, conv) for job in tile)
    return conv.source[0] * sum(busy)


def weight_words(overlay: Overlay, weights: Shape, group: int) -> int:
    """Return the words of the weight buffer that all weights take; one of a depthwise convolution has few of its bytes."""
    every = sum(times for _, times in blocks(overlay, weights, group))
    return passes(overlay, weights) * every * (1 if is_depthwise(weights, group) else overlay.load_cycles)


def weight_traffic(overlay: Overlay, conv: Convolved) -> int:
    """Return the bytes of weights that are fetched: again for each tile where neither they nor the input stay."""
    if conv.shared:
        return 0
    tile, images = conv.tiling(overlay), conv.source[0]
    times = {NOTHING: images * tile.tiles, IMAGE: images, IMAGES: 1, WEIGHTS: 1}[tile.stays]
    return times * weight_bytes(conv.weights, conv.group, overlay.array)


def pieces(length: int, size: int) -> list[tuple[int, int]]:
    """Return (size, number) of the pieces of a length: equal ones, and a smaller one at the end."""
    full, rest = divmod(length, size)
    return [(size, full)] + ([(rest, 1)] if rest else [])
