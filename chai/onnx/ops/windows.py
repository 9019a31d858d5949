"""Windows: convolutions and pools, and their kernel, stride, padding and dilation in one dimension or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...blob import Array, Shape, count, show
from ...text import number_of
from ...util.lazy_numpy import np
from ...util.rounding import ceil_div
from ..constants import Constant, TrainedBlob
from ..node import OnnxNode
from ..refusal import Refused
from . import operator
from .activations import LARGEST
from .pieces import cut, every

FEW = 8  # a difference of paddings that a convolution takes as zeros in its kernel


@dataclass(frozen=True)
class Geometry:
    """A window, one number for each axis. ``flat``: of one axis in the file, which is computed as a map of height 1."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    flat: bool = False

    @property
    def reach(self) -> list[int]:
        """Return the pixels from a window's first tap to its last, both included."""
        return [step * (taps - 1) + 1 for taps, step in zip(self.kernel, self.dilation)]

    def pads(self, short: bool = False) -> dict[str, Any]:
        """Return the padding of two axes as parameters of a layer; ``short``: pad_h and pad_w instead of pad: h, w."""
        (t, le), (b, r) = self.before, self.after
        if self.before == self.after:
            return {"pad_h": t, "pad_w": le} if short else {"pad": (t, le)} if t or le else {}
        return {"pad_t": t, "pad_l": le, "pad_b": b, "pad_r": r}


def spans(node: OnnxNode, kernel: Sequence[int], shape: Shape) -> Geometry:
    """Return the window of a node with this kernel over a blob of this shape. Raises Refused if they do not fit."""
    rank, read = len(kernel), node.attributes.integers
    stride, dilation = (tuple(read(name) or [1] * rank) for name in ("strides", "dilations"))
    pads = list(read("pads") or [0] * (2 * rank))
    lengths = len(shape) - 2, len(stride), len(dilation), len(pads) / 2
    if set(lengths) != {rank} or min(*kernel, *stride, *dilation) < 1:
        raise Refused(
            f"strides, dilations and pads do not fit a kernel of {number_of(rank, 'axis')} over a blob {show(shape)}"
        )
    before, after = pads[:rank], pads[rank:]
    auto = node.attributes.text("auto_pad", "NOTSET") or "NOTSET"
    if auto.startswith("SAME"):
        for i, size in enumerate(shape[2:]):
            extent = (kernel[i] - 1) * dilation[i] + 1
            total = max((ceil_div(size, stride[i]) - 1) * stride[i] + extent - size, 0)
            before[i], after[i] = total // 2, total - total // 2
        if auto == "SAME_LOWER":
            before, after = after, before
    elif auto == "VALID":
        before, after = [0] * rank, [0] * rank
    elif auto != "NOTSET":
        raise Refused(f"auto_pad {auto!r}")
    if min(*before, *after) < 0:
        raise Refused("a negative padding")
    return Geometry(tuple(kernel), stride, dilation, tuple(before), tuple(after))


def geometry(node: OnnxNode, kernel: Sequence[int], shape: Shape) -> Geometry:
    """Return the window of a node with this kernel over a blob of this shape. Raises Refused for other than 1 or 2 axes."""
    rank = len(kernel)
    if rank not in (1, 2):
        raise Refused(f"a kernel of {number_of(rank, 'axis')} over a blob {show(shape)}; 1 or 2 axes are computed")
    window = spans(node, kernel, shape)
    if rank == 2:
        return window
    kernels, strides, dilations = ((1, *numbers) for numbers in (window.kernel, window.stride, window.dilation))
    return Geometry(kernels, strides, dilations, (0, *window.before), (0, *window.after), flat=True)


def raised(node: OnnxNode, blob: str, window: Geometry) -> str:
    """Return a blob (N, C, L) as a map of height 1 if the window has one axis."""
    if not window.flat:
        return blob
    n, c, length = node.shape_of(blob)
    return node.reshaped(blob, (n, c, 1, length), final=False)


def lowered(node: OnnxNode, window: Geometry, type: str, blob: str, **layer: Any) -> None:
    """Add the layer that writes the node's output, and for a window of one axis drop the height of 1 again."""
    if not window.flat:
        node.result(type, blob, **layer)
        return
    top = node.part(type, blob, **layer)
    n, c, _, length = node.shape_of(top)
    node.reshaped(top, (n, c, length))


@operator("Conv")
def conv(node: OnnxNode) -> None:
    window, blobs, bottom = _opened(node)
    uneven = [after - before for before, after in zip(window.before, window.after)]
    if any(abs(more) > FEW * d or more % d for more, d in zip(uneven, window.dilation)):
        (t, le), (b, r) = window.before, window.after
        bottom = node.part("Pad", bottom, paddings=(0, 0, 0, 0, t, b, le, r))
        window = replace(window, before=(0, 0), after=(0, 0))
    lowered(node, window, "Convolution", bottom, blobs=blobs, **_params(node, window, blobs, blobs[0].shape[0]))


@operator("ConvTranspose")
def conv_transpose(node: OnnxNode) -> None:
    window, blobs, bottom = _opened(node)
    size = node.shape_of(bottom)[2:]
    flat = int(window.flat)
    grown = [0] * flat + list(node.attributes.integers("output_padding") or [0] * (2 - flat))
    full = [s * (i - 1) + reach + g for i, s, reach, g in zip(size, window.stride, window.reach, grown)]
    shape = node.attributes.integers("output_shape")
    if shape is not None:
        sizes = [1] * flat + list(shape)[-(2 - flat) :]
        window = _reaching(node, window, [f - wanted for f, wanted in zip(full, sizes)])
    elif node.attributes.text("auto_pad").startswith("SAME"):
        sizes = [i * s for i, s in zip(size, window.stride)]
        window = _reaching(node, window, [max(f - wanted, 0) for f, wanted in zip(full, sizes)])
    # what output_padding adds at the end is computed by a kernel with zeros there, and less is cut off
    after = [a - g for a, g in zip(window.after, grown)]
    zeros = [-(min(a, 0) // d) for a, d in zip(after, window.dilation)]
    if any(zeros):
        w = blobs[0]
        shape4 = (*w.shape[:2], *(k + z for k, z in zip(w.shape[2:], zeros)))
        pad = ((0, 0), (0, 0), (0, zeros[0]), (0, zeros[1]))
        blobs[0] = w.then(shape4, lambda array: np.pad(array.reshape(w.shape), pad))
        window = replace(window, kernel=shape4[2:])
        after = [a + z * d for a, z, d in zip(after, zeros, window.dilation)]
    window = replace(window, after=tuple(after))
    outputs = blobs[0].shape[1] * node.attributes.integer("group", 1)
    lowered(node, window, "Deconvolution", bottom, blobs=blobs, **_params(node, window, blobs, outputs))


def _reaching(node: OnnxNode, window: Geometry, surplus: list[int]) -> Geometry:
    """Return the window with the padding that cuts off ``surplus``; of an odd number one more where auto_pad says."""
    if min(surplus) < 0:
        raise Refused("its output_shape is larger than the kernel reaches")
    small, large = [s // 2 for s in surplus], [s - s // 2 for s in surplus]
    upper = node.attributes.text("auto_pad") == "SAME_UPPER"
    before, after = (small, large) if upper else (large, small)
    return replace(window, before=tuple(before), after=tuple(after))


def _opened(node: OnnxNode) -> tuple[Geometry, list[TrainedBlob], str]:
    """Return the window, weights and bias, and the bottom, of a convolution or its transpose."""
    weights = node.trained(1, "weights")
    blobs = [weights, *([node.trained(2, "bias")] if node.has(2) else [])]
    if len(weights.shape) < 3:
        raise Refused(f"weights of {number_of(len(weights.shape), 'axis')}")
    if (kernel := node.attributes.integers("kernel_shape") or weights.shape[2:]) != weights.shape[2:]:
        raise Refused(f"a kernel_shape of {show(kernel)}, but weights of {show(weights.shape)}")
    auto = node.attributes.text("auto_pad").startswith("SAME") and node.operator == "ConvTranspose"
    window = geometry(node, weights.shape[2:], node.shape() if not auto else (*node.shape()[:2], *weights.shape[2:]))
    if window.flat:
        blobs[0] = weights.then((*weights.shape[:2], 1, weights.shape[2]))
    return window, blobs, raised(node, node.input(), window)


def _params(node: OnnxNode, window: Geometry, blobs: list[TrainedBlob], outputs: int) -> dict[str, Any]:
    sizes = {"kernel_size": window.kernel, "stride": window.stride, "dilation": window.dilation, **window.pads()}
    return {"num_output": outputs, "bias_term": len(blobs) > 1, "group": node.attributes.integer("group", 1), **sizes}


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
        lowered(node, window, "Pooling", raised(node, node.input(), window), **_pooling(node, window))


def _uneven(node: OnnxNode, window: Geometry) -> bool:
    """Return whether it is a mean over three axes, whose windows at the border have fewer numbers."""
    border = any(window.before + window.after) or node.attributes.integer("ceil_mode", 0)
    return len(window.kernel) == 3 and node.operator == "AveragePool" and bool(border)


def _pooling(node: OnnxNode, window: Geometry) -> dict[str, Any]:
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
    maps = node.part("Pooling", maps, **_pooling(node, plane))
    _, _, h, w = node.shape_of(maps)
    rows = node.reshaped(maps, (n, c, d, h * w), final=False)
    rows = node.part("Pooling", rows, **_pooling(node, depth))
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
