"""Convert the nodes of an ONNX file into the layers of a Graph, with the shape of every blob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from math import prod
from typing import TYPE_CHECKING, Any

from .. import layers, plugins
from ..blob import Shape, show
from ..errors import ModelError, ParseError, ShapeError
from ..graph import Graph, Layer, check_shape
from ..graph.params import BlobShape
from ..limits import limits
from ..plugins.loading import lookup
from ..plugins.registry import Registry
from ..util.data.dataclass_io import problem
from ..util.lazy_numpy import np
from ..util.suggest import did_you_mean
from .codes import CodeSteps, DecodedTensor
from .constants import FLOATS, Constant, OnnxWeights, TrainedBlob, TrainedLayer
from .expand import expanded
from .fold import fold, foldable
from .formats import assign
from .match import matched
from .node import OnnxNode
from .ops import operators
from .read import Model, NodeRecord, ValueInfo
from .refusal import Refusal, Refused, error_of

if TYPE_CHECKING:
    from ..fixed import Format

OLDEST = 7  # opset; operators before it have other attributes


class Converter:
    """A Graph under construction. ``sizes`` has the shapes that the user gives for inputs."""

    def __init__(self, model: Model, registry: Registry, sizes: Mapping[str, Shape]) -> None:
        self.model, self.registry, self._sizes = model, registry, sizes
        self.graph = Graph(model.name, [], {}, [], {}, path=model.path, fixed=True)
        self.stored: dict[str, TrainedLayer] = {}
        self._constants = dict(model.tensors)
        self._shapes: dict[str, Shape] = {}
        self._blobs: dict[str, str] = {}  # names of values -> blob ids
        self._writers: dict[str, Layer] = {}
        self._lost: set[str] = set()  # values that refused nodes do not write
        self._reads = Counter(name for node in model.nodes for name in node.inputs)
        self._reads.update(value.name for value in model.outputs)
        self._names: set[str] = set()
        self._spare = limits().folded_numbers + model.size // 4
        self._nonnegative: set[str] = set()  # blobs
        self._steps: dict[str, CodeSteps] = {}  # of values that are codes
        self._formats: dict[str, Format] = {}  # of blobs that are codes in the file
        self._thresholds: dict[str, tuple[float, ...]] = {}  # of weights, by layer

    def run(self) -> tuple[Graph, OnnxWeights]:
        """Return the Graph and its trained parameters. Raises ParseError, ModelError and UnsupportedNodes."""
        opset = self.model.opsets.get("", 0)
        if "" in self.model.opsets and opset < OLDEST:
            hint = "export it again, or convert it with onnx.version_converter"
            raise ModelError(f"{self.model.path}: opset {opset}, expected {OLDEST} or newer", hint=hint)
        for value in self.model.inputs:
            if value.name not in self._constants:
                self._input(value)
        refusals = []
        for record in matched(self.model):
            refusal = self._convert(record, opset)
            if refusal is not None:
                refusals.append(refusal)
                self._lost.update(name for name in record.outputs if name not in self._steps)
        if refusals:
            raise error_of(self.model.path, refusals, len(self.model.nodes))
        self._outputs()
        return self.graph, OnnxWeights(self.model.path, self.stored)

    # -- inputs and outputs

    def _input(self, value: ValueInfo) -> None:
        if not self._reads[value.name]:
            return
        shape = self._size_of(value)
        if value.dtype != "float32":
            hint = "export the network with a float32 input"
            what = f"{self.model.path}: input {value.name!r} has {value.dtype} numbers; networks are fed with float32"
            raise ModelError(what, hint=hint)
        params = BlobShape(shape)
        self._make("Input", value.name, (), (value.name,), {"shape": (params,)})
        self._shapes[value.name] = self.graph.inputs[value.name] = shape

    def _size_of(self, value: ValueInfo) -> Shape:
        """Return an input's shape: the user's, else the file's, with a batch of 1 if that is open."""
        size = self._sizes.get(value.name)
        if size is not None:
            rank = len(size) if value.dims is None else len(value.dims)
            if rank != len(size):
                what = f"{self.model.path}: input {value.name!r} has {rank} axes, but the shape given is {show(size)}"
                raise ModelError(what)
            return tuple(size)
        dims = (1, *value.dims[1:]) if value.dims and isinstance(value.dims[0], str) else value.dims
        if dims is None or any(isinstance(dim, str) for dim in dims):
            shown = "of any size" if dims is None else " x ".join(map(str, value.dims or ()))
            example = "x".join(str(dim) if isinstance(dim, int) else "640" for dim in dims or (1, 3, 640, 640))
            raise ModelError(
                f"{self.model.path}: input {value.name!r} is {shown}: the file leaves its size open",
                hint=f"give it: --shape {value.name}={example}, or Net(..., shapes={{{value.name!r}: "
                f"({example.replace('x', ', ')})}})",
            )
        return tuple(int(dim) for dim in dims)

    def _output(self, value: ValueInfo) -> None:
        if value.dtype not in ("float32", "type 0"):
            raise Refused(f"it has {value.dtype} numbers; networks return float32")
        blob = self.live(value.name)
        if blob in self.graph.inputs:  # an output is a blob of its own
            top = value.name if value.name not in self._shapes else f"{value.name}/output"
            self._make("Split", value.name, (blob,), (top,), {})
            self._blobs[value.name] = top
        self.graph.outputs.append(value.name)

    def _outputs(self) -> None:
        for value in self.model.outputs:
            if value.name not in self._blobs and value.name not in self._constants:
                raise ParseError(f"no node writes the output {value.name!r}", path=self.model.path)
            try:
                self._output(value)
            except Refused as refused:
                raise ModelError(f"{self.model.path}: output {value.name!r}: {refused.reason}") from None
        if not self.graph.outputs:
            raise ParseError("this file names no output", path=self.model.path)
        read = {self._blobs[name] for name in self.graph.outputs}
        kept = []
        for layer in reversed(self.graph.layers):
            if layer.source or not read.isdisjoint(layer.tops):
                read.update(layer.bottoms)
                kept.append(layer)
            else:
                self.stored.pop(layer.name, None)
        self.graph.layers = kept[::-1]
        if all(layer.source for layer in self.graph.layers):
            raise ModelError(f"{self.model.path}: nothing is computed: no output depends on a layer")
        written = {top for layer in self.graph.layers for top in layer.tops}
        named = {**{top: top for top in sorted(written)}, **self._blobs}
        self.graph.latest = {name: blob for name, blob in named.items() if blob in written}
        if self._formats:
            assign(self.graph, self._formats, self._thresholds)

    # -- nodes

    def _convert(self, record: NodeRecord, opset: int) -> Refusal | None:
        """Add the layers of one node; return why it cannot run."""
        version = opset if not record.domain else self.model.opsets.get(record.domain, 0)
        if record.domain:
            kind = f"{record.domain}.{record.operator}"
        else:
            kind = record.operator
        before = len(self.graph.layers)
        try:
            for part in expanded(record):
                self._compute(part, opset)
            return None
        except Refused as refused:
            self._drop(before)
            return Refusal(record.label, kind, version, refused.reason, refused.hint)
        except ShapeError as error:
            self._drop(before)
            reason = error.message.partition("): ")[2] or error.message
            return Refusal(record.label, kind, version, reason, error.hint)

    def _compute(self, record: NodeRecord, opset: int) -> None:
        """Add the layers of one node, or compute it if its inputs are constants."""
        self._check(record)
        compute = self._operator(record)
        if not self._lost.isdisjoint(record.inputs):  # what it reads is not known: nothing more can be said
            self._lost.update(record.outputs)
            return
        codes = next((self._steps[name] for name in record.inputs if name in self._steps), None)
        if codes is not None and record.operator not in _ON_CODES:
            raise Refused("it computes with codes, of which only the numbers are known")
        node = OnnxNode(record, opset, self)
        arrays = None if compute is None else fold(node)
        if arrays is not None:
            for name, array in zip(record.outputs, arrays):
                self.define(name, Constant(array))
        elif compute is not None:
            compute(node)
        else:
            self._custom(record)
        if codes is not None and record.operator != "DequantizeLinear":
            self._steps.update(dict.fromkeys(filter(None, record.outputs), codes))

    def _check(self, record: NodeRecord) -> None:
        """Raise ParseError for a value that is written twice, or read before it is written."""
        for name in filter(None, record.outputs):
            if name in self._blobs or name in self._constants or name in self._lost:
                raise ParseError(
                    f"node {record.label!r} writes {name!r}, which is written before", path=self.model.path
                )
        for name in filter(None, record.inputs):
            if name not in self._blobs and name not in self._constants and name not in self._lost:
                near = did_you_mean(name, [*self._blobs, *self._constants])
                what = f"node {record.label!r} reads {name!r}, which no node before it writes"
                raise ParseError(what, path=self.model.path, hint=near)
        if not any(record.outputs):
            raise ParseError(f"node {record.label!r} has no outputs", path=self.model.path)

    def _operator(self, record: NodeRecord) -> Any:
        """Return the function of a node's operator; None if a custom layer computes it. Raises Refused if nothing does."""
        name = record.operator
        own = "." not in name and self.registry.overrides(name)
        if not record.domain and not own and name in operators():
            return operators()[name]
        if not record.domain and not own and foldable(name):
            return _constants_only
        defined = None if "." in name or not name else lookup(self.registry, name)
        if defined is not None and not defined.composed:
            return None
        if defined is not None:
            raise Refused("its custom type is composed of layers, which is not yet possible in ONNX files")
        if (record.domain, name) in self.model.functions:
            raise Refused("it is a function that the file defines, which is not yet read", hint="export it inlined")
        if name in _DYNAMIC:
            hint = "quantise it with fixed scales (quantize_static), or export the float network: chai quantises it"
            raise Refused("the scale of its codes depends on the image; formats are fixed", hint=hint)
        hint = f'a custom layer can: @chai.custom("{name}") gets its attributes as named arguments'
        raise Refused("no layer of chai computes this operator", hint=hint)

    def _custom(self, record: NodeRecord) -> None:
        """Add the custom layer of a node: attributes are its named arguments, constants its trained parameters."""
        bottoms = [self.blob(name) for name in record.inputs if name and name not in self._constants]
        blobs = [TrainedBlob(c, c.shape) for c in map(self._constants.get, record.inputs) if c is not None]
        name = self._unique(record.label)

        def values() -> dict[str, tuple[Any, ...]]:
            read = {key: record.attributes.value(key) for key in record.attributes.names()}
            return {key: _listed(value) for key, value in read.items()}

        network = self.model.name or self.model.path
        entry = plugins.CustomEntry(network, name, record.operator, record.operator, plugins.CustomParams(), values)
        layer = plugins.make(self.registry, entry, False)
        assert layer is not None
        layer.blobs = [blob.load() for blob in blobs]
        self._enter(layer, bottoms, [top for top in record.outputs if top], blobs)

    # -- for OnnxNode

    def constant(self, name: str) -> Constant | None:
        """Return a constant by its name; None if layers compute it."""
        return self._constants.get(name)

    def shape(self, name: str) -> Shape:
        """Return the shape of a value or blob."""
        if name in self._constants:
            return self._constants[name].shape
        return self._shapes[self._blobs.get(name, name)]

    def blob(self, name: str) -> str:
        """Return the blob of a value that layers compute."""
        return self._blobs[name]

    def live(self, name: str) -> str:
        """Return the blob of a value; a constant becomes the top of a Parameter layer."""
        if name in self._constants and name not in self._blobs:
            constant = self._constants[name]
            if constant.dtype not in FLOATS:
                raise Refused(f"constant {name!r} has numbers of type {constant.dtype}; layers compute float32")
            params = {"shape": BlobShape(constant.shape)}
            self._make("Parameter", name, (), (name,), params, [TrainedBlob(constant, constant.shape)])
        return self._blobs[name]

    def define(self, name: str, constant: Constant) -> None:
        """Let a value be a constant."""
        if name:
            self._constants[name] = constant

    def steps(self, name: str) -> CodeSteps | None:
        """Return what the codes of a value stand for; None if it has none."""
        return self._steps.get(name)

    def encode(self, name: str, steps: CodeSteps) -> None:
        """Let a value be codes."""
        self._steps[name] = steps

    def format(self, name: str, format: Format) -> None:
        """Let the blob of a value have a format."""
        own = self._formats.setdefault(self._blobs[name], format)
        if own != format:
            raise Refused(f"its input has steps of {own.step:g} already, which cannot be {format.step:g}, too")

    def nonnegative(self, blob: str) -> bool:
        """Return whether a blob cannot be negative."""
        return blob in self._nonnegative

    def writer(self, blob: str) -> Layer | None:
        """Return the layer that writes a blob."""
        return self._writers.get(blob)

    def used(self, name: str) -> bool:
        """Return whether a node reads a value, or it is an output."""
        return self._reads[name] > 0

    def readers(self, name: str) -> int:
        """Return how often a value is read."""
        return self._reads[name]

    def rename(self, name: str, blob: str) -> None:
        """Let a value be another name of a blob."""
        self._blobs[name] = blob

    def claim(self, count: int) -> None:
        """Count numbers that are computed. Raises Refused if they are too many."""
        self._spare -= count
        if self._spare < 0:
            raise Refused("constants too large: " + limits().exceeded("folded_numbers", count))

    def add(
        self,
        record: NodeRecord,
        type: str,
        bottoms: Sequence[str],
        tops: Sequence[str],
        blobs: Sequence[TrainedBlob],
        params: Any,
    ) -> None:
        """Add a layer of chai's own. Raises Refused if its parameters or sizes are outside what it takes."""
        name = record.label if tops[0] in record.outputs else f"{record.label}/{type}"
        self._make(type, name, bottoms, tops, params, blobs)

    def _make(
        self,
        type: str,
        name: str,
        bottoms: Sequence[str],
        tops: Sequence[str],
        params: Mapping[str, Any],
        blobs: Sequence[TrainedBlob] = (),
    ) -> None:
        cls = layers.find(type)
        assert cls is not None
        self._enter(cls(self._unique(name), params=_checked(cls, params)), bottoms, tops, blobs)

    def _enter(self, layer: Layer, bottoms: Sequence[str], tops: Sequence[str], blobs: Sequence[TrainedBlob]) -> None:
        layer.bottoms, layer.tops = tuple(bottoms), tuple(tops)
        layer.place = f"{self.model.path}: node {layer.name}"
        for what, ports, (least, most) in (
            ("bottom", bottoms, layer.bottoms_allowed),
            ("top", tops, layer.tops_allowed),
        ):
            if len(ports) < least or (most is not None and len(ports) > most):
                raise Refused(
                    f"{len(ports)} {what}s; {layer.type} takes {least} to {'any number' if most is None else most}"
                )
        if layer.source:
            shapes = [shape.dim for shape in layer.params.shape]
        else:
            sizes = tuple(self._shapes[b] for b in bottoms)
            shapes = list(layer.shapes(*sizes))
            expected = [blob.shape for blob in blobs]
            if not layer.free_weights and expected != list(layer.weight_shapes(*sizes)):
                needed = ", ".join(map(show, layer.weight_shapes(*sizes)))
                raise Refused(f"its weights are {', '.join(map(show, expected)) or 'missing'}, expected {needed}")
        for top, shape in zip(tops, shapes):
            check_shape(layer, shape)
            if prod(shape) == 0:
                raise Refused(f"a blob of shape {show(shape)}, without numbers")
            self._shapes[top], self._blobs[top], self._writers[top] = shape, top, layer
        if not layer.source and layer.nonnegative([bottom in self._nonnegative for bottom in bottoms]):
            self._nonnegative.update(tops)
        if layer.weighted and blobs and isinstance(blobs[0].constant, DecodedTensor):
            self._thresholds[layer.name] = _thresholds(blobs[0], blobs[0].constant)
        self.graph.layers.append(layer)
        if len(self.graph.layers) > limits().layers:
            raise ModelError("too many layers: " + limits().exceeded("layers", len(self.graph.layers)))
        if blobs:
            self.stored[layer.name] = TrainedLayer(layer.name, layer.type, list(blobs))

    def _unique(self, name: str) -> str:
        """Return a name that no layer has."""
        unique, number = name, 2
        while unique in self._names:
            unique, number = f"{name}.{number}", number + 1
        self._names.add(unique)
        return unique

    def _drop(self, count: int) -> None:
        """Drop the layers after the first ``count``."""
        for layer in self.graph.layers[count:]:
            self.stored.pop(layer.name, None)
            for top in layer.tops:
                self._blobs.pop(top, None)
        del self.graph.layers[count:]


_DYNAMIC = {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}
# operators that compute the same with codes as with numbers
_ON_CODES = {"DequantizeLinear", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Resize", "Slice", "Split"}
_ON_CODES |= {"Shape", "Squeeze", "Transpose", "Unsqueeze"}


def _constants_only(node: OnnxNode) -> None:
    """Refuse a node that only constants can be put through."""
    blob = next(name for i, name in enumerate(node.inputs) if name and not node.is_constant(i))
    raise Refused(f"it is computed from constants alone, but layers compute its input {blob!r}")


def _thresholds(blob: TrainedBlob, codes: DecodedTensor) -> tuple[float, ...]:
    """Return the threshold of each output's weights. Raises Refused if an output's weights have several."""
    rows = replace(blob, constant=codes.thresholds).load()
    rows = np.abs(rows).reshape(len(rows), -1)
    largest = rows.max(1)
    if (rows[:, 0] != largest).any() and (np.where(rows > 0, rows, largest[:, None]).min(1) != largest).any():
        raise Refused("its weights have scales along another axis than that of its outputs")
    return tuple(map(float, largest))


def _listed(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (int, float, str)):
        return (value,)
    return tuple(value) if isinstance(value, tuple) else tuple(value.reshape(-1).tolist())


def _checked(cls: type[Layer], params: Mapping[str, Any]) -> Any:
    """Return the parameters of a layer. Raises Refused for a value outside its range."""
    metadata = {field.name: field.metadata for field in fields(cls.Params)}
    for name, value in params.items():
        for item in value if isinstance(value, tuple) else (value,):
            wrong = None if item is None or "nested" in metadata[name] else problem(metadata[name], item)
            if wrong:
                raise Refused(f"{name}: {wrong}")
    return cls.Params(**params)
