"""The rewrites of a Graph for an overlay, in order; the short ones are here.

A pass takes a Graph and returns a new one, with copies of the layers it changes. Float networks are never rewritten.

How to add a pass: add a file to this folder with a function of the same name, and a line to PIPELINE, which sets the
order; one for a certain arithmetic is named in ``Arithmetic.in_place_of`` instead. ``_edit.py`` has the shared helpers:
reading other blobs, merging two layers (``merged`` keeps both names in ``origin``). Facts about layer types are properties of
Layer (``can_clamp``). The test runs the network in float before and after the pass and expects the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from importlib import import_module

from ..graph import Graph, Layer
from ..layers._unpool import MaxUnpool
from ..layers.convolution import Convolution
from ..layers.identity import Dropout, Flatten, Split
from ..layers.inner_product import InnerProduct
from ..layers.pooling import Pooling
from ..layers.relu import ReLU
from ..layers.repeat import Upsample
from ..layers.reshape import Reshape
from ..layers.scale import Scale
from ..tasks.arithmetic import Arithmetic
from ..util.data.malloc import Room
from ..util.lazy_numpy import np
from ._edit import joined, merged, reading

Pass = Callable[[Graph], Graph]


def drop_identity(graph: Graph) -> Graph:
    """Drop Dropout and Split, whose tops become names of their bottom, except where an input would become an output."""
    sources = {t for layer in graph.layers if layer.source for t in layer.tops}
    outputs = set(graph.output_blobs)
    same: dict[str, str] = {}
    layers: list[Layer] = []
    for layer in graph.layers:
        layer = reading(layer, same)
        untouched = not sources.isdisjoint(layer.bottoms[:1]) and not outputs.isdisjoint(layer.tops)
        if isinstance(layer, (Dropout, Split)) and layer.relays and not untouched:
            same.update(dict.fromkeys(layer.tops, layer.bottoms[0]))
        else:
            layers.append(layer)
    latest = {name: same.get(blob, blob) for name, blob in graph.latest.items()}
    return replace(graph, layers=layers, latest=latest)


def read_through(graph: Graph) -> Graph:
    """Let each InnerProduct over axis 1 read what is before a Flatten or Reshape that keeps images apart.

    A Flatten or Reshape without other readers is dropped; ``folded`` has its blob.
    """
    # which change with each that reads another
    readers_of = {blob: [*readers] for blob, readers in graph.readers.items()}
    folded = dict(graph.folded)
    dropped: set[str] = set()
    layers: list[Layer] = []
    for layer in graph.layers:
        blob = layer.bottoms[0] if layer.bottoms else ""
        while isinstance(layer, InnerProduct) and layer.params.axis == 1 and _keeps_images(graph.writers[blob]):
            before = graph.writers[blob]
            readers_of[blob] = [reader for reader in readers_of[blob] if reader.name != layer.name]
            if not readers_of[blob] and blob not in graph.output_blobs:
                dropped.add(before.name)
                folded[blob] = layer.name
                readers_of[before.bottoms[0]].remove(before)
            blob = before.bottoms[0]
            readers_of[blob].append(layer)
        layers.append(reading(layer, dict.fromkeys(layer.bottoms[:1], blob)))
    return replace(graph, layers=[layer for layer in layers if layer.name not in dropped], folded=folded)


def _keeps_images(layer: Layer) -> bool:
    """Return whether a layer only merges or splits the axes after the first."""
    p = layer.params
    if isinstance(layer, Flatten):
        return bool(p.axis == 1 and p.end_axis == -1)
    if isinstance(layer, Reshape) and layer.relays and p.shape is not None:
        copies = p.axis == 0 and p.num_axes == -1 and tuple(p.shape.dim[:1]) == (0,)
        return bool(copies or (p.axis == 1 and p.num_axes == -1))
    return False


def fold_batchnorm(graph: Graph) -> Graph:
    """Fold each BatchNorm, Scale or chain of them into the weights and bias of the convolution before it.

    With factor f and addend a per channel w' = f w, b' = f b + a. A chain without a convolution becomes one Scale. Chains
    may be in place or not, and may be followed by any layer.
    """
    room = Room(layer.blobs[0].size for layer in graph.layers if isinstance(layer, Convolution) and layer.blobs)
    folds: set[str] = set()  # layers that have weights of their own, which another fold overwrites

    def fold(first: Layer, second: Layer) -> Layer | None:
        folded = _fold(first, second, None if first.name in folds else room)
        if folded is not None:
            folds.add(folded.name)
        return folded

    return joined(graph, fold)


def _fold(first: Layer, second: Layer, room: Room | None) -> Layer | None:
    """Return both as one layer, None if that cannot be; its weights are in ``room``, or those of ``first`` overwritten."""
    own = second.affine()
    if own is None or first.slope is not None:
        return None
    factor, addend = own
    layer = merged(first, second)
    if layer.precision is not None:  # the weights have changed: their old format may no longer cover them
        layer.precision = replace(layer.precision, fl_params=None, th_params=())
    if isinstance(first, Convolution):
        weights = first.blobs[0] if room is None else room.take(first.blobs[0].shape)
        # in one pass, without an array of float64
        np.multiply(first.blobs[0], factor.reshape(-1, 1, 1, 1), weights, dtype=np.float64, casting="same_kind")
        bias = first.blobs[1].astype(np.float64) if first.params.bias_term else 0.0
        layer.params = replace(first.params, bias_term=True)
        layer.blobs = [weights, (bias * factor + addend).astype(np.float32)]
        return layer
    before = first.affine()
    axes = {getattr(layer.params, "axis", 1) for layer in (first, second)}
    if before is None or axes != {1}:  # of a blob with other axes than four, -3 are not the channels
        return None
    blobs = [(before[0] * factor).astype(np.float32), (before[1] * factor + addend).astype(np.float32)]
    scale = Scale(second.name, first.bottoms, second.tops, Scale.Params(bias_term=True), blobs)
    scale.origin, scale.precision, scale.place = layer.origin, layer.precision, second.place
    return scale


def fuse_relu(graph: Graph) -> Graph:
    """Fold a ReLU, leaky ReLU (0 <= slope <= 1) or ReLU6 into the layer before it, if that has a unit that can clamp.

    The layer's output takes the ReLU's format if it has one.
    """
    return joined(graph, _clamping)


def _clamping(first: Layer, second: Layer) -> Layer | None:
    if not isinstance(second, ReLU) or not 0 <= second.params.negative_slope <= 1:
        return None
    if not first.can_clamp or first.slope is not None:
        return None
    layer = merged(first, second)
    layer.slope, layer.ceiling = float(second.params.negative_slope), second.most
    return layer


def unpool(graph: Graph) -> Graph:
    """Let each Upsample read its Pooling's bottom and top instead of the places of maxima, which no overlay writes.

    The second top of a Pooling that only Upsamples read is dropped.
    """
    poolings: dict[str, Pooling] = {}  # by the second top
    for layer in graph.layers:
        if isinstance(layer, Pooling) and len(layer.tops) > 1 and layer.tops[1] not in graph.output_blobs:
            places = layer.tops[1]
            if all(isinstance(each, Upsample) and each.bottoms.index(places) == 1 for each in graph.readers[places]):
                poolings[places] = layer
    if not poolings:
        return graph
    layers: list[Layer] = []
    for layer in graph.layers:
        if isinstance(layer, Pooling) and len(layer.tops) > 1 and layer.tops[1] in poolings:
            layer = copy(layer)
            layer.tops = layer.tops[:1]
        elif isinstance(layer, Upsample) and len(layer.bottoms) > 1 and layer.bottoms[1] in poolings:
            layer = MaxUnpool.of(layer, poolings[layer.bottoms[1]])
        layers.append(layer)
    return replace(graph, layers=layers)


PIPELINE: tuple[Pass, ...] = (drop_identity, read_through, fold_batchnorm, fuse_relu, unpool)


def rewrite(graph: Graph, arithmetic: type[Arithmetic] = Arithmetic) -> Graph:
    """Run every pass for an arithmetic, and record in ``folded`` the named blobs that no layer writes any more."""
    writers = {**graph.folded, **{top: layer.name for top, layer in graph.writers.items()}}
    for step in passes(arithmetic):
        graph = step(graph)
    writers.update(graph.folded)
    folded = {blob: graph.by_origin[writers[blob]].name for blob in graph.latest.values() if blob not in graph.writers}
    return replace(graph, folded=folded)


def passes(arithmetic: type[Arithmetic]) -> Iterator[Pass]:
    """Yield PIPELINE, with the passes of an arithmetic in place of those that it replaces."""
    own = {step.__name__: step for step in PIPELINE}
    for name in own:
        for each in arithmetic.in_place_of.get(name, (name,)):
            yield own[each] if each in own else getattr(import_module(f".{each}", __package__), each)
