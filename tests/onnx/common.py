"""ONNX files written field by field, so that reading is tested without the onnx package, and by a second hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

import chai

Array = np.ndarray
TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13,
}  # fmt: skip


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def blob(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(name: str, value: Any) -> bytes:
    """A TensorProto with raw data."""
    array = np.asarray(value)
    dims = b"".join(number(1, size) for size in array.shape)
    return dims + number(2, TYPES[str(array.dtype)]) + blob(8, name) + blob(9, np.ascontiguousarray(array).tobytes())


def outside(name: str, location: str, shape: Sequence[int], offset: int = 0, length: int | None = None) -> bytes:
    """A TensorProto of float32 whose numbers are in another file."""
    size = 4 * prod(shape) if length is None else length
    entries = {"location": location, "offset": str(offset), "length": str(size)}
    data = b"".join(blob(13, blob(1, key) + blob(2, entry)) for key, entry in entries.items())
    return b"".join(number(1, size) for size in shape) + number(2, 1) + blob(8, name) + data + number(14, 1)


def attribute(name: str, value: Any) -> bytes:
    named = blob(1, name)
    if isinstance(value, bool | int):
        return named + number(3, int(value)) + number(20, 2)
    if isinstance(value, float):
        return named + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, str):
        return named + blob(4, value) + number(20, 3)
    if isinstance(value, np.ndarray):
        return named + blob(5, tensor("", value)) + number(20, 4)
    if value and isinstance(value[0], float):
        return named + b"".join(varint(7 << 3 | 5) + struct.pack("<f", item) for item in value) + number(20, 6)
    return named + b"".join(number(8, item) for item in value) + number(20, 7)


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", domain: str = "", **attributes: Any
) -> bytes:
    parts = [blob(1, i) for i in inputs] + [blob(2, o) for o in outputs]
    parts += [blob(3, name)] * bool(name) + [blob(4, operator)]
    parts += [blob(5, attribute(key, value)) for key, value in attributes.items()]
    return b"".join(parts) + (blob(7, domain) if domain else b"")


def value(name: str, shape: Sequence[int | str] | None = None, dtype: str = "float32") -> bytes:
    """A ValueInfoProto."""
    dims = [number(1, size) if isinstance(size, int) else blob(2, size) for size in shape or ()]
    sizes = blob(2, b"".join(blob(1, dim) for dim in dims)) if shape is not None else b""
    return blob(1, name) + blob(2, blob(1, number(1, TYPES[dtype]) + sizes))


def model(
    nodes: Sequence[bytes],
    inputs: Mapping[str, Sequence[int | str] | None],
    outputs: Sequence[str],
    tensors: Mapping[str, Any] | None = None,
    opset: int = 17,
    more: bytes = b"",
    domains: Mapping[str, int] | None = None,
) -> bytes:
    """A ModelProto; ``more`` are further fields of its graph."""
    body = [blob(1, n) for n in nodes] + [blob(2, "net")]
    body += [blob(5, tensor(name, array)) for name, array in (tensors or {}).items()]
    body += [blob(11, value(name, shape)) for name, shape in inputs.items()]
    body += [blob(12, value(name)) for name in outputs]
    opsets = [blob(1, domain) + number(2, version) for domain, version in {"": opset, **(domains or {})}.items()]
    return number(1, 8) + blob(7, b"".join(body) + more) + b"".join(blob(8, entry) for entry in opsets)


def one(operator: str, x: Array, *constants: Any, opset: int = 17, outputs: int = 1, **attributes: Any) -> list[Array]:
    """The outputs of a node that reads ``x`` and constants; None is an input that is left out."""
    names = ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    tops = [f"y{i}" for i in range(outputs)]
    file = model(
        [node(operator, ["x", *names], tops, "probe", **attributes)],
        {"x": x.shape},
        tops,
        {name: c for name, c in zip(names, constants) if name},
        opset,
    )
    return run(file, x=x)


def run(file: bytes, **feeds: Array) -> list[Array]:
    """The outputs of a model in float32, in its own order."""
    with chai.Net(file, device="float") as net:
        results = net.forward(**feeds)
        return [results[name] for name in net.outputs]


def types(file: bytes, **options: Any) -> list[str]:
    """The types of the layers of a model, without its inputs."""
    with chai.Net(file, device="float", **options) as net:
        return [layer.type for layer in net.graph.layers if not layer.source]


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Float32 numbers, the same for the same seed and shape."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)
