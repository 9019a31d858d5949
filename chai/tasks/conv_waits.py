"""Waits of the array: when the rows and constants of a convolution are there, and when its sums have left."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from ..overlay import Overlay
from ..overlay.sections import BEAT
from ..overlay.weights import is_depthwise
from ..util.rounding import ceil_div
from . import tiling
from .tiling import IMAGE, IMAGES, Convolved, TileBlock, Tiling
from .waits import DRAIN, START, TABLES, Waits, latency


def conv_waits(overlay: Overlay, conv: Convolved) -> Waits:
    tile, every, images = conv.tiling(overlay), list(tiling.jobs(overlay, conv)), conv.source[0]
    chunks, ring = _chunks(overlay, conv, tile), tiling.ring_words(overlay)
    begin, last = every[0][0].computes, every[-1][-1]
    (constants, held), share = _constants(overlay, conv, tile, every), chunks.words / ring
    # of the next image, the rows for which there is no room until this one has been computed
    alone = tile.stays == IMAGE or (len(every) == 1 and not tile.one_by_one)
    late = max(0, 2 * chunks.image * chunks.words - ring) if alone else 0
    between = (images - 1) * max(0.0, late / chunks.rate - begin)
    _, writes = overlay.rates(last.run, gcd(overlay.ports.outputs * conv.plane_words[1], last.run))
    written = images * sum(job.written * job.times for some in every for job in some)
    drained = max(last.drains, last.written / writes)
    return Waits(
        START + latency(overlay),
        between + max(tiling.array_cycles(overlay, conv), written / writes) - max(0.0, drained - last.computes),
        DRAIN + latency(overlay) + drained,
        first=_first(overlay, conv, tile, chunks, every),
        reading=images * chunks.image * chunks.words / chunks.rate,
        rows=chunks.first * share,
        chunk=chunks.further * share,
        all=images * chunks.image * share,
        keeps={IMAGES: images * chunks.image, IMAGE: chunks.image}.get(tile.stays, chunks.reach) * share,
        constants=constants,
        held=held,
        blocks=images * sum(job.times for some in every for job in some),
        first_sums=begin,
        draining=drained,
    )


class _Chunks(NamedTuple):
    """Pixels of the input that come at a time.

    ``words``    of the input buffer that a pixel takes: blocks of input channels
    ``first``, ``further``  pixels of the first tile, and of each one after it; ``reach``: those that a tile sees
    ``image``    pixels of an image
    ``rate``     at which a port reads them, in words a cycle
    """

    words: int
    first: int
    further: int
    reach: int
    image: int
    rate: float


def _chunks(overlay: Overlay, conv: Convolved, tile: Tiling) -> _Chunks:
    height, width = conv.source[2:]
    reach = (tile.rows - 1) * conv.window.stride[0] + conv.window.extent(0)
    first = max(0, min(height, reach - conv.window.pad[0])) * width  # none where the first tile sees padding alone
    further = tile.rows * conv.window.stride[0] * width
    ports = overlay.array.inputs // overlay.layout.channels_per_word  # each has a plane of some, a run for each chunk
    begins = ports * conv.plane_words[0], conv.first[0] * width, *((first, further) if tile.tiles > 1 else ())
    rate, _ = overlay.rates(first or further, gcd(*begins))
    words = tiling.row_words(overlay, conv.weights, conv.group, width) // width
    return _Chunks(words, first, further, min(height, reach) * width, height * width, rate)


def _first(
    overlay: Overlay, conv: Convolved, tile: Tiling, chunks: _Chunks, every: Sequence[Sequence[TileBlock]]
) -> float:
    """Return the cycles of reading after which the array may begin and need not wait again.

    The input arrives tile by tile, and a tile's by blocks of input channels: the array begins with the first one. It waits
    where more input takes longer to arrive than the array computes meanwhile: all blocks of outputs, or one if they are the
    outer loop.
    """
    block = chunks.first / chunks.rate
    inputs = 1 if is_depthwise(conv.weights, conv.group) else ceil_div(conv.weights[1], overlay.array.inputs)
    slower = max(0.0, block - every[0][0].computes / inputs)  # than the array takes a block of inputs
    cycles = block + (chunks.words - 1) * slower
    for some in every[1:]:
        busy = [max(job.computes, job.drains) for job in some]
        meanwhile = busy[0] if tile.one_by_one else sum(each * job.times for each, job in zip(busy, some))
        rows = some[0].rows * chunks.further / tile.rows
        cycles += max(0.0, rows * chunks.words / chunks.rate - meanwhile)
    return cycles


def _constants(
    overlay: Overlay, conv: Convolved, tile: Tiling, every: Sequence[Sequence[TileBlock]]
) -> tuple[float, float]:
    """Return the cycles in which constants come, and the share of them that may come before the Task works."""
    weights, images = tiling.weight_traffic(overlay, conv), conv.source[0]
    tables = images * len(every) * conv.weights[0] * overlay.table.bytes  # again for each tile, through one port
    blocks = sum(job.times for job in every[0])
    if tile.one_by_one:
        blocks *= len(every) * (images if tile.stays == IMAGES else 1)
    held = min(1.0, overlay.buffers.weights.bytes / max(1, weights), TABLES / blocks)
    return weights / BEAT / overlay.constants_rate + tables / overlay.ports.bytes, held
