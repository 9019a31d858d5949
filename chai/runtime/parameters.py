"""Trained parameters of a graph: from its caffemodel, else from fillers, or what a program has put in their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from operator import attrgetter, is_
from typing import Any

from ..blob import Array, Shape, count, show
from ..errors import MissingWeights, ModelError, UsageError
from ..graph import Graph, Layer, fillers
from ..limits import limits
from ..parser.caffemodel import Stored, check_fit
from ..passes.infer_shapes import Renewed, infer_shapes
from ..text import number_of
from ..util.files import digest
from ..util.lazy_numpy import np
from ..util.log import logger
from ..util.paths import stem
from .steps.layers import check_weights

log = logger("chai")
_blobs = attrgetter("blobs")


class LentParameters(dict[str, list[Any]]):
    """Trained parameters by layer: lists of arrays, which may be changed or replaced. The lists themselves are the network's."""

    def __setitem__(self, layer: str, parameters: list[Any]) -> None:
        if parameters is not self.get(layer):  # as it is after +=
            raise UsageError(
                f"params[{layer!r}]: the list cannot be replaced, only what is in it",
                hint=f"params[{layer!r}][0] for the weights, params[{layer!r}][1] for the bias",
            )

    def __reduce__(self) -> tuple[type, tuple[dict[str, list[Any]]]]:
        return dict, (dict(self),)  # a copy belongs to its owner


class Parameters:
    """The trained parameters of a graph's layers.

    ``weights``  the caffemodel, if there is one
    ``lacking``  whose weights may be missing: those of "some" layers, "all" or none of them, "none"
    ``trained``  whether no layer has random weights for want of a caffemodel
    ``lent``     whether a program has the arrays, which it may change at any time
    """

    def __init__(self, graph: Graph, weights: Stored | None, lacking: str) -> None:
        self.graph = graph
        self.weights = weights
        self.trained = True
        self._lacking = lacking
        self._attached = False
        self.lent = False
        self._read: dict[Layer, tuple[Array, ...]] = {}  # the arrays of layers that passes read
        self._every: list[Array] = []  # of these, one after the other

    def check_digest(self) -> None:
        """Warn if the network was quantised for other weights."""
        expected, weights = self.graph.weights_digest, self.weights
        if expected is not None and weights is not None and digest(weights.path) != expected:
            text = "%s was quantised for other weights than %s: its formats may not fit them"
            log.warning(text, self.graph.path, weights.path)

    def shapes(self, sizes: Mapping[str, Shape], renewed: Renewed) -> dict[str, Shape]:
        """Return the shape of every blob for these inputs, which the parameters fit; the first time they are assigned.

        ``renewed`` tops have other shapes than their layer's rule says. Raises ShapeError.
        """
        if self._attached:
            shapes = infer_shapes(self.graph, sizes, renewed=renewed)
            check_weights(self.graph.layers, shapes)
            return shapes
        for layer in self.graph.layers:
            if layer.free_weights and self.weights is not None:  # shapes of custom layers may depend on them
                layer.blobs = self.weights.blobs_of(layer) or layer.blobs
        shapes = infer_shapes(self.graph, sizes)
        self._attach(shapes)
        self._attached = True
        return shapes

    def _attach(self, shapes: Mapping[str, Shape]) -> None:
        """Assign the trained parameters to the layers."""
        some = self._lacking == "some"
        filled = check_fit(self.graph, shapes, self.weights, some) if self.weights is not None else set()
        room = self.weights.room() if self.weights is not None else None
        drawn = 0  # layers whose weights are random
        trained: set[str] = set()  # layers whose weights are the file's
        for layer in self.graph.layers:
            expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
            if (elements := sum(map(count, expected))) > limits().blob_elements:
                message = f"layer {layer.name!r}: its weights " + limits().exceeded("blob_elements", elements)
                raise ModelError(message, layer=layer.name)
            stored = self.weights.blobs_of(layer, room) if self.weights is not None and layer.name not in filled else []
            if stored and not layer.free_weights:
                layer.blobs = [s.reshape(e) for s, e in zip(stored, expected)]
                trained.add(layer.name)
            elif expected:
                if self.weights is None and not fillers.upsampling(layer.fillers()):
                    drawn += 1
                    if self._lacking == "none":
                        raise MissingWeights(f"layer {layer.name!r} ({layer.type}) has no weights", layer=layer.name)
                layer.blobs = fillers.fill(layer.name, expected, layer.fillers())
        self._share(trained)
        self._note(layer for layer in self.graph.layers if layer.engine != "custom")  # which may set theirs at any time
        self.trained = not drawn
        if not self.trained:
            name = self.graph.name or stem(self.graph.path)
            log.warning("%s: no caffemodel: random weights of %s", name, number_of(drawn, "layer"))

    def _share(self, trained: Collection[str]) -> None:
        """Let layers have one array where the network shares a trained parameter by its name, unless the file has different ones.

        Those in ``trained`` have the file's. Raises ShapeError for parameters of different sizes.
        """
        places: dict[str, list[tuple[Layer, int]]] = {}
        for layer in self.graph.layers:
            for i, name in enumerate(layer.shared[: len(layer.blobs)]):
                places.setdefault(name, []).append((layer, i))
        places.pop("", None)
        for name, each in places.items():
            owner, index = next((place for place in each if place[0].name in trained), each[0])
            array = owner.blobs[index]
            for layer, i in each:
                own = layer.blobs[i]
                if own.size != array.size:
                    both = f"{show(own.shape)}, in layer {owner.name!r} {show(array.shape)}"
                    raise layer.wrong(f"its parameter {name!r} is {both}: they are shared")
                if layer.name not in trained or np.array_equal(own.ravel(), array.ravel()):
                    layer.blobs[i] = array if own.shape == array.shape else array.reshape(own.shape)

    def lend(self) -> LentParameters:
        for layer in self.graph.layers:
            layer.changed()
            layer.lent = True
        self.lent = True
        self._note(self.graph.layers)
        return LentParameters({layer.name: layer.blobs for layer in self._read})

    def _note(self, layers: Iterable[Layer]) -> None:
        """Note the arrays of layers as those that passes read."""
        self._read = {layer: (*layer.blobs,) for layer in layers if layer.blobs}
        self._every = [*chain.from_iterable(self._read.values())]

    def replaced(self) -> bool:
        """Return whether a layer has other arrays than passes read, which are to be lent again then.

        Raises ShapeError for what is no array, and if there are more or fewer.
        """
        now = [*chain.from_iterable(map(_blobs, self._read))]
        if len(now) == len(self._every) and all(map(is_, now, self._every)):
            return False
        for layer, arrays in self._read.items():
            if len(layer.blobs) != len(arrays):
                raise layer.wrong(f"expected {number_of(len(arrays), 'trained parameter')}, found {len(layer.blobs)}")
            for i, blob in enumerate(layer.blobs):
                if not isinstance(blob, np.ndarray):
                    raise layer.wrong(f"blob {i} is a {type(blob).__name__}, expected an array {show(arrays[i].shape)}")
                if blob.dtype.kind not in "fiub":
                    raise layer.wrong(f"blob {i} has dtype {blob.dtype}, expected numbers")
                layer.blobs[i] = np.asarray(blob)  # the same memory without what a subclass makes of it, as a mask
        return True

    def release(self) -> None:
        """Take the arrays from the layers."""
        self._note(())
        for layer in self.graph.layers:
            layer.blobs = []
            layer.close()
