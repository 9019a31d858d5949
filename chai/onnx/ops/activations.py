"""Activations: functions of one number."""

from __future__ import annotations

from math import pi, sqrt

from ...blob import count
from ..node import OnnxNode
from ..refusal import Refused
from . import operator

LARGEST = 3.4028234e38  # of float32: no limit


_SAME = {  # operators that are a layer without parameters
    "Relu": "ReLU", "Sigmoid": "Sigmoid", "Tanh": "TanH", "HardSwish": "HardSwish", "Softplus": "BNLL", "Erf": "Erf",
    "Exp": "Exp", "Log": "Log", "Abs": "AbsVal",
}  # fmt: skip
# those that are a layer with one: the parameter that their attribute alpha is, and its default
_OF_ALPHA = {
    "LeakyRelu": ("ReLU", "negative_slope", 0.01),
    "Elu": ("ELU", "alpha", 1.0),
    "Swish": ("Swish", "beta", 1.0),
}


@operator(*_SAME)
def same(node: OnnxNode) -> None:
    node.result(_SAME[node.operator], node.input())


@operator(*_OF_ALPHA)
def of_alpha(node: OnnxNode) -> None:
    type, name, default = _OF_ALPHA[node.operator]
    node.result(type, node.input(), **{name: node.attributes.number("alpha", default)})


@operator("PRelu")
def prelu(node: OnnxNode) -> None:
    slope, shape = node.trained(1, "slope"), node.shape()
    size = count(slope.shape)
    if len(shape) < 2:
        raise Refused("a blob without channels")
    padded = (*(1 for _ in range(len(shape) - len(slope.shape))), *slope.shape)
    if node.opset < 7 and slope.shape == shape[1:2]:
        padded = (1, size, *shape[2:])
    if size == 1:
        node.result("PReLU", node.input(), blobs=[slope.then(())], channel_shared=True)
    elif padded[1] == shape[1] == size:
        node.result("PReLU", node.input(), blobs=[slope.then((size,))])
    else:  # max(x, 0) - slope * max(-x, 0)
        below = node.part("ReLU", node.part("Power", node.input(), scale=-1.0))
        product = node.part("Power", node.part("Mul", below, node.input(1)), scale=-1.0)
        node.result("Add", node.part("ReLU", node.input()), product)


@operator("Celu")
def celu(node: OnnxNode) -> None:
    alpha = node.attributes.number("alpha", 1.0)
    if not alpha > 0:
        raise Refused(f"alpha {alpha:g}, expected more than 0")
    node.result("Power", node.part("ELU", node.part("Power", node.input(), scale=1 / alpha)), scale=alpha)


@operator("Selu")
def selu(node: OnnxNode) -> None:
    alpha = node.attributes.number("alpha", 1.6732632423543772)
    gamma = node.attributes.number("gamma", 1.0507009873554805)
    node.result("Power", node.part("ELU", node.input(), alpha=alpha), scale=gamma)


@operator("Softsign")
def softsign(node: OnnxNode) -> None:
    inverse = node.part("Power", node.part("AbsVal", node.input()), shift=1.0, power=-1.0)
    node.result("Eltwise", node.input(), inverse, operation="PROD")


@operator("Mish")
def mish(node: OnnxNode) -> None:
    node.result("Eltwise", node.input(), node.part("TanH", node.part("BNLL", node.input())), operation="PROD")


@operator("Gelu")
def gelu(node: OnnxNode) -> None:
    x = node.input()
    if node.attributes.integer("tanh", 0) or node.attributes.text("approximate", "none") == "tanh":
        cube = node.part("Power", x, power=3.0)
        inner = node.part("Eltwise", x, cube, operation="SUM", coeff=(sqrt(2 / pi), 0.044715 * sqrt(2 / pi)))
        share = node.part("TanH", inner)
    else:
        share = node.part("Erf", node.part("Power", x, scale=sqrt(0.5)))
    node.result("Eltwise", x, node.part("Power", share, scale=0.5, shift=0.5), operation="PROD")


@operator("ThresholdedRelu")
def thresholded_relu(node: OnnxNode) -> None:
    x = node.input()
    above = node.part("Threshold", x, threshold=node.attributes.number("alpha", 1.0))
    node.result("Eltwise", x, above, operation="PROD")


@operator("HardSigmoid")
def hard_sigmoid(node: OnnxNode) -> None:
    alpha, beta = node.attributes.number("alpha", 0.2), node.attributes.number("beta", 0.5)
    node.result("Clip", node.part("Power", node.input(), scale=alpha, shift=beta), min=0.0, max=1.0)


@operator("Clip")
def clip(node: OnnxNode) -> None:
    least, most = _bound(node, 1, "min"), _bound(node, 2, "max")
    if least is None and most is None:
        node.same(node.input())
    elif least is not None and most is not None and least > most:
        node.result("Clip", node.input(), min=most, max=most)
    elif least == 0 and most is None:
        node.result("ReLU", node.input())
    elif least == 0 and most == 6:
        node.result("ReLU", node.input(), relu6=True)
    else:
        low, high = -LARGEST if least is None else least, LARGEST if most is None else most
        node.result("Clip", node.input(), min=max(low, -LARGEST), max=min(high, LARGEST))


def _bound(node: OnnxNode, index: int, name: str) -> float | None:
    """Return a bound: an attribute before opset 11, a constant input after it."""
    value = node.attributes.number(name)
    if node.has(index):
        value = node.number(index, name)
    return None if value is None else float(value)
