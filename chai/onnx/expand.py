"""Expand nodes that compute with codes (QLinearConv, ...) into DequantizeLinear, the node on numbers, and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .read import NodeRecord
from .refusal import Refused

MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators
Expansion = Callable[[NodeRecord, str], "Iterator[NodeRecord]"]


def expanded(record: NodeRecord) -> list[NodeRecord]:
    """Return the nodes that compute what a node computes, without its operators on codes; else the node itself."""
    if record.domain == MICROSOFT and record.operator in ("QuantizeLinear", "DequantizeLinear"):
        return [replace(record, domain="")]
    known = _EXPANSIONS.get((record.domain, record.operator))
    if known is None or not any(record.outputs):
        return [record]
    function, operator = known
    return list(function(record, operator))


def _part(record: NodeRecord, operator: str, inputs: Sequence[str], output: str, **integers: int) -> NodeRecord:
    attributes = record.attributes.only(**integers)
    return replace(record, operator=operator, domain="", inputs=tuple(inputs), outputs=(output,), attributes=attributes)


class _Parts:
    """The inputs of a node as triples of codes, scale and zero point, and what its parts are called."""

    def __init__(self, record: NodeRecord) -> None:
        self.record = record
        self.stem = next(filter(None, record.outputs))

    def at(self, index: int) -> str:
        inputs = self.record.inputs
        return inputs[index] if index < len(inputs) else ""

    def decoded(self, first: int, **axis: int) -> tuple[str, NodeRecord]:
        """Return the name of the numbers of the codes at ``first``, and the node that computes them."""
        name = f"{self.stem}/{first}"
        return name, _part(self.record, "DequantizeLinear", [self.at(first + i) for i in range(3)], name, **axis)

    def computed(self, operator: str, inputs: Sequence[str], scale: int) -> Iterator[NodeRecord]:
        """Yield the node on numbers with the attributes of this one, and what makes codes of its output."""
        record = replace(self.record, operator=operator, domain="", inputs=tuple(inputs))
        if not self.at(scale):  # its output is numbers
            yield record
            return
        yield replace(record, outputs=(f"{self.stem}/value",))
        yield _part(record, "QuantizeLinear", [f"{self.stem}/value", self.at(scale), self.at(scale + 1)], self.stem)

    def bias(self, index: int) -> Iterator[NodeRecord]:
        """Yield the nodes that compute a bias, whose step is that of the sums: the product of both scales."""
        yield _part(self.record, "Mul", [self.at(1), self.at(4)], f"{self.stem}/step")
        codes = [self.at(index), f"{self.stem}/step"]
        yield _part(self.record, "DequantizeLinear", codes, f"{self.stem}/bias", axis=0)


def _weighted(record: NodeRecord, operator: str) -> Iterator[NodeRecord]:
    """Yield the parts of a node of codes, weights and a bias; QGemm has the bias before the scale of its output."""
    gemm = operator == "Gemm"
    if gemm:  # the step of its bias is alpha times that of the sums
        record = replace(record, attributes=record.attributes.also("alpha", "beta"))
    parts = _Parts(record)
    axis, bias, scale = (0 if record.attributes.integer("transB", 0) else 1, 6, 7) if gemm else (0, 8, 6)
    (x, first), (w, second) = parts.decoded(0), parts.decoded(3, axis=axis)
    yield from (first, second)
    inputs = [x, w]
    if parts.at(bias):
        yield from parts.bias(bias)
        inputs.append(f"{parts.stem}/bias")
    yield from parts.computed(operator, inputs, scale)


def _pair(record: NodeRecord, operator: str) -> Iterator[NodeRecord]:
    parts = _Parts(record)
    (x, first), (y, second) = parts.decoded(0), parts.decoded(3, **({"axis": 1} if operator == "MatMul" else {}))
    yield from (first, second)
    yield from parts.computed(operator, [x, y], 6)


def _single(record: NodeRecord, operator: str) -> Iterator[NodeRecord]:
    parts = _Parts(record)
    if record.attributes.integer("channels_last", 0):
        raise Refused("channels as the last axis")
    if record.attributes.integer("opset", 13) < 13:
        raise Refused("a Softmax of opsets before 13")
    x, first = parts.decoded(0)
    yield first
    yield from parts.computed(operator, [x], 3)


def _concat(record: NodeRecord, operator: str) -> Iterator[NodeRecord]:
    parts = _Parts(record)
    each = [parts.decoded(index) for index in range(2, len(record.inputs), 3)]
    yield from (node for _, node in each)
    yield from parts.computed(operator, [name for name, _ in each], 0)


_EXPANSIONS: dict[tuple[str, str], tuple[Expansion, str]] = {
    ("", "QLinearConv"): (_weighted, "Conv"),
    ("", "QLinearMatMul"): (_pair, "MatMul"),
    (MICROSOFT, "QGemm"): (_weighted, "Gemm"),
    (MICROSOFT, "QLinearAdd"): (_pair, "Add"),
    (MICROSOFT, "QLinearMul"): (_pair, "Mul"),
    (MICROSOFT, "QLinearConcat"): (_concat, "Concat"),
    (MICROSOFT, "QLinearSoftmax"): (_single, "Softmax"),
    (MICROSOFT, "QLinearSigmoid"): (_single, "Sigmoid"),
    (MICROSOFT, "QLinearLeakyRelu"): (_single, "LeakyRelu"),
    (MICROSOFT, "QLinearAveragePool"): (_single, "AveragePool"),
    (MICROSOFT, "QLinearGlobalAveragePool"): (_single, "GlobalAveragePool"),
}
