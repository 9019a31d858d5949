"""Windows of convolutions and pools: kernel, stride, padding and dilation of the attributes, in one or two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...blob import Shape, show
from ...text import number_of
from ...util.rounding import ceil_div
from ..node import OnnxNode
from ..refusal import Refused


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
