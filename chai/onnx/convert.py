"""Convert the nodes of an ONNX file into the layers of a Graph, with the shape of every blob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..blob import Array, Shape, show
from ..errors import ModelError, ParseError, ShapeError
from ..graph import Graph
from ..graph.params import BlobShape
from ..parser.caffemodel import Stored
from ..plugins.loading import lookup
from ..plugins.registry import Registry
from ..text import number_of
from ..util.suggest import did_you_mean
from .codes import assign
from .constants import WHOLE, Constant, TrainedBlob
from .draft import Draft
from .expand import expanded
from .fold import OF_TWO, fold, foldable
from .match import matched
from .node import OnnxNode
from .ops import operators
from .ops.pieces import cut
from .read import Model, NodeRecord, ValueInfo
from .refusal import Refusal, Refused, error_of
from .sizes import counts_images

OLDEST = 6  # opset; operators before it have other attributes


class Converter:
    """Goes through the nodes of a model.

    ``sizes`` has the shapes that the user gives for inputs, ``several`` blobs that are known to get codes of several formats.
    """

    def __init__(
        self, model: Model, registry: Registry, sizes: Mapping[str, Shape], several: Collection[str] = ()
    ) -> None:
        self.model, self.registry, self._sizes = model, registry, sizes
        self.draft = Draft(model, several)
        self._several = {*several}
        self._lost: set[str] = set()  # values that refused nodes do not write
        self._measured: dict[str, OnnxNode] = {}  # shapes of blobs, by the values that they are
        self._counting: dict[str, str] = {}  # nodes that are right for one batch alone, by their layers

    def run(self) -> tuple[Graph, Stored]:
        """Return the Graph and its trained parameters. Raises ParseError, ModelError and UnsupportedNodes."""
        opset = self.model.opsets.get("", 0)  # 0: the file has no version of the standard operators
        if opset < OLDEST and not all(node.domain for node in self.model.nodes):
            hint = "export it again, or convert it with onnx.version_converter"
            what = f"opset {opset}" if opset else "no opset"
            raise ModelError(f"{self.model.path}: {what}, expected {OLDEST} or newer", hint=hint)
        for value in self.model.inputs:
            if value.name not in self.draft.constants:
                self._input(value)
        refusals = []
        for record in matched(self.model):
            refusal = self._convert(record, opset)
            if refusal is not None:
                refusals.append(refusal)
                self._lost.update(name for name in record.outputs if name not in self.draft.steps)
        if refusals:
            raise error_of(self.model.path, refusals, len(self.model.nodes))
        if self.draft.several != self._several:  # their first codes were theirs alone until the next ones came
            return Converter(self.model, self.registry, self._sizes, self.draft.several).run()
        self._outputs()
        return self.draft.graph, Stored(self.model.path, self.draft.stored)

    # -- inputs and outputs

    def _input(self, value: ValueInfo) -> None:
        if not self.draft.used(value.name):
            return
        shape = self._size_of(value)
        if value.dtype != "float32":
            hint = "export the network with a float32 input"
            what = f"{self.model.path}: input {value.name!r} has {value.dtype} numbers; networks are fed with float32"
            raise ModelError(what, hint=hint)
        self.draft.add(value.name, "Input", (), (value.name,), shape=(BlobShape(shape),))
        if shape and value.dims:
            self.draft.batches = value.dims[0] if isinstance(value.dims[0], int) else 0, shape[0]
        self.draft.graph.inputs[value.name] = shape

    def _size_of(self, value: ValueInfo) -> Shape:
        """Return an input's shape: the user's, else the file's, with a batch of 1 if that is open."""
        size = self._sizes.get(value.name)
        if size is not None:
            if value.dims is not None and len(value.dims) != len(size):
                what = f"input {value.name!r} has {number_of(len(value.dims), 'axis')}, but the shape given is {show(size)}"
                raise ModelError(f"{self.model.path}: {what}")
            return tuple(size)
        dims = (1, *value.dims[1:]) if value.dims and isinstance(value.dims[0], str) else value.dims
        if dims is None or any(isinstance(dim, str) for dim in dims):
            shown = "of any size" if dims is None else " x ".join(map(str, value.dims or ()))
            example = "x".join(str(dim) if isinstance(dim, int) else "640" for dim in dims or (1, 3, 640, 640))
            shapes = f"{{{value.name!r}: ({example.replace('x', ', ')})}}"
            hint = f"give it: --shape {value.name}={example}, or Net(..., shapes={shapes})"
            what = f"{self.model.path}: input {value.name!r} is {shown}: the file leaves its size open"
            raise ModelError(what, hint=hint)
        return tuple(int(dim) for dim in dims)

    def _output(self, value: ValueInfo) -> None:
        if value.name in self._measured:
            self._measure(value.name, self._measured[value.name])
        if value.dtype not in ("float32", "type 0", *((*WHOLE, "bool") if value.name in self.draft.whole else ())):
            raise Refused(f"it has {value.dtype} numbers; networks return float32")
        blob = self.draft.live(value.name)
        if blob in self.draft.graph.inputs:  # an output is a blob of its own
            top = value.name if value.name not in self.draft.graph.inputs else self.draft.free(f"{value.name}/output")
            self.draft.add(value.name, "Split", (blob,), (top,))
            self.draft.blobs[value.name] = top
        self.draft.graph.outputs.append(value.name)

    def _measure(self, name: str, node: OnnxNode) -> None:
        """Add the layers whose top is a shape that is returned: for the batch of the pass, not of the file."""
        bounds = slice(*map(node.attributes.integer, ("start", "end")))
        start, end, _ = bounds.indices(len(node.shape()))
        sizes = node.part("ShapeOf", node.input())
        if node.operator == "Size":
            node.result("Reduction", sizes, operation="PROD")
        else:
            node.same(cut(node, sizes, 0, start, end))
        self.draft.whole.add(name)

    def _outputs(self) -> None:
        for value in self.model.outputs:
            if value.name not in self.draft.blobs and value.name not in self.draft.constants:
                raise ParseError(f"no node writes the output {value.name!r}", path=self.model.path)
            try:
                self._output(value)
            except Refused as refused:
                raise ModelError(f"{self.model.path}: output {value.name!r}: {refused.reason}") from None
        if not self.draft.graph.outputs:
            raise ParseError("this file names no output", path=self.model.path)
        kept = self.draft.graph.computing(self.draft.blobs[name] for name in self.draft.graph.outputs)
        for name in self.draft.stored.keys() - {layer.name for layer in kept}:
            del self.draft.stored[name]
        self.draft.graph.layers = kept
        self.draft.graph.counting = next((self._counting[x.name] for x in kept if x.name in self._counting), "")
        if all(layer.source for layer in self.draft.graph.layers):
            raise ModelError(f"{self.model.path}: nothing is computed: no output depends on a layer")
        written = {top for layer in self.draft.graph.layers for top in layer.tops}
        named = {**{top: top for top in sorted(written)}, **self.draft.of_file}
        self.draft.graph.latest = {name: blob for name, blob in named.items() if blob in written}
        if self.draft.formats:
            assign(self.draft.graph, self.draft.formats, self.draft.thresholds)
            self.draft.graph.formats_in = "QuantizeLinear"

    # -- nodes

    def _convert(self, record: NodeRecord, opset: int) -> Refusal | None:
        """Add the layers of one node; return why it cannot run."""
        version = opset if not record.domain else self.model.opsets.get(record.domain, 0)
        kind = f"{record.domain}.{record.operator}" if record.domain else record.operator
        before = len(self.draft.graph.layers)
        try:
            for part in expanded(record, self.draft.free):
                self._compute(part, opset)
            return None
        except (Refused, ShapeError) as error:
            self.draft.drop(before)
            reason = error.reason if isinstance(error, Refused) else error.message.partition("): ")[2] or error.message
            return Refusal(record.label, kind, version, reason, error.hint)

    def _compute(self, record: NodeRecord, opset: int) -> None:
        """Add the layers of one node, or compute it if its inputs are constants."""
        self._check(record)
        compute = self._operator(record)
        if not self._lost.isdisjoint(record.inputs):  # what it reads is not known: nothing more can be said
            self._lost.update(record.outputs)
            return
        codes = next(filter(None, map(self.draft.steps.get, record.inputs)), None)
        if codes is not None and record.operator not in _ON_CODES:
            raise Refused("it computes with codes, of which only the numbers are known")
        if compute is not None:
            record.check_inputs()
        node = OnnxNode(record, opset, self.draft)
        arrays = None if compute is None else fold(node)
        if arrays is not None:
            for name, array in zip(record.outputs, arrays):
                self.draft.define(name, Constant(array))
            measured = record.operator in ("Shape", "Size") and not node.is_constant(0)
            if measured:
                self._measured[record.outputs[0]] = node
            if measured or not self.draft.twofold.keys().isdisjoint(record.inputs):
                self._fold_twice(node, arrays)
            return
        self.draft.one_batch = False
        if compute is not None:
            integers = self.draft.integers.intersection(record.inputs[record.operator == "Where" :])
            if integers and record.operator in _CUT:
                raise Refused("a fraction of whole numbers, of which ONNX keeps the whole part")
            compute(node)
            outputs = [*filter(None, record.outputs)]
            if record.operator in _MOVING and record.inputs[0] in self.draft.whole:
                self.draft.whole.update(outputs)
            if integers and record.operator in _WHOLE:
                self.draft.whole.update(outputs)
                self.draft.integers.update(outputs)
        else:
            self._custom(record)
        if self.draft.one_batch or any(self._counts(record, i) for i in range(len(record.inputs))):
            tops = [self.draft.blobs[name] for name in record.outputs if name in self.draft.blobs]
            self._counting |= {self.draft.writers[top].name: record.label for top in tops}
        if codes is not None and record.operator != "DequantizeLinear":
            for name in filter(None, record.outputs):
                self.draft.steps[name] = codes

    def _fold_twice(self, node: OnnxNode, arrays: Sequence[Array]) -> None:
        """Compute a node of constants for a batch twice as large, too: what depends on the batch differs there."""
        twofold: Sequence[Array] = arrays
        with self.draft.twice(), suppress(Refused):
            twofold = fold(node) or arrays
        self.draft.twofold.update(zip(node.record.outputs, map(Constant, twofold)))

    def _counts(self, record: NodeRecord, index: int) -> bool:
        """Return whether an input is a constant that is right for this batch alone."""
        name = record.inputs[index]
        if name in self.draft.twofold:
            return record.operator not in _SIZED and self.draft.differs(name)
        constant = self.draft.constants.get(name)
        if constant is None or record.operator not in _BROADCAST or not constant.shape:
            return False
        matrix = 2 if record.operator == "MatMul" else 0  # last axes, which are multiplied and not repeated
        shapes = [self.draft.sizes(blob) for blob in record.inputs if blob and blob not in self.draft.constants]
        faced = [pair for shape in shapes for pair in [*zip(shape[::-1], constant.shape[::-1])][matrix:]]
        return any(size > 1 and counts_images(own) for own, size in faced)

    def _check(self, record: NodeRecord) -> None:
        """Raise ParseError for a value that is written twice, or read before it is written."""
        for name, times in Counter(filter(None, record.outputs)).items():
            if times > 1 or name in self.draft.blobs or name in self.draft.constants or name in self._lost:
                when = " twice" if times > 1 else ", which is written before"
                raise ParseError(f"node {record.label!r} writes {name!r}{when}", path=self.model.path)
        for name in filter(None, record.inputs):
            if name not in self.draft.blobs and name not in self.draft.constants and name not in self._lost:
                near = did_you_mean(name, [*self.draft.blobs, *self.draft.constants])
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
        if name in _COUNTING:
            what = "how many numbers it returns depends on the image; blobs have fixed sizes"
            raise Refused(what, hint=f"export the network without it; {hint}, for a fixed number")
        raise Refused("no layer of chai computes this operator", hint=hint)

    def _custom(self, record: NodeRecord) -> None:
        """Add the custom layer of a node: attributes are its named arguments, constants its trained parameters."""
        from ..plugins.layer import CustomParams, make  # which few networks need

        bottoms = [self.draft.blobs[name] for name in record.inputs if name and name not in self.draft.constants]
        tops = [name for name in record.outputs if name]
        if record.outputs[: len(tops)] != (*tops,):
            raise Refused("it has no name for an output before its last one")
        blobs = [TrainedBlob(c, c.shape) for c in map(self.draft.constants.get, record.inputs) if c is not None]
        name = self.draft.unique(record.label)

        def values() -> dict[str, tuple[Any, ...]]:
            return {key: _listed(record.attributes.value(key)) for key in record.attributes.names()}

        network = self.model.name or self.model.path
        operator = record.operator
        layer = make(self.registry, network, name, operator, operator, CustomParams(), values, False)
        assert layer is not None
        layer.blobs = [blob.load() for blob in blobs]
        self.draft.enter(layer, bottoms, tops, blobs)


_DYNAMIC = {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}
_COUNTING = {"NonMaxSuppression", "Unique", "Compress"}
# operators that return numbers of their first input
_MOVING = {"Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
# operators that return whole numbers if they read them, and those that would not without a rounding
_WHOLE = {
    *_MOVING, "Abs", "Add", "Clip", "Concat", "Expand", "MatMul", "Max", "Min", "Mul", "Neg", "Pad", "Pow", "ReduceL1",
    "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Sub", "Sum", "Tile", "Where",
}  # fmt: skip
_CUT = {"Div", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"}
# operators that see to constants that depend on the batch: as sizes, or beside images; and those that repeat a single image
_SIZED = {"Concat", "Expand", "Reshape", "Resize"}
_BROADCAST = {*OF_TWO, "Div", "MatMul", "Where"}
# operators that compute the same with codes as with numbers
_ON_CODES = {*_MOVING, "DequantizeLinear", "MaxPool", "Pad", "Resize", "Shape"}


def _constants_only(node: OnnxNode) -> None:
    """Refuse a node that only constants can be put through."""
    blob = next(name for i, name in enumerate(node.inputs) if name and not node.is_constant(i))
    raise Refused(f"it is computed from constants alone, but layers compute its input {blob!r}")


def _listed(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (int, float, str)):
        return (value,)
    return tuple(value) if isinstance(value, tuple) else tuple(value.reshape(-1).tolist())
