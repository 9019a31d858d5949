"""Graph: the layers of a network and the blobs between them.

A blob has two names. A *Caffe name* is the one in the prototxt; several layers may write it (in place).
A *blob id* has one writer: the Caffe name for its first writer, ``name@layer`` for a layer that overwrites it.
Layers, shapes and the executor use ids; ``Graph.latest`` maps a Caffe name to its last id. Several names may map to
one id: after a pass has dropped a Split, the names of its tops are names of its bottom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..blob import Shape
from ..text import number_of, visible
from .layer import Layer

if TYPE_CHECKING:
    from .source import Transform


class Composed(NamedTuple):
    """A layer of the prototxt that was replaced by others.

    ``parts``  the names of these layers, ``text`` a prototxt of them
    ``place``  path:line of its definition
    ``bottoms``, ``tops``   by Caffe's name; () in a compiled network, which does not record them
    """

    type: str
    parts: tuple[str, ...]
    text: str = ""
    place: str | None = None
    bottoms: tuple[str, ...] = ()
    tops: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class Graph:
    """A network for one phase: layers in the order of the prototxt, which is topological.

    ``inputs`` maps each input blob to its shape, None if the file does not give it. ``outputs`` are Caffe names, as two
    names of one blob are two outputs. ``folded`` maps each named blob that no layer writes any more to the layer that a
    pass folded it into. ``composed`` are the layers of the prototxt that were replaced by their parts. ``losses`` are losses
    and measures, and what depends on them: they are computed after a pass. Its inputs are the labels, and it reads blobs of
    this Graph. ``unread`` are inputs, with their shapes, that nothing reads: they may be fed, and change nothing. ``notes`` are
    remarks for the user, one sentence each. The layers of a ``fixed`` Graph hold for the sizes of its inputs, with any batch,
    unless a node of the file, ``counting``, has numbers for that batch alone. ``formats_in`` is the name of what its own
    formats are in, if it has any, ``unread_state`` what of the state that was asked for no rule of the file reads.

    What it finds out of its layers it keeps: only those who build it may change the list, a pass makes a new Graph.
    """

    name: str
    layers: list[Layer]
    inputs: dict[str, Shape | None]
    outputs: list[str]
    latest: dict[str, str]  # Caffe name -> id of the last blob of that name
    path: str = "<network>"
    transforms: dict[str, Transform] = field(default_factory=dict)  # by input blob, of its data layer
    notes: list[str] = field(default_factory=list)
    weights_digest: str | None = None  # SHA-256 of the caffemodel that the file's formats were made for
    folded: dict[str, str] = field(default_factory=dict)
    composed: dict[str, Composed] = field(default_factory=dict)
    losses: Graph | None = None
    unread: dict[str, Shape | None] = field(default_factory=dict)
    fixed: bool = False
    counting: str = ""
    formats_in: str = "precision_param"
    unread_state: str = ""

    def __repr__(self) -> str:
        layers, inputs, outputs = number_of(len(self.layers), "layer"), ", ".join(self.inputs), ", ".join(self.outputs)
        return visible(f"<Graph {self.name!r}: {layers}, {inputs} -> {outputs}>")

    @property
    def output_blobs(self) -> list[str]:
        """Return the ids of the outputs without duplicates."""
        return list(dict.fromkeys(self.latest[name] for name in self.outputs))

    @cached_property
    def last_readers(self) -> list[list[str]]:
        """Return, for each layer, the blobs that it is the last to read."""
        done: set[str] = set()
        ends: list[list[str]] = []
        for layer in reversed(self.layers):
            ends.append([b for b in dict.fromkeys((*layer.bottoms, *layer.tops)) if b not in done])
            done.update(ends[-1])
        return ends[::-1]

    @cached_property
    def rectified(self) -> frozenset[int]:
        """Return the layers, by their places, that can compute the ReLU after them, too: nothing else reads their top."""
        pairs = enumerate(zip(self.layers, self.layers[1:], self.last_readers[1:]))
        return frozenset(
            i
            for i, (layer, relu, finished) in pairs
            if layer.rectifies and layer.slope is None and relu.rectifier and layer.tops == relu.bottoms
            if relu.bottoms[0] in finished
        )

    @cached_property
    def by_name(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in self.layers}

    @cached_property
    def writers(self) -> dict[str, Layer]:
        return {top: layer for layer in self.layers for top in layer.tops}

    @cached_property
    def readers(self) -> dict[str, list[Layer]]:
        """Return the layers that read each blob, in order; twice if they read it as two bottoms."""
        readers: dict[str, list[Layer]] = {blob: [] for blob in self.writers}
        for layer in self.layers:
            for bottom in layer.bottoms:
                readers.setdefault(bottom, []).append(layer)
        return readers

    def only_reader(self, blob: str) -> Layer | None:
        """Return the one layer that reads a blob; None if there are several, or if it is an output."""
        layers = self.readers.get(blob, [])
        return layers[0] if len(layers) == 1 and blob not in self.output_blobs else None

    @cached_property
    def by_origin(self) -> dict[str, Layer]:
        """Return, for each layer of the prototxt, the layer that computes it; it has no entry if none does."""
        return {name: layer for layer in self.layers for name in layer.origin}

    def layer(self, name: str) -> Layer:
        """Return the layer of that name. Raises KeyError if there is none."""
        return self.by_name[name]

    def computing(self, blobs: Iterable[str]) -> list[Layer]:
        """Return the layers that these blobs are computed from, in order, and all inputs."""
        wanted, layers = {*blobs}, list[Layer]()
        for layer in reversed(self.layers):
            if layer.source or not wanted.isdisjoint(layer.tops):
                layers.append(layer)
                wanted.update(layer.bottoms)
        return layers[::-1]

    def members(self, name: str) -> list[Layer]:
        """Return the layer of that name, or those that a composed layer was replaced by; [] if there is none."""
        parts = self.composed[name].parts if name in self.composed else (name,)
        return [layer for layer in self.layers if layer.name in parts]

    def ends(self, name: str) -> tuple[list[str | None], list[str]]:
        """Return the ids of the bottoms and tops of a layer or composed layer. A bottom that no part reads is None."""
        members, composed = self.members(name), self.composed.get(name)
        if composed is None:
            return [*members[0].bottoms], [*members[0].tops]
        written = {self.caffe_name(top): top for layer in members for top in layer.tops}  # the last of each name
        inside = {top for layer in members for top in layer.tops}
        read = {self.caffe_name(b): b for layer in members for b in layer.bottoms if b not in inside}
        return [read.get(bottom) for bottom in composed.bottoms], [written[top] for top in composed.tops]

    def caffe_name(self, blob: str) -> str:
        """Return the prototxt's name of a blob id."""
        return self._names.get(blob, blob)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Map every blob that a layer writes to its Caffe name: the id without the @ and the layer after it."""
        names = {}
        for layer in self.layers:
            for top in layer.tops:
                at = max(top.rfind(f"@{name}") for name in (layer.name, *layer.origin))
                names[top] = top if top in self.latest or at < 0 else top[:at]
        return names
