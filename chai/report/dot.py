"""Draw a network as a Graphviz graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph import Graph
from ..text import visible
from .layer_rows import LayerRow, size


def dot(labels: Sequence[Sequence[str]], edges: Iterable[tuple[int, int]], rankdir: str = "TB") -> list[str]:
    """Return the lines of a DOT file: one node for each label, which is a list of lines, and the edges between them.

    ``rankdir`` is Graphviz's direction: TB, BT, LR or RL.
    """
    nodes = [f"  n{i} [label={_quoted(label)}];" for i, label in enumerate(labels)]
    arrows = [f"  n{start} -> n{end};" for start, end in edges]
    return [
        "digraph {",
        f"  rankdir={rankdir}; node [shape=box style=rounded fontname=Helvetica];",
        *nodes,
        *arrows,
        "}",
    ]


def _quoted(lines: Sequence[str]) -> str:
    """Return a label as a DOT string. Backslashes, quotes and ampersands are escaped, as Graphviz expands them."""
    escaped = (visible(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def drawn(graph: Graph, layers: Sequence[LayerRow]) -> list[str]:
    """Return the lines of a DOT file of a network, whose layers have these rows in the same order."""
    labels = [(row.name, f"{row.type} {size(row.shapes[0]) if row.shapes else ''}") for row in layers]
    return dot(labels, edges((layer.bottoms, layer.tops) for layer in graph.layers))


def edges(layers: Iterable[tuple[Sequence[str], Sequence[str]]]) -> list[tuple[int, int]]:
    """Return an edge from the layer that wrote a blob last to each of its readers, of layers with these bottoms and tops."""
    writers: dict[str, int] = {}
    pairs = []
    for i, (bottoms, tops) in enumerate(layers):
        pairs += [(writers[bottom], i) for bottom in bottoms if bottom in writers]
        writers.update(dict.fromkeys(tops, i))
    return pairs
