"""Page with a picture of a network: a box per layer, coloured by engine, with Pack and Unpack between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..graph import Graph, Layer
from ..offload.schedule import Conversion, DeviceStep, HostStep
from ..runtime.source import Network
from ..util.html import COLOURS, markup, text
from ..util.table import Table
from . import page
from .diagram import Node, svg
from .layer_rows import LayerRow, known_formats, sizes

LEGEND = {
    "fpga": "on the overlay",
    "host": "on the host",
    "custom": "a custom layer, on the host",
    "input": "an input",
    "pack": "float32 to the overlay's codes",
    "unpack": "the overlay's codes to float32",
    "-": "runs nowhere: a pass took it out",
}
Picture = tuple[list[Node], list[tuple[int, int]]]  # boxes in topological order, and edges between them
_STYLE = (
    "svg.graph{max-width:none}.edge{fill:none;stroke:var(--text);stroke-opacity:.55}svg .box{fill:var(--back)}"
    "body{max-width:none}svg .none,.legend .none{fill:var(--faint);background:var(--faint)}"
    ".legend{display:flex;flex-wrap:wrap;gap:.2em 1.6em;list-style:none;padding:0}"
    ".legend i{display:inline-block;width:.8em;height:.8em;margin-right:.5em}"
    + "".join(
        f"svg .{name},.legend .{name}{{fill:{colour};background:{colour}}}"
        f"svg .in-{name} .box{{fill:{colour};fill-opacity:.16}}"
        for name, colour in COLOURS.items()
    )
)


def html(title: str, facts: Mapping[str, str], picture: Picture, table: Table, data: Mapping[str, Any]) -> str:
    """Return the page: facts, the picture with its legend, the table of layers, and ``data`` as JSON."""
    boxes, edges = picture
    engines = {box.engine for box in boxes}
    entries = "".join(
        f'<li><i class="{name if name in COLOURS else "none"}"></i>{text(name)}: {text(words)}'
        for name, words in LEGEND.items()
        if name in engines
    )
    drawing = svg(boxes, edges).replace("<svg ", '<svg class="graph" ', 1)
    body = [
        f'<h2>Layers and where they run</h2>\n<ul class="legend">{entries}</ul>\n<div class="wide">{drawing}</div>',
        f'<h2>All layers</h2>\n<div class="wide">{markup(table)}</div>',
    ]
    return page.document(title, facts, body, data, _STYLE)


def picture(graph: Graph, rows: Sequence[LayerRow], net: Network | None) -> Picture:
    """Return boxes and edges for a graph's layers; with a plan, also for the conversions of its schedule."""
    boxes: list[Node] = []
    edges: list[tuple[int, int]] = []
    crossing = Crossing(net) if net is not None and net.overlay is not None else None
    writer: dict[str, int] = {}  # blob -> number of the box that writes it
    converted: dict[Conversion, tuple[int, int | None]] = {}  # numbers of its box and of the writer's box

    def convert(crossing: Crossing, step: Conversion, above: int | None) -> tuple[int, int | None]:
        if step not in converted:
            converted[step] = len(boxes), above
            edges.extend([(above, len(boxes))] if above is not None else [])
            boxes.append(crossing.box(graph, step))
        return converted[step]

    for layer, row in zip(graph.layers, rows):
        sources = []
        for blob in layer.bottoms:
            above, before = writer.get(blob), None
            if crossing and (step := crossing.on_edge(layer, blob)) is not None:
                box, before = convert(crossing, step, above)
                sources.append(box)
            if above is not None and above != before:
                sources.append(above)
        edges += [(source, len(boxes)) for source in dict.fromkeys(sources)]
        writer.update(dict.fromkeys(layer.tops, len(boxes)))
        note = row.reason or (row.format if row.engine == "fpga" else "runs nowhere" if row.engine == "-" else None)
        note = "if its sums fit the accumulator" if row.sum_open else note
        boxes.append(Node(row.name, f"{row.type} {sizes(row)}", row.engine, note or ""))
    if crossing:
        for step in crossing.steps:
            convert(crossing, step, writer.get(step.blob))  # outputs of the network, which no layer reads
    return boxes, edges


class Crossing:
    """Conversions between host and overlay, by the layers that read their results."""

    def __init__(self, net: Network) -> None:
        schedule, self._network, self._planned = net.offload.plan.schedule, net.graph, net.offload.plan.graph
        self.steps = schedule.conversions
        self._formats = known_formats(net) or {}
        self._reads: dict[str, tuple[str, tuple[str, ...]]] = {}  # by layer, the kind of conversion and its bottoms
        for step in schedule.steps:
            if isinstance(step, HostStep) and not step.codes:
                self._reads[step.layer.name] = "Unpack", step.layer.bottoms
            elif isinstance(step, DeviceStep):
                self._reads |= {layer.name: ("Pack", layer.bottoms) for layer in step.layers}

    def box(self, graph: Graph, step: Conversion) -> Node:
        """Return the box of a conversion, with the format of its codes."""
        kind = "float32 to codes" if step.type == "Pack" else "codes to float32"
        known = str(self._formats.get(step.blob, "at first batch"))
        return Node(f"{step.type} {graph.caffe_name(step.blob)}", kind, step.type.lower(), known)

    def on_edge(self, layer: Layer, blob: str) -> Conversion | None:
        """Return the conversion that a layer needs for one of its bottoms; None if it reads the blob unconverted."""
        runs_as = self._planned.by_origin.get(layer.name)
        kind, bottoms = self._reads.get(runs_as.name, ("", ())) if runs_as is not None else ("", ())
        source = self._source(blob)
        if source is runs_as:
            return None
        writers = self._planned.writers
        steps = [s for s in self.steps if s.type == kind and s.blob in bottoms and writers.get(s.blob) is source]
        return next((s for s in steps if s.blob == blob), steps[0] if steps else None)

    def _source(self, blob: str) -> Layer | None:
        """Return the running layer that writes a blob, skipping layers that do not run."""
        writers, runs_as = self._network.writers, self._planned.by_origin
        while (layer := writers.get(blob)) is not None and layer.name not in runs_as and layer.bottoms:
            blob = layer.bottoms[0]
        return runs_as.get(layer.name) if layer is not None else None
