"""Assign layers to engines, and order them; find what splits a network into several segments on the overlay.

The graph is not rewritten: the result is a list of segments, each a run of layers on one engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from ..blob import Shape, batch_of
from ..errors import UsageError
from ..fixed import SINGLE
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..tasks.arithmetic import arithmetic
from ..util.suggest import did_you_mean
from .formats import has_formats, single
from .plan import Partition, Plan, Segment

ENGINES = ("host", "fpga")


def partition(
    graph: Graph, shapes: Mapping[str, Shape], overlay: Overlay, chosen: Mapping[str, str], refused: Mapping[str, str]
) -> Partition:
    """Partition by each layer's ``unsupported``, the user's choice (``chosen``, layer -> engine) and ``refused``.

    ``refused`` has reasons that follow from formats and weights, not from shapes (accumulator bounds, multipliers).
    A choice for a composed layer is for all its parts. Raises UsageError for a choice that is impossible.
    """
    chosen = engines_chosen(graph, chosen)
    engines: dict[str, str] = {}
    reasons: dict[str, str] = {}
    batch = batch_of(shapes[blob] for blob in graph.inputs)
    codes: set[str] = set()  # blobs that the overlay writes
    open_sizes: set[str] = set()  # blobs with a variable number of rows: a device program has a fixed one
    for layer in graph.layers:
        if layer.source:
            continue
        reason = refused.get(layer.name) or (f"its format is {SINGLE}" if single(layer) else None)
        reason = reason or layer.unsupported(overlay, *(shapes[b] for b in layer.bottoms))
        images = batch_of(shapes[blob] for blob in (*layer.bottoms, *layer.tops))
        if not reason and images > overlay.batch_max >= batch:  # a larger batch is refused as a whole
            reason = f"{images} images are more than the overlay's {overlay.batch_max}"
        if not open_sizes.isdisjoint(layer.bottoms):
            reason = reason or "how many rows it gets is known only at run time"
        if layer.dynamic or not open_sizes.isdisjoint(layer.bottoms):
            open_sizes.update(layer.tops)
        wish = _wish(layer, chosen)
        if wish == "fpga" and reason:
            message = f"layer {layer.name!r} cannot run on the overlay: {reason}"
            raise UsageError(message, hint=f"leave it on the host: {layer.name}=host")
        if wish is None and not reason:
            reason = _better_in_float(graph, layer, overlay)
        if wish is None and not reason and (layer.elementwise or layer.follows) and layer.bottoms[0] not in codes:
            reason = "its input is on the host, in float32"
        if wish == "host":
            reason = reason or "chosen by the user"
        engines[layer.name] = "host" if reason else "fpga"
        codes.update(() if reason else layer.tops)
        if reason:
            reasons[layer.name] = reason
    return Partition(_order(graph, engines), reasons)


def engines_chosen(graph: Graph, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the user's choice for layers that run, each composed layer replaced by its parts.

    Raises UsageError for unknown names and engines.
    """
    parts = {name: composed.parts for name, composed in graph.composed.items()}
    known = {*graph.by_origin, *chain.from_iterable(parts.values())}  # passes may have dropped parts
    engines = {part: engine for name, engine in chosen.items() for part in parts.get(name, (name,))}
    for name, engine in engines.items():
        if name not in known:
            message = f"engine: there is no layer {name!r}"
            raise UsageError(message, hint=did_you_mean(name, graph.by_origin) or "chai show lists them")
        if engine not in ENGINES:
            message = f"engine of layer {name!r}: expected host or fpga, found {engine!r}"
            raise UsageError(message, hint=f"e.g. {name}=host")
    return {name: engine for name, engine in engines.items() if name in graph.by_origin}


def _wish(layer: Layer, chosen: Mapping[str, str]) -> str | None:
    """Return the engine that the user chose for a layer. Raises UsageError for two engines of layers that run as one."""
    wishes = {name: chosen[name] for name in layer.origin if name in chosen}
    if len(set(wishes.values())) > 1:
        both = ", ".join(f"{name!r} on {engine}" for name, engine in wishes.items())
        raise UsageError(f"these layers run as one, so on one engine: {both}", hint="choose one engine for all")
    return next(iter(wishes.values()), None)


def only_scores(graph: Graph, layer: Layer) -> bool:
    """Return whether only a Softmax or the caller reads a layer's top.

    It holds the class scores, for which 8 bits leave a few dozen distinct values. Computing such a small layer in float32
    on the host costs little.
    """
    readers = graph.readers[layer.tops[0]]
    return all(reader.decision == "softmax" or (reader.relays and only_scores(graph, reader)) for reader in readers)


def _better_in_float(graph: Graph, layer: Layer, overlay: Overlay) -> str | None:
    """Return why a layer that the overlay can run is better on the host, unless the user chooses the overlay."""
    if layer.computes_scores and only_scores(graph, layer):
        return "only a Softmax or the caller reads its scores, which 8 bits would blur"
    looked_up = layer.elementwise and not layer.rectifier and not arithmetic(overlay).negates
    own_format = layer.own_format or looked_up  # a negation has its input's format
    if own_format and has_formats(graph) and (layer.precision is None or layer.precision.side("out") is None):
        return "it has no format of its own"
    return None


def segment_count(graph: Graph, engines: Mapping[str, str]) -> int:
    return sum(segment.engine == "fpga" for segment in _order(graph, engines))


def _order(graph: Graph, engines: Mapping[str, str]) -> list[Segment]:
    """Return a topological order with few segments: it leaves an engine only when nothing of it is ready."""
    return min((_walk(graph, engines, first) for first in ("fpga", "host")), key=len)


def _walk(graph: Graph, engines: Mapping[str, str], engine: str) -> list[Segment]:
    written = {t for layer in graph.layers if layer.source for t in layer.tops}
    remaining = [layer for layer in graph.layers if not layer.source]
    segments: list[Segment] = []
    while remaining:
        segment, waiting = Segment(engine), list[Layer]()
        for layer in remaining:
            if engines[layer.name] == engine and written.issuperset(layer.bottoms):
                segment.layers.append(layer)
                written.update(layer.tops)
            else:
                waiting.append(layer)
        remaining = waiting
        if segment.layers:
            segments.append(segment)
        engine = "fpga" if engine == "host" else "host"
    return segments


@dataclass(frozen=True)
class SegmentSplit:
    """Layers on the host between layers on the overlay, for one ``reason``; ``without`` them this number of segments is left."""

    reason: str
    layers: list[str]
    without: int


def splits(plan: Plan) -> list[SegmentSplit]:
    """Return the splits by reason, first the one without which fewest segments are left; [] if there is at most one segment."""
    engines = plan.partition.engines
    if segment_count(plan.graph, engines) < 2:
        return []
    reasons: dict[str, list[str]] = {}
    for name in _between(plan.graph, engines):
        reasons.setdefault(plan.partition.reasons.get(name, "on the host"), []).append(name)
    each = [SegmentSplit(reason, names, _without(plan.graph, engines, names)) for reason, names in reasons.items()]
    return sorted(each, key=lambda split: split.without)


def joined(plan: Plan) -> int:
    """Return the number of segments if all layers between others on the overlay ran there, too."""
    engines = plan.partition.engines
    return _without(plan.graph, engines, _between(plan.graph, engines))


def _without(graph: Graph, engines: Mapping[str, str], names: list[str]) -> int:
    return segment_count(graph, {**engines, **dict.fromkeys(names, "fpga")})


def _between(graph: Graph, engines: Mapping[str, str]) -> list[str]:
    """Return the layers on the host that depend on the overlay, and on which it depends."""
    after, before = set[str](), set[str]()  # blobs that depend on the overlay, and on which it depends
    for layer in graph.layers:
        if engines.get(layer.name) == "fpga" or not after.isdisjoint(layer.bottoms):
            after.update(layer.tops)
    names = []
    for layer in reversed(graph.layers):
        engine = engines.get(layer.name)
        if engine == "host" and not after.isdisjoint(layer.bottoms) and not before.isdisjoint(layer.tops):
            names.append(layer.name)
        if engine == "fpga" or not before.isdisjoint(layer.tops):
            before.update(layer.bottoms)
    return names[::-1]
