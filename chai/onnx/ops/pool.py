"""MaxPool, AveragePool, and those over the whole map."""

from __future__ import annotations

from ...blob import count
from ..node import OnnxNode
from ..refusal import Refused
from ..windows import geometry, lowered, raised
from . import operator


@operator("MaxPool", "AveragePool")
def pool(node: OnnxNode) -> None:
    node.only_output()
    kernel = node.attributes.integers("kernel_shape")
    if not kernel:
        raise Refused("its kernel_shape is missing")
    window = geometry(node, kernel, node.shape())
    if window.dilation != (1, 1):
        raise Refused("a pool with dilations is not yet computed")
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
