"""drop_identity: remove Dropout and Split, which do nothing at TEST; their readers read their bottom instead."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from ..graph import Graph, Layer
from ..layers.dropout import Dropout
from ..layers.split import Split


def drop_identity(graph: Graph) -> Graph:
    """Drop Dropout and Split, whose tops become names of their bottom, except where an input would become an output."""
    sources = {t for layer in graph.layers if layer.source for t in layer.tops}
    same: dict[str, str] = {}
    layers: list[Layer] = []
    for layer in graph.layers:
        bottoms = tuple(same.get(b, b) for b in layer.bottoms)
        untouched = bottoms[:1] and bottoms[0] in sources and not set(layer.tops).isdisjoint(graph.output_blobs)
        if isinstance(layer, (Dropout, Split)) and not untouched:
            same.update(dict.fromkeys(layer.tops, bottoms[0]))
            continue
        if bottoms != layer.bottoms:
            layer = copy(layer)
            layer.bottoms = bottoms
        layers.append(layer)
    latest = {name: same.get(blob, blob) for name, blob in graph.latest.items()}
    return replace(graph, layers=layers, latest=latest)
