"""MaxPool, AveragePool, and those over the whole map."""

from __future__ import annotations

from collections.abc import Sequence

from ...blob import count
from ..node import OnnxNode
from ..refusal import Refused
from ..windows import Geometry, geometry, lowered, padded_apart, raised
from . import operator
from .activations import LARGEST
from .pieces import cut, every


@operator("MaxPool", "AveragePool")
def pool(node: OnnxNode) -> None:
    node.only_output()
    kernel = node.attributes.integers("kernel_shape")
    if not kernel:
        raise Refused("its kernel_shape is missing")
    if len(kernel) == 3 and len(node.shape()) == 5:
        volume(node, kernel)
        return
    window = geometry(node, kernel, node.shape())
    if window.dilation != (1, 1):
        dilated(node, window)
        return
    kind = "MAX"
    if node.operator == "AveragePool":
        padded = any(window.before + window.after)
        kind = "AVE_EXC_PAD" if padded and not node.attributes.integer("count_include_pad", 0) else "AVE"
    lowered(
        node,
        window,
        "Pooling",
        raised(node, node.input(), window),
        pool=kind,
        kernel_h=window.kernel[0],
        kernel_w=window.kernel[1],
        stride_h=window.stride[0],
        stride_w=window.stride[1],
        round_mode="CEIL" if node.attributes.integer("ceil_mode", 0) else "FLOOR",
        chai_begin_inside=True,
        **window.pads(short=True),
    )


def dilated(node: OnnxNode, window: Geometry) -> None:
    """Pool taps that are not next to each other: the extreme or the mean of shifted copies, along one axis after the other."""
    average = node.operator == "AveragePool"
    if node.attributes.integer("ceil_mode", 0):
        raise Refused("dilations with ceil_mode")
    if average and any(window.before + window.after) and not node.attributes.integer("count_include_pad", 0):
        raise Refused("dilations, and a mean that leaves out the padding")
    blob = raised(node, node.input(), window)
    if any(window.before + window.after):
        blob, _ = padded_apart(node, blob, window, 0.0 if average else -LARGEST)
    for i, axis in enumerate((2, 3)):
        size, stride, step = node.shape_of(blob)[axis], window.stride[i], window.dilation[i]
        reach = step * (window.kernel[i] - 1)
        if size <= reach:
            raise Refused(f"a window of {reach + 1} over an axis of {size}")
        count = (size - reach - 1) // stride + 1
        taps = [cut(node, blob, axis, t * step, t * step + (count - 1) * stride + 1) for t in range(window.kernel[i])]
        taps = [every(node, tap, axis, stride) if stride > 1 else tap for tap in taps]
        if len(taps) > 1 and average:
            blob = node.part("Eltwise", *taps, operation="SUM", coeff=(1 / len(taps),) * len(taps))
        elif len(taps) > 1:
            blob = node.part("Eltwise", *taps, operation="MAX")
        else:
            blob = taps[0]
    node.reshaped(blob, node.shape_of(blob) if not window.flat else (*node.shape_of(blob)[:2], node.shape_of(blob)[3]))


def volume(node: OnnxNode, kernel: Sequence[int]) -> None:
    """Pool three axes: the last two first, then the first one with these as one."""
    n, c, d, h, w = node.shape()
    read = node.attributes.integers
    stride, pads = list(read("strides") or (1,) * 3), list(read("pads") or (0,) * 6)
    padded = any(pads) and node.operator == "AveragePool"
    if any(step != 1 for step in read("dilations") or ()) or node.attributes.text("auto_pad") not in ("", "NOTSET"):
        raise Refused("dilations or auto_pad of a pool over three axes")
    if padded or len(stride) != 3 or len(pads) != 6:
        raise Refused("the padding of a mean over three axes" if padded else "strides and pads do not fit the kernel")
    maps = node.reshaped(node.input(), (n, c * d, h, w), final=False)
    maps = _plain(node, maps, kernel[1:], stride[1:], (pads[1], pads[4]), (pads[2], pads[5]))
    _, _, h, w = node.shape_of(maps)
    rows = node.reshaped(maps, (n, c, d, h * w), final=False)
    rows = _plain(node, rows, (kernel[0], 1), (stride[0], 1), (pads[0], pads[3]), (0, 0))
    node.reshaped(rows, (n, c, node.shape_of(rows)[2], h, w))


def _plain(
    node: OnnxNode,
    blob: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> str:
    """Return the pool of a blob with these paddings before and after rows and columns."""
    top: str = node.part(
        "Pooling",
        blob,
        pool="MAX" if node.operator == "MaxPool" else "AVE",
        kernel_h=kernel[0],
        kernel_w=kernel[1],
        stride_h=stride[0],
        stride_w=stride[1],
        pad_t=rows[0],
        pad_b=rows[1],
        pad_l=columns[0],
        pad_r=columns[1],
        round_mode="CEIL" if node.attributes.integer("ceil_mode", 0) else "FLOOR",
        chai_begin_inside=True,
    )
    return top


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode) -> None:
    whole_map(node, "AVE" if node.operator == "GlobalAveragePool" else "MAX")


def whole_map(node: OnnxNode, kind: str, keep: bool = True) -> None:
    """Pool over all axes after the channels; they stay as 1 if ``keep``."""
    shape = node.shape()
    if len(shape) < 3:
        raise Refused(f"a blob of {len(shape)} axes has no map")
    n, c, *size = shape
    top = (n, c, *(1 for _ in size)) if keep else (n, c)
    if len(shape) == 4 and keep:
        node.result("Pooling", node.input(), pool=kind, global_pooling=True)
        return
    bottom = (
        node.reshaped(node.input(), (n, c, 1, count(tuple(size))), final=False) if len(shape) != 4 else node.input()
    )
    node.reshaped(node.part("Pooling", bottom, pool=kind, global_pooling=True), top)
