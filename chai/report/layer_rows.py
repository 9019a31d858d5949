"""Rows of reports: each layer of a network with engine, format and reason."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ..blob import Shape, show
from ..fixed import Format
from ..graph import Graph, Layer
from ..offload.formats import brought, has_formats
from ..text import number_of
from ..util import html
from ..util.table import Table, floored, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..codegen.memory_map import HostBlobs
    from ..runtime.execution import Execution
    from ..runtime.source import Network


@dataclass(frozen=True)
class LayerRow:
    """One layer in a report. None is a value that is unknown, or undecided without an overlay.

    ``shapes``      of its tops that are read; None for a shape that the known input sizes do not determine
    ``macs``        multiply-accumulates per pass; on an overlay a layer merged into another one has none
    ``parameters``  number of trained parameters
    ``engine``      fpga, host, custom, input, or "-" for a layer that does not run
    ``cycles``      modelled clock cycles per pass on the overlay
    ``format``      of the output, after all fused layers; "at first batch" while unknown
    ``layer_in``    input format in its precision_param, if the input has another one
    ``reason``      why it is not on the overlay
    ``sum_open``    it is on the overlay only if its sums fit the accumulator, which depends on its missing weights
    ``defined``     file and line of a custom layer
    ``implementation``  which implementation of a custom layer runs, and why; None where there is only one
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    shapes: tuple[Shape | None, ...]
    macs: int | None
    parameters: int | None
    engine: str
    cycles: int | None = None
    format: str | None = None
    layer_in: str | None = None
    reason: str | None = None
    sum_open: bool | None = None
    defined: str | None = None
    implementation: str | None = None

    @property
    def mark(self) -> str:
        """Return the engine, with a question mark if the weights decide whether it is the overlay."""
        return f"{self.engine}?" if self.sum_open else self.engine


def described(graph: Graph, shapes: Mapping[str, Shape]) -> list[LayerRow]:
    """Return a row for every layer of a graph without a plan. ``shapes`` has the known shapes of blobs."""
    rows = []
    for layer in graph.layers:
        tops = [t for t in layer.tops if not layer.source or t in graph.inputs]  # an unused label is no top
        complete = shapes.keys() >= {*layer.bottoms, *tops}
        reads, writes = (tuple(shapes[b] for b in blobs) if complete else () for blobs in (layer.bottoms, tops))
        parameters = None
        if complete and not layer.on_device:  # a compiled layer exists only as Tasks
            parameters = 0 if layer.source else sum(map(prod, layer.weight_shapes(*reads)))
        row = LayerRow(
            name=layer.name,
            type=layer.type,
            bottoms=tuple(map(graph.caffe_name, layer.bottoms)),
            tops=tuple(map(graph.caffe_name, layer.tops)),
            shapes=tuple(shapes.get(t) for t in tops),
            macs=layer.macs(reads, writes) if complete and not layer.on_device else None,
            parameters=parameters,
            engine="input" if layer.source else layer.engine,
            defined=layer.defined,
            implementation=layer.implementation(reads) if complete else None,
        )
        rows.append(row)
    return rows


def placed(net: Network, segments: Sequence[HostBlobs] = ()) -> list[LayerRow]:
    """Return a row for every layer of a network, at its current input sizes and formats. Runs no layer.

    ``segments`` are its segments, if they are compiled: a pooling that is joined to a convolution has no cycles of its own then.
    """
    shapes = {}
    for blob in {blob for layer in net.graph.layers for blob in (*layer.bottoms, *layer.tops)}:
        with suppress(KeyError):  # known only at run time
            shapes[blob] = net.shapes_of(blob)
    rows = described(net.graph, shapes)
    if net.overlay is None:
        return [replace(row, format="float32") for row in rows]
    if not net.shapes:
        return [replace(row, engine="input" if row.engine == "input" else "-") for row in rows]
    offload: Execution = net.offload
    times, products = _of_tasks(offload, segments)
    engines = offload.partition.engines
    packed = offload.schedule.from_host
    own = has_formats(offload.graph)
    formats = known_formats(net)
    placements = []
    for layer, row in zip(net.graph.layers, rows):
        runs_as = offload.graph.by_origin.get(layer.name, layer)
        fpga = engines.get(layer.name) == "fpga"
        where = "input" if layer.source else engines.get(runs_as.name, "-")
        placements.append(
            replace(
                row,
                macs=products[layer.name] if layer.on_device else row.macs,
                engine=layer.engine if where == "host" else where,
                cycles=times[layer.name],
                format=_format(formats, runs_as, where, packed),
                layer_in=_not_obeyed(offload.graph, layer, formats) if fpga and own and formats else None,
                reason=offload.partition.reasons.get(layer.name),
                sum_open=layer.name in offload.plan.open_sums,
            )
        )
    return placements


def known_formats(net: Network) -> Mapping[str, Format] | None:
    """Return the final formats by blob; None while they are not measured."""
    offload = net.offload
    if net.calibrated or (has_formats(offload.graph) and offload.formats):
        return offload.formats
    return brought(offload.plan)  # a schedule for display only has placeholders


def sizes(row: LayerRow) -> str:
    """Return the shapes of a layer's tops as text, "?" for each unknown one."""
    return " ".join(map(size, row.shapes)) or "-"


def size(shape: Shape | None) -> str:
    """Return a shape as text, "?" if it is unknown."""
    return "?" if shape is None else show(shape)


def notebook(net: Network, closed: bool) -> str:
    """Return the summary and the rows of a network, unless it is closed, as HTML for a notebook."""
    if closed:
        return html.notebook(html.paragraph(f"{net!r}, closed"))
    where = f" of {net.overlay.name}" if net.overlay is not None else ""
    layers = placed(net)
    rows = [(row.name, row.type, sizes(row), row.mark, row.format or "-") for row in layers]
    table = Table(("layer", "type", "out shape", "engine", "format"), rows, "lllll")
    return html.notebook(html.paragraph(f"{net!r}{where}: {summary(net, layers)}"), html.rows(table))


def summary(net: Network, layers: Sequence[LayerRow]) -> str:
    """Return one line: the ``placed`` layers and multiply-accumulates on overlay and host, and open decisions."""
    engines = Counter(p.engine for p in layers)
    macs = total(p.macs for p in layers)
    if net.overlay is None:
        return f"{number_of(len(layers), 'layer')} in float32, {macs} MACs"
    everything = sum(p.macs or 0 for p in layers)
    share = 100 * sum(p.macs or 0 for p in layers if p.engine == "fpga") / (everything or 1)
    fpga, host = engines["fpga"], engines["host"] + engines["custom"]
    line = f"{number_of(fpga, 'layer')} fpga ({floored(share)} % of {macs} MACs), {host} host"
    if net.trained:
        return line
    count = sum(bool(p.sum_open) for p in layers)
    return line + (f"; no weights: whether the sums of {count} fit is open" if count else "; no weights")


def total(values: Iterable[int | None]) -> str:
    """Return a sum as text; "?" if a summand is unknown."""
    parts = list(values)
    return "?" if None in parts else quantity(sum(filter(None, parts)))


def _of_tasks(offload: Execution, segments: Sequence[HostBlobs]) -> tuple[Counter[str], Counter[str]]:
    """Return cycles and multiply-accumulates of Tasks, by the first layer of each."""
    times: Counter[str] = Counter()
    products: Counter[str] = Counter()
    shapes = offload.plan.device_shapes
    for i, segment in enumerate(offload.schedule.segments):
        for task in segment.tasks:
            products[task.origin[0]] += task.macs(*(shapes[b] for b in task.inputs))
        if offload.overlay.emulated:
            continue
        compiled = zip(segments[i].tasks, segments[i].spent) if segments else ()
        alone = () if segments else ((task, task.cycles(offload.overlay, shapes)) for task in segment.tasks)
        for task, cycles in (*compiled, *alone):
            times[task.origin[0]] += cycles
    return times, products


def _format(formats: Mapping[str, Format] | None, layer: Layer, where: str, packed: Mapping[str, Format]) -> str:
    """Return the format of a layer's output on the overlay; for a network input the format it is packed to."""
    if where == "-":
        return "-"
    coded = [top for top in layer.tops if where == "fpga" or (where == "input" and top in packed)]
    if not coded:
        return "float32"
    return "at first batch" if formats is None else str(formats[coded[0]])


def _not_obeyed(graph: Graph, layer: Layer, formats: Mapping[str, Format]) -> str | None:
    wanted = layer.precision.side("in") if layer.precision is not None else None
    if wanted is None or Format(*wanted).signed == formats[graph.layer(layer.name).bottoms[0]].signed:
        return None  # the same range, whatever the signs
    return str(Format(*wanted))
