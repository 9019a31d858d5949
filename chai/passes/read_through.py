"""read_through: an InnerProduct reads the blob before a Flatten or Reshape, which has the same numbers for each image."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Layer
from ..layers.flatten import Flatten
from ..layers.inner_product import InnerProduct
from ..layers.reshape import Reshape
from ._edit import reading


def read_through(graph: Graph) -> Graph:
    """Let each InnerProduct over axis 1 read what is before a Flatten or Reshape that keeps images apart.

    A Flatten or Reshape without other readers is dropped; ``folded`` has its blob.
    """
    readers_of = {
        blob: [*readers] for blob, readers in graph.readers.items()
    }  # which change with each that reads another
    folded = dict(graph.folded)
    dropped: set[str] = set()
    layers: list[Layer] = []
    for layer in graph.layers:
        blob = layer.bottoms[0] if layer.bottoms else ""
        while isinstance(layer, InnerProduct) and layer.params.axis == 1 and _keeps_images(graph.writers[blob]):
            before = graph.writers[blob]
            readers_of[blob] = [reader for reader in readers_of[blob] if reader.name != layer.name]
            if not readers_of[blob] and blob not in graph.output_blobs:
                dropped.add(before.name)
                folded[blob] = layer.name
                readers_of[before.bottoms[0]].remove(before)
            blob = before.bottoms[0]
            readers_of[blob].append(layer)
        layers.append(reading(layer, dict.fromkeys(layer.bottoms[:1], blob)))
    return replace(graph, layers=[layer for layer in layers if layer.name not in dropped], folded=folded)


def _keeps_images(layer: Layer) -> bool:
    """Return whether a layer only merges or splits the axes after the first."""
    p = layer.params
    if isinstance(layer, Flatten):
        return bool(p.axis == 1 and p.end_axis == -1)
    if isinstance(layer, Reshape) and layer.relays and p.shape is not None:
        copies = p.axis == 0 and p.num_axes == -1 and tuple(p.shape.dim[:1]) == (0,)
        return bool(copies or (p.axis == 1 and p.num_axes == -1))
    return False
