"""Join a PReLU to the layer before it, whose requantisation then multiplies negative sums by another number in each channel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..blob import Shape
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..passes._edit import joined, merged


def join_prelu(
    graph: Graph, shapes: Mapping[str, Shape], overlay: Overlay, formats: Collection[str], apart: Collection[str]
) -> Graph:
    """Return the graph with one layer for a PReLU and the layer that alone writes its input, if the overlay runs both as one.

    They stay as they are if one of their layers in the prototxt is in ``apart``, or the PReLU's top is not among the blobs with
    ``formats``.
    """
    folded = dict(graph.folded)

    def join(first: Layer, second: Layer) -> Layer | None:
        one = _joined(first, second, shapes, overlay, apart) if second.tops[0] in formats else None
        if one is not None:
            folded[second.bottoms[0]] = one.name
        return one

    shorter = joined(graph, join)
    return graph if shorter is graph else replace(shorter, folded=folded)


def _joined(
    first: Layer, second: Layer, shapes: Mapping[str, Shape], overlay: Overlay, apart: Collection[str]
) -> Layer | None:
    """Return one layer for two; None if the overlay cannot run it."""
    if not first.can_bend or first.slope is not None or first.ceiling is not None:
        return None
    if len(shapes[second.bottoms[0]]) < 2 or not {*first.origin, *second.origin}.isdisjoint(apart):
        return None
    if (slopes := second.slopes_of(shapes[second.bottoms[0]][1])) is None:
        return None
    layer = merged(first, second)
    layer.slopes = slopes
    return None if layer.unsupported(overlay, *(shapes[blob] for blob in first.bottoms)) else layer
