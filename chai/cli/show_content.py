"""The content of chai show: what ``--json`` prints, and what texts and pages are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from ..blob import Shape
from ..fixed import Coarser
from ..graph import Graph
from ..passes.infer_shapes import unlike_caffe
from ..report.host_speed import HostSpeed
from ..report.layer_rows import LayerRow
from . import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..codegen.compile import Footprint
    from ..codegen.memory_map import HostBlobs
    from ..net import Net
    from ..offload.cost import SegmentCost
    from ..offload.partition import SegmentSplit


class CostRow(NamedTuple):
    """Modelled milliseconds of a segment, least and most.

    ``fpga_ms`` on the overlay, of which the processor takes ``around_ms``; ``host_ms`` of its layers on the processor.
    """

    layers: list[str]
    fpga_ms: list[float]
    around_ms: list[float]
    host_ms: list[float]


class Splits(TypedDict):
    """The layers that split the segments, and the number of segments if all of these layers ran on the overlay."""

    by_reason: list[SegmentSplit]
    joined: int


class Activations(TypedDict):
    """Bytes of activations on the device; ``total`` is the sum over all blobs, without shared memory."""

    peak: int
    total: int


@dataclass(frozen=True)
class Show(output.Schema):
    """A prototxt, a prototxt planned for an overlay, or a compiled network.

    ``overlay`` and all keys after it are null without an overlay; ``batch`` is the plan's batch. ``host`` and ``costs``
    are null where no host model is known: the manifest has none.
    """

    schema = "chai.show/3"
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
    wide: list[str] | None = None
    conversions: list[str] | None = None
    merged: list[list[str]] | None = None
    tasks: int | None = None
    segments: int | None = None
    splits: Splits | None = None
    cycles: int | None = None
    modelled_fps: float | None = None
    modelled_fps_batch_1: float | None = None
    host: HostSpeed | None = None
    costs: list[CostRow] | None = None
    activation_bytes: Activations | None = None
    constant_bytes: int | None = None


class RefusedNode(TypedDict):
    """A node of an ONNX file that no layer computes."""

    node: str
    operator: str
    opset: int
    reason: str
    hint: str | None


@dataclass(frozen=True)
class RefusedNetwork(output.Schema):
    """An ONNX file with such nodes; the exit code is 65."""

    schema = "chai.show.refused/1"
    file: str
    error: str
    nodes: list[RefusedNode]


@dataclass(frozen=True)
class NetworkView:
    """Data of a network for all output forms. ``shapes`` has the known output shapes; ``net`` is None without a plan."""

    content: Show
    graph: Graph
    shapes: Mapping[str, Shape]
    net: Net | None = None
    costs: tuple[SegmentCost, ...] = ()
    memory: Footprint | None = None
    segments: tuple[HostBlobs, ...] = ()


def of_graph(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return the values of ``Show`` that do not depend on a plan. ``shapes`` has the known shapes of inputs."""
    return {
        "inputs": {b: list(shapes[b]) if b in shapes else None for b in graph.inputs},
        "outputs": list(graph.outputs),
        "notes": [*graph.notes, *filter(None, [graph.unread_state]), *unlike_caffe(graph, shapes)],
        "composed": {name: list(whole.parts) for name, whole in graph.composed.items()},
    }
