"""Segments on a device, and the codes of a batch there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

from ...blob import Array, Shape, bases, codes_of
from ...env import env
from ...errors import DeviceError
from ...graph import Layer
from ...kernels.native import Link, NativeLayer
from ...offload.schedule import DeviceStep, Pack, Schedule
from ...tasks import Task
from ...text import number_of
from ...util.lazy_numpy import np
from ..dump import dump
from ..slot import Slot, StepBlobs
from ..times import Rows, RunTimes, StepTime
from . import PreparedStep, names_of

if TYPE_CHECKING:
    from ...devices.base import Ran
    from ...offload.plan import Plan


class DeviceSegment(PreparedStep):
    """A segment on the device: the Programs of its StepBlobs, one for all Tasks or one for each."""

    def __init__(self, step: DeviceStep, plan: Plan, executed: Schedule) -> None:
        self.step, self.shapes, self.device_shapes, self.views = step, plan.shapes, plan.device_shapes, executed.views
        self.rows = Rows(_tasks(step, self.device_shapes, executed))
        self.whole = Rows([_whole(step, self.rows)])

    def links(self, use: StepBlobs) -> list[Link]:
        program = use.programs[0].native if len(use.programs) == 1 and not use.tops else None
        ends = None if program is None else program.ends
        if ends is None or {("device", blob) for blob in ends[1]} != {*use.written}:
            return []
        reads, writes = (names_of("device", blobs) for blobs in ends)
        return [Link(NativeLayer(None, program=program), reads, writes, len(self.step.tasks))]

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        begin, codes = perf_counter(), slot.codes
        at = (begin - slot.started) * 1000
        if (direct := use.direct) is not None:
            runs = [direct.program.run_in(slot.sets[direct], codes, direct.packed, direct.unpacked)]
            whole = (perf_counter() - begin) * 1000
        else:
            runs, whole = self._run(use, codes)
        for top, layer in use.tops:  # a view of its own for a part of a larger blob
            if any(view.base in codes for view in bases(top, self.views)):  # hidden memory has none
                dump(top, layer, self._of(top, codes).reshape(self.shapes[top]))
        device = [run.device for run in runs]
        if any(run.tasks is None for run in runs):
            known = [ms for ms in device if ms is not None]
            return RunTimes(self.whole, (whole,), at, [sum(known) if len(known) == len(device) else None])
        times = [ms for run in runs for ms in run.tasks or ()]
        if len(times) != len(self.step.tasks):
            raise DeviceError(f"the device timed {number_of(len(times), 'Task')} of {len(self.step.tasks)}")
        return RunTimes(self.rows, times, at, device if len(device) == len(times) else None)

    def _run(self, use: StepBlobs, codes: dict[str, Array]) -> tuple[list[Ran], float]:
        """Run the Programs, and check the Task of each if that is asked for; return also the milliseconds of all."""
        runs, whole = [], 0.0
        for task, program in zip(self.step.tasks, use.programs):
            begin = perf_counter()
            runs.append(program.run(codes))
            whole += (perf_counter() - begin) * 1000
            if env().check:
                self.check(task, codes)
        return runs, whole

    def _of(self, blob: str, codes: dict[str, Array]) -> Array:
        """Return the codes of a blob, in the shape that the device has it in."""
        return codes_of(blob, codes, self.device_shapes, self.views)

    def check(self, task: Task, codes: dict[str, Array]) -> None:
        """Compare a Task's codes with its definition. Raises DeviceError with the first difference."""
        expected = task.define(*(self._of(b, codes) for b in task.inputs))
        written = task.written(self._of(task.output, codes), self.device_shapes)
        wrong = np.argwhere(written != expected)
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise DeviceError(
                f"layer {task.origin[0]!r}: the device's code at {at} is {written[at]}, by definition {expected[at]} "
                f"({len(wrong):,} of {expected.size:,} differ)",
                layer=task.origin[0],
            )


def _tasks(step: DeviceStep, shapes: Mapping[str, Shape], executed: Schedule) -> Iterator[StepTime]:
    """Yield a row for each Task of a segment."""
    together: dict[str, list[Layer]] = {}  # layers that run as one Task, by the blob that it writes
    for layer in step.layers:
        wholes = [executed.views[top].base for top in layer.tops if top in executed.views]
        for base in dict.fromkeys(whole for whole in wholes if whole in executed.shapes):
            together.setdefault(base, []).append(layer)
    # the network's blobs by the names of their codes, which differ if they are unfolded
    packed = {pack.result: pack.blob for pack in executed.conversions if isinstance(pack, Pack)}
    for task in step.tasks:
        macs = task.macs(*(shapes[b] for b in task.inputs))
        written = prod(shapes[task.output])  # one byte per code
        merged = together.get(task.output, [])
        name = " & ".join(layer.name for layer in merged) or task.origin[0]
        layers = tuple(name for layer in merged for name in layer.origin) or task.origin
        reads = tuple(packed.get(blob, blob) for blob in task.inputs)
        yield StepTime(name, task.kind, "fpga", 0.0, macs, written, reads, (task.output,), layers=layers)


def _whole(step: DeviceStep, rows: Rows) -> StepTime:
    """Return one row for all Tasks of a segment."""
    names = " .. ".join(dict.fromkeys((step.layers[0].name, step.layers[-1].name)))
    layers = tuple(dict.fromkeys(name for layer in step.layers for name in layer.origin))
    macs, ends = sum(row.macs for row in rows.steps), (step.inputs, step.outputs)
    return StepTime(names, "segment", "fpga", 0.0, macs, rows.bytes, *ends, layers=layers)
