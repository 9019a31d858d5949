"""The work of a board's processor in a pass: each step of a plan with its sizes, for a host model; or measured, as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from ..blob import show
from ..offload.cost import conversion_counts, flush_counts, layer_counts, layer_kind
from ..offload.schedule import DeviceStep, HostStep, Pack, Unpack
from ..overlay.host_model import FLUSH, LANES, LOAD, PASS, SEGMENT, STORE, UNFOLDED
from ..runtime.direct import Readers, unpacking_at_once
from ..runtime.execution import Execution
from ..runtime.times import Times

Row = tuple[str, str, int]  # kind, name, amount


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
            kind = UNFOLDED if isinstance(step, Pack) and step.unfold is not None else step.type
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
        shape = shapes[blob]
        yield HostWork("driver", kind, show(shape), conversion_counts(shape, shape, overlay.layout))


def summed(work: Sequence[HostWork], group: str, kind: str) -> Counter[str]:
    """Return the counts of all steps of a kind together."""
    total: Counter[str] = Counter()
    for one in work:
        if (one.group, one.kind) == (group, kind):
            total.update(one.counts)
    return total


def rows_of(times: Times, moves: Sequence[Row], whole: float, per_ms: float) -> list[Row]:
    """Return the rows of a pass of ``whole`` units, of which a millisecond of its clock has ``per_ms``.

    They are its steps, ``moves`` of blobs, and what is around them. Segments without their moves, and without what the
    accelerator counted itself, are the driver's.
    """
    segments = [step for step in times.steps if step.kind == "fpga"]
    host = (step for step in times.steps if step.kind != "fpga")
    rows = [(step.type if step.kind == "host" else step.kind, step.name, round(step.ms * per_ms)) for step in host]
    rows += moves
    device = sum((step.device_ms or 0.0) * per_ms for step in segments)
    driver = sum(step.ms * per_ms for step in segments) - device - sum(number for *_, number in moves)
    rows.append(("driver", f"segments: {len(segments)}", round(driver)))
    rows.append(("feed", "before the first step", round(times.feed_ms * per_ms)))
    rows.append(("between", "between steps", round(times.between_ms * per_ms)))
    rows.append(("call", "around the pass", round(whole - device) - sum(number for *_, number in rows)))
    return rows


def medians(passes: Sequence[Sequence[Row]]) -> tuple[Row, ...]:
    """Return the median of each row over passes of the same rows, in the order of the first. Raises ValueError for others."""
    numbers: dict[tuple[str, str, int], list[int]] = {}
    for rows in passes:
        seen: Counter[tuple[str, str]] = Counter()
        for kind, name, number in rows:
            # a blob may be stored for several segments
            numbers.setdefault((kind, name, seen[kind, name]), []).append(number)
            seen[kind, name] += 1
    if any(len(counts) != len(passes) for counts in numbers.values()):
        raise ValueError("passes of one network have different rows")
    return tuple((kind, name, median_low(counts)) for (kind, name, _), counts in numbers.items())
