"""Read an ONNX file: its nodes, tensors, inputs and outputs, within the limits of chai/limits.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import ParseError
from ..limits import limits
from ..parser.mistaken import WHOLE_FILE
from ..parser.wire import Walk
from .constants import Constant, StoredTensor, type_name
from .fields import Fields, decode, numbers, one
from .refusal import Refused
from .store import ModelBytes

LISTED = 1 << 20  # most numbers in one attribute
_KINDS = {"f": 1, "i": 2, "s": 3, "t": 4, "floats": 6, "ints": 7}  # AttributeProto.AttributeType
_ZEROS: dict[str, Any] = {"f": 0.0, "i": 0}
_MOST = {  # inputs of an operator in any opset; those that are not here have one
    2: "Add And CastLike Div Equal Expand Gather Greater GreaterOrEqual GridSample Less LessOrEqual MatMul Mod Mul Or PRelu Pow "
    "RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare Reshape Split Squeeze Sub Tile TopK Unsqueeze Upsample Xor",
    3: "Clip Conv ConvTranspose DequantizeLinear Dropout Gemm GroupNormalization InstanceNormalization LayerNormalization "
    "QuantizeLinear Range RoiAlign Where",
    4: "Pad Resize",
    5: "BatchNormalization QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearSigmoid QLinearSoftmax Slice",
    8: "QLinearAdd QLinearMatMul QLinearMul",
    9: "QGemm QLinearConv",
    2**31: "Concat Max Mean Min QLinearConcat Sum",
}
MOST = {operator: count for count, operators in _MOST.items() for operator in operators.split()}


@dataclass(frozen=True)
class ValueInfo:
    """An input or output: numpy's name of its type, and its sizes, with the name of each that the file leaves open."""

    name: str
    dtype: str
    dims: tuple[int | str, ...] | None


class Attributes:
    """The attributes of one node, decoded when they are asked for."""

    def __init__(self, walk: Walk, store: ModelBytes, parts: list[Fields]) -> None:
        self._walk, self._store = walk, store
        self._parts = {one(part, "name", ""): part for part in parts}

    def only(self, **integers: int) -> Attributes:
        """Return these attributes instead."""
        parts: list[Fields] = [{"name": [name], "i": [value]} for name, value in integers.items()]
        return Attributes(self._walk, self._store, parts)

    def also(self, name: str, other: str) -> Attributes:
        """Return these attributes, and the one of a name under another name, too, if it is there."""
        copies: list[Fields] = [{**part, "name": [other]} for key, part in self._parts.items() if key == name]
        return Attributes(self._walk, self._store, [*self._parts.values(), *copies])

    def names(self) -> list[str]:
        return list(self._parts)

    def integer(self, name: str, default: Any = None) -> Any:
        return self._one(name, "i", default)

    def number(self, name: str, default: Any = None) -> Any:
        return self._one(name, "f", default)

    def text(self, name: str, default: str = "") -> str:
        part = self._one(name, "s", None)
        return default if part is None else self._walk.text(part)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return whole numbers; None if there is no such attribute."""
        parts = self._all(name, "ints")
        return None if parts is None else tuple(self._walk.integers(parts, LISTED))

    def floats(self, name: str) -> tuple[float, ...] | None:
        """Return floats; None if there is no such attribute."""
        parts = self._all(name, "floats")
        return None if parts is None else tuple(numbers(self._walk, parts, "<f4", LISTED).tolist())

    def tensor(self, name: str) -> Constant | None:
        """Return a tensor; None if there is no such attribute."""
        values = self._one(name, "t", None)
        return None if values is None else StoredTensor(self._walk, values, self._store)

    def value(self, name: str) -> Any:
        """Return an attribute of any kind as a number, text, tuple or array. Raises Refused for a subgraph."""
        part = self._parts[name]
        kinds: dict[str, Callable[[str], Any]] = {"f": self.number, "i": self.integer, "s": self.text}
        kinds |= {"floats": self.floats, "ints": self.integers}
        for kind, read in kinds.items():
            if kind in part:
                return read(name)
        if "strings" in part:
            return tuple(map(self._walk.text, part["strings"]))
        if (constant := self.tensor(name) if "t" in part else None) is not None:
            return constant.array()
        if "g" in part:
            raise Refused(f"attribute {name!r} is a graph, which chai does not run")
        return ()  # an empty list

    def _one(self, name: str, kind: str, default: Any) -> Any:
        values = self._all(name, kind)
        if values is None:
            return default
        return values[-1] if values else _ZEROS.get(kind)  # proto3 does not write a zero

    def _all(self, name: str, kind: str) -> list[Any] | None:
        """Return what an attribute holds; None without it. Raises Refused for another kind than the operator's."""
        part = self._parts.get(name)
        if part is None:
            return None
        if kind not in part and one(part, "type", 0) not in (0, _KINDS[kind]):
            raise Refused(f"attribute {name!r} has another type than this operator's")
        return part.get(kind, [])


@dataclass(frozen=True)
class NodeRecord:
    """One node as it is in the file. ``index`` counts from 0."""

    index: int
    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes

    @property
    def label(self) -> str:
        """Return its name, that of its first output if it has none, or its place."""
        return self.name or next(filter(None, self.outputs), f"node {self.index}")

    @property
    def further(self) -> list[str]:
        """Return the inputs beyond those that its operator has: they would say something that no layer does."""
        return [*filter(None, self.inputs[MOST.get(self.operator, 1) :])]

    def check_inputs(self) -> None:
        """Raise Refused for more inputs than its operator has."""
        if names := self.further:
            raise Refused(f"an input {names[0]!r} beyond the {MOST.get(self.operator, 1)} that the operator has")


@dataclass
class Model:
    """An ONNX file. ``opsets`` has the version of the operators of each domain; the standard one is ""."""

    path: str
    name: str
    opsets: dict[str, int] = field(default_factory=dict)
    nodes: list[NodeRecord] = field(default_factory=list)
    tensors: dict[str, Constant] = field(default_factory=dict)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    functions: set[tuple[str, str]] = field(default_factory=set)  # operators that the file defines: domain, name
    size: int = 0  # bytes of the file


def read_model(walk: Walk, store: ModelBytes) -> Model:
    """Return the model of a buffer. Raises ParseError with the place of what is wrong."""
    try:
        return _model(walk, store, decode(walk, "ModelProto", 0, len(walk.buffer)))
    except ParseError as error:
        error.hint = error.hint or WHOLE_FILE
        raise


def _model(walk: Walk, store: ModelBytes, values: Fields) -> Model:
    graph = one(values, "graph")
    if graph is None:
        raise ParseError("there is no graph in this file, expected an ONNX model", path=store.path)
    model = Model(store.path, one(graph, "name", ""), size=len(walk.buffer))
    for entry in values.get("opset_import", []):
        domain = one(entry, "domain", "")
        model.opsets["" if domain == "ai.onnx" else domain] = one(entry, "version", 0)
    model.functions = {(one(f, "domain", ""), one(f, "name", "")) for f in values.get("functions", [])}
    if not graph.get("node"):
        raise ParseError("there is no node in this file, expected a network", path=store.path)
    if "sparse_initializer" in graph:
        raise ParseError("sparse tensors are not read", path=store.path, hint="store them dense")
    for what, count in (("nodes", len(graph["node"])), ("tensors", len(graph.get("initializer", [])))):
        if count > limits().layers:
            raise ParseError(f"too many {what}: " + limits().exceeded("layers", count), path=store.path)
    tensors = [StoredTensor(walk, entry, store) for entry in graph.get("initializer", [])]
    model.tensors = {tensor.name: tensor for tensor in tensors}
    _check_once("tensors", [tensor.name for tensor in tensors], store.path)
    held = [one(part, "t", {}) for node in graph["node"] for part in node.get("attribute", [])]
    tensors += [StoredTensor(walk, value, store) for value in held if one(value, "data_location", 0) == 1]
    outside = sum(tensor.external for tensor in tensors)
    if outside > limits().weight_bytes:
        raise ParseError("external data: " + limits().exceeded("weight_bytes", outside) + " bytes", path=store.path)
    model.nodes = [_record(walk, store, i, node) for i, node in enumerate(graph["node"])]
    model.inputs = [_value_info(walk, entry) for entry in graph.get("input", [])]
    _check_once("inputs", [value.name for value in model.inputs], store.path)
    model.outputs = [_value_info(walk, entry) for entry in graph.get("output", [])]
    return model


def _check_once(what: str, names: list[str], path: str) -> None:
    """Raise ParseError for a name that several have."""
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise ParseError(f"{count} {what} of the name {name!r}, expected one", path=path)


def _record(walk: Walk, store: ModelBytes, index: int, node: Fields) -> NodeRecord:
    inputs, outputs = tuple(node.get("input", ())), tuple(node.get("output", ()))
    name, domain = one(node, "name", ""), one(node, "domain", "")
    ports = max(len(inputs), len(outputs))
    if ports > limits().ports:
        raise ParseError(f"node {name!r} is too large: " + limits().exceeded("ports", ports), path=store.path)
    attributes = Attributes(walk, store, node.get("attribute", []))
    domain = "" if domain == "ai.onnx" else domain
    return NodeRecord(index, name, one(node, "op_type", ""), domain, inputs, outputs, attributes)


def _value_info(walk: Walk, entry: Fields) -> ValueInfo:
    tensor = one(one(entry, "type", {}), "tensor_type")
    name = one(entry, "name", "")
    if tensor is None:
        return ValueInfo(name, "no tensor", None)
    dtype, shape = type_name(one(tensor, "elem_type", 0)), one(tensor, "shape")
    if shape is None:
        return ValueInfo(name, dtype, None)
    dims = tuple(map(_size, shape.get("dim", [])))
    if len(dims) > limits().axes:
        raise walk.bad(f"input {name!r}: " + limits().exceeded("axes", len(dims)), 0)
    return ValueInfo(name, dtype, dims)


def _size(dim: Fields) -> int | str:
    """Return a size, or the name of one that the file leaves open; some writers say so by a size of 0 or -1."""
    size: int = one(dim, "dim_value", 0)
    return size if size > 0 else one(dim, "dim_param", "") or "?"
