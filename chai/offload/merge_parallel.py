"""merge_parallel: convolutions that read the same blob through equal windows become one Task.

The array computes whole blocks of output channels: with blocks of 24, 128 and 32 channels need 6 + 2 blocks, together 7.
Tasks are merged, not layers of the Graph, because formats are known only after calibration. Shifts and clamps must be
equal and multipliers are per channel, so no bit changes. Each layer's blob becomes channels of a joint blob, like the
top of a slice.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from ..blob import Shape, View
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.conv import Conv
from .schedule import Schedule


def merge_parallel(
    tasks: Sequence[Task], scheduled: Schedule, shapes: Mapping[str, Shape], overlay: Overlay
) -> Sequence[Task]:
    """Return the Tasks of one segment, merged where that is faster in the cycle model.

    A Task whose blob is already a part of another one is not merged. Joint blobs and their parts are added to the Schedule.
    """
    groups: dict[Hashable, list[Conv]] = {}
    for task in tasks:
        if isinstance(task, Conv) and task.output not in scheduled.views and (key := task.merge_key()) is not None:
            groups.setdefault((task.kind, key), []).append(task)
    for group in groups.values():
        joint = _Joint(group[:1], shapes, overlay)
        for task in group[1:]:
            tried = _Joint([*joint.parts, task], shapes, overlay)
            if tried.fits(shapes) and tried.cycles < joint.cycles + _Joint([task], shapes, overlay).cycles:
                joint = tried
        if len(joint.parts) > 1:
            first, *others = joint.parts
            tasks = [joint.task if task is first else task for task in tasks if task not in others]
            scheduled.views.update((blob, View(joint.task.output, channel)) for blob, channel in joint.first.items())
            scheduled.shapes[joint.task.output] = joint.shape
    return tasks


class _Joint:
    """One Task for several: ``first`` is the first channel of each one's blob.

    A part begins at a multiple of the overlay's channel step. Padding channels between parts have no weights, so they hold
    the zero point of the parts' format, and nothing reads them; parts that need no padding go first.
    """

    def __init__(self, parts: list[Conv], shapes: Mapping[str, Shape], overlay: Overlay) -> None:
        self.parts = parts
        channels = {part.output: shapes[part.output][1] for part in parts}
        limits = parts[0].limits(overlay)
        assert limits is not None
        self.limits = limits
        ordered = sorted(parts, key=lambda part: channels[part.output] % limits.channel_step != 0)
        gaps = [-channels[part.output] % limits.channel_step for part in ordered[:-1]] + [0]
        self.first: dict[str, int] = {}
        total = 0
        for part, gap in zip(ordered, gaps):
            self.first[part.output] = total
            total += channels[part.output] + gap
        n, _, *size = shapes[parts[0].output]
        self.shape: Shape = (n, total, *size)
        self.task = ordered[0]
        if len(ordered) > 1:
            self.task = type(ordered[0]).merged(ordered, gaps, " & ".join(self.first))
        self.cycles = self.task.cycles(overlay, {**shapes, self.task.output: self.shape})

    def fits(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether the Task is within the overlay's limits and its output has a name that no blob has."""
        return self.shape[1] <= self.limits.channels_max and self.task.output not in shapes
