"""unfold_inputs: a convolution with few channels reads its network input unfolded, so that taps fill the array's inputs.

The host writes the input anyway, and packs it unfolded (``tasks.unfold``). Tasks are rewritten, not layers of the Graph,
so formats, blobs of layers and reports do not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..blob import Shape
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.unfold import Unfold
from .schedule import unfolded_name


@dataclass
class Unfolded:
    """The new Task of each one; ``unfolds`` of the unfolded inputs; ``shapes`` of the new blobs."""

    tasks: dict[Task, Task]
    unfolds: dict[str, Unfold]
    shapes: dict[str, Shape]


def unfold_inputs(
    tasks: Sequence[Task], inputs: Collection[str], shapes: Mapping[str, Shape], overlay: Overlay
) -> Unfolded:
    """Return all Tasks of a network, with those blobs of ``inputs`` unfolded that one Task reads and that make it faster."""
    readers = Counter(blob for task in tasks for blob in task.inputs)
    result = Unfolded({task: task for task in tasks}, {}, {})
    for task in tasks:
        blob, name = task.inputs[0], unfolded_name(task.inputs[0])
        if blob not in inputs or readers[blob] > 1 or name in shapes:
            continue
        unfold = task.unfolding(overlay, shapes[blob])
        if unfold is not None:
            result.tasks[task] = task.unfolded(unfold, name)
            result.unfolds[blob] = unfold
            result.shapes[name] = unfold.shape(shapes[blob])
    return result
