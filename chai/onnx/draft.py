"""The Graph under construction: its layers so far, and what is known of the values of an ONNX file."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from math import prod
from typing import Any

from .. import layers
from ..blob import Shape, show
from ..errors import ChaiError, ModelError
from ..fixed import Format
from ..graph import Graph, Layer
from ..graph.params import BlobShape
from ..limits import limits
from ..util.data.dataclass_io import problem
from ..util.lazy_numpy import np
from .codes import CodeSteps, DecodedTensor
from .constants import FLOATS, Constant, TrainedBlob
from .read import Model
from .refusal import Refused
from .sizes import counts_images, plain, size

Names = Sequence[str]
Blobs = Sequence[TrainedBlob]


class Draft:
    """A Graph under construction: values are blobs, constants or codes, by their names in the file.

    ``graph``      the layers so far;  ``writers``  by the blob that each writes
    ``stored``     their trained parameters
    ``constants``  values that are known
    ``blobs``      blob ids of the values that layers compute
    ``steps``      of values that are codes: what these stand for;  ``formats``  of the blobs that the file has as codes
    ``whole``      values that are whole numbers, as float32;  ``integers``  those of them that the file has as integers
    ``decoded``    values that are the numbers of codes
    ``nonnegative``  blobs that cannot be negative
    ``one_batch``  whether the node that is added now is right for this batch alone
    ``twofold``    constants that are computed from shapes of blobs, as they are for a batch twice as large
    ``batches``    that which the file states, 0 if it leaves it open, and that which it is read for
    ``several``    blobs of whose numbers codes of several formats are made, as far as that is known
    """

    def __init__(self, model: Model, several: Collection[str] = ()) -> None:
        self.model = model
        self.graph = Graph(model.name, [], {}, [], {}, path=model.path, fixed=True)
        self.stored: dict[str, Blobs] = {}
        self.constants: MutableMapping[str, Constant] = dict(model.tensors)
        self.blobs: dict[str, str] = {}
        self._shapes: MutableMapping[str, Shape] = {}
        self._twofold: dict[str, Shape] = {}  # for a batch twice as large, of the tops of the first layers
        self._inferred = 0  # number of those layers
        self.writers: dict[str, Layer] = {}
        self._reads = Counter(name for node in model.nodes for name in node.inputs)
        self._reads.update(value.name for value in model.outputs)
        self._names: dict[str, int] = {}  # of layers, with the number that each was last given as a suffix
        self._values = {*model.tensors, *(value.name for value in model.inputs)}
        self._values.update(name for node in model.nodes for name in node.outputs)
        self._spare = limits().folded_numbers + model.size // 4
        self.nonnegative: set[str] = set()
        self.one_batch = False
        self.batches = 1, 1
        self.twofold: dict[str, Constant] = {}
        self.whole: set[str] = set()
        self.integers: set[str] = set()
        self.decoded: set[str] = set()
        self.steps: dict[str, CodeSteps] = {}
        self.formats: dict[str, Format] = {}
        self.several = {*several}
        self._encoded: dict[str, Format] = {}  # the first format of a blob's numbers, by the blob
        self.thresholds: dict[str, tuple[float, ...]] = {}  # of weights, by layer

    def shape(self, name: str) -> Shape:
        if name in self.constants:
            return self.constants[name].shape
        return self._shapes[self.blobs.get(name, name)]

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value, whose sizes know whether they depend on the batch."""
        self._double()
        shape, constant = self.shape(name), self.twofold.get(name)
        other = self._twofold.get(self.blobs.get(name, name), shape) if constant is None else constant.shape
        return tuple(map(size, shape, other)) if len(shape) == len(other) else shape

    def live(self, name: str) -> str:
        """Return the blob of a value; a constant becomes the top of a Parameter layer."""
        if name in self.constants and name not in self.blobs:
            constant = self.constants[name]
            if constant.dtype not in FLOATS:
                raise Refused(f"constant {name!r} has numbers of type {constant.dtype}; layers compute float32")
            blobs = [TrainedBlob(constant, constant.shape)]
            self.add(name, "Parameter", (), (name,), blobs, shape=BlobShape(constant.shape))
        return self.blobs[name]

    def differs(self, name: str) -> bool:
        """Return whether a value is a constant that is computed from the batch, and another one for other batches."""
        constant, other = self.constants.get(name), self.twofold.get(name)
        return constant is not None and other is not None and not np.array_equal(constant.array(), other.array())

    def define(self, name: str, constant: Constant) -> None:
        if name:
            self.constants[name] = constant

    def encoded_again(self, blob: str, format: Format) -> bool:
        """Return whether the file makes codes of several formats of a blob's numbers, which then has none of them itself."""
        if self._encoded.setdefault(blob, format) != format:
            self.several.add(blob)
        return blob in self.several

    def used(self, name: str) -> bool:
        """Return whether a node reads a value, or it is an output."""
        return self._reads[name] > 0

    def claim(self, count: int) -> None:
        """Count numbers that are computed. Raises Refused if they are too many."""
        self._spare -= count
        if self._spare < 0:
            raise Refused("constants too large: " + limits().exceeded("folded_numbers", count))

    @contextmanager
    def twice(self) -> Iterator[None]:
        """Let values have the shapes and numbers of a batch twice as large."""
        self._double()
        shapes, constants = self._shapes, self.constants
        self._shapes, self.constants = ChainMap(self._twofold, shapes), ChainMap(self.twofold, constants)
        try:
            yield
        finally:
            self._shapes, self.constants = shapes, constants

    def _double(self) -> None:
        """Infer the shapes of a batch twice as large; axis 0 counts images where a layer does not take it."""
        for layer in self.graph.layers[self._inferred :]:
            tops = [self._shapes[top] for top in layer.tops]
            if not layer.source or layer.tops[0] in self.graph.inputs:
                tops = [(*(2 * size for size in top[:1]), *top[1:]) for top in tops]
            with suppress(ChaiError):
                if not layer.source:
                    tops = list(layer.shapes(*(self._twofold[blob] for blob in layer.bottoms)))
            self._twofold.update(zip(layer.tops, tops))
        self._inferred = len(self.graph.layers)

    # -- layers

    def add(self, name: str, type: str, bottoms: Names, tops: Names, blobs: Blobs = (), **params: Any) -> None:
        """Add a layer of chai's own. Raises Refused if its parameters or sizes are outside what it takes."""
        cls = layers.find(type)
        assert cls is not None
        self.one_batch |= any(map(counts_images, params.values()))
        params = {name: plain(value) for name, value in params.items()}
        self.enter(cls(self.unique(name), params=_checked(cls, params)), bottoms, tops, blobs)

    def enter(self, layer: Layer, bottoms: Names, tops: Names, blobs: Blobs) -> None:
        """Add a layer, whose top's shapes are known then. Raises Refused if its ports or weights do not fit it."""
        layer.bottoms, layer.tops = tuple(bottoms), tuple(tops)
        layer.place = f"{self.model.path}: node {layer.name}"
        if wrong := layer.miscounted(len(bottoms), len(tops)):
            raise Refused(f"{layer.type} {wrong[1]}")
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
            layer.check_top(shape)
            if prod(shape) == 0:
                raise Refused(f"a blob of shape {show(shape)}, without numbers")
            self._shapes[top], self.blobs[top], self.writers[top] = shape, top, layer
        if not layer.source and layer.nonnegative([bottom in self.nonnegative for bottom in bottoms]):
            self.nonnegative.update(tops)
        if layer.weighted and blobs and isinstance(blobs[0].constant, DecodedTensor):
            self.thresholds[layer.name] = _thresholds(blobs[0], blobs[0].constant)
        self.graph.layers.append(layer)
        if len(self.graph.layers) > limits().layers:
            raise ModelError("too many layers: " + limits().exceeded("layers", len(self.graph.layers)))
        if blobs:
            self.stored[layer.name] = blobs

    def unique(self, name: str) -> str:
        """Return a name that no layer has."""
        unique, number = name, self._names.get(name, 1)
        while unique in self._names:
            number += 1
            unique = f"{name}.{number}"
        self._names[name] = number
        self._names.setdefault(unique, 1)
        return unique

    def free(self, name: str) -> str:
        """Return a name for a blob of chai's own that no value of the file has."""
        while name in self._values:
            name += "/"
        return name

    @property
    def of_file(self) -> dict[str, str]:
        """Return the blobs of the values that the file names."""
        return {name: blob for name, blob in self.blobs.items() if name in self._values}

    def drop(self, count: int) -> None:
        """Drop the layers after the first ``count``."""
        for layer in self.graph.layers[count:]:
            self.stored.pop(layer.name, None)
            for top in layer.tops:
                self.blobs.pop(top, None)
        del self.graph.layers[count:]
        self._inferred = min(self._inferred, count)


def _thresholds(blob: TrainedBlob, codes: DecodedTensor) -> tuple[float, ...]:
    """Return the threshold of each output's weights. Raises Refused if an output's weights have several."""
    rows = replace(blob, constant=codes.thresholds).load()
    rows = np.abs(rows, out=rows).reshape(len(rows), -1)
    largest = rows.max(1)
    if (rows[:, 0] != largest).any() and (np.where(rows > 0, rows, largest[:, None]).min(1) != largest).any():
        raise Refused("its weights have scales along another axis than that of its outputs")
    return tuple(map(float, largest))


def _checked(cls: type[Layer], params: Mapping[str, Any]) -> Any:
    """Return the parameters of a layer. Raises Refused for a value outside its range."""
    metadata = {field.name: field.metadata for field in fields(cls.Params)}
    for name, value in params.items():
        for item in value if isinstance(value, tuple) else (value,):
            wrong = None if item is None or "nested" in metadata[name] else problem(metadata[name], item)
            if wrong:
                raise Refused(f"{name}: {wrong}")
    return cls.Params(**params)
