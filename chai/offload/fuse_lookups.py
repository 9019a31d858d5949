"""Fuse a layer that is a table of codes into the Task before it, where nothing else reads the blob between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..graph import Graph, Layer
from ..overlay import Overlay
from ..passes._edit import merged
from ..tasks import Task
from ..tasks.copy import Copy
from .plan import Partition, Segment

Lowered = dict[str, list[Task]]


@dataclass(frozen=True)
class Fused:
    """A Graph and its Partition, where a layer and the functions of one number after it are one layer; and the Tasks of all.

    The blobs between them, which nothing computes, are ``folded`` in the Graph.
    """

    graph: Graph
    partition: Partition
    tasks: Lowered


def fuse_lookups(graph: Graph, partition: Partition, tasks: Lowered, overlay: Overlay) -> Fused:
    """Fuse each lone lookup into the Task that writes its input: codes and formats stay as they were."""
    lowered = dict(tasks)
    joined: dict[str, Layer] = {}  # fused layers, by the name of each layer in them
    folded = dict(graph.folded)
    for segment in partition.segments:
        writers = {layer.tops[0]: layer for layer in segment.layers if len(layer.tops) == 1}
        for second in segment.layers if segment.engine == "fpga" else ():
            first = writers.get(second.bottoms[0]) if second.bottoms else None
            if first is None or graph.only_reader(second.bottoms[0]) is not second:
                continue
            first = joined.get(first.name, first)
            if (fused := _fused(lowered[first.name], lowered[second.name], overlay)) is None:
                continue
            layer = merged(first, second)
            lowered[first.name] = fused
            del lowered[second.name]
            joined[first.name] = joined[second.name] = layer
            folded = {blob: first.name if name == second.name else name for blob, name in folded.items()}
            folded[second.bottoms[0]] = first.name
    if not joined:
        return Fused(graph, partition, tasks)
    segments = [Segment(each.engine, _without(each.layers, joined)) for each in partition.segments]
    after = replace(graph, layers=_without(graph.layers, joined), folded=folded)
    return Fused(after, replace(partition, segments=segments), lowered)


def _fused(first: Sequence[Task], second: Sequence[Task], overlay: Overlay) -> list[Task] | None:
    """Return the Tasks of a layer with the one of its only reader in the last of them; None if that cannot be."""
    if not first or len(second) != 1:
        return None
    (*others, before), (after,) = first, second
    limits = before.limits(overlay)
    if limits is None or not (limits.lookup and before.looks_up) or not isinstance(after, Copy):
        return None
    if after.lookup is None or after.requantization is not None or after.first or after.inputs != (before.output,):
        return None
    if isinstance(before, Copy) or before.lookup is not None:  # it writes a part of a blob, or has a table
        return None
    fused = replace(before, output=after.output, origin=before.origin + after.origin, lookup=after.lookup)
    return [*others, fused]


def _without(layers: Collection[Layer], joined: Mapping[str, Layer]) -> list[Layer]:
    """Return layers with each fused one in the place of its first."""
    return [joined.get(layer.name, layer) for layer in layers if joined.get(layer.name, layer).name == layer.name]
