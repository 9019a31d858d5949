"""Cycle model of a chain: two engines, each in order, and every Task after those that it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .dependencies import Finished

if TYPE_CHECKING:
    from ..blob import Shape
    from ..overlay import Overlay
    from ..tasks import Task


def chain_cycles(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], after: Sequence[Finished]
) -> int:
    """Return the clock cycle in which the last Task ends; ``after`` is what each waits for."""
    ends = {engine: [0] for engine in Finished._fields}  # of the first 0, 1, 2, ... Tasks of an engine
    for task, finished in zip(tasks, after):
        waited = (ends[engine][count] for engine, count in finished._asdict().items())
        mine = ends[task.engine]
        mine.append(max(mine[-1], *waited) + task.cycles(overlay, shapes))
    return max(end[-1] for end in ends.values())
