"""fuse_relu: turn a ReLU after a layer whose unit can clamp into a flag of that layer."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Layer
from ..layers.relu import ReLU
from ._edit import merged, only_reader, readers


def fuse_relu(graph: Graph) -> Graph:
    """Fold a ReLU, leaky ReLU (0 <= slope <= 1) or ReLU6 into the layer before it.

    The layer's output takes the ReLU's format if it has one.
    """
    readers_of = readers(graph)
    layers: list[Layer] = []
    writer: dict[str, int] = {}
    for layer in graph.layers:
        source = writer.get(layer.bottoms[0]) if isinstance(layer, ReLU) else None
        if isinstance(layer, ReLU) and source is not None and 0 <= layer.params.negative_slope <= 1:
            first, blob = layers[source], layer.bottoms[0]
            alone = only_reader(graph, blob, readers_of) is layer
            if alone and first.can_clamp and first.slope is None and len(first.tops) == 1:
                fused = merged(first, layer)
                fused.slope, fused.ceiling = float(layer.params.negative_slope), layer.most
                layers[source] = fused
                writer[fused.tops[0]] = source
                continue
        writer.update(dict.fromkeys(layer.tops, len(layers)))
        layers.append(layer)
    return replace(graph, layers=layers)
