"""null: plans everything, computes nothing; its blobs are zeros."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..lazy import np
from .base import Device, Program

if TYPE_CHECKING:
    from ..graph import Array, Shape
    from ..overlay import Overlay
    from ..tasks import Task


class NullProgram(Program):
    """Gives every output of its Tasks as zeros, and what that is a part of."""

    def __init__(
        self, tasks: Sequence[Task], shapes: Mapping[str, Shape], places: Mapping[str, tuple[str, int]]
    ) -> None:
        self.outputs = {}
        for blob in (task.output for task in tasks):
            self.outputs[blob] = shapes[blob]
            while blob in places:
                blob = places[blob][0]
                self.outputs[blob] = shapes[blob]

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
        reads: Collection[str] = (),
        writes: Collection[str] = (),
    ) -> Program:
        return NullProgram(tasks, shapes, places)


device = NullDevice("null", "schedules, computes nothing: zeros come out")
