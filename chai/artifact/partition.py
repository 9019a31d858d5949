"""Recover the partition of a network from its steps."""

from __future__ import annotations

from ..offload.schedule import HostStep, Schedule
from ..offload.segments import Partition, Segment


def partition_of(schedule: Schedule) -> Partition:
    """Return the segments (longest runs of steps on one engine) and the reasons for layers on the host."""
    result = Partition([], {})
    for step in schedule.steps:
        if not step.layers:  # a conversion
            continue
        engine = "host" if isinstance(step, HostStep) else "fpga"
        if isinstance(step, HostStep):
            result.reasons[step.layer.name] = step.reason
        if not result.segments or result.segments[-1].engine != engine:
            result.segments.append(Segment(engine))
        result.segments[-1].layers.extend(step.layers)
    return result
