"""Join a MAX pooling to the convolution that writes its input: one Task, whose codes are pooled before they are stored.

The blob between them is not in the device's memory then. So Tasks are joined when a segment is compiled, where that blob is
neither an output nor kept, and only there; a device without descriptors runs both. A pooling of a Concat is joined to the
convolutions of all branches, each of which writes its channels of the pooled blob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..blob import Shape, View, Wholes
from ..errors import DeviceError
from ..tasks import Task
from ..tasks.conv import Conv
from ..tasks.pool import Pool
from ..tasks.pooling import PooledCodes
from ..tasks.work import Work
from ..text import number_of


def joined(work: Work) -> Work:
    """Return the same segment with the poolings that can be joined in the Tasks of their convolutions.

    The channels of a Concat's branches have names of their own in the pooled blob.
    """
    uses = _uses(work)
    shapes, views = {**work.shapes}, {**work.views}
    together: dict[Task, Task | None] = {}
    for at, pool in enumerate(work.tasks):
        if not isinstance(pool, Pool) or pool.requantization is not None or pool.lookup is not None:
            continue
        blob = pool.inputs[0]
        if uses(blob) != [pool]:
            continue
        one: dict[Task, Task | None] = {}
        for writer in work.tasks:
            name, place = pool.output, work.views.get(writer.output)
            if writer.output != blob:
                if place is None or place.base != blob:
                    continue
                name = f"{writer.output} pooled"
                shapes[name] = (*shapes[writer.output][:2], *pool.out)
                views[name] = View(pool.output, place.first_channel)
            one[writer] = _one(work, writer, pool, name, at, shapes)
        channels = sum(shapes[writer.output][1] for writer in one)
        if channels == shapes[blob][1] and None not in one.values():
            together |= {**one, pool: None}
    used = {task.output for task in together.values() if task is not None}
    return work._replace(
        tasks=[kept for task in work.tasks if (kept := together.get(task, task)) is not None],
        shapes={blob: shape for blob, shape in shapes.items() if blob in work.shapes or blob in used},
        views={blob: view for blob, view in views.items() if blob in work.views or blob in used},
    )


def _uses(work: Work) -> Callable[[str], list[Task | None]]:
    """Return a function from a blob to the Tasks that read any of its channels; None among them is the host."""
    wholes, shapes = Wholes(work.views), work.shapes
    every: dict[str, list[tuple[int, int, Task | None]]] = {}
    read = [(blob, task) for task in work.tasks for blob in task.inputs]
    for blob, task in (*read, *((blob, None) for blob in (*work.reads, *work.writes))):
        whole, first = wholes[blob]
        every.setdefault(whole, []).append((first, first + shapes[blob][1], task))

    def uses(blob: str) -> list[Task | None]:
        whole, first = wholes[blob]
        end = first + shapes[blob][1]
        return [task for begin, stop, task in every.get(whole, ()) if begin < end and first < stop]

    return uses


def _one(work: Work, conv: Task, pool: Pool, output: str, at: int, shapes: Mapping[str, Shape]) -> Conv | None:
    """Return one Task for a convolution and the pooling of its codes; None if the overlay cannot run that."""
    if not isinstance(conv, Conv) or conv.pooling is not None or conv.images != pool.images:
        return None
    if output != pool.output and output in work.shapes:
        return None
    pooling = PooledCodes(pool.window, pool.out, conv.output, pool.origin, at)
    one = replace(conv, output=output, pooling=pooling)
    return None if one.excluded(work.overlay, shapes) else one


def apart(tasks: Sequence[Task], views: Mapping[str, View]) -> list[Task]:
    """Return the Tasks with poolings of their own, each where it was: the inverse of ``joined``.

    Raises DeviceError if they were not joined so.
    """
    pools: dict[int, Pool] = {}
    rest: list[Task] = []
    for task in tasks:
        pooling = task.pooling if isinstance(task, Conv) else None
        if pooling is None or not isinstance(task, Conv):
            rest.append(task)
            continue
        rest.append(replace(task, output=pooling.blob, pooling=None))
        source, target = pooling.blob, task.output
        if target in views and source in views and views[source].first_channel == views[target].first_channel:
            source, target = views[source].base, views[target].base
        pool = Pool((source,), target, pooling.origin, pooling.window, pooling.out, None)
        if pooling.at in pools and vars(pools[pooling.at]) != vars(pool):
            raise DeviceError(f"task {pooling.at}: its parts pool different blobs")
        pools.setdefault(pooling.at, pool)
    count = len(rest) + len(pools)
    if not all(0 <= at < count for at in pools):
        raise DeviceError(f"a pooling is none of {number_of(count, 'task')}")
    others = iter(rest)
    return [pools[at] if at in pools else next(others) for at in range(count)]
