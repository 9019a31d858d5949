"""Draw a network as one inline SVG, boxes in layers from top to bottom and curves between them; or as a Graphviz graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from ..graph import Graph
from ..text import visible
from ..util.html import COLOURS, text
from .layer_rows import LayerRow, size

_WIDTH, _LINE, _GAP, _DROP = 250, 14, 18, 26  # pixels: box width, line height, space between boxes and between layers
_THIN = 12  # pixels: width of the lane in which a curve passes a layer of boxes
_LETTERS = 36  # characters per line of a box
_SWEEPS = 6  # ordering passes, alternately down and up
_MOST_LANES = (
    20_000  # the longest edges go straight instead: 5,000 layers that all read the input would take 12 million
)


@dataclass(frozen=True)
class Node:
    """One node. ``engine`` determines the colour, and is also written in the box."""

    name: str
    kind: str
    engine: str
    note: str = ""


def svg(boxes: Sequence[Node], edges: Sequence[tuple[int, int]]) -> str:
    """Draw boxes and the edges between them, each from an earlier box to a later one.

    Layered drawing of Sugiyama, Tagawa and Toda (1981): a box is one layer below the lowest box it depends on, an edge
    crosses the layers in between in its own lanes, and each layer is ordered by the mean position of its neighbours.
    """
    lanes, links = _lanes(len(boxes), edges)
    order = _ordered(lanes, links)
    x = _columns(order, len(boxes))
    lines = [_lines(box) for box in boxes]
    heights = [max((8 + _LINE * len(lines[n]) for n in nodes if n < len(boxes)), default=0) for nodes in order]
    tops = [_DROP * (row + 1) + sum(heights[:row]) for row in range(len(order))]
    level = {node: row for row, nodes in enumerate(order) for node in nodes}
    left = min(x.values(), default=0.0) - _WIDTH / 2 - _GAP
    right = max(x.values(), default=0.0) + _WIDTH / 2 + _GAP
    height = _DROP * (len(order) + 1) + sum(heights)
    parts = [
        f'<svg viewBox="{left:.0f} 0 {right - left:.0f} {height}" width="{right - left:.0f}" role="img" '
        'aria-label="the network as a graph">'
    ]
    for above, below in links:
        start = tops[level[above]] + heights[level[above]]
        end = tops[level[below]]
        middle = (start + end) / 2
        curve = f"M{x[above]:.1f} {start}C{x[above]:.1f} {middle:g} {x[below]:.1f} {middle:g} {x[below]:.1f} {end}"
        passes = f"M{x[above]:.1f} {tops[level[above]]}V{start}" if above >= len(boxes) else ""
        parts.append(f'<path class="edge" d="{passes}{curve}"/>')
    parts += [_drawn(box, lines[i], x[i], tops[level[i]], heights[level[i]]) for i, box in enumerate(boxes)]
    return "".join(parts) + "</svg>"


def _lines(box: Node) -> list[str]:
    """Return the lines in a box: name and kind, shortened to fit, then engine and note, wrapped."""
    words = f"{box.engine}: {visible(box.note)}" if box.note else box.engine
    return [_cut(visible(box.name)), _cut(visible(box.kind)), *wrap(words, _LETTERS)]


def _drawn(box: Node, lines: Sequence[str], x: float, y: int, height: int) -> str:
    left = x - _WIDTH / 2
    engine = box.engine if box.engine in COLOURS else "none"
    words = "".join(
        f'<text x="{left + 10:.1f}" y="{y + 1 + _LINE * (i + 1)}"{_WEIGHT if i == 0 else ""}>{text(line)}</text>'
        for i, line in enumerate(lines)
    )
    whole = (box.name, box.kind, f"{box.engine}: {box.note}" if box.note else box.engine)
    title = f"<title>{text(' - '.join(whole))}</title>"
    return (
        f'<g class="in-{engine}">{title}<rect class="box" x="{left:.1f}" y="{y}" width="{_WIDTH}" height="{height}"/>'
        f'<rect class="{engine}" x="{left:.1f}" y="{y}" width="5" height="{height}"/>{words}</g>'
    )


_WEIGHT = ' font-weight="bold"'


def _cut(line: str) -> str:
    """Shorten a long line in the middle: names of layers in one block differ at their end."""
    keep = _LETTERS // 2 - 1
    return line if len(line) <= _LETTERS else f"{line[:keep]}..{line[-keep:]}"


def _lanes(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Return the nodes of each layer and links between neighbouring layers; nodes from ``count`` on are lanes."""
    level = [0] * count
    for above, below in sorted(edges, key=lambda edge: edge[1]):
        level[below] = max(level[below], level[above] + 1)
    layers: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for node, row in enumerate(level):
        layers[row].append(node)
    links = []
    first = count
    for above, below in sorted(dict.fromkeys(edges), key=lambda edge: level[edge[1]] - level[edge[0]]):
        node = above
        fits = count - first + level[below] - level[above] <= _MOST_LANES
        for row in range(level[above] + 1, level[below]) if fits else ():
            lane = count
            count += 1
            layers[row].append(lane)
            links.append((node, lane))
            node = lane
        links.append((node, below))
    return layers, links


def _ordered(layers: list[list[int]], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Order each layer by the mean position of the neighbours above, then below, a few times."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for first, second in links:
        above.setdefault(second, []).append(first)
        below.setdefault(first, []).append(second)
    layers = [list(nodes) for nodes in layers]
    place = {node: i / len(nodes) for nodes in layers for i, node in enumerate(nodes)}
    for sweep in range(_SWEEPS):
        neighbours = below if sweep % 2 else above
        for nodes in reversed(layers) if sweep % 2 else layers:
            mean = {n: sum(place[m] for m in neighbours.get(n, [n])) / len(neighbours.get(n, [n])) for n in nodes}
            nodes.sort(key=mean.__getitem__)
            place.update({node: (i + 0.5) / len(nodes) for i, node in enumerate(nodes)})
    return layers


def _columns(order: Sequence[Sequence[int]], boxes: int) -> dict[int, float]:
    """Return the horizontal centre of each node; every layer is centred at 0."""
    x: dict[int, float] = {}
    for nodes in order:
        widths = [_WIDTH if node < boxes else _THIN for node in nodes]
        left = -(sum(widths) + _GAP * (len(nodes) - 1)) / 2
        for node, width in zip(nodes, widths):
            x[node] = left + width / 2
            left += width + _GAP
    return x


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


def dot_lines(graph: Graph, layers: Sequence[LayerRow]) -> list[str]:
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
