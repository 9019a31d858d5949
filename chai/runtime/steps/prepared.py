"""Prepare the steps of a Schedule to run on many batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...offload.schedule import HostStep, Pack, Schedule, Step, Unpack
from ..host.layer import PreparedLayer
from . import PreparedStep
from .conversions import Packing, Unpacking
from .layers import CustomOnHost, OnCodes, OnHost
from .segments import DeviceSegment

if TYPE_CHECKING:
    from ...offload.plan import Plan


def prepared(plan: Plan, executed: Schedule, counting: bool) -> list[PreparedStep]:
    """Return the steps of ``executed``, the plan's schedule as a device executes it, ready to run.

    ``counting``: conversions count the codes that are saturated.
    """
    graph, shapes, formats = plan.graph, plan.shapes, plan.formats

    def one(step: Step) -> PreparedStep:
        if isinstance(step, Pack):
            return Packing(step, graph, plan.device_shapes, counting)
        if isinstance(step, Unpack):
            return Unpacking(step, graph, shapes, counting)
        if isinstance(step, HostStep):
            layer = PreparedLayer(step.layer, shapes, 1 if step.codes else 4)
            if step.codes:
                return OnCodes(layer, step.layer.on_codes(shapes, formats))
            return CustomOnHost(layer) if step.layer.engine == "custom" else OnHost(layer)
        return DeviceSegment(step, plan, executed)

    return [*map(one, executed.steps)]
