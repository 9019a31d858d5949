"""null: plans everything but computes nothing; its codes are zeros."""

from __future__ import annotations

from ..blob import Array, bases
from ..tasks.work import Work
from ..util.lazy_numpy import np
from .base import Device, Program, Ran


class NullProgram(Program):
    """Returns zeros for every output of its Tasks, and for the parents of views."""

    def __init__(self, work: Work) -> None:
        written = dict.fromkeys(view.base for task in work.tasks for view in bases(task.output, work.views))
        self.outputs = {blob: work.shapes[blob] for blob in written}

    def run(self, blobs: dict[str, Array]) -> Ran:
        for blob, shape in self.outputs.items():
            blobs[blob] = np.zeros(shape, np.int8)
        return Ran()


class NullDevice(Device):
    """For tests and for inspecting a schedule."""

    fixed = True

    def status(self) -> tuple[bool, str]:
        return True, "nothing: it does not compute"

    def compile(self, work: Work) -> Program:
        return NullProgram(work)


device = NullDevice("null", "schedules, computes nothing: its codes are zeros")
