"""Cycle model of a chain: two engines, each in order, every Task after those that it waits for, and one memory for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from .dependencies import NONE, Finished

if TYPE_CHECKING:
    from ..blob import Shape
    from ..overlay import Overlay
    from ..tasks import Task

INSTANT = 1e-6  # cycles, less than which is a rounding error


class _Running:
    """A Task on its engine: the cycles it still takes while alone, and the share of the memory's rate it uses then."""

    def __init__(self, task: Task, overlay: Overlay, shapes: Mapping[str, Shape]) -> None:
        self.left = float(task.cycles(overlay, shapes))
        self.load = task.moving_cycles(overlay, shapes) / self.left

    def speed(self, others: float) -> float:
        """Return its speed, 1 while alone, next to a Task with the load ``others``: each may have half of the memory."""
        return min(1.0, max(0.5, 1 - others) / self.load) if self.load else 1.0


def chain_cycles(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], after: Sequence[Finished]
) -> int:
    """Return the clock cycle in which the last Task ends; ``after`` is what each waits for.

    A Task moves its bytes evenly over its time. Two that run at once have half of the memory's rate each, or more where
    the other one needs less.
    """
    waiting = {engine: [i for i, task in enumerate(tasks) if task.engine == engine] for engine in Finished._fields}
    running: dict[str, _Running] = {}
    done, now = NONE, 0.0
    while any(waiting.values()) or running:
        for engine, queue in waiting.items():
            if engine not in running and queue and after[queue[0]] | done == done:
                running[engine] = _Running(tasks[queue.pop(0)], overlay, shapes)
        load = sum(task.load for task in running.values())
        speeds = {engine: task.speed(load - task.load) for engine, task in running.items()}
        passed = min(task.left / speeds[engine] for engine, task in running.items())
        now += passed
        for engine, task in list(running.items()):
            task.left -= passed * speeds[engine]
            if task.left < INSTANT:
                del running[engine]
                done = done._replace(**{engine: getattr(done, engine) + 1})
    return ceil(now - INSTANT)
