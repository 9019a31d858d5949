"""Run a Plan on batches of another size than its own."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import show
from ..errors import UsageError
from ..util.lazy_numpy import np
from .perf import joined

if TYPE_CHECKING:
    from ..blob import Array
    from .execution import Execution
    from .perf import PerfInfo


def run_batches(
    execution: Execution, feeds: Mapping[str, Array], keep: Collection[str], started: float | None = None
) -> tuple[dict[str, Array], PerfInfo]:
    """Run a batch whose size may differ from the Plan's; otherwise like ``Execution.run``.

    The batch is split, the last part is padded with copies of the last image, and the results are joined. Raises
    UsageError for a blob of ``keep`` without a batch axis.
    """
    if _fits(execution, feeds):
        return execution.run(feeds, keep, started)
    started = perf_counter() if started is None else started
    own = execution.plan.batch
    count = next(iter(feeds.values())).shape[0]
    passes = [execution.run(part, keep) for part in _parts(feeds, count, own)]
    blobs = _joined(execution, [blobs for blobs, _ in passes], count)
    return blobs, joined([perf for _, perf in passes], count, (perf_counter() - started) * 1000)


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
    own = execution.plan.batch
    for blob in parts[0]:
        if execution.shapes[blob][:1] != (own,):
            raise UsageError(
                f"output {execution.graph.caffe_name(blob)!r} of {show(execution.shapes[blob])} has no batch axis: "
                f"{count} images cannot be joined from passes of {own}",
                hint=f"feed {own} images at a time",
            )
    return {blob: np.concatenate([part[blob] for part in parts])[:count] for blob in parts[0]}
