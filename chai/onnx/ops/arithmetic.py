"""Arithmetic of two blobs, of a blob and a constant, and of many blobs; and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ...blob import Array, count
from ...text import number_of
from ...util.lazy_numpy import np
from ..constants import TrainedBlob, unchanged
from ..node import OnnxNode
from ..refusal import Refused
from ..sizes import alike
from . import operator
from .activations import LARGEST


@operator("Add", "Sub", "Mul", "Div")
def pair(node: OnnxNode) -> None:
    constants = [i for i in (0, 1) if node.is_constant(i)]
    if len(constants) == 1 and _with_constant(node, 1 - constants[0]):
        return
    x, y, same = node.input(0), node.input(1), alike(node.shape(0), node.shape(1))
    if not same and node.opset < 7:
        y = node.reshaped(y, _facing(node, 1, len(node.shape(0))), final=False)
    if node.operator == "Sub" and same:
        node.result("Eltwise", x, y, operation="SUM", coeff=(1.0, -1.0))
        return
    if node.operator in ("Sub", "Div"):
        y = node.part("Power", y, scale=-1.0) if node.operator == "Sub" else node.part("Power", y, power=-1.0)
    operation, broadcast = ("SUM", "Add") if node.operator in ("Add", "Sub") else ("PROD", "Mul")
    node.result("Eltwise", x, y, operation=operation) if same else node.result(broadcast, x, y)


def _with_constant(node: OnnxNode, index: int) -> bool:
    """Compute a blob, the input ``index``, with the other input, a constant; return whether a layer can."""
    other, shape = node.trained(1 - index, "operand"), node.shape(index)
    first = index == 0
    if prod(other.shape) == 1 and len(other.shape) <= len(shape):
        _with_number(node, index, float(node.constant(1 - index, "operand").reshape(-1)[0]))
        return True
    if node.operator == "Div" and not first:
        return False
    sizes = _facing(node, 1 - index, len(shape))
    axes = [i for i, size in enumerate(sizes) if size > 1]
    if len(other.shape) > len(shape) or not axes:
        return False
    start, end = axes[0], axes[-1] + 1
    if sizes[start:end] != shape[start:end]:
        return False
    operand = other.then(sizes[start:end], _CHANGES.get(node.operator, unchanged) if first else unchanged)
    where = {"axis": start, "num_axes": end - start}
    x = node.input(index)
    if node.operator in ("Mul", "Div"):
        node.result("Scale", x, blobs=[operand], **where)
    else:
        x = node.part("Power", x, scale=-1.0) if node.operator == "Sub" and not first else x
        node.result("Bias", x, blobs=[operand], **where)
    return True


def _facing(node: OnnxNode, index: int, rank: int) -> tuple[int, ...]:
    """Return the shape of an operand with ones before it, and before opset 7 after it, if it says from which axis on it is."""
    shape, axis = node.shape(index), node.attributes.integer("axis") if node.opset < 7 else None
    before = rank - len(shape) if axis is None else node.axis(axis, rank)
    return (*(1 for _ in range(before)), *shape, *(1 for _ in range(rank - before - len(shape))))


def _inverse(array: Array) -> Array:
    with np.errstate(divide="ignore"):
        return (1 / array.astype(np.float64)).astype(np.float32)


_CHANGES: dict[str, Callable[[Array], Array]] = {"Sub": lambda array: -array, "Div": _inverse}


def _with_number(node: OnnxNode, index: int, number: float) -> None:
    """Compute a blob with one number."""
    x, first, name = node.input(index), index == 0, node.operator
    if not np.isfinite(number) or (name == "Div" and number == 0):
        raise Refused(f"a constant of {number}")
    if name == "Add" or (name == "Sub" and first):
        node.result("Power", x, shift=number if name == "Add" else -number)
    elif name == "Mul" or (name == "Div" and first):
        node.result("Power", x, scale=number if name == "Mul" else 1 / number)
    elif name == "Sub":
        node.result("Power", x, scale=-1.0, shift=number)
    else:
        node.result("Power", node.part("Power", x, power=-1.0), scale=number)


@operator("Neg", "Sqrt", "Reciprocal")
def power(node: OnnxNode) -> None:
    params: dict[str, dict[str, Any]] = {"Neg": {"scale": -1.0}, "Sqrt": {"power": 0.5}, "Reciprocal": {"power": -1.0}}
    node.result("Power", node.input(), **params[node.operator])


@operator("Pow")
def pow(node: OnnxNode) -> None:
    exponent = node.constant(1, "exponent")
    if exponent.size != 1 or exponent.ndim > len(node.shape()):
        raise Refused(
            f"an exponent of {number_of(exponent.size, 'number')} of shape {list(exponent.shape)}, expected one number"
        )
    power = float(exponent.reshape(-1)[0])
    if node.inputs[0] in node.draft.integers and not (power >= 0 and power.is_integer()):
        raise Refused(f"whole numbers to the power of {power:g}, of which ONNX keeps the whole part")
    node.result("Power", node.input(), power=power)


@operator("Sum", "Mean", "Max", "Min")
def several(node: OnnxNode) -> None:
    count, name = len(node.inputs), node.operator
    if count < 2:
        node.same(node.input())
        return
    if name in ("Max", "Min") and count == 2 and _clipped(node):
        return
    blobs = [node.input(i) for i in range(count)]
    if len({node.shape(i) for i in range(count)}) > 1:
        raise Refused("inputs of different shapes")
    if not alike(*map(node.shape, range(count))):
        node.for_one_batch(node.shape())
    if name in ("Sum", "Mean"):
        coeff: dict[str, Any] = {"coeff": (1 / count,) * count} if name == "Mean" else {}
        node.result("Eltwise", *blobs, operation="SUM", **coeff)
    elif name == "Max":
        node.result("Eltwise", *blobs, operation="MAX")
    else:
        negative = [node.part("Power", blob, scale=-1.0) for blob in blobs]
        node.result("Power", node.part("Eltwise", *negative, operation="MAX"), scale=-1.0)


def _clipped(node: OnnxNode) -> bool:
    """Compute the maximum or minimum of a blob and one number; return whether it is that."""
    index = next((i for i in (0, 1) if node.is_constant(i)), None)
    if index is None or prod(node.shape(index)) != 1 or len(node.shape(index)) > len(node.shape(1 - index)):
        return False
    bound = float(node.constant(index, "operand").reshape(-1)[0])
    low, high = (bound, LARGEST) if node.operator == "Max" else (-LARGEST, bound)
    if low == 0:
        node.result("ReLU", node.input(1 - index))
    else:
        node.result("Clip", node.input(1 - index), min=low, max=high)
    return True


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
