"""Pipeline of batches: the host works on one while the overlay works on another.

Each step belongs to a lane (host or fpga) and depends on earlier steps of its batch. A lane is one thread and runs one
step at a time, so a layer never runs twice at once and results do not depend on timing. Steps that the other lane waits
for have priority, then the oldest batch: even if the host is the slower side, it packs the next input first.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from ..util.sharing import Entered, inside


@dataclass(frozen=True)
class Stage:
    """One step of every batch: its lane, the indices of the stages it needs, and a function of the batch's state."""

    lane: str
    needs: frozenset[int]
    run: Callable[[Any], None]


@dataclass
class _Batch:
    state: Any
    waiting: list[int]  # unfinished needs of each stage
    left: int
    error: BaseException | None = None
    order: int = field(default=0)


class Pipeline:
    """Runs stages over a stream of states with at most ``depth`` of them in flight."""

    def __init__(self, stages: Sequence[Stage], depth: int) -> None:
        self.stages = stages
        self.depth = depth
        self.readers: list[list[int]] = [[] for _ in stages]
        for i, stage in enumerate(stages):
            for need in stage.needs:
                self.readers[need].append(i)
        self.last = [True] * len(self.stages)  # whether no other lane waits for this stage, directly or not
        for i in reversed(range(len(self.stages))):
            lane = self.stages[i].lane
            self.last[i] = all(self.stages[r].lane == lane and self.last[r] for r in self.readers[i])

    def stream(self, states: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the states in order, each when its last stage is done.

        A new state is taken only when fewer than ``depth`` are in flight. An exception of a stage, or of ``states``, is raised
        in place of its batch, after the batches before it. All workers have ended by then, and also when the caller stops early.
        """
        run = _Run(self)
        try:
            yield from run.results(iter(states))
        finally:
            run.stop()


class _Run:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.changed = threading.Condition()
        lanes = sorted({stage.lane for stage in pipeline.stages})
        self.ready: dict[str, list[tuple[bool, int, int]]] = {lane: [] for lane in lanes}
        self.batches: dict[int, _Batch] = {}
        self.failed: int | None = None  # the first batch that failed; no step of later ones is started
        self.stopped = False
        self.threads = [
            threading.Thread(target=copy_context().run, args=(self._work, lane), name=f"chai-{lane}", daemon=True)
            for lane in lanes
        ]
        for thread in self.threads:
            thread.start()

    def results(self, states: Iterator[Any]) -> Iterator[Any]:
        first = following = 0
        more, failure = True, None
        while more or first < following:
            while more and following - first < self.pipeline.depth:
                try:
                    state = next(states)
                except StopIteration:
                    more = False
                    break
                except Exception as error:
                    more, failure = False, error
                    break
                self._start(following, state)
                following += 1
            if first == following:
                continue
            batch = self._wait(first)
            first += 1
            yield batch.state
        if failure is not None:
            raise failure

    def _start(self, order: int, state: Any) -> None:
        waiting = [len(stage.needs) for stage in self.pipeline.stages]
        with self.changed:
            self.batches[order] = _Batch(state, waiting, len(waiting), order=order)
            for i, needs in enumerate(waiting):
                if needs == 0:
                    self._ready(order, i)
            self.changed.notify_all()

    def _ready(self, order: int, i: int) -> None:
        heapq.heappush(self.ready[self.pipeline.stages[i].lane], (self.pipeline.last[i], order, i))

    def _wait(self, order: int) -> _Batch:
        with self.changed:
            batch = self.batches[order]
            self.changed.wait_for(lambda: batch.left == 0 or batch.error is not None)
            del self.batches[order]
        if batch.error is not None:
            raise batch.error
        return batch

    def _work(self, lane: str) -> None:
        with Entered(self):
            self._loop(lane)

    def _loop(self, lane: str) -> None:
        ready = self.ready[lane]
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.stopped or ready)
                if self.stopped:
                    return
                _, order, i = heapq.heappop(ready)
                if self.failed is not None and order >= self.failed:
                    continue
                batch = self.batches[order]
            error = None
            try:
                self.pipeline.stages[i].run(batch.state)
            except BaseException as raised:
                error = raised
            with self.changed:
                if error is not None:
                    batch.error = error
                    self.failed = order if self.failed is None else min(self.failed, order)
                batch.left -= 1
                for reader in self.pipeline.readers[i] if error is None else ():
                    batch.waiting[reader] -= 1
                    if batch.waiting[reader] == 0:
                        self._ready(order, reader)
                self.changed.notify_all()

    def stop(self) -> None:
        """Let every worker finish its current step, then end it.

        A thread that is running a step does not wait for them: the garbage collector may close an abandoned stream in any
        thread, and that thread may hold a lock that a worker waits for.
        """
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for thread in self.threads if not inside() else ():
            thread.join()
