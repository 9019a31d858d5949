"""The work of a board's processor in a pass: each step of a plan with its sizes, for a host model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ..blob import Shape, count, on_device, show
from ..codegen.compile import executable
from ..codegen.memory_map import READ, WRITTEN
from ..offload.schedule import DeviceStep, HostStep, Pack, Unpack
from ..overlay.host_model import FLUSH, LANES, LOAD, PASS, SEGMENT, STORE, UNFOLDED
from ..overlay.layout import planes
from ..runtime.direct import Readers, unpacking_at_once

if TYPE_CHECKING:
    from ..graph import Layer
    from ..overlay import Layout
    from ..runtime.execution import Execution


@dataclass(frozen=True)
class HostWork:
    """One step: group and kind of its numbers in a host model, its name in reports, and how much of each it has.

    ``custom`` steps are functions of the user's, of which a model may have numbers for those that chai ships.
    """

    group: str
    kind: str
    name: str
    counts: Mapping[str, float]
    custom: bool = False


def host_work(execution: Execution, chains: Sequence[Any] | None = None) -> list[HostWork]:
    """Return what each step of a pass asks of the processor; of segments, what their driver does.

    ``chains`` are the segments compiled, in order, if they are.
    """
    schedule = unpacking_at_once(execution.schedule)  # as on a board
    steps, readers, shapes = schedule.steps, Readers(schedule), execution.plan.device_shapes
    layout, graph = execution.overlay.layout, execution.graph
    segments = iter(compiled(execution) if chains is None else chains)
    conversions = sum(isinstance(step, (Pack, Unpack)) for step in steps)
    around = {"call": 1, "conversion": conversions, "step": len(steps) - conversions}
    work = [HostWork("driver", PASS, "", around)]
    if execution.branches:
        work.append(HostWork("driver", LANES, "", around))
    for i, step in enumerate(steps):
        if isinstance(step, (Pack, Unpack)):
            name = f"{step.type} {graph.caffe_name(step.blob)}"
            unfolded = isinstance(step, Pack) and step.unfold is not None
            kind = UNFOLDED if unfolded else step.type
            counts = conversion_counts(shapes[step.blob], shapes[step.result], layout)
            work.append(HostWork("conversions", kind, name, counts))
        elif isinstance(step, HostStep):
            counts = layer_counts(step.layer, execution.shapes)
            work.append(HostWork("layers", step.layer.type, step.layer.name, counts, step.layer.engine == "custom"))
        else:
            work += _segment(i, step, readers, execution, next(segments))
    return work


def compiled(execution: Execution) -> Iterator[Any]:
    """Yield the segments of a pass as what they are compiled to."""
    for step in execution.schedule.segments:
        work = step.work(execution.overlay, execution.plan.device_shapes, execution.schedule.views)
        yield step.chain or executable(work)


def _segment(i: int, step: DeviceStep, readers: Readers, execution: Execution, chain: Any) -> Iterator[HostWork]:
    """Yield what starting a segment asks, and moving codes that no conversion moves."""
    overlay, shapes = execution.overlay, execution.plan.device_shapes
    name = step.layers[0].name if step.layers else ""
    yield HostWork("driver", SEGMENT, name, {"call": 1})
    if not overlay.coherent:
        regions = [region for crossed in (WRITTEN, READ) for region in chain.sizes if region in crossed]
        size = sum(chain.sizes[region] for region in regions)
        yield HostWork("driver", FLUSH, name, {"call": len(regions), "element": size})
    packed = {readers.steps[j].writes[0][1] for j in readers.packs(i)}
    unpacked = {readers.steps[j].reads[0][1] for j in readers.unpacks(i)}
    moves = [(STORE, blob) for blob in step.inputs if blob not in packed]
    moves += [(LOAD, blob) for blob in step.outputs if blob not in unpacked]
    for kind, blob in moves:
        yield HostWork(
            "driver", kind, show(shapes[blob]), conversion_counts(shapes[blob], shapes[blob], overlay.layout)
        )


def conversion_counts(source: Shape, words: Shape, layout: Layout) -> dict[str, float]:
    """Return the sizes of a conversion between a blob of the host and ``words``, the blob as the overlay has it."""
    n, c, *size = on_device(words)
    every = n * planes(c, layout)
    return {
        "call": 1,
        "plane": every,
        "row": every * prod(size[:-1]),
        "word": every * prod(size),
        "element": count(source),
    }


def layer_counts(layer: Layer, shapes: Mapping[str, Shape]) -> dict[str, float]:
    """Return the sizes of a layer on the host."""
    bottoms, tops = ([shapes[blob] for blob in blobs] for blobs in (layer.bottoms, layer.tops))
    read, written = (sum(map(count, shapes)) for shapes in ([] if layer.constant else bottoms, tops))
    macs = layer.macs(tuple(bottoms), tuple(tops))
    if not macs and layer.engine == "custom":
        images = bottoms[0][0] if bottoms and bottoms[0] else 1
        macs = images * sum(blob.size for blob in layer.blobs)  # as many as its weights, for each image
    return {
        "call": 1,
        "blob": len(bottoms) + len(tops),
        "row": rows(tops[0]) if tops else 0,
        "element": max(read, written),
        "mac": macs,
    }


def rows(shape: Shape) -> int:
    """Return the number of rows of a blob; one of a single pixel is a row of channels."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return prod(shape[:-1])


def summed(work: Sequence[HostWork], group: str, kind: str) -> Counter[str]:
    """Return the counts of all steps of a kind together."""
    total: Counter[str] = Counter()
    for one in work:
        if (one.group, one.kind) == (group, kind):
            total.update(one.counts)
    return total
