"""The content of chai show: what ``--json`` prints, and what texts and pages are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from ..codegen.compile import executable, footprint
from ..fixed import Coarser
from ..graph import Graph
from ..offload.cost import costs
from ..offload.splits import joined, splits
from ..report.host_speed import HostSpeed, host_speed
from ..report.host_work import host_work
from ..report.layer_rows import LayerRow, placed
from ..report.split_lines import Splits
from . import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..blob import Shape
    from ..codegen.compile import Footprint
    from ..net import Net
    from ..offload.cost import Cost
    from ..overlay.architecture import Sized
    from ..overlay.host_model import HostModel


class SegmentCost(TypedDict):
    """Times of a segment on the overlay, and of its layers on the host."""

    layers: list[str]
    fpga_ms: float
    host_ms: float


class Activations(TypedDict):
    """Bytes of activations on the device; ``total`` is the sum over all blobs, without shared memory."""

    peak: int
    total: int


@dataclass(frozen=True)
class Show(output.Schema):
    """A prototxt, a prototxt planned for an overlay, or a compiled network.

    ``overlay`` and all keys after it are null without an overlay; ``batch`` is the plan's batch. ``host`` is null where no host
    model is known: the manifest has none.
    """

    schema = "chai.show/2"
    network: str
    file: str
    compiled: bool
    weights: bool
    inputs: dict[str, list[int] | None]
    outputs: list[str]
    notes: list[str]
    composed: dict[str, list[str]]
    layers: list[LayerRow]
    preprocess: str | None = None
    labels: int | None = None
    overlay: str | None = None
    build: str | None = None
    batch: int | None = None
    formats: str | None = None
    open_sums: list[str] | None = None
    coarser: dict[str, Coarser] | None = None
    conversions: list[str] | None = None
    merged: list[list[str]] | None = None
    tasks: int | None = None
    segments: int | None = None
    splits: Splits | None = None
    cycles: int | None = None
    modelled_fps: float | None = None
    modelled_fps_batch_1: float | None = None
    host: HostSpeed | None = None
    costs: list[SegmentCost] | None = None
    activation_bytes: Activations | None = None
    constant_bytes: int | None = None


@dataclass(frozen=True)
class NetworkView:
    """Data of a network for all output forms. ``shapes`` has the known output shapes; ``net`` is None without a plan."""

    content: Show
    graph: Graph
    shapes: Mapping[str, Shape]
    net: Net | None = None
    costs: tuple[Cost, ...] = ()
    memory: Footprint | None = None
    segments: tuple[Sized, ...] = ()


def on_overlay(net: Net, file: str, formats: str | None, model: HostModel | None) -> NetworkView:
    """Return the NetworkView of a planned network. ``formats`` names the source of its formats; None if it is compiled."""
    overlay, plan = net.overlay, net.offload.plan
    assert overlay is not None
    estimates = () if formats is None else tuple(costs(net.schedule, overlay, net.offload.shapes))
    steps = net.schedule.segments
    views, shapes = net.schedule.views, plan.device_shapes
    chains = [s.chain or executable(s.work(overlay, shapes, views)) for s in steps]
    layers = placed(net, chains)
    memory = footprint(chains)
    cycles = alone = sum(made.cycles for made in chains)
    if net.batch != 1 and overlay.own is not None and formats is None:
        alone = 0  # a file's instructions are for its batch
    elif net.batch != 1:
        one = {blob: (1, *shape[1:]) for blob, shape in shapes.items()}
        alone = sum(executable(s.work(overlay, one, views)).cycles for s in steps)
    per_second = overlay.clock_mhz * 1e6
    conversions = net.schedule.conversions
    first = net.shapes[net.inputs[0]]
    picture = len(first) == 4 and first[1] in (1, 3)
    fpga_ms = cycles / per_second * 1000
    content = Show(
        network=net.name,
        file=file,
        compiled=formats is None,
        weights=net.trained,
        **of_graph(net.graph, net.shapes),
        layers=layers,
        preprocess=net.card.preprocess.describe(first) if picture else None,
        labels=len(net.card.labels),
        overlay=overlay.name,
        build=f"{overlay.build:08x}",
        batch=net.batch,
        formats=formats,
        open_sums=[layer.name for layer in layers if layer.sum_open],
        coarser=dict(plan.coarser),
        conversions=[f"{c.type} {net.graph.caffe_name(c.blob)}" for c in conversions],
        merged=_merged(net),
        tasks=sum(len(step.tasks) for step in steps),
        segments=len(steps),
        splits={
            "by_reason": [{"reason": x.reason, "layers": x.layers, "without": x.without} for x in splits(plan)],
            "joined": joined(plan),
        },
        cycles=cycles,
        modelled_fps=per_second / cycles * net.batch if cycles else 0.0,
        modelled_fps_batch_1=per_second / alone if alone else 0.0,
        host=host_speed(model, host_work(net.offload, chains), net.batch, fpga_ms, picture) if model else None,
        costs=[{"layers": [x.name for x in c.layers], "fpga_ms": c.fpga_ms, "host_ms": c.host_ms} for c in estimates],
        activation_bytes={"peak": memory.activations, "total": memory.apart},
        constant_bytes=memory.constants,
    )
    return NetworkView(content, net.graph, net.shapes, net, estimates, memory, (*chains,))


def of_graph(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the values of ``Show`` that do not depend on a plan. ``shapes`` has the known shapes of inputs."""
    return {
        "inputs": {b: list(shapes[b]) if b in shapes else None for b in graph.inputs},
        "outputs": list(graph.outputs),
        "notes": list(graph.notes),
        "composed": {name: list(whole.parts) for name, whole in graph.composed.items()},
    }


def _merged(net: Net) -> list[list[str]]:
    """Return groups of layers that run as one Task without being fused; the first of each has the cycles."""
    names = {layer.name for layer in net.offload.graph.layers}
    tasks = (task for segment in net.schedule.segments for task in segment.tasks)
    return [[n for n in task.origin if n in names] for task in tasks if task.output in net.schedule.shapes]
