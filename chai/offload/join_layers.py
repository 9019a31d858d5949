"""Join layers that an overlay runs as one, on copies of a Graph.

A PReLU and the layer before it are one: its requantisation then multiplies negative sums by another number in each channel.
Layers that together are one function of one number, as Mish, GELU and HardSigmoid by their parts, are one table. A layer
that is a table of codes is fused into the Task before it, where nothing else reads the blob between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..blob import Array, Shape
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..passes._edit import joined as with_joined, merged
from ..tasks import Task, find
from ..tasks.copy import Copy
from ..util.lazy_numpy import np
from .plan import Partition, Segment

Lowered = dict[str, list[Task]]
MOST = 16  # layers of one function


class JoinedFunction(Layer):
    """A function of one number that several layers compute, of one blob; only an overlay runs it, from a table."""

    elementwise = True

    def __init__(self, bottom: str, parts: list[Layer]) -> None:
        last = parts[-1]
        super().__init__(last.name, (bottom,), last.tops, type=last.type)
        self.parts_of_it = parts
        self.precision, self.place = last.precision, last.place
        self.origin = tuple(name for part in parts for name in part.origin)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        blobs = {self.bottoms[0]: bottoms[0]}
        for part in self.parts_of_it:
            tops = part.forward(*(blobs[blob] for blob in part.bottoms))
            blobs[part.tops[0]] = np.asarray(part.clamped(tops, part.clamps)[0], np.float32)
        return (blobs[self.tops[0]],)


def join_functions(graph: Graph, overlay: Overlay, formats: Collection[str], apart: Collection[str]) -> Graph:
    """Return the graph with each such group of layers as one JoinedFunction.

    Groups with a layer in ``apart``, and those whose bottom or top is not among the blobs with ``formats``, stay as they are.
    """
    unit = find("copy").limits(overlay)
    if unit is None or not unit.lookup:
        return graph
    taken: set[str] = set()
    joined: dict[str, JoinedFunction] = {}  # by the last of its layers
    folded = dict(graph.folded)
    for bottom, names in _groups(graph):
        parts = [layer for layer in graph.layers if layer.name in names]
        if taken.isdisjoint(names) and names.isdisjoint(apart) and {bottom, parts[-1].tops[0]}.issubset(formats):
            taken |= names
            joined[parts[-1].name] = JoinedFunction(bottom, parts)
            folded = {blob: parts[-1].name if name in names else name for blob, name in folded.items()}
            folded |= {part.tops[0]: parts[-1].name for part in parts[:-1]}
    if not joined:
        return graph
    layers = [
        joined.get(layer.name, layer) for layer in graph.layers if layer.name in joined or layer.name not in taken
    ]
    return replace(graph, layers=layers, folded=folded)


def _groups(graph: Graph) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the blob that each group of two layers or more reads, and the names of its layers; the largest first."""
    outputs = set(graph.output_blobs)
    # of each blob: blobs that it is a function of, and by which layers
    computed: dict[str, dict[str, frozenset[str]]] = {}
    every: list[tuple[str, str, frozenset[str]]] = []
    for layer in graph.layers:
        if not (layer.elementwise or layer.pointwise) or len(layer.tops) != 1 or layer.source:
            continue
        ways = [{blob: frozenset[str](), **computed.get(blob, {})} for blob in layer.bottoms]
        common = set(ways[0]).intersection(*ways[1:])
        groups = {blob: frozenset({layer.name}).union(*(way[blob] for way in ways)) for blob in common}
        computed[layer.tops[0]] = {blob: names for blob, names in groups.items() if len(names) <= MOST}
        every += [(layer.name, blob, names) for blob, names in computed[layer.tops[0]].items() if len(names) > 1]
    for last, blob, names in sorted(every, key=lambda group: -len(group[2])):
        recoding = [name for name in names if graph.layer(name).recodes]
        if recoding and not (len(names) == 2 and last not in recoding and graph.layer(last).rectifier):
            continue  # a table of several layers rounds and saturates once, what makes codes of codes each time
        inner = [graph.layer(name).tops[0] for name in names if name != last]
        if outputs.isdisjoint(inner) and all(names.issuperset(x.name for x in graph.readers[top]) for top in inner):
            yield blob, names


def join_prelu(
    graph: Graph, shapes: Mapping[str, Shape], overlay: Overlay, formats: Collection[str], apart: Collection[str]
) -> Graph:
    """Return the graph with one layer for a PReLU and the layer that alone writes its input, if the overlay runs both as one.

    They stay as they are if one of their layers in the prototxt is in ``apart``, or the PReLU's top is not among the blobs with
    ``formats``.
    """
    folded = dict(graph.folded)

    def join(first: Layer, second: Layer) -> Layer | None:
        if second.tops[0] not in formats or not {*first.origin, *second.origin}.isdisjoint(apart):
            return None
        if not first.can_bend or first.slope is not None or first.ceiling is not None:
            return None
        between = shapes[second.bottoms[0]]
        if len(between) < 2 or (slopes := second.slopes_of(between[1])) is None:
            return None
        layer = merged(first, second)
        layer.slopes = slopes
        if layer.unsupported(overlay, *(shapes[blob] for blob in first.bottoms)):
            return None
        folded[second.bottoms[0]] = layer.name
        return layer

    shorter = with_joined(graph, join)
    return graph if shorter is graph else replace(shorter, folded=folded)


def fuse_lookups(
    graph: Graph, partition: Partition, tasks: Lowered, overlay: Overlay
) -> tuple[Graph, Partition, Lowered]:
    """Return all three with each lone lookup fused into the Task that writes its input: codes and formats stay as they were.

    The blobs between them, which nothing computes, are ``folded`` in the Graph.
    """
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
        return graph, partition, tasks
    segments = [Segment(each.engine, _without(each.layers, joined)) for each in partition.segments]
    after = replace(graph, layers=_without(graph.layers, joined), folded=folded)
    return after, replace(partition, segments=segments), lowered


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
