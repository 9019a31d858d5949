"""Join layers that an overlay runs as one, on copies of a Graph.

A PReLU and the layer before it are one: its requantisation then multiplies negative sums by another number in each channel.
Layers that together are one function of one number, as Mish, GELU and HardSigmoid by their parts, are one table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ..blob import Array, Shape
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..passes._edit import joined as with_joined, merged
from ..tasks import find
from ..util.lazy_numpy import np

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
