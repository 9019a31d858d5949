"""Softmax and LogSoftmax."""

from __future__ import annotations

from math import prod

from ...graph.params import BlobShape
from ..node import OnnxNode
from . import operator
from .reduce import log_sum_exp


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
        size = (-1, prod(shape[axis:])) if axis else (1, -1)  # at axis 0 all images are one row
        rows = node.part("Reshape", blob, shape=BlobShape(size))
        node.result("Reshape", node.part("Softmax", rows, axis=1), shape=BlobShape((-1, *shape[1:])))
    else:
        node.result("Softmax", blob, axis=axis)
