"""Caffemodels: trained parameters by layer name. Reading does not use protobuf, writing does.

Supported: V2, V1 and V0 files; float, double and NVCaffe's half data; packed, unpacked and split runs; BlobShape and
the legacy num/channels/height/width. Opening a file reads only the shapes. A layer's blobs are read on demand, straight
from the file into their arrays, so weights are in memory only once.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from ..blob import Array, Shape, show
from ..errors import MissingWeights, ModelError, ParseError
from ..graph import Graph, Layer
from ..graph.fillers import upsampling
from ..limits import limits
from ..text import number_of
from ..util.data import malloc, npy
from ..util.files import complete, content, opened_file
from ..util.lazy_numpy import np
from ..util.log import logger
from .mistaken import HEAD, WHOLE_FILE, refuse
from .schema import message_class
from .wire import BYTES, FIXED32, FIXED64, VARINT, Walk, WireField, varint

log = logger("chai")
_RAW = {0: "<f8", 1: "<f4", 2: "<f2"}  # NVCaffe's raw_data_type


@dataclass
class StoredBlob:
    """The location of one blob's numbers in the file: pieces of (offset, elements, stride in bytes)."""

    path: str
    shape: Shape
    dtype: str
    pieces: list[tuple[int, int, int]]
    layer: str = ""

    @property
    def count(self) -> int:
        return sum(n for _, n, _ in self.pieces)

    def load(self, room: malloc.Room | None = None) -> Array:
        """Return its numbers as a float32 array, in ``room`` if there is one and the file has float32."""
        with open(self.path, "rb") as file:
            return self.read(file, room)

    def read(self, file: BinaryIO, room: malloc.Room | None = None) -> Array:
        """Do as ``load`` for an open file."""
        if room is not None and self.dtype == "<f4":
            stored = room.take((self.count,))
        else:
            stored = np.empty(self.count, self.dtype)
        at, size = 0, stored.itemsize
        for offset, n, stride in self.pieces:
            file.seek(offset)
            part = stored[at : at + n]
            if stride == size:
                read = file.readinto(part.view(np.uint8))  # type: ignore[attr-defined]
            else:  # unpacked: a one-byte tag before every number but the first
                spaced = np.empty(n * stride, np.uint8)
                read = file.readinto(spaced[: n * stride - 1]) - (n - 1)  # type: ignore[attr-defined]
                part.view(np.uint8).reshape(n, size)[:] = spaced.reshape(n, stride)[:, :size]
            if read != n * size:
                raise ParseError("the file became shorter while it was read", path=self.path, layer=self.layer)
            at += n
        stored = stored.reshape(self.shape)
        return stored if stored.dtype == np.float32 else npy.floats(stored, self.path)


StoredLayer = tuple[str, list[StoredBlob]]  # the name and the blobs of a layer of the file


class Stored:
    """The trained parameters of a caffemodel or an ONNX file: ``layers`` has the blobs of each layer of the file by name.

    A blob has a ``shape``, and ``load`` returns it in float32.
    """

    def __init__(self, path: str, layers: Mapping[str, Sequence[Any]]) -> None:
        self.path = path
        self.layers = layers

    def blobs_of(self, layer: Layer, room: malloc.Room | None = None) -> list[Array]:
        """Return the blobs of a network's layer, float32 as they are stored, [] for none; in ``room`` if there is one."""
        return [blob.load(room) for blob in self.stored(layer)[1]]

    def room(self) -> malloc.Room:
        """Return memory for the parameters of all layers."""
        return malloc.Room(prod(blob.shape) for blobs in self.layers.values() for blob in blobs)

    def stored(self, layer: Layer) -> tuple[str, Sequence[Any]]:
        """Return the name that a network's layer has in the file, and its blobs.

        The name is its own; for a part of a composed layer that the file does not have, the composed layer's. Raises
        ModelError if this one has fewer blobs than the part takes.
        """
        whole = next((share for share in layer.shares if share[0] in self.layers), None)
        if layer.name in self.layers or whole is None:
            return layer.name, self.layers.get(layer.name, [])
        name, indices = whole
        blobs = self.layers[name]
        if blobs and max(indices) >= len(blobs):
            what = f"takes blob {max(indices)} of layer {name!r}, which has {len(blobs)} in {self.path}"
            raise ModelError(f"layer {layer.name!r} ({layer.type}) {what}", layer=layer.name, hint=layer.place)
        return name, [blobs[i] for i in indices] if blobs else []


class Weights(Stored):
    """The trained parameters of one caffemodel.

    ``layers`` maps a name to the blobs of the last layer of that name that has some (Caffe copies in file order, so the last
    one wins). Raises ParseError if the file is not a caffemodel.
    """

    def __init__(self, path: str | Path) -> None:
        layers: dict[str, list[StoredBlob]] = {}
        for name, blobs in walk_file(path):
            if blobs or name not in layers:
                layers[name] = blobs
        super().__init__(str(path), layers)


def walk_file(path: str | Path) -> list[StoredLayer]:
    """Return every layer of a caffemodel in file order, without reading blob data."""
    with opened_file(path) as file:
        head = file.read(HEAD)
        refuse(head, path, "a caffemodel")
        size = file.seek(0, 2)
        if size == 0:
            raise ParseError("the file is empty, expected a caffemodel", path=str(path))
        if size > limits().weight_bytes:
            raise ParseError(limits().exceeded("weight_bytes", size) + " bytes", path=str(path))
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
                layers = _net(Walk(buffer, str(path)), 0, size)
            if not layers:
                raise ParseError("there is no layer in this file, expected a caffemodel", path=str(path))
        except ParseError as error:
            error.hint = _mistaken(head)
            raise
    return layers


def read_blob_file(path: str | Path) -> Array:
    """Return a binaryproto (one BlobProto, as Caffe's mean files are) as float32 array."""
    data = content(path, "array_bytes")
    refuse(data[:HEAD], path, "a mean image (.binaryproto or .npy)")
    blob = _blob(Walk(data, str(path)), 0, len(data))
    if not blob.count:
        raise ParseError("there are no numbers in this file, expected a mean image", path=str(path))
    return blob.read(BytesIO(data))


def _mistaken(head: bytes) -> str:
    if head.startswith(b"<"):
        return "this looks like a web page saved in place of the download"
    if head and all(32 <= b < 127 or b in b"\t\r\n" for b in head):
        return "this is text: the first file is the .prototxt, the second the .caffemodel"
    return WHOLE_FILE


def _net(walk: Walk, at: int, end: int) -> list[StoredLayer]:
    layers = []
    for f in walk.fields(at, end):
        if f.number in (2, 100):
            if f.wire != BYTES:
                raise walk.bad("expected a layer", f.start)
            layers.append(_layer(walk, f, name=1, blobs=7) if f.number == 100 else _old(walk, f))
            if len(layers) > limits().layers:
                raise walk.bad("too many layers: " + limits().exceeded("layers", len(layers)), f.start)
    return layers


def _old(walk: Walk, message: WireField) -> StoredLayer:
    """Return a layer of form V1 or V0."""
    inner = [f for f in walk.fields(message.start, message.end) if f.number == 1 and f.wire == BYTES]
    if inner:  # V0: the layer is wrapped in a connection
        return _layer(walk, inner[-1], name=1, blobs=50)
    return _layer(walk, message, name=4, blobs=6)


def _layer(walk: Walk, message: WireField, name: int, blobs: int) -> StoredLayer:
    own, stored = "", []
    try:
        for f in walk.fields(message.start, message.end):
            if f.number == name and f.wire == BYTES:
                own = walk.text(f)
            elif f.number == blobs and f.wire == BYTES:
                stored.append(_blob(walk, f.start, f.end))
    except ParseError as error:
        error.layer = error.layer or own or None
        raise
    for blob in stored:
        blob.layer = own
    return own, stored


def _blob(walk: Walk, at: int, end: int) -> StoredBlob:
    legacy: dict[int, int] = {}
    shape: list[WireField] = []
    single: list[tuple[int, int, int]] = []
    double: list[tuple[int, int, int]] = []
    raw: WireField | None = None
    raw_type = 0
    for f in walk.fields(at, end):
        if f.number in (1, 2, 3, 4) and f.wire == VARINT:
            legacy[f.number] = walk.integers([f])[0]
        elif f.number == 5:
            single.append(_piece(walk, f, 4, FIXED32))
        elif f.number == 8:
            double.append(_piece(walk, f, 8, FIXED64))
        elif f.number == 7 and f.wire == BYTES:
            shape += [d for d in walk.fields(f.start, f.end) if d.number == 1]
        elif f.number == 10 and f.wire == VARINT:
            raw_type = f.value
        elif f.number == 12 and f.wire == BYTES:
            raw = f
    dtype, pieces = ("<f8", double) if double else ("<f4", single)
    if raw is not None and not pieces:
        dtype, size = _RAW.get(raw_type, ""), raw.end - raw.start
        if not dtype or size % int(dtype[-1]):
            raise walk.bad(f"raw blob data of type {raw_type} and {size:,} bytes", raw.start)
        pieces = [(raw.start, size // int(dtype[-1]), int(dtype[-1]))]
    dims = tuple(legacy.get(i, 0) for i in range(1, 5)) if legacy else tuple(walk.integers(shape))
    pieces = [p for p in pieces if p[1]]
    if not pieces and not dims:
        dims = (0,)  # no numbers at all; a scalar has no axes but one number
    blob = StoredBlob(walk.path, dims, dtype, pieces)
    if any(d < 0 for d in dims):
        raise walk.bad(f"a blob of shape {show(dims)}", at)
    if prod(dims) != blob.count:
        needed = number_of(f"{prod(dims):,}", "number")
        raise walk.bad(f"a blob of shape {show(dims)} needs {needed}, the file has {blob.count:,}", at)
    return blob


def _piece(walk: Walk, f: WireField, itemsize: int, unpacked: int) -> tuple[int, int, int]:
    if f.wire == unpacked:
        return f.start, f.repeats, itemsize + 1 if f.repeats > 1 else itemsize
    if f.wire != BYTES or (f.end - f.start) % itemsize:
        raise walk.bad(f"blob data of {f.end - f.start:,} bytes is no run of {itemsize}-byte numbers", f.start)
    return f.start, (f.end - f.start) // itemsize, itemsize


def write_caffemodel(path: str | Path, name: str, layers: Iterable[tuple[str, str, Sequence[Array]]]) -> None:
    """Write a V2 caffemodel that Caffe reads: ``layers`` are (name, type, float32 blobs).

    The file appears complete or not at all.
    """
    with complete(path) as part, open(part, "wb") as file:
        file.write(message_class("NetParameter")(name=name).SerializeToString())
        for layer_name, layer_type, blobs in layers:
            layer = message_class("LayerParameter")(name=layer_name, type=layer_type)
            for values in blobs:
                blob = layer.blobs.add()
                blob.shape.dim.extend(values.shape)
                data = np.ascontiguousarray(values, "<f4").tobytes()  # copied as bytes, not number by number
                blob.MergeFromString(bytes([5 << 3 | BYTES]) + varint(len(data)) + data)
            body = layer.SerializeToString()
            file.write(varint(100 << 3 | BYTES) + varint(len(body)) + body)


def check_fit(graph: Graph, shapes: Mapping[str, Shape], weights: Stored, partial: bool = False) -> set[str]:
    """Check every layer of a network against a caffemodel; return the names of layers that keep their filler's values.

    Those are upsampling layers with a bilinear filler, and those that share their parameters with layers that have some. Shapes
    may differ by leading ones, as Caffe's old 4-axis blobs do (1x1x1x64 for a bias of 64). Raises ModelError for blobs that do
    not fit their layer, MissingWeights for layers without blobs, which with ``partial`` keep their filler's values instead.
    """
    missing: list[Layer] = []
    filled = set()
    named = {name for layer in graph.layers if any(layer.shared) and weights.stored(layer)[1] for name in layer.shared}
    for layer in graph.layers:
        if layer.free_weights:
            continue
        expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms)) if not layer.source else ()
        stored = [blob.shape for blob in weights.stored(layer)[1]]
        if not stored and expected:
            own = layer.shared[: len(expected)]
            alike = all(own) and len(own) == len(expected) and named.issuperset(own)
            if upsampling(layer.fillers()) or alike:
                filled.add(layer.name)
            else:
                missing.append(layer)
            continue
        _check_blobs(layer, stored, expected, weights.path)
    if missing and not partial:
        raise _without_weights(graph, missing, weights)
    if missing:
        names = ", ".join(layer.name for layer in missing)
        log.warning("%s has no weights for %s: their fillers' values stay", weights.path, names)
        filled.update(layer.name for layer in missing)
    return filled


def _check_blobs(layer: Layer, stored: Sequence[Shape], expected: Sequence[Shape], path: str) -> None:
    """Raise ModelError unless a layer's stored blobs have the shapes that it expects, but for leading ones."""
    if len(stored) != len(expected):
        hint = "is bias_term the same in both files?" if expected else None
        what = f"{number_of(len(stored), 'blob')} of weights in {path}, expected {len(expected)}"
        raise ModelError(f"layer {layer.name!r} ({layer.type}): {what}", layer=layer.name, hint=hint)
    for i, (shape, wanted) in enumerate(zip(stored, expected)):
        if _stripped(shape) != _stripped(wanted):
            what = f"its weights (blob {i}) are {show(shape)} in {path}, expected {show(wanted)}"
            hint = "is this the caffemodel of this network? compare num_output, kernel_size and group"
            raise ModelError(f"layer {layer.name!r} ({layer.type}): {what}", layer=layer.name, hint=hint)


def _without_weights(graph: Graph, missing: Sequence[Layer], weights: Stored) -> MissingWeights:
    """Return the error of layers that have no blobs in a caffemodel, with the names of layers that have some."""
    first, rest = missing[0], f" (nor have {number_of(len(missing) - 1, 'more layer')})" if len(missing) > 1 else ""
    known = list(weights.layers)
    names = ", ".join(known[:6]) + (", ..." if len(known) > 6 else "")
    hint = f"weights are found by layer name; the file has: {names}"
    whole = next((w for w, composed in graph.composed.items() if first.name in composed.parts and w in known), None)
    if whole is not None:
        hint = f"the file has layer {whole!r}: blobs=(0, 1) where it is composed gives the part its first two blobs"
    what = f"layer {first.name!r} ({first.type}) has no weights in {weights.path}{rest}"
    return MissingWeights(what, layer=first.name, hint=hint)


def _stripped(shape: Shape) -> Shape:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
