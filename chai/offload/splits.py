"""Find what splits a network into several segments on the overlay, and what would join them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Graph
from .partition import segment_count
from .plan import Plan


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
