"""The rewrites of a Graph for an overlay, in order.

A pass takes a Graph and returns a new one; layers it changes are copies. Float networks are never rewritten.

How to add a pass: one file in this folder with a function of its name, and one line in PIPELINE, which is the order they
run in. ``_edit.py`` has what passes share: readers of a blob, two layers made one (``merged`` keeps both names in
``origin``), a Graph with other layers. What a pass has to know of a layer type is a property of Layer (``can_clamp``). The
test runs the network in float before and after: the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..graph import Graph
from .drop_identity import drop_identity
from .fold_batchnorm import fold_batchnorm
from .fuse_relu import fuse_relu

PIPELINE: tuple[Callable[[Graph], Graph], ...] = (drop_identity, fold_batchnorm, fuse_relu)


def rewrite(graph: Graph) -> Graph:
    """Run every pass of PIPELINE, and note in ``folded`` which named blobs no layer writes any more."""
    writers = {**graph.folded, **{top: layer.name for layer in graph.layers for top in layer.tops}}
    for step in PIPELINE:
        graph = step(graph)
    written = {top for layer in graph.layers for top in layer.tops}
    owners = {name: layer.name for layer in graph.layers for name in layer.origin}
    folded = {blob: owners[writers[blob]] for blob in graph.latest.values() if blob not in written}
    return replace(graph, folded=folded)
