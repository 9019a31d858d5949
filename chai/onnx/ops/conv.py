"""Conv and ConvTranspose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...blob import show
from ...text import number_of
from ...util.lazy_numpy import np
from ..constants import TrainedBlob
from ..node import OnnxNode
from ..refusal import Refused
from . import operator
from .windows import Geometry, geometry, lowered, raised

FEW = 8  # a difference of paddings that a convolution takes as zeros in its kernel


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
