"""The rewrites of a Graph for an overlay, in order.

A pass takes a Graph and the ids of blobs that must stay as they are (``keep``), and returns a new Graph; layers it
changes are copies. Float networks are never rewritten.

How to add a pass: one file in this folder with a function of its name, and one line in PIPELINE, which is the order they
run in. ``_edit.py`` has what passes share: readers of a blob, two layers made one (``merged`` keeps both names in
``origin``), a Graph with other layers. What a pass has to know of a layer type is a property of Layer (``can_clamp``). The
test runs the network in float before and after: the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..graph import Graph
from .drop_identity import drop_identity
from .fold_batchnorm import fold_batchnorm
from .fuse_relu import fuse_relu

PIPELINE: tuple[Callable[[Graph, Collection[str]], Graph], ...] = (drop_identity, fold_batchnorm, fuse_relu)


def rewrite(graph: Graph, keep: Collection[str]) -> Graph:
    """Every pass of PIPELINE. A pass may give a Caffe name to another blob; ``keep`` follows the names."""
    names = [name for name, blob in graph.latest.items() if blob in keep]
    for step in PIPELINE:
        graph = step(graph, {graph.latest[name] for name in names})
    return graph
