"""Expand nodes that compute with codes (QLinearConv, ...) into DequantizeLinear, the node on numbers, and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .read import NodeRecord
from .refusal import Refused

MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators
Free = Callable[[str], str]
Expansion = Callable[["_Parts", str], "Iterator[NodeRecord]"]


def expanded(record: NodeRecord, free: Free) -> list[NodeRecord]:
    """Return the nodes that compute what a node computes, without its operators on codes; else the node itself.

    ``free`` returns of a name of a value between them one that the file does not have.
    """
    if record.domain == MICROSOFT and record.operator in ("QuantizeLinear", "DequantizeLinear"):
        return [replace(record, domain="")]
    known = _EXPANSIONS.get((record.domain, record.operator))
    if known is None or not any(record.outputs):
        return [record]
    record.check_inputs()
    function, operator = known
    return list(function(_Parts(record, free), operator))


def _part(record: NodeRecord, operator: str, inputs: Sequence[str], output: str, **integers: int) -> NodeRecord:
    attributes = record.attributes.only(**integers)
    return replace(record, operator=operator, domain="", inputs=tuple(inputs), outputs=(output,), attributes=attributes)


class _Parts:
    """The inputs of a node as triples of codes, scale and zero point, and what its parts are called."""

    def __init__(self, record: NodeRecord, free: Free) -> None:
        self.record, self._free = record, free
        self.stem = next(filter(None, record.outputs))

    def name(self, part: str) -> str:
        """Return the name of a value between the parts; numbers alone are those of blobs of one node."""
        return self._free(f"{self.stem}/{part}")

    def at(self, index: int) -> str:
        inputs = self.record.inputs
        return inputs[index] if index < len(inputs) else ""

    def decoded(self, first: int, **axis: int) -> tuple[str, NodeRecord]:
        """Return the name of the numbers of the codes at ``first``, and the node that computes them."""
        name = self.name(f"input{first}")
        return name, _part(self.record, "DequantizeLinear", [self.at(first + i) for i in range(3)], name, **axis)

    def computed(self, operator: str, inputs: Sequence[str], scale: int) -> Iterator[NodeRecord]:
        """Yield the node on numbers with the attributes of this one, and what makes codes of its output."""
        record = replace(self.record, operator=operator, domain="", inputs=tuple(inputs))
        if not self.at(scale):  # its output is numbers
            yield record
            return
        value = self.name("value")
        yield replace(record, outputs=(value,))
        yield _part(record, "QuantizeLinear", [value, self.at(scale), self.at(scale + 1)], self.stem)

    def bias(self, index: int) -> Iterator[NodeRecord]:
        """Yield the nodes that compute a bias, whose step is that of the sums: the product of both scales."""
        step = self.name("step")
        yield _part(self.record, "Mul", [self.at(1), self.at(4)], step)
        yield _part(self.record, "DequantizeLinear", [self.at(index), step], self.name("bias"), axis=0)


def _weighted(parts: _Parts, operator: str) -> Iterator[NodeRecord]:
    """Yield the parts of a node of codes, weights and a bias; QGemm has the bias before the scale of its output."""
    gemm, attributes = operator == "Gemm", parts.record.attributes
    if gemm:  # the step of its bias is alpha times that of the sums
        parts.record = replace(parts.record, attributes=attributes.also("alpha", "beta"))
    axis, bias, scale = (0 if attributes.integer("transB", 0) else 1, 6, 7) if gemm else (0, 8, 6)
    (x, first), (w, second) = parts.decoded(0), parts.decoded(3, axis=axis)
    yield from (first, second)
    inputs = [x, w]
    if parts.at(bias):
        yield from parts.bias(bias)
        inputs.append(parts.name("bias"))
    yield from parts.computed(operator, inputs, scale)


def _pair(parts: _Parts, operator: str) -> Iterator[NodeRecord]:
    (x, first), (y, second) = parts.decoded(0), parts.decoded(3, **({"axis": 1} if operator == "MatMul" else {}))
    yield from (first, second)
    yield from parts.computed(operator, [x, y], 6)


def _single(parts: _Parts, operator: str) -> Iterator[NodeRecord]:
    if parts.record.attributes.integer("channels_last", 0):
        raise Refused("channels as the last axis")
    if parts.record.attributes.integer("opset", 13) < 13:
        raise Refused("a Softmax of opsets before 13")
    x, first = parts.decoded(0)
    yield first
    yield from parts.computed(operator, [x], 3)


def _concat(parts: _Parts, operator: str) -> Iterator[NodeRecord]:
    each = [parts.decoded(index) for index in range(2, len(parts.record.inputs), 3)]
    yield from (node for _, node in each)
    yield from parts.computed(operator, [name for name, _ in each], 0)


_EXPANSIONS: dict[tuple[str, str], tuple[Expansion, str]] = {
    ("", "QLinearConv"): (_weighted, "Conv"),
    ("", "QLinearMatMul"): (_pair, "MatMul"),
    (MICROSOFT, "QGemm"): (_weighted, "Gemm"),
    (MICROSOFT, "QLinearConcat"): (_concat, "Concat"),
}
_OF_ONE = "Softmax", "Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool"
_EXPANSIONS |= {(MICROSOFT, f"QLinear{operator}"): (_pair, operator) for operator in ("Add", "Mul")}
_EXPANSIONS |= {(MICROSOFT, f"QLinear{operator}"): (_single, operator) for operator in _OF_ONE}
