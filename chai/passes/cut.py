"""cut: the part of a network from one layer to another, both included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from ..blob import Shape
from ..errors import UsageError
from ..graph import Graph, Layer
from ..layers.input import Input
from ..util.suggest import did_you_mean
from ._edit import reading
from .infer_shapes import infer_shapes

Blobs = Callable[[Layer], tuple[str, ...]]


def cut(graph: Graph, start: str, end: str, wanted: Mapping[str, Shape]) -> Graph:
    """Return the layers from ``start`` to ``end``; an empty name leaves that side uncut.

    These are the layers that ``end`` needs and that depend on ``start``; either may be a composed layer, which counts with
    all its parts. Blobs they read from outside become inputs, under their Caffe names and with the sizes that they have for
    the ``wanted`` ones of the network's inputs, else the file's (None if one is unknown). The tops of ``end`` become the
    outputs. Raises UsageError if a name does not exist or no path leads from ``start`` to ``end``.
    """
    for name in filter(None, (start, end)):
        if not graph.members(name):
            known = [*graph.by_name, *graph.composed]
            raise UsageError(f"there is no layer {name!r} in {graph.path}", hint=did_you_mean(name, known))
    sizes = {blob: wanted.get(blob, shape) for blob, shape in graph.inputs.items()}
    shapes = {} if None in sizes.values() else infer_shapes(graph, wanted)
    firsts, lasts = (graph.members(name) if name else graph.layers for name in (start, end))
    bottoms, tops = attrgetter("bottoms"), attrgetter("tops")
    needed = _followed(reversed(graph.layers), lasts, tops, bottoms)
    depending = _followed(graph.layers, firsts, bottoms, tops)
    kept = [layer for layer in graph.layers if layer.name in needed & depending]
    if not kept:
        raise UsageError(f"no path leads from layer {start!r} to layer {end!r}")
    written = {t for layer in kept for t in layer.tops}
    names = _inputs(graph, kept, written)
    layers: list[Layer] = [Input(f"input {name}", tops=(name,)) for name in names.values()]
    layers += [reading(layer, names) for layer in kept]
    read = {b for layer in layers for b in layer.bottoms}
    ends = graph.ends(end)[1] if end else [t for x in kept for t in x.tops if t not in read and not x.source]
    inputs = {name: shapes.get(blob) for blob, name in names.items()}
    inputs.update({b: s for b, s in graph.inputs.items() if b in written})
    latest = {name: name for name in names.values()}
    latest.update({graph.caffe_name(t): t for layer in kept for t in layer.tops})  # in order, so the last writer wins
    outputs = [graph.caffe_name(t) for t in ends]
    return replace(graph, layers=layers, inputs=inputs, outputs=outputs, latest=latest, unread={})


def _inputs(graph: Graph, kept: list[Layer], written: set[str]) -> dict[str, str]:
    """Map each blob from outside to its Caffe name if that is free, else to its id."""
    names: dict[str, str] = {}
    for blob in (b for layer in kept for b in layer.bottoms if b not in written):
        name = graph.caffe_name(blob)
        if blob not in names:
            names[blob] = blob if name in written or name in names.values() else name
    return names


def _followed(layers: Iterable[Layer], first: Sequence[Layer], reads: Blobs, writes: Blobs) -> set[str]:
    """Return the names of the ``first`` layers and of those that blobs lead to from them."""
    names, blobs = set[str](), set[str]()
    for layer in layers:
        if layer in first or not blobs.isdisjoint(reads(layer)):
            names.add(layer.name)
            blobs.update(writes(layer))
    return names
