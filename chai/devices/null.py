"""null: plans everything, computes nothing; its blobs are zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..lazy import np
from .base import Device, Program

if TYPE_CHECKING:
    from ..graph import Array, Shape
    from ..overlay import Overlay
    from ..tasks import Task


class NullProgram(Program):
    """Gives every output of its Tasks as zeros."""

    def __init__(self, tasks: Sequence[Task], shapes: Mapping[str, Shape]) -> None:
        self.outputs = {task.output: shapes[task.output] for task in tasks}

    def run(self, blobs: dict[str, Array]) -> None:
        for blob, shape in self.outputs.items():
            blobs[blob] = np.zeros(shape, np.int8)


class NullDevice(Device):
    """For tests and for looking at a schedule."""

    fixed = True

    def status(self) -> tuple[bool, str]:
        return True, "nothing: it does not compute"

    def compile(
        self,
        overlay: Overlay,
        tasks: Sequence[Task],
        shapes: Mapping[str, Shape],
        places: Mapping[str, tuple[str, int]],
    ) -> Program:
        return NullProgram(tasks, shapes)


device = NullDevice("null", "schedules, computes nothing: zeros come out")
