"""Write a network as ncnn's two files: its layers as text (.param) and their weights (.bin), in float32 or with 8-bit codes.

Parameters and order of the weights are those of ncnn's docs/developer-guide/operators.md. A file is of one image: ncnn has no
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from chai.errors import UsageError
from chai.util.lazy_numpy import np

from .names import Names

if TYPE_CHECKING:
    from chai.blob import Shape
    from chai.fixed import Format
    from chai.graph import Graph, Layer

MAGIC = 7767517
CODES = 0x000D4B38  # before weights of 8 bits; 0 is before float32
PRODUCTS = (
    "Convolution",
    "DepthwiseConvolution",
    "ConvolutionDepthwise",
    "InnerProduct",
)  # that compute with 8-bit codes
REQUANTISED = 100  # added to int8_scale_term: the outputs are codes, too

Params = dict[int, int | float | list[float]]


class Files(NamedTuple):
    """Text of the .param, bytes of the .bin, and the names there of the network's inputs and outputs."""

    param: str
    weights: bytes
    names: Mapping[str, str]


def ncnn(graph: Graph, shapes: Mapping[str, Shape], formats: Mapping[str, Format] | None = None) -> Files:
    """Return the files of a graph after the passes.

    With ``formats`` the layers with weights compute on 8-bit codes: of their input, with the signed format of the same range;
    of their weights, with a step per output channel. Blobs that only convolutions read are stored as codes, as ncnn's own
    tool does it. Raises UsageError for a layer type that is not in ``LAYERS``, and for inputs of another rank than four.
    """
    writer = _Writer(graph, shapes, formats or {})
    for blob in graph.inputs:
        if len(shapes[blob]) != 4:
            raise UsageError(f"input {blob!r} has {len(shapes[blob])} axes, expected 4 for ncnn")
        _, c, h, w = shapes[blob]
        writer.line("Input", blob, [], blob, {0: w, 1: h, 2: c})
    for layer in graph.layers:
        if not layer.source:
            writer.layer(layer)
    names = {blob: writer.names[blob] for blob in graph.inputs}
    names |= {blob: next(writer.sources[blob]) for blob in graph.output_blobs}
    head = [str(MAGIC), f"{len(writer.lines)} {writer.blobs}"]
    return Files("\n".join([*head, *writer.lines]) + "\n", b"".join(writer.weights), names)


class _Writer:
    """Collects lines and weights. ``sources`` has the names under which the readers of a blob read it, in turn."""

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> None:
        self.shapes, self.formats = shapes, formats
        self.outputs = {*graph.output_blobs}
        self.readers: dict[str, list[Layer]] = {blob: [] for blob in shapes}
        for layer in graph.layers:
            for blob in layer.bottoms:
                self.readers[blob].append(layer)
        self.names, self.layers = Names(shapes, _word), Names(spelt=_word)
        self.sources: dict[str, Iterator[str]] = {}
        self.lines: list[str] = []
        self.weights: list[bytes] = []
        self.blobs = 0

    def line(self, kind: str, name: str, inputs: Sequence[str], blob: str, params: Params) -> None:
        """Write a layer whose top is a blob of the network, and a Split for several readers: in ncnn a blob has one."""
        top = self.names[blob]
        self.write(kind, name, inputs, [top], params)
        count = len(self.readers.get(blob, ())) + (blob in self.outputs)
        parts = [self.names.new(blob, i) for i in range(count)] if count > 1 else [top]
        if count > 1:
            self.write("Split", f"{name}/split", [top], parts, {})
        self.sources[blob] = iter(parts)

    def write(self, kind: str, name: str, inputs: Sequence[str], outputs: Sequence[str], params: Params) -> None:
        """Write one line; ``inputs`` and ``outputs`` are names of the file."""
        numbers = [f"-{23300 + key}={_listed(v)}" if isinstance(v, list) else f"{key}={v}" for key, v in params.items()]
        counts = f"{len(inputs)} {len(outputs)}"
        self.lines.append(" ".join([kind, self.layers.new(name), counts, *inputs, *outputs, *numbers]))
        self.blobs += len(outputs)

    def layer(self, layer: Layer) -> None:
        write = LAYERS.get(layer.type)
        if write is None:
            raise UsageError(f"layer {layer.name!r}: {layer.type} is not written for ncnn")
        (top,) = layer.tops
        kind, params = write(self, layer)
        inputs = [next(self.sources[blob]) for blob in layer.bottoms]
        if layer.slope is not None and layer.type not in PRODUCTS:  # its ReLU is a line of its own
            before = self.names.new(top, "before")
            self.write(kind, layer.name, inputs, [before], params)
            kind, params = _activation(layer)
            self.line(kind, f"{layer.name}/{kind}", [before], top, params)
        else:
            self.line(kind, layer.name, inputs, top, params)

    def products(self, layer: Any, first: int, groups: int = 1) -> Params:
        """Write weights and bias, and return the parameters of them, from number ``first`` on, of codes and of the ReLU."""
        weights, *bias = (np.asarray(blob, np.float32) for blob in layer.blobs)
        params: Params = {first: int(bool(bias)), first + 1: weights.size}
        if layer.slope is not None:
            kind, values = _activation(layer)
            numbers = [float(v) for v in values.values() if isinstance(v, float)]
            params |= {9: 1} if numbers == [0.0] else {9: 2 if kind == "ReLU" else 3, 10: numbers}
        format = self.formats.get(layer.bottoms[0])
        if format is None:
            self.raw(np.uint32(0), weights, *bias)
            return params
        rows = weights.reshape(groups if groups > 1 else len(weights), -1)
        largest = np.abs(rows).max(1, keepdims=True, initial=0)
        scales = (127 / np.where(largest > 0, largest, 1)).astype(np.float32)
        codes = np.rint(rows * scales).astype(np.int8).ravel()
        self.raw(np.uint32(CODES), np.pad(codes, (0, -codes.size % 4)), *bias, scales, _scale_of(format))
        params[8] = 1
        top = self.formats.get(layer.tops[0])
        readers = [layer, *self.readers[layer.tops[0]]]
        if top is not None and len(readers) > 1 and {reader.type for reader in readers} <= {*PRODUCTS[:2]}:
            self.raw(_scale_of(top))
            params[8] = 1 + REQUANTISED
        return params

    def raw(self, *values: Any) -> None:
        self.weights += [np.ascontiguousarray(value).tobytes() for value in values]

    def _convolution(self, layer: Any) -> tuple[str, Params]:
        window, (before, after) = layer.window, layer._sides
        group = len(layer.blobs[0]) if layer.type.startswith("Depthwise") else layer.params.group
        sizes: Params = {0: len(layer.blobs[0])}
        pairs = {1: layer.kernel, 2: window.dilation, 3: window.stride, 4: before}
        for key, (high, wide) in pairs.items():
            sizes |= {key: wide, key + 10: high}
        sizes |= {15: after[1], 16: after[0]}
        sizes |= self.products(layer, 5, group)
        return ("ConvolutionDepthWise", {**sizes, 7: group}) if group > 1 else ("Convolution", sizes)

    def _inner_product(self, layer: Any) -> tuple[str, Params]:
        if layer.params.transpose or layer.params.axis != 1:
            raise UsageError(f"layer {layer.name!r}: a transposed InnerProduct is not written for ncnn")
        return "InnerProduct", {0: len(layer.blobs[0]), **self.products(layer, 1)}

    def _pooling(self, layer: Any) -> tuple[str, Params]:
        shape, out = self.shapes[layer.bottoms[0]], self.shapes[layer.tops[0]][2:]
        window = layer.window(shape)
        ends = [
            max(0, (out[i] - 1) * window.stride[i] + window.kernel[i] - shape[2 + i] - window.pad[i]) for i in range(2)
        ]
        kinds: dict[str, Params] = {"MAX": {0: 0}, "AVE": {0: 1, 6: 1}, "AVE_EXC_PAD": {0: 1, 6: 0}}
        if layer.params.pool not in kinds:
            raise UsageError(f"layer {layer.name!r}: {layer.params.pool} pooling is not written for ncnn")
        sizes: Params = {5: 1}  # exactly these borders
        for key, (high, wide) in {1: window.kernel, 2: window.stride, 3: window.pad}.items():
            sizes |= {key: wide, key + 10: high}
        return "Pooling", {**kinds[layer.params.pool], **sizes, 14: ends[1], 15: ends[0]}

    def _eltwise(self, layer: Any) -> tuple[str, Params]:
        factors: Params = {1: [float(c) for c in layer.params.coeff]} if layer.params.coeff else {}
        return "Eltwise", {0: {"PROD": 0, "SUM": 1, "MAX": 2}[layer.params.operation], **factors}

    def _scale(self, layer: Any) -> tuple[str, Params]:
        if len(layer.bottoms) > 1 or layer.params.axis != 1 or layer.blobs[0].ndim != 1:
            raise UsageError(
                f"layer {layer.name!r}: a Scale that is not one number per channel is not written for ncnn"
            )
        parts = [np.asarray(blob, np.float32) for blob in layer.blobs]
        self.raw(*parts)
        return "Scale", {0: parts[0].size, 1: len(parts) - 1}

    def _lrn(self, layer: Any) -> tuple[str, Params]:
        p = layer.params
        region = int(p.norm_region != "ACROSS_CHANNELS")
        return "LRN", {0: region, 1: p.local_size, 2: float(p.alpha), 3: float(p.beta), 4: float(p.k)}

    def _relu(self, layer: Any) -> tuple[str, Params]:
        if layer.params.relu6:
            return "Clip", {0: 0.0, 1: 6.0}
        return "ReLU", {0: float(layer.params.negative_slope)}

    def _reshape(self, layer: Any) -> tuple[str, Params]:
        sizes = self.shapes[layer.tops[0]][1:]
        if len(sizes) > 3 or not sizes:
            raise UsageError(f"layer {layer.name!r}: a Reshape to {len(sizes) + 1} axes is not written for ncnn")
        return "Reshape", dict(zip((0, 1, 2), reversed(sizes)))

    def _flatten(self, layer: Any) -> tuple[str, Params]:
        return "Flatten", {}

    def _concat(self, layer: Any) -> tuple[str, Params]:
        return "Concat", {0: self._axis(layer)}

    def _softmax(self, layer: Any) -> tuple[str, Params]:
        return "Softmax", {0: self._axis(layer), 1: 1}  # 1: the axis counts as written

    def _axis(self, layer: Any) -> int:
        """Return the number of the axis in an image."""
        axis = int(layer.params.axis) % len(self.shapes[layer.bottoms[0]])
        if not axis:
            raise UsageError(f"layer {layer.name!r}: {layer.type} along the batch is not written for ncnn")
        return axis - 1


def _scale_of(format: Format) -> Any:
    """Return the factor that makes codes of values, in the signed format of the same range."""
    return np.float32(1 / format.signed.step)


def _activation(layer: Layer) -> tuple[str, Params]:
    """Return the layer of a fused ReLU."""
    if layer.ceiling is not None:
        return "Clip", {0: 0.0, 1: float(layer.ceiling)}
    return "ReLU", {0: float(layer.slope or 0)}


def _word(name: str) -> str:
    """Return a name without blanks, which would end it."""
    return "_".join(name.split()) or "_"


def _listed(values: Sequence[float]) -> str:
    return ",".join([str(len(values)), *map(str, values)])


LAYERS: dict[str, Callable[[_Writer, Any], tuple[str, Params]]] = {
    "Convolution": _Writer._convolution,
    "DepthwiseConvolution": _Writer._convolution,
    "ConvolutionDepthwise": _Writer._convolution,
    "Pooling": _Writer._pooling,
    "InnerProduct": _Writer._inner_product,
    "Eltwise": _Writer._eltwise,
    "Scale": _Writer._scale,
    "Flatten": _Writer._flatten,
    "Reshape": _Writer._reshape,
    "LRN": _Writer._lrn,
    "ReLU": _Writer._relu,
    "Concat": _Writer._concat,
    "Softmax": _Writer._softmax,
}
