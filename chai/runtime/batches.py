"""Run a Plan on batches of another size than its own."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import show
from ..errors import ChaiError, UsageError
from ..util.lazy_numpy import np
from .perf import joined as joined_times

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..offload.plan import Plan
    from .execution import Execution
    from .perf import PerfInfo


def run_batches(
    execution: Execution, feeds: Mapping[str, Array], keep: Collection[str], started: float | None = None
) -> tuple[dict[str, Array], PerfInfo]:
    """Run a batch whose size may differ from the Plan's; otherwise like ``Execution.run``.

    The batch is split, the last part is padded with copies of the last image, and the results are joined. A blob that no
    image has a part in, as the boxes of a PriorBox, is that of any pass. Raises UsageError for other blobs of ``keep``
    without a batch axis.
    """
    if _fits(execution, feeds):
        return execution.run(feeds, keep, started)
    started = perf_counter() if started is None else started
    own = execution.plan.batch
    count = next(iter(feeds.values())).shape[0]
    passes = [execution.run(part, keep) for part in _parts(feeds, count, own)]
    blobs = _joined(execution, [blobs for blobs, _ in passes], count)
    return blobs, joined_times([perf for _, perf in passes], count, (perf_counter() - started) * 1000)


def stream_batches(
    execution: Execution,
    feeds: Iterator[Mapping[str, Array]],
    keep: Collection[str],
    first: Mapping[str, Array],
) -> Generator[tuple[dict[str, Array], PerfInfo], None, None]:
    """Run many batches of the size of ``first``; with ``Execution.stream`` if that is the Plan's size."""
    if _fits(execution, first):
        return execution.stream(feeds, keep)
    return (run_batches(execution, feed, keep) for feed in feeds)


def rebatched(plan: Plan, count: int) -> dict[str, Shape]:
    """Return the shapes of all blobs of a Plan for ``count`` images, by the layers' shape rules.

    A layer that exists only as Tasks, or has no rule for that many images, keeps all axes of its tops but the first.
    """
    own = plan.batch
    shapes = {blob: (count, *shape[1:]) if shape[:1] == (own,) else shape for blob, shape in plan.shapes.items()}
    for layer in plan.graph.layers:
        if not (layer.source or layer.on_device):
            with suppress(ChaiError):
                shapes.update(zip(layer.tops, layer.shapes(*(shapes[blob] for blob in layer.bottoms))))
    return shapes


def _mixed(plan: Plan, rebatched: Mapping[str, Shape]) -> set[str]:
    """Return the blobs that all images of a batch have a part in, and what is computed of them.

    A custom function that says nothing about images is taken to compute each alone, if its top has a batch axis.
    """
    mixed: set[str] = set()
    for layer in plan.graph.layers:
        bottoms = tuple(plan.shapes[blob] for blob in layer.bottoms)
        alone = layer.source or layer.on_device or layer.images_alone(bottoms)
        mixes = not alone and layer.mixes_images(bottoms)
        for top in layer.tops:
            if mixes or not mixed.isdisjoint(layer.bottoms) or (not alone and rebatched[top] == plan.shapes[top]):
                mixed.add(top)
    return mixed


def _fits(execution: Execution, feeds: Mapping[str, Array]) -> bool:
    """Return whether the Plan's inputs have exactly these shapes."""
    return all(array.shape == execution.shapes[name] for name, array in feeds.items())


def _parts(feeds: Mapping[str, Array], count: int, own: int) -> Iterator[dict[str, Array]]:
    for first in range(0, count, own):
        part = {name: array[first : first + own] for name, array in feeds.items()}
        missing = own - min(own, count - first)
        if missing:
            part = {name: np.concatenate([a, np.repeat(a[-1:], missing, 0)]) for name, a in part.items()}
        yield part


def _joined(execution: Execution, parts: Sequence[Mapping[str, Array]], count: int) -> dict[str, Array]:
    plan, joined = execution.plan, {}
    shapes = rebatched(plan, count)
    mixed = _mixed(plan, shapes)
    for blob, first in parts[0].items():
        shape = execution.shapes[blob]
        whole = shapes[blob] if first.shape == shape and blob not in mixed else None
        if whole == shape:
            joined[blob] = first
        elif whole == (count, *shape[1:]) and shape[:1] == (plan.batch,):
            joined[blob] = np.concatenate([part[blob] for part in parts])[:count]
        else:
            why = "depends on all images of a batch" if shapes[blob][:1] == (count,) else "has no batch axis"
            raise UsageError(
                f"output {plan.graph.caffe_name(blob)!r} of {show(shape)} {why}: "
                f"{count} images cannot be joined from passes of {plan.batch}",
                hint=f"feed {plan.batch} images at a time",
            )
    return joined
