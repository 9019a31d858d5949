"""Sizes that determine what the steps of a pass cost a board's processor: a host model has a number for each."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..blob import Shape, count, on_device
from ..codegen.memory_map import READ, WRITTEN
from ..graph import Layer
from ..kernels.floats import in_tiles
from ..overlay import Layout, Overlay
from ..overlay.layout import planes
from ..tasks.window import Filtering

Counts = dict[str, float]


def conversion_counts(source: Shape, words: Shape, layout: Layout) -> Counts:
    """Return the sizes of a conversion between a blob of the host and ``words``, the blob as the overlay has it."""
    n, c, *size = on_device(words)
    every = n * planes(c, layout)
    return {
        "call": 1,
        "plane": every,
        "row": every * prod(size[:-1]),
        "word": every * prod(size),
        "element": count(source),
    }


def layer_kind(layer: Layer, shapes: Mapping[str, Shape]) -> str:
    """Return the kind of a host model's numbers for a layer: its type; of a convolution by how the host computes it."""
    if layer.convolution is None:
        return layer.type
    window, group = layer.convolution
    source, target = shapes[layer.bottoms[0]], shapes[layer.tops[0]]
    weights = target[1], source[1] // group, *window[0]
    if weights[1] == 1 and group > 1:
        return "Convolution depthwise"
    if in_tiles(Filtering(window, group, False), target, weights):
        return "Convolution in tiles"
    return "Convolution 1x1" if prod(window[0]) == 1 else "Convolution"


def layer_counts(layer: Layer, shapes: Mapping[str, Shape]) -> Counts:
    """Return the sizes of a layer on the host."""
    bottoms, tops = ([shapes[blob] for blob in blobs] for blobs in (layer.bottoms, layer.tops))
    read, written = (sum(map(count, shapes)) for shapes in ([] if layer.constant else bottoms, tops))
    macs = layer.macs(tuple(bottoms), tuple(tops))
    if not macs and layer.engine == "custom":
        images = bottoms[0][0] if bottoms and bottoms[0] else 1
        macs = images * sum(blob.size for blob in layer.blobs)  # as many as its weights, for each image
    counts: Counts = {
        "call": 1,
        "blob": len(bottoms) + len(tops),
        "row": rows(tops[0]) if tops else 0,
        "element": max(read, written),
        "mac": macs,
    }
    if layer.convolution is not None:
        counts["tap"] = macs * layer.convolution[1] / tops[0][1]
    return counts


def rows(shape: Shape) -> int:
    """Return the number of rows of a blob; one of a single pixel is a row of channels."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return prod(shape[:-1])


def flush_counts(chain: Any, overlay: Overlay) -> Counts:
    """Return the sizes of what goes through the caches for a compiled segment; none where memory is coherent."""
    if overlay.coherent:
        return {}
    regions = [region for crossed in (WRITTEN, READ) for region in chain.sizes if region in crossed]
    return {"call": len(regions), "element": sum(chain.sizes[region] for region in regions)}
