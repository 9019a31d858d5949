"""The rewrites of a Graph for an overlay, in order.

A pass takes a Graph and returns a new one, with copies of the layers it changes. Float networks are never rewritten.

How to add a pass: add a file to this folder with a function of the same name, and a line to PIPELINE, which sets the
order. ``_edit.py`` has the shared helpers: readers of a blob, merging two layers (``merged`` keeps both names in
``origin``). Facts about layer types are properties of Layer (``can_clamp``). The test runs
the network in float before and after the pass and expects the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..graph import Graph
from ..overlay import EXACT
from .drop_identity import drop_identity
from .fold_batchnorm import fold_batchnorm
from .fold_pairs import fold_pairs
from .fuse_relu import fuse_relu
from .read_through import read_through

PIPELINE: tuple[Callable[[Graph], Graph], ...] = (drop_identity, read_through, fold_batchnorm, fuse_relu)
# passes in place of others, where numbers of an arithmetic depend on them
IN_PLACE_OF: Mapping[str, Mapping[Callable[[Graph], Graph], Callable[[Graph], Graph]]]
IN_PLACE_OF = {"chaidnn_v2": {fold_batchnorm: fold_pairs}}


def rewrite(graph: Graph, arithmetic: str = EXACT) -> Graph:
    """Run every pass of PIPELINE for an arithmetic, and record in ``folded`` the named blobs that no layer writes any more."""
    writers = {**graph.folded, **{top: layer.name for layer in graph.layers for top in layer.tops}}
    others = IN_PLACE_OF.get(arithmetic, {})
    for step in PIPELINE:
        graph = others.get(step, step)(graph)
    written = {top for layer in graph.layers for top in layer.tops}
    owners = {name: layer.name for layer in graph.layers for name in layer.origin}
    writers.update(graph.folded)
    folded = {blob: owners[writers[blob]] for blob in graph.latest.values() if blob not in written}
    return replace(graph, folded=folded)
