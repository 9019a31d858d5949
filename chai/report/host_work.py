"""The work of a board's processor in a pass: each step of a plan with its sizes, for a host model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..blob import show
from ..offload.cost import conversion_counts, flush_counts, layer_counts, layer_kind
from ..offload.schedule import DeviceStep, HostStep, Pack, Unpack
from ..overlay.host_model import FLUSH, LANES, LOAD, PASS, SEGMENT, STORE, UNFOLDED
from ..runtime.direct import Readers, unpacking_at_once
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
    """Return the work of each step of a pass for the processor; for a segment, the work of its driver.

    ``chains`` are the segments compiled, in order, if they are.
    """
    schedule = unpacking_at_once(execution.schedule)  # as on a board
    steps, readers, shapes = schedule.steps, Readers(schedule), execution.plan.device_shapes
    layout, graph = execution.overlay.layout, execution.graph
    segments = iter(execution.schedule.compiled(execution.overlay, shapes) if chains is None else chains)
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
            layer = step.layer
            kind, counts = layer_kind(layer, execution.shapes), layer_counts(layer, execution.shapes)
            work.append(HostWork("layers", kind, layer.name, counts, layer.engine == "custom"))
        else:
            work += _segment(i, step, readers, execution, next(segments))
    return work


def _segment(i: int, step: DeviceStep, readers: Readers, execution: Execution, chain: Any) -> Iterator[HostWork]:
    """Yield the work of starting a segment, and of moving the codes that no conversion moves."""
    overlay, shapes = execution.overlay, execution.plan.device_shapes
    name = step.layers[0].name if step.layers else ""
    yield HostWork("driver", SEGMENT, name, {"call": 1})
    if flushed := flush_counts(chain, overlay):
        yield HostWork("driver", FLUSH, name, flushed)
    packed = {readers.steps[j].writes[0][1] for j in readers.packs(i)}
    unpacked = {readers.steps[j].reads[0][1] for j in readers.unpacks(i)}
    moves = [(STORE, blob) for blob in step.inputs if blob not in packed]
    moves += [(LOAD, blob) for blob in step.outputs if blob not in unpacked]
    for kind, blob in moves:
        yield HostWork(
            "driver", kind, show(shapes[blob]), conversion_counts(shapes[blob], shapes[blob], overlay.layout)
        )


def summed(work: Sequence[HostWork], group: str, kind: str) -> Counter[str]:
    """Return the counts of all steps of a kind together."""
    total: Counter[str] = Counter()
    for one in work:
        if (one.group, one.kind) == (group, kind):
            total.update(one.counts)
    return total
