"""merge_parallel: convolutions that read one blob through windows of one kind become one Task.

The array works on whole blocks of output channels: with blocks of 24, 128 and 32 channels are 6 + 2 of them, together 7.
This happens to Tasks and not in a pass over the Graph, because formats are known only after calibration. With equal
shifts and clamps the multipliers of each channel say the rest: no bit changes, whatever the formats are. Each layer's
blob becomes channels of a joint one, as the piece of a slice is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..tasks.conv import Conv
from ..tasks.cycles import cycles
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..overlay import Overlay
    from ..tasks import Task


@dataclass
class Merged:
    """``tasks`` in order; ``places`` of the blobs that are now part of a joint one; ``shapes`` of the joint ones."""

    tasks: list[Task]
    places: dict[str, tuple[str, int]]
    shapes: dict[str, Shape]


def merge_parallel(
    tasks: Iterable[Task], places: Mapping[str, tuple[str, int]], shapes: Mapping[str, Shape], overlay: Overlay
) -> Merged:
    """Tasks of one segment, those merged that the cycle model says are faster so.

    A Task whose blob has its place in another one already (``places``) stays as it is.
    """
    result = Merged(list(tasks), {}, {})
    groups: dict[object, list[Conv]] = {}
    for task in result.tasks:
        if type(task) is Conv and task.group == 1 and task.output not in places:
            r = task.requantization
            alike = task.inputs, task.window, r.shift, r.low, r.high, r.negative is None
            groups.setdefault(alike, []).append(task)
    for group in groups.values():
        joint = _Joint(group[:1], shapes, overlay)
        for task in group[1:]:
            tried = _Joint([*joint.parts, task], shapes, overlay)
            if tried.fits(shapes) and tried.cycles < joint.cycles + _Joint([task], shapes, overlay).cycles:
                joint = tried
        if len(joint.parts) > 1:
            at = result.tasks.index(joint.parts[0])
            result.tasks[at] = joint.task
            result.tasks = [task for task in result.tasks if task not in joint.parts]
            result.places.update((blob, (joint.task.output, channel)) for blob, channel in joint.first.items())
            result.shapes[joint.task.output] = joint.shape
    return result


class _Joint:
    """One Task for some: ``first`` is the channel that each one's blob begins at.

    A part begins where the overlay lets one begin. Channels left over in between have no weights and give zeros, as the
    layout has them behind the last channel of a blob; parts that leave none over go first.
    """

    def __init__(self, parts: list[Conv], shapes: Mapping[str, Shape], overlay: Overlay) -> None:
        self.parts = parts
        self.overlay = overlay
        step = overlay.tasks.conv.channel_step
        ordered = sorted(parts, key=lambda part: len(part.bias) % step != 0)
        self.gaps = [-len(part.bias) % step for part in ordered[:-1]] + [0]
        self.first: dict[str, int] = {}
        channels = 0
        for part, gap in zip(ordered, self.gaps):
            self.first[part.output] = channels
            channels += len(part.bias) + gap
        n, _, *size = shapes[parts[0].output]
        self.shape: Shape = (n, channels, *size)
        self.task = ordered[0] if len(ordered) == 1 else self._task(ordered)
        self.cycles = cycles(self.task, overlay, {**shapes, self.task.output: self.shape})

    def fits(self, shapes: Mapping[str, Shape]) -> bool:
        """Within the overlay's limits, and of a name that no blob has."""
        return self.shape[1] <= self.overlay.tasks.conv.channels_max and self.task.output not in shapes

    def _task(self, ordered: list[Conv]) -> Conv:
        below = [part.requantization.negative for part in ordered]
        above = self._padded(part.requantization.multiplier for part in ordered)
        negative = None if below[0] is None else self._padded(m for m in below if m is not None)
        return replace(
            ordered[0],
            output=" & ".join(self.first),
            origin=tuple(name for part in ordered for name in part.origin),
            weights=self._padded(np.asarray(part.weights) for part in ordered),
            bias=self._padded(part.bias for part in ordered),
            requantization=replace(ordered[0].requantization, multiplier=above, negative=negative),
        )

    def _padded(self, arrays: Iterable[Array]) -> Array:
        return np.concatenate([np.pad(a, [(0, gap)] + [(0, 0)] * (a.ndim - 1)) for a, gap in zip(arrays, self.gaps)])
