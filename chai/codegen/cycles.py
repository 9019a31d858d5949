"""Cycle model of a chain: two engines, each in order, every Task after those that it waits for, and one memory for both."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from ..blob import Shape
from ..overlay import Overlay
from ..tasks import Task
from .dependencies import NONE, Finished

INSTANT = 1e-6  # cycles, less than which is a rounding error


@dataclass(eq=False, slots=True)
class Effort:
    """The cycles of a Task that runs alone on its ``engine``, and the share of the memory's rate that it uses then."""

    engine: str
    cycles: int
    load: float


def effort(overlay: Overlay, task: Task, shapes: Mapping[str, Shape]) -> Effort:
    """Return the effort of a Task; it moves its bytes evenly over its time."""
    cycles = task.cycles(overlay, shapes)
    return Effort(task.engine, cycles, task.moving_cycles(overlay, shapes) / cycles)


class Engines:
    """The engines at the cycle ``now``, each with a Task (numbered as the ``efforts``) or free.

    Two Tasks that run at once have half of the memory's rate each, or more where the other one needs less.
    """

    def __init__(self, efforts: Sequence[Effort]) -> None:
        self.now = 0.0
        self._efforts = efforts
        self._running: dict[str, int] = {}
        self._left = [float(one.cycles) for one in efforts]

    def free(self, engine: str) -> bool:
        """Return whether an engine has no Task."""
        return engine not in self._running

    def start(self, number: int) -> None:
        """Start a Task on its engine, which is free."""
        self._running[self._efforts[number].engine] = number

    def advance(self) -> list[int]:
        """Run until a Task ends; return those that do, which leave their engines free."""
        total = sum(self._efforts[i].load for i in self._running.values())
        speeds = {i: _speed(self._efforts[i].load, total) for i in self._running.values()}
        passed = min(self._left[i] / speed for i, speed in speeds.items())
        self.now += passed
        for i, speed in speeds.items():
            self._left[i] -= passed * speed
        ended = [i for i in speeds if self._left[i] < INSTANT]
        for i in ended:
            del self._running[self._efforts[i].engine]
        return ended


def _speed(load: float, total: float) -> float:
    """Return the speed of a Task, 1 while alone, where all that run use ``total`` of the memory's rate if they can."""
    return min(1.0, max(0.5, 1 - (total - load)) / load) if load else 1.0


def chain_cycles(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], after: Sequence[Finished]
) -> int:
    """Return the clock cycle in which the last Task ends; ``after`` is what each waits for."""
    efforts = [effort(overlay, task, shapes) for task in tasks]
    queues = {name: deque(i for i, one in enumerate(efforts) if one.engine == name) for name in Finished._fields}
    engines, done = Engines(efforts), NONE
    while sum(done) < len(tasks):
        for name, queue in queues.items():
            if queue and engines.free(name) and after[queue[0]] | done == done:
                engines.start(queue.popleft())
        for i in engines.advance():
            name = efforts[i].engine
            done = done._replace(**{name: getattr(done, name) + 1})
    return ceil(engines.now - INSTANT)
