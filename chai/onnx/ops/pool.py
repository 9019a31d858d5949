"""MaxPool, AveragePool, and those over the whole map."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...blob import Array, count
from ...text import number_of
from ...util.lazy_numpy import np
from ...util.rounding import ceil_div
from ..constants import Constant, TrainedBlob
from ..node import OnnxNode
from ..refusal import Refused
from . import operator
from .activations import LARGEST
from .pieces import cut, every
from .windows import Geometry, geometry, lowered, raised, spans


@operator("MaxPool", "AveragePool")
def pool(node: OnnxNode) -> None:
    node.only_output()
    kernel = node.attributes.integers("kernel_shape")
    if not kernel:
        raise Refused("its kernel_shape is missing")
    window = spans(node, kernel, node.shape())
    if max(window.dilation) > 1 or len(kernel) > 3 or _uneven(node, window):
        by_taps(node, window)
    elif len(kernel) == 3:
        volume(node, window)
    else:
        window = geometry(node, kernel, node.shape())
        lowered(node, window, "Pooling", raised(node, node.input(), window), **_params(node, window))


def _uneven(node: OnnxNode, window: Geometry) -> bool:
    """Return whether it is a mean over three axes, whose windows at the border have fewer numbers."""
    border = any(window.before + window.after) or node.attributes.integer("ceil_mode", 0)
    return len(window.kernel) == 3 and node.operator == "AveragePool" and bool(border)


def _params(node: OnnxNode, window: Geometry) -> dict[str, Any]:
    """Return the parameters of a Pooling of two axes."""
    kind = "MAX"
    if node.operator == "AveragePool":
        padded = any(window.before + window.after)
        kind = "AVE_EXC_PAD" if padded and not node.attributes.integer("count_include_pad", 0) else "AVE"
    sizes = dict(zip(("kernel_h", "kernel_w", "stride_h", "stride_w"), (*window.kernel, *window.stride)))
    rounding = "CEIL" if node.attributes.integer("ceil_mode", 0) else "FLOOR"
    return {"pool": kind, **sizes, "round_mode": rounding, "chai_begin_inside": True, **window.pads(short=True)}


def by_taps(node: OnnxNode, window: Geometry) -> None:
    """Pool any number of axes, with dilations: the extreme or the sum of shifted copies, along one axis after the other."""
    average, shape = node.operator == "AveragePool", node.shape()
    counts = _counts(node, window)
    paddings = [0] * 4
    for size, number, step, reach, before in zip(shape[2:], counts, window.stride, window.reach, window.before):
        paddings += [before, max((number - 1) * step + reach - size - before, 0)]
    blob = node.input()
    if any(paddings):
        value = 0.0 if average else -LARGEST
        blob = node.part("Pad", blob, paddings=tuple(paddings), constant_values=value)
    for i, number in enumerate(counts):
        stride, axis = window.stride[i], i + 2
        firsts = [tap * window.dilation[i] for tap in range(window.kernel[i])]
        taps = [cut(node, blob, axis, first, first + (number - 1) * stride + 1) for first in firsts]
        taps = [every(node, tap, axis, stride) if stride > 1 else tap for tap in taps]
        blob = node.part("Eltwise", *taps, operation="SUM" if average else "MAX") if len(taps) > 1 else taps[0]
    if average:
        shares = TrainedBlob(Constant(_shares(node, window, counts)), tuple(counts))
        node.result("Scale", blob, blobs=[shares], axis=2, num_axes=len(counts))
    else:
        node.same(blob)


def _counts(node: OnnxNode, window: Geometry) -> list[int]:
    """Return the number of windows along each axis; rounded up, one that would begin after the image does not exist."""
    up, counts = node.attributes.integer("ceil_mode", 0), []
    for i, size in enumerate(node.shape()[2:]):
        room = size + window.before[i] + window.after[i] - window.reach[i]
        if room < 0:
            raise Refused(f"a window of {window.reach[i]} over an axis of {room + window.reach[i]}")
        steps = (ceil_div(room, window.stride[i]) if up else room // window.stride[i]) + 1
        counts.append(min(steps, ceil_div(size + window.before[i], window.stride[i])))
    return counts


def _shares(node: OnnxNode, window: Geometry, counts: Sequence[int]) -> Array:
    """Return 1 / the numbers that each window's mean is of: those of the image, or of the padding, too."""
    node.draft.claim(prod(counts))
    padded, shares = node.attributes.integer("count_include_pad", 0), np.ones((), np.float32)
    for i, size in enumerate(node.shape()[2:]):
        low, high = (-window.before[i], size + window.after[i]) if padded else (0, size)
        firsts = np.arange(counts[i]) * window.stride[i] - window.before[i]
        taps = firsts[:, None] + np.arange(window.kernel[i]) * window.dilation[i]
        inside = ((taps >= low) & (taps < high)).sum(1)
        if not inside.all():
            raise Refused("a mean of no numbers: a window lies in the padding alone")
        shares = shares[..., None] / inside.astype(np.float32)
    return np.asarray(shares, np.float32)


def volume(node: OnnxNode, window: Geometry) -> None:
    """Pool three axes: the last two first, then the first one with these as one."""
    n, c, d, h, w = node.shape()
    kernel, stride, before, after = window.kernel, window.stride, window.before, window.after
    plane = Geometry(kernel[1:], stride[1:], (1, 1), before[1:], after[1:])
    depth = Geometry((kernel[0], 1), (stride[0], 1), (1, 1), (before[0], 0), (after[0], 0))
    maps = node.reshaped(node.input(), (n, c * d, h, w), final=False)
    maps = node.part("Pooling", maps, **_params(node, plane))
    _, _, h, w = node.shape_of(maps)
    rows = node.reshaped(maps, (n, c, d, h * w), final=False)
    rows = node.part("Pooling", rows, **_params(node, depth))
    node.reshaped(rows, (n, c, node.shape_of(rows)[2], h, w))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode) -> None:
    whole_map(node, "AVE" if node.operator == "GlobalAveragePool" else "MAX")


def whole_map(node: OnnxNode, kind: str, keep: bool = True) -> None:
    """Pool over all axes after the channels; they stay as 1 if ``keep``."""
    shape = node.shape()
    if len(shape) < 3:
        raise Refused(f"a blob of {number_of(len(shape), 'axis')} has no map")
    (n, c, *_), size, blob = shape, shape[2:], node.input()
    if len(shape) == 4 and keep:
        node.result("Pooling", blob, pool=kind, global_pooling=True)
        return
    if len(shape) != 4:
        blob = node.reshaped(blob, (n, c, 1, count(size)), final=False)
    top = (n, c, *(1 for _ in size)) if keep else (n, c)
    node.reshaped(node.part("Pooling", blob, pool=kind, global_pooling=True), top)
