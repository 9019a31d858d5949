"""Join a PReLU to the layer before it, whose requantisation then multiplies negative sums by another number in each channel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..blob import Shape
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..passes._edit import merged, only_reader, readers


def join_prelu(graph: Graph, shapes: Mapping[str, Shape], overlay: Overlay, apart: Collection[str]) -> Graph:
    """Return the graph with one layer for a PReLU and the layer that alone writes its input, if the overlay runs both as one.

    Except where one of their layers in the prototxt is in ``apart``.
    """
    reading = readers(graph)
    layers: list[Layer] = []
    writer: dict[str, int] = {}
    folded = dict(graph.folded)
    for layer in graph.layers:
        source = writer.get(layer.bottoms[0]) if layer.bottoms else None
        if source is not None:
            first, blob = layers[source], layer.bottoms[0]
            if only_reader(graph, blob, reading) is layer and (one := _joined(first, layer, shapes, overlay, apart)):
                layers[source] = one
                writer[one.tops[0]] = source
                folded[blob] = one.name
                continue
        writer.update(dict.fromkeys(layer.tops, len(layers)))
        layers.append(layer)
    return replace(graph, layers=layers, folded=folded) if len(layers) < len(graph.layers) else graph


def _joined(
    first: Layer, second: Layer, shapes: Mapping[str, Shape], overlay: Overlay, apart: Collection[str]
) -> Layer | None:
    """Return one layer for two; None if the overlay cannot run it."""
    if not first.can_bend or first.slope is not None or first.ceiling is not None or len(first.tops) != 1:
        return None
    if len(shapes[second.bottoms[0]]) < 2 or not {*first.origin, *second.origin}.isdisjoint(apart):
        return None
    if (slopes := second.slopes_of(shapes[second.bottoms[0]][1])) is None:
        return None
    layer = merged(first, second)
    layer.slopes = slopes
    return None if layer.unsupported(overlay, *(shapes[blob] for blob in first.bottoms)) else layer
