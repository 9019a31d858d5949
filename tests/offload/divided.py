"""Networks divided between overlay and host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from chai import overlay
from chai.graph import Graph
from chai.offload.partition import partition
from chai.offload.plan import Partition
from chai.passes.infer_shapes import infer_shapes

SHAPE = (2, 3, 5, 7)
SAME = "convolution_param { num_output: 3 kernel_size: 1 }"  # channels as they came, for sums of any two blobs


def divide(graph: Graph, chosen: Mapping[str, str] | None = None, manifest: str | Path = overlay.default) -> Partition:
    """The partition of a graph no pass has seen."""
    return partition(graph, infer_shapes(graph), overlay.load(manifest), chosen or {}, {})


def parts(division: Partition) -> list[tuple[str, str]]:
    """(engine, its layers in a row) of each segment."""
    return [(s.engine, " ".join(layer.name for layer in s.layers)) for s in division.segments]
