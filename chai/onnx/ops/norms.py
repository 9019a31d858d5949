"""Normalisations, and Softmax, which is one of exponentials."""

from __future__ import annotations

from math import prod

from ...text import number_of
from ...util.lazy_numpy import np
from ..node import OnnxNode
from ..refusal import Refused
from . import operator
from .activations import LARGEST
from .reduce import log_sum_exp

TINY = 1e-36


@operator("BatchNormalization")
def batch_normalization(node: OnnxNode) -> None:
    if node.attributes.integer("training_mode", 0):
        raise Refused("it is in training mode", hint="export the network for inference: module.eval()")
    if not node.attributes.integer("spatial", 1):
        raise Refused("spatial 0 is not computed")
    node.only_output()
    names = enumerate(("scale", "bias", "mean", "variance"), 1)
    scale, bias, mean, variance = (node.trained(i, name) for i, name in names)
    one = mean.then((1,), lambda _: np.ones(1, np.float32))  # Caffe's factor of both
    eps = node.attributes.number("epsilon", 1e-5)
    normal = node.part("BatchNorm", node.input(), blobs=[mean, variance, one], eps=eps, use_global_stats=True)
    node.result("Scale", normal, blobs=[scale, bias], bias_term=True)


@operator("LRN")
def lrn(node: OnnxNode) -> None:
    read = node.attributes.number
    size = node.attributes.integer("size", 0)
    alpha, beta, k = read("alpha", 1e-4), read("beta", 0.75), read("bias", 1.0)
    node.result("LRN", node.input(), local_size=size, alpha=alpha, beta=beta, k=k)


@operator("LayerNormalization", "RMSNormalization")
def layer_normalization(node: OnnxNode) -> None:
    node.only_output()
    axis = node.axis(node.attributes.integer("axis", -1), len(node.shape()))
    eps, centered = node.attributes.number("epsilon", 1e-5), node.operator == "LayerNormalization"
    normal = node.part("LayerNorm", node.input(), axis=axis, eps=eps, centered=centered)
    _scaled(node, normal, axis)


def _scaled(node: OnnxNode, blob: str, axis: int) -> None:
    """Multiply by the second input and add the third, which have the axes from ``axis`` on or are repeated along them."""
    shape = node.shape_of(blob)
    parts = [node.trained(i, name) for i, name in ((1, "scale"), (2, "bias")) if node.has(i)]
    if all(part.shape == shape[axis:] for part in parts):
        node.result("Scale", blob, blobs=parts, axis=axis, num_axes=-1, bias_term=len(parts) > 1)
        return
    factor = node.input(1)
    if len(parts) > 1:
        node.result("Add", node.part("Mul", blob, factor), node.input(2))
    else:
        node.result("Mul", blob, factor)


@operator("InstanceNormalization", "GroupNormalization")
def group_normalization(node: OnnxNode) -> None:
    shape = node.shape()
    if len(shape) < 3:
        raise Refused(f"a blob of {number_of(len(shape), 'axis')}")
    n, c, *size = shape
    groups = c if node.operator == "InstanceNormalization" else node.attributes.integer("num_groups", 1)
    if groups < 1 or c % groups:
        raise Refused(f"{groups} groups of {c} channels")
    rows = node.reshaped(node.input(), (n, groups, c // groups * prod(size)), final=False)
    normal = node.part("LayerNorm", rows, axis=2, eps=node.attributes.number("epsilon", 1e-5))
    maps = node.reshaped(normal, shape, final=False)
    scale, bias = node.trained(1, "scale"), node.trained(2, "bias")
    if scale.shape == (groups,) and groups != c:  # before opset 21: one per group
        scale, bias = (part.then((c,), lambda array: np.repeat(array, c // groups)) for part in (scale, bias))
    node.result("Scale", maps, blobs=[scale, bias], bias_term=True)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode) -> None:
    axes = node.attributes.integers("axes") or (0, 2, 3)
    shape = node.shape()
    along = sorted({node.axis(axis, len(shape)) for axis in axes})
    rest = [axis for axis in range(len(shape)) if axis not in along]
    order = (*rest, *along)
    moved = node.part("Permute", node.input(), order=order)
    normal = node.part("LayerNorm", moved, axis=len(rest), eps=1e-9)
    node.result("Permute", normal, order=tuple(order.index(axis) for axis in range(len(shape))))


@operator("LpNormalization")
def lp_normalization(node: OnnxNode) -> None:
    shape, p = node.shape(), node.attributes.integer("p", 2)
    axis = node.axis(node.attributes.integer("axis", -1), len(shape))
    if p not in (1, 2):
        raise Refused(f"p {p}; 1 and 2 are computed")
    order = (*(a for a in range(len(shape)) if a != axis), axis)
    moved = node.part("Permute", node.input(), order=order)
    total = node.part("Reduction", moved, operation="ASUM" if p == 1 else "SUMSQ", axis=len(shape) - 1)
    above = node.part("Clip", total, min=TINY, max=LARGEST)  # zeros stay zeros
    inverse = node.part("Power", above, power=-1.0 if p == 1 else -0.5)
    sizes = [d if a != axis else 1 for a, d in enumerate(shape)]
    node.result("Mul", node.input(), node.reshaped(inverse, sizes, final=False))


@operator("Softmax", "LogSoftmax")
def softmax(node: OnnxNode) -> None:
    shape = node.shape()
    old = node.opset < 13  # the axes from ``axis`` on are one
    axis = node.axis(node.attributes.integer("axis", 1 if old else -1), len(shape))
    blob, flat = node.input(), old and prod(shape[axis + 1 :]) > 1
    if node.operator == "LogSoftmax":
        along = list(range(axis, len(shape))) if flat else [axis]
        _, shifted, total = log_sum_exp(node, blob, along)
        order = [*(a for a in range(len(shape)) if a not in along), *along]
        ones = [*node.shape_of(total), *(1 for _ in along)]
        sums = node.part("Power", node.reshaped(total, ones, final=False), scale=-1.0)
        node.result("Permute", node.part("Add", shifted, sums), order=tuple(order.index(a) for a in range(len(shape))))
    elif flat:
        rows = node.reshaped(blob, (prod(shape[:axis]), prod(shape[axis:])), final=False)
        node.reshaped(node.part("Softmax", rows, axis=1), shape)
    else:
        node.result("Softmax", blob, axis=axis)
