"""How long a Task takes on an overlay: a model in clock cycles, never a measurement.

The array holds inputs x outputs weights; every cycle one pixel's ``inputs`` channels enter, for each of ``lanes`` pixels.
A kernel tap and a block of input channels are one pass over the pixels of a tile.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ..blob import count
from ..overlay import Overlay
from .conv import Conv
from .copy import Copy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..blob import Shape
    from . import Task


def cycles(task: Task, overlay: Overlay, shapes: Mapping[str, Shape]) -> int:
    """Clock cycles of one Task for blobs of these shapes, the larger of computing and moving its bytes.

    Convolution: passes * max(pixels of a tile, loading the next weights) + draining, per tile of accumulators. All
    other kinds stream: one word of channels a cycle.
    """
    ins = [shapes[b] for b in task.inputs]
    out = ins[0] if isinstance(task, Copy) else shapes[task.output]
    words = sum(map(count, [*ins, out])) / overlay.layout.channels_per_word
    weights = 0
    computed = words
    if isinstance(task, Conv):
        weights = task.weights.size
        computed = _conv(task, overlay, ins[0], out)
    moved = (sum(map(count, [*ins, out])) + weights) / (overlay.memory_mb_per_s * 1e6) * overlay.clock_mhz * 1e6
    return ceil(max(computed, moved)) + overlay.overhead.task_cycles


def _conv(task: Conv, overlay: Overlay, source: Shape, out: Shape) -> float:
    array = overlay.array
    m, c = task.weights.shape[:2]
    kh, kw = task.window.kernel
    # with few channels the taps themselves fill the array's inputs: the host unfolds such a layer when it packs
    taps = ceil(kh * kw * c / array.inputs) if c < array.inputs else kh * kw * ceil(c / array.inputs)
    blocks = ceil(m / task.group / array.outputs) * task.group
    if c == 1 and task.group == source[1] > 1:  # depthwise: a diagonal of the array, one output per input
        taps, blocks = kh * kw, ceil(m / min(array.inputs, array.outputs))
    pixels = ceil(out[0] * out[2] * out[3] / array.lanes)
    tiles = ceil(pixels / overlay.buffers.accumulators.depth)
    per_tile = ceil(pixels / tiles)
    compute = taps * max(per_tile, array.inputs)
    drain = ceil(array.outputs / overlay.requant.lanes) * per_tile
    return float(tiles * blocks * (max(compute, drain) + overlay.overhead.tile_cycles))
