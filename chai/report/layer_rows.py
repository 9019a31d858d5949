"""Which layer of a network runs where, on what numbers, and why: a row for each layer of the prototxt."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..blob import show
from ..fixed import Format
from ..graph import Graph
from ..offload.formats import from_precision, given
from ..offload.schedule import DeviceStep
from ..util.table import Table, floored, quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..blob import Shape
    from ..graph import Layer
    from ..runtime.execution import Execution
    from ..runtime.source import Network


@dataclass(frozen=True)
class Placement:
    """One layer. One that a pass took into another is where the other is, with no cycles of its own.

    ``shapes``    of its tops; empty while input sizes are not known
    ``engine``    fpga, host, custom, input, or "-" for a layer that runs nowhere
    ``format``    of what the layers that run as one write; "at first batch" while it is not known
    ``layer_in``  the format of its input that its precision_param asks for and does not get
    ``reason``    why it is not on the overlay
    ``sum_open``  it is on the overlay if its sums fit the accumulator, which only its weights can tell
    """

    name: str
    type: str
    shapes: tuple[Shape, ...]
    macs: int
    cycles: int
    engine: str
    format: str
    layer_in: str | None = None
    reason: str | None = None
    sum_open: bool = False


def placed(net: Network) -> list[Placement]:
    """Return every layer of a network, as its input sizes and formats are now. Nothing is computed that a pass would
    not."""
    if net.overlay is None or not net.shapes:
        return [_unplaced(net, layer) for layer in net.graph.layers]
    offload: Execution = net.offload
    times, products = _of_tasks(offload)
    engines, reasons = _engines(offload)
    standing = {name: layer for layer in engines for name in layer.origin}
    fpga = {layer.name for layer, engine in engines.items() if engine == "fpga"}
    packed = offload.schedule.from_host
    own = given(offload.graph)
    formats: Mapping[str, Format] | None = None
    if net.calibrated or own:  # before a network with its own formats is planned, the schedule has none
        formats = offload.formats or from_precision(offload.graph)
    found = []
    for layer in net.graph.layers:
        stands = standing.get(layer.name, layer)
        where = "input" if layer.source else engines.get(stands, "-")
        engine = layer.engine if where == "host" else where
        found.append(
            Placement(
                layer.name,
                layer.type,
                _tops(net, layer),
                products[layer.name] if layer.on_device else _macs(net, layer),
                times[layer.name],
                engine,
                _format(formats, stands, where, packed),
                _not_obeyed(offload.graph, layer, formats) if own and formats and layer.name in fpga else None,
                reasons.get(layer.name),
                layer.name in offload.plan.open_sums,
            )
        )
    return found


def table(net: Network) -> Table:
    """Layer, type, output shape, engine (fpga? where ``sum_open``) and format."""
    rows = [
        (p.name, p.type, " ".join(map(show, p.shapes)) or "-", p.engine + "?" * p.sum_open, p.format)
        for p in placed(net)
    ]
    return Table(("layer", "type", "out shape", "engine", "format"), rows, "lllll")


def summary(net: Network, layers: Sequence[Placement] | None = None) -> str:
    """Return one line: how many layers and multiply-accumulates the overlay has, how many layers the host, and what is
    open.

    ``layers`` are those of ``placed``, if they are known already.
    """
    layers = placed(net) if layers is None else layers
    engines = Counter(p.engine for p in layers)
    macs = sum(p.macs for p in layers)
    if net.overlay is None:
        return f"{len(layers)} layers in float32, {quantity(macs)} MACs"
    share = 100 * sum(p.macs for p in layers if p.engine == "fpga") / (macs or 1)
    host = engines["host"] + engines["custom"]
    line = f"{engines['fpga']} layers fpga ({floored(share)} % of {quantity(macs)} MACs), {host} host"
    if net.trained:
        return line
    count = sum(p.sum_open for p in layers)
    return line + (f"; no weights: whether the sums of {count} fit is open" if count else "; no weights")


def _unplaced(net: Network, layer: Layer) -> Placement:
    engine, format = (layer.engine, "float32") if net.overlay is None else ("-", "-")
    macs = _macs(net, layer) if net.shapes else 0
    return Placement(layer.name, layer.type, _tops(net, layer), macs, 0, "input" if layer.source else engine, format)


def _tops(net: Network, layer: Layer) -> tuple[Shape, ...]:
    found = []
    for top in layer.tops:
        with suppress(KeyError):  # known only at run time
            found.append(net.shapes_of(top))
    return tuple(found)


def _macs(net: Network, layer: Layer) -> int:
    return layer.macs(tuple(net.shapes_of(b) for b in layer.bottoms), _tops(net, layer))


def _engines(offload: Execution) -> tuple[dict[Layer, str], dict[str, str]]:
    """fpga or host of every layer that runs, and the reasons of those on the host."""
    segments = offload.partition.segments
    return {layer: s.engine for s in segments for layer in s.layers}, offload.partition.reasons


def _of_tasks(offload: Execution) -> tuple[Counter[str], Counter[str]]:
    """Return cycles and multiply-accumulates of Tasks, under the layer that each begins with."""
    times: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for step in offload.schedule.steps:
        for task in step.tasks if isinstance(step, DeviceStep) else ():
            times[task.origin[0]] += task.cycles(offload.overlay, offload.shapes)
            products[task.origin[0]] += task.macs(*(offload.shapes[b] for b in task.inputs))
    return times, products


def _format(formats: Mapping[str, Format] | None, layer: Layer, where: str, packed: Mapping[str, Format]) -> str:
    """Return how the overlay holds what a layer writes; a network input as it is packed."""
    if where == "-":
        return "-"
    if where != "fpga" and packed.keys().isdisjoint(layer.tops if where == "input" else ()):
        return "float32"
    return "at first batch" if formats is None else str(formats[layer.tops[0]])


def _not_obeyed(graph: Graph, layer: Layer, formats: Mapping[str, Format]) -> str | None:
    wanted = layer.precision.side("in") if layer.precision is not None else None
    if wanted is None or Format(*wanted) == formats[graph.layer(layer.name).bottoms[0]]:
        return None
    return str(Format(*wanted))
