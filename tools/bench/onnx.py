"""Write a network as ONNX, in float32 or with 8-bit codes, for engines that do not read Caffe's files.

The file is protobuf, written field by field (onnx.proto of ONNX 1.8: IR version 7, opset 13): chai needs no package for it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chai.errors import UsageError
from chai.util.lazy_numpy import np

from .names import Names

if TYPE_CHECKING:
    from chai.blob import Array, Shape
    from chai.fixed import Format
    from chai.graph import Graph, Layer

FLOAT, UINT8, INT8, INT32, INT64 = 1, 2, 3, 6, 7  # TensorProto.DataType
TYPES = {"float32": FLOAT, "uint8": UINT8, "int8": INT8, "int32": INT32, "int64": INT64}


def onnx(graph: Graph, shapes: Mapping[str, Shape], formats: Mapping[str, Format] | None = None) -> bytes:
    """Return a ModelProto of a graph after the passes.

    With ``formats`` each blob is rounded to 8 bits by a QuantizeLinear and a DequantizeLinear, and weights are int8 with a step
    per output channel, which engines turn into integer layers. Raises UsageError for a layer type that is not in ``NODES``.
    """
    writer = _Writer(graph, shapes, formats or {})
    for blob in graph.inputs:
        writer.rounded(blob)
    for layer in graph.layers:
        if not layer.source:
            writer.layer(layer)
    inputs = [_value(blob, shapes[blob]) for blob in graph.inputs]
    outputs = [_value(blob, shapes[blob]) for blob in graph.output_blobs]
    body = b"".join(
        [
            *(_bytes(1, node) for node in writer.nodes),
            _bytes(2, b"net"),
            *(_bytes(5, tensor) for tensor in writer.tensors),
            *(_bytes(11, value) for value in inputs),
            *(_bytes(12, value) for value in outputs),
        ]
    )
    return _number(1, 7) + _bytes(7, body) + _bytes(8, _bytes(1, b"") + _number(2, 13))


class _Writer:
    """Collects nodes and constants. ``sources`` has what is read in place of a blob: its rounded values."""

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> None:
        self.shapes, self.formats = shapes, formats
        self.nodes: list[bytes] = []
        self.tensors: list[bytes] = []
        self.sources: dict[str, str] = {}
        self.names = Names([*graph.inputs, *(top for layer in graph.layers for top in layer.tops)])

    def layer(self, layer: Layer) -> None:
        write = NODES.get(layer.type)
        if write is None:
            raise UsageError(f"layer {layer.name!r}: {layer.type} is not written as ONNX")
        (top,) = layer.tops
        before = top if layer.slope is None else self.names.new(top, "before")
        write(self, layer, [self.sources.get(b, b) for b in layer.bottoms], before)
        if layer.ceiling is not None:
            bounds = [self.constant(np.float32(bound), top, "bound") for bound in (0, layer.ceiling)]
            self.node("Clip", [before, *bounds], top)
        elif layer.slope is not None:
            self.relu([before], top, float(layer.slope))
        self.rounded(top)

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        named = [_bytes(1, name.encode()) for name in inputs]
        listed = [_bytes(5, _attribute(key, value)) for key, value in attributes.items()]
        self.nodes.append(b"".join([*named, _bytes(2, output.encode()), _bytes(4, kind.encode()), *listed]))
        return output

    def relu(self, inputs: Sequence[str], output: str, slope: float) -> None:
        self.node("LeakyRelu", inputs, output, alpha=slope) if slope else self.node("Relu", inputs, output)

    def constant(self, value: Any, *words: str) -> str:
        """Write an array or a number, and return its name, which begins with these words."""
        name = self.names.new(*words)
        dims = b"".join(_number(1, size) for size in value.shape)
        raw = np.ascontiguousarray(value).tobytes()
        self.tensors.append(dims + _number(2, TYPES[value.dtype.name]) + _bytes(8, name.encode()) + _bytes(9, raw))
        return name

    def rounded(self, blob: str) -> None:
        """Round a blob to its format, if it has one."""
        if (format := self.formats.get(blob)) is None:
            return
        step = self.constant(np.float32(format.step), blob, "step")
        zero = self.constant(np.uint8(format.zero + 128), blob, "zero")
        codes = self.node("QuantizeLinear", [blob, step, zero], self.names.new(blob, "codes"))
        self.sources[blob] = self.node("DequantizeLinear", [codes, step, zero], self.names.new(blob, "rounded"))

    def weights(self, layer: Layer, value: Array) -> str:
        """Return the name of the weights (M, ...), as int8 with a step per row if blobs are rounded."""
        if not self.formats:
            return self.constant(value.astype(np.float32), layer.name, "weights")
        rows = np.abs(value).reshape(len(value), -1).max(1, initial=0)
        steps = (np.where(rows > 0, rows, 1) / 127).astype(np.float32)
        codes = np.rint(value / steps.reshape(-1, *[1] * (value.ndim - 1))).astype(np.int8)
        parts = {"codes": codes, "step": steps, "zero": np.zeros(len(value), np.int8)}
        inputs = [self.constant(part, layer.name, f"weights {name}") for name, part in parts.items()]
        return self.node("DequantizeLinear", inputs, self.names.new(layer.name, "weights"), axis=0)

    def blobs(self, layer: Layer) -> list[str]:
        """Return the names of weights and bias."""
        weights, *bias = layer.blobs
        named = [self.weights(layer, weights)]
        return [*named, *(self.constant(b.reshape(-1).astype(np.float32), layer.name, "bias") for b in bias)]


def _convolution(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    window, (before, after) = layer.window, layer._sides
    sizes = {"kernel_shape": layer.kernel, "strides": window.stride, "dilations": window.dilation}
    group = len(layer.blobs[0]) if layer.type.startswith("Depthwise") else layer.params.group
    w.node("Conv", [*inputs, *w.blobs(layer)], output, **sizes, pads=(*before, *after), group=group)


def _pooling(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    shape, out = w.shapes[layer.bottoms[0]], w.shapes[layer.tops[0]][2:]
    window = layer.window(shape)
    ends = [max(0, (out[i] - 1) * window.stride[i] + window.kernel[i] - shape[2 + i] - window.pad[i]) for i in range(2)]
    kinds: dict[str, tuple[str, dict[str, int]]] = {
        "MAX": ("MaxPool", {}),
        "AVE": ("AveragePool", {"count_include_pad": 1}),
        "AVE_EXC_PAD": ("AveragePool", {"count_include_pad": 0}),
    }
    if layer.params.pool not in kinds:
        raise UsageError(f"layer {layer.name!r}: {layer.params.pool} pooling is not written as ONNX")
    kind, more = kinds[layer.params.pool]
    w.node(kind, inputs, output, kernel_shape=window.kernel, strides=window.stride, pads=(*window.pad, *ends), **more)


def _inner_product(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    flat = inputs[0]
    if len(w.shapes[layer.bottoms[0]]) != 2:
        flat = w.node("Flatten", [flat], w.names.new(layer.name, "flat"), axis=layer.params.axis)
    w.node("Gemm", [flat, *w.blobs(layer)], output, transB=int(not layer.params.transpose))


def _eltwise(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    p, last = layer.params, len(inputs) - 2
    if p.coeff:
        factors = [w.constant(np.float32(c), layer.name, "factor") for c in p.coeff]
        inputs = [w.node("Mul", pair, w.names.new(layer.name, "scaled")) for pair in zip(inputs, factors)]
    kind = {"SUM": "Add", "PROD": "Mul", "MAX": "Max"}[p.operation]
    total = inputs[0]
    for i, name in enumerate(inputs[1:]):
        total = w.node(kind, [total, name], output if i == last else w.names.new(output, "part"))


def _scale(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    if len(inputs) > 1:
        raise UsageError(f"layer {layer.name!r}: a Scale of two bottoms is not written as ONNX")
    axes = len(w.shapes[layer.bottoms[0]]) - layer.params.axis
    parts = [b.reshape(*b.shape, *[1] * (axes - b.ndim)).astype(np.float32) for b in layer.blobs]
    factor, *bias = (w.constant(part, layer.name, "part") for part in parts)
    scaled = w.node("Mul", [inputs[0], factor], w.names.new(output, "scaled") if bias else output)
    if bias:
        w.node("Add", [scaled, *bias], output)


def _shaped(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    shape = w.constant(np.asarray(w.shapes[layer.tops[0]], np.int64), layer.name, "shape")
    w.node("Reshape", [inputs[0], shape], output)


def _lrn(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    p = layer.params
    if p.norm_region != "ACROSS_CHANNELS":
        raise UsageError(f"layer {layer.name!r}: an LRN within channels is not written as ONNX")
    w.node("LRN", inputs, output, size=p.local_size, alpha=float(p.alpha), beta=float(p.beta), bias=float(p.k))


def _relu(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
    if layer.params.relu6:
        raise UsageError(f"layer {layer.name!r}: relu6 is not written as ONNX")
    w.relu(inputs, output, float(layer.params.negative_slope))


def _axis(kind: str) -> Callable[[_Writer, Any, list[str], str], None]:
    def write(w: _Writer, layer: Any, inputs: list[str], output: str) -> None:
        w.node(kind, inputs, output, axis=layer.params.axis)

    return write


NODES: dict[str, Callable[[_Writer, Any, list[str], str], None]] = {
    "Convolution": _convolution,
    "DepthwiseConvolution": _convolution,
    "ConvolutionDepthwise": _convolution,
    "Pooling": _pooling,
    "InnerProduct": _inner_product,
    "Eltwise": _eltwise,
    "Scale": _scale,
    "Flatten": _shaped,
    "Reshape": _shaped,
    "LRN": _lrn,
    "ReLU": _relu,
    "Concat": _axis("Concat"),
    "Softmax": _axis("Softmax"),
}


# -- protobuf


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _attribute(name: str, value: Any) -> bytes:
    named = _bytes(1, name.encode())
    if isinstance(value, float):
        return named + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return named + _number(3, value) + _number(20, 2)
    return named + b"".join(_number(8, item) for item in value) + _number(20, 7)


def _value(name: str, shape: Shape) -> bytes:
    dims = b"".join(_bytes(1, _number(1, size)) for size in shape)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _number(1, FLOAT) + _bytes(2, dims)))
