"""unfold_inputs: a convolution with few channels reads its network input unfolded, so that taps fill the array's inputs.

The host writes the input anyway, and packs it unfolded (``tasks.unfold``). Tasks are rewritten, not layers of the Graph,
so formats, blobs of layers and reports do not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from ..tasks import Task
from ..tasks.target import Target
from ..tasks.unfold import Unfold
from .schedule import DeviceStep, HostStep, Pack, Schedule, unfolded_name


def unfold_inputs(scheduled: Schedule, inputs: Collection[str], target: Target) -> None:
    """Unfold the inputs of a network that only one Task reads, where that is faster."""
    shared = {view.base for view in scheduled.views.values()}
    shared.update(
        b for step in scheduled.steps if isinstance(step, HostStep) and step.codes for b in step.layer.bottoms
    )
    shapes = {**target.shapes, **scheduled.shapes}
    tasks = [task for step in scheduled.segments for task in step.tasks]
    readers = Counter(blob for task in tasks for blob in task.inputs)
    rewritten: dict[Task, Task] = {}
    unfolds: dict[str, Unfold] = {}
    for task in tasks:
        blob, name = task.inputs[0], unfolded_name(task.inputs[0])
        if blob not in inputs or blob in shared or readers[blob] > 1 or name in shapes:
            continue
        unfold = task.unfolding(target.overlay, shapes[blob])
        if unfold is not None:
            rewritten[task] = task.unfolded(unfold, name)
            unfolds[blob] = unfold
            scheduled.shapes[name] = unfold.shape(shapes[blob])
    for i, step in enumerate(scheduled.steps):
        if isinstance(step, Pack) and step.blob in unfolds:
            scheduled.steps[i] = replace(step, unfold=unfolds[step.blob])
        elif isinstance(step, DeviceStep):
            names = tuple(unfolded_name(blob) if blob in unfolds else blob for blob in step.inputs)
            scheduled.steps[i] = step._replace(tasks=tuple(rewritten.get(t, t) for t in step.tasks), inputs=names)
