"""The rewrites of a Graph for an overlay, in order.

A pass takes a Graph and returns a new one, with copies of the layers it changes. Float networks are never rewritten.

How to add a pass: add a file to this folder with a function of the same name, and a line to PIPELINE, which sets the
order; one for a certain arithmetic is named in ``Arithmetic.in_place_of`` instead. ``_edit.py`` has the shared helpers:
reading other blobs, merging two layers (``merged`` keeps both names in ``origin``). Facts about layer types are properties of
Layer (``can_clamp``). The test runs the network in float before and after the pass and expects the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module

from ..graph import Graph
from ..tasks.arithmetic import Arithmetic
from .drop_identity import drop_identity
from .fold_batchnorm import fold_batchnorm
from .fuse_relu import fuse_relu
from .read_through import read_through
from .unpool import unpool

Pass = Callable[[Graph], Graph]
PIPELINE: tuple[Pass, ...] = (drop_identity, read_through, fold_batchnorm, fuse_relu, unpool)


def rewrite(graph: Graph, arithmetic: type[Arithmetic] = Arithmetic) -> Graph:
    """Run every pass for an arithmetic, and record in ``folded`` the named blobs that no layer writes any more."""
    writers = {**graph.folded, **{top: layer.name for top, layer in graph.writers.items()}}
    for step in passes(arithmetic):
        graph = step(graph)
    writers.update(graph.folded)
    folded = {blob: graph.by_origin[writers[blob]].name for blob in graph.latest.values() if blob not in graph.writers}
    return replace(graph, folded=folded)


def passes(arithmetic: type[Arithmetic]) -> Iterator[Pass]:
    """Yield PIPELINE, with the passes of an arithmetic in place of those that it replaces."""
    for step in PIPELINE:
        if step.__name__ not in arithmetic.in_place_of:
            yield step
        for name in arithmetic.in_place_of.get(step.__name__, ()):
            yield getattr(import_module(f".{name}", __package__), name)
