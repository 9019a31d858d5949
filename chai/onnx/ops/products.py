"""Gemm and MatMul: products of matrices."""

from __future__ import annotations

from ...blob import Array, count
from ...text import number_of
from ...util.lazy_numpy import np
from ..constants import TrainedBlob
from ..node import OnnxNode
from ..refusal import Refused
from . import operator


@operator("Gemm")
def gemm(node: OnnxNode) -> None:
    attributes = node.attributes
    if len(node.shape(0)) != 2:
        raise Refused(f"a first input of {number_of(len(node.shape(0)), 'axis')}, expected 2")
    alpha, beta = attributes.number("alpha", 1.0), attributes.number("beta", 1.0)
    bottom = node.part("Permute", node.input(), order=(1, 0)) if attributes.integer("transA", 0) else node.input()
    if not node.is_constant(1) or (node.has(2) and not _per_output(node)):
        _of_blobs(node, bottom, alpha, beta)
        return
    weights = node.trained(1, "second input")
    if len(weights.shape) != 2:
        raise Refused(f"a second input of {number_of(len(weights.shape), 'axis')}, expected 2")
    rows = weights if attributes.integer("transB", 0) else _transposed(weights)
    blobs = [rows if alpha == 1 else rows.then(rows.shape, lambda array: array * np.float32(alpha))]
    if node.has(2):
        blobs.append(_bias(node, beta, rows.shape[0]))
    node.result("InnerProduct", bottom, blobs=blobs, num_output=rows.shape[0], bias_term=len(blobs) > 1)


def _of_blobs(node: OnnxNode, x: str, alpha: float, beta: float) -> None:
    """Multiply two blobs, and add a third."""
    y = node.part("Permute", node.input(1), order=(1, 0)) if node.attributes.integer("transB", 0) else node.input(1)
    product = node.part("MatMul", x, y)
    if alpha != 1:
        product = node.part("Power", product, scale=alpha)
    if not node.has(2):
        node.same(product)
        return
    addend = node.input(2) if beta == 1 else node.part("Power", node.input(2), scale=beta)
    node.result("Add", product, addend)


def _per_output(node: OnnxNode) -> bool:
    """Return whether the third input is a constant with one number per output, or one."""
    shape = node.shape(2)
    return node.is_constant(2) and count(shape) == (shape[-1] if shape else 1)


def _bias(node: OnnxNode, beta: float, outputs: int) -> TrainedBlob:
    bias = node.trained(2, "third input")
    if count(bias.shape) not in (1, outputs):
        raise Refused(f"a third input of shape {bias.shape} for {outputs} outputs")

    def spread(array: Array) -> Array:
        return np.broadcast_to(array.reshape(-1) * np.float32(beta), (outputs,))

    return bias.then((outputs,), spread)


def _transposed(blob: TrainedBlob) -> TrainedBlob:
    return blob.then(blob.shape[::-1], lambda array: array.reshape(blob.shape).T)


@operator("MatMul")
def matmul(node: OnnxNode) -> None:
    shape = node.shape(0)
    if node.is_constant(1) and len(node.shape(1)) == 2 and len(shape) > 1:
        rows = _transposed(node.trained(1, "second input"))
        axis = len(shape) - 1
        params = {"num_output": rows.shape[0], "bias_term": False, "axis": axis}
        node.result("InnerProduct", node.input(), blobs=[rows], **params)
        return
    node.result("MatMul", node.input(0), node.input(1))
