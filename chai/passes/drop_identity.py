"""drop_identity: remove Dropout and Split, which do nothing at TEST; their readers read their bottom instead."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Layer
from ..layers.identity import Dropout, Split
from ._edit import reading


def drop_identity(graph: Graph) -> Graph:
    """Drop Dropout and Split, whose tops become names of their bottom, except where an input would become an output."""
    sources = {t for layer in graph.layers if layer.source for t in layer.tops}
    outputs = set(graph.output_blobs)
    same: dict[str, str] = {}
    layers: list[Layer] = []
    for layer in graph.layers:
        layer = reading(layer, same)
        untouched = not sources.isdisjoint(layer.bottoms[:1]) and not outputs.isdisjoint(layer.tops)
        if isinstance(layer, (Dropout, Split)) and not untouched:
            same.update(dict.fromkeys(layer.tops, layer.bottoms[0]))
        else:
            layers.append(layer)
    latest = {name: same.get(blob, blob) for name, blob in graph.latest.items()}
    return replace(graph, layers=layers, latest=latest)
