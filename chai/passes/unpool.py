"""unpool: an Upsample reads its Pooling's bottom and top instead of the places of maxima, which no overlay writes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from ..graph import Graph, Layer
from ..layers._unpool import MaxUnpool
from ..layers.pooling import Pooling
from ..layers.upsample import Upsample


def unpool(graph: Graph) -> Graph:
    """Drop the second top of each Pooling that only Upsamples read."""
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
