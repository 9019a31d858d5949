"""Helpers of the passes: a layer that reads other blobs, and one layer for two neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace

from ..fixed import SINGLE
from ..graph import Graph, Layer
from ..tasks.precision import Precision


def reading(layer: Layer, others: Mapping[str, str]) -> Layer:
    """Return a copy of a layer that reads other blobs in place of some; the layer itself if it reads none of these."""
    bottoms = tuple(others.get(blob, blob) for blob in layer.bottoms)
    if bottoms != layer.bottoms:
        layer = copy(layer)
        layer.bottoms = bottoms
    return layer


def joined(graph: Graph, join: Callable[[Layer, Layer], Layer | None]) -> Graph:
    """Return the graph with one layer for every two of which ``join`` returns one, or the graph itself if there are none.

    It is asked about a layer with one top, and the only reader of that as its first bottom. A layer in float32 stays apart from
    one with a format, which is too narrow for what it writes.
    """
    layers: list[Layer] = []
    writer: dict[str, int] = {}
    for layer in graph.layers:
        place = writer.get(layer.bottoms[0]) if layer.bottoms else None
        if place is not None and graph.only_reader(layer.bottoms[0]) is layer:
            first = layers[place]
            one = join(first, layer) if len(first.tops) == 1 and not _leaves_codes(first, layer) else None
            if one is not None:
                layers[place] = one
                writer[one.tops[0]] = place
                continue
        writer.update(dict.fromkeys(layer.tops, len(layers)))
        layers.append(layer)
    return replace(graph, layers=layers) if len(layers) < len(graph.layers) else graph


def _leaves_codes(first: Layer, second: Layer) -> bool:
    single = [p is not None and p.quant_type == SINGLE for p in (first.precision, second.precision)]
    return first.precision is not None and single == [False, True]


def merged(first: Layer, second: Layer) -> Layer:
    """Return a copy of ``first`` that replaces both: it writes the tops of ``second``, in the format of ``second``."""
    layer = copy(first)
    layer.tops = second.tops
    layer.origin = first.origin + second.origin
    layer.precision = _joined(first.precision, second.precision)
    return layer


def _joined(first: Precision | None, second: Precision | None) -> Precision | None:
    if first is None or second is None or second.side("out") is None:
        return first or second
    return replace(
        first,
        bw_layer_out=second.bw_layer_out,
        fl_layer_out=second.fl_layer_out,
        th_layer_out=second.th_layer_out,
        chai_unsigned_out=second.chai_unsigned_out,
        quant_type_out=second.quant_type_out or second.quant_type,
    )
