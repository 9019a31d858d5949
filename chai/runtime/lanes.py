"""Pipeline of batches: the host works on one while the overlay works on another.

Each step belongs to a lane (host or fpga) and depends on earlier steps of its batch. A lane is one thread and runs one
step at a time, so a layer never runs twice at once and results do not depend on timing. Steps that the other lane waits
for have priority, then the oldest batch: even if the host is the slower side, it packs the next input first.
"""

from __future__ import annotations

import heapq
import os
import threading
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue as Queue
from typing import Any

from ..errors import UsageError
from ..util.interpreter import from_signal_handler
from ..util.sharing import entered, inside


@dataclass(frozen=True)
class PipelineStage:
    """One step of every batch: its lane, the indices of the stages it needs, and a function of the batch's state."""

    lane: str
    needs: frozenset[int]
    run: Callable[[Any], None]


@dataclass
class _Batch:
    state: Any
    waiting: list[int]  # unfinished needs of each stage
    left: int
    order: int
    error: BaseException | None = None
    over: bool = False  # whether the caller's thread knows that it is finished, or failed


_Ready = tuple[bool, int, int, _Batch]  # a stage of a batch: the least runs first


class Pipeline:
    """Runs stages over a stream of states with at most ``depth`` of them in flight."""

    def __init__(self, stages: Sequence[PipelineStage], depth: int) -> None:
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
        in place of its batch, after the batches before it; one of a signal handler at once. All workers have ended by then,
        and also when the caller stops early. Raises UsageError in a process that was forked after the beginning.
        """
        run, context = _Run(self), (copy_context(),)
        try:
            try:
                start_new_thread(run.lead, context)
            except RuntimeError:  # there are too many threads
                run.workers.put([])
                raise
            yield from run.results(iter(states))
        finally:
            run.stopped = True
            run.first.put(None)
            run.join()


class _Run:
    """A stream in progress: the caller's thread, and a worker for each lane.

    An exception of a signal handler may come at any moment in the caller's thread. So that thread holds no lock, it talks
    to the workers through queues, and it needs one call in C each to start them and to end them: of a thread that starts
    the others, and of a message to the first worker, which passes it on.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.process = os.getpid()
        self.ready: dict[str, Queue[_Ready | None]] = {}  # steps for each lane; None: stop
        for lane in sorted({stage.lane for stage in pipeline.stages}):
            self.ready[lane] = Queue()
        self.first = next(iter(self.ready.values()))
        self.over: Queue[_Batch | Exception] = Queue()  # batches, or why there is no worker
        self.workers: Queue[list[threading.Thread]] = Queue()  # those that were started, all together
        self.stopped = False
        self.counting = allocate_lock()  # held by workers: of what follows, and of the counts of batches
        self.failed: int | None = None  # the first batch that failed; no step of later ones is started

    # -- in the caller's thread

    def results(self, states: Iterator[Any]) -> Iterator[Any]:
        batches, orders = deque[_Batch](), count()
        more, failure = True, None
        while more or batches:
            while more and len(batches) < self.pipeline.depth:
                try:
                    state = next(states)
                except StopIteration:
                    more = False
                    break
                except Exception as error:
                    if from_signal_handler(error):
                        raise
                    more, failure = False, error
                    break
                batches.append(self._start(state, next(orders)))
            if batches:
                yield self._finished(batches.popleft())
        if failure is not None:
            raise failure

    def _start(self, state: Any, order: int) -> _Batch:
        waiting = [len(stage.needs) for stage in self.pipeline.stages]
        batch = _Batch(state, waiting, len(waiting), order)
        for i in [i for i, needs in enumerate(waiting) if not needs]:
            self._ready(batch, i)
        return batch

    def _finished(self, batch: _Batch) -> Any:
        while not batch.over:
            if os.getpid() != self.process:
                raise UsageError(
                    "a stream that began before a fork cannot go on in the forked process, where its threads do not exist",
                    hint="begin it after the fork",
                )
            other = self.over.get()
            if isinstance(other, Exception):
                raise other
            other.over = True
        if batch.error is not None:
            raise batch.error
        return batch.state

    def join(self) -> None:
        """Wait until every worker has finished its current step, and ended.

        A thread that is running a step does not wait for them: the garbage collector may close an abandoned stream in any
        thread, and that thread may hold a lock that a worker waits for.
        """
        if not inside() and os.getpid() == self.process:
            for worker in self.workers.get():
                worker.join()

    # -- in threads of its own, which no signal handler interrupts

    def lead(self, context: Context) -> None:
        """Start a worker for each lane."""
        workers = []
        try:
            for lane in self.ready:
                target, arguments = context.copy().run, (entered, self, self._work, lane)
                worker = threading.Thread(target=target, args=arguments, name=f"chai-{lane}", daemon=True)
                worker.start()
                workers.append(worker)
        except Exception as error:  # there are too many threads, or no memory
            self.over.put(error)
            self.first.put(None)
        self.workers.put(workers)

    def _work(self, lane: str) -> None:
        ready, steps = self.ready[lane], list[_Ready]()
        while not self.stopped:
            while not steps or not ready.empty():
                step = ready.get()
                if step is None:
                    self.stopped = True
                    break
                heapq.heappush(steps, step)
            else:
                _, order, i, batch = heapq.heappop(steps)
                if self.failed is None or order < self.failed:
                    self._step(batch, i)
        for other in self.ready.values():
            other.put(None)

    def _step(self, batch: _Batch, i: int) -> None:
        try:
            self.pipeline.stages[i].run(batch.state)
        except BaseException as error:
            with self.counting:
                batch.error, before = error, batch.error
                self.failed = batch.order if self.failed is None else min(self.failed, batch.order)
            if before is None:
                self.over.put(batch)
            return
        with self.counting:
            batch.left -= 1
            for reader in self.pipeline.readers[i]:
                batch.waiting[reader] -= 1
                if batch.waiting[reader] == 0:
                    self._ready(batch, reader)
            if batch.left == 0:  # else a step failed, or some are left
                self.over.put(batch)

    def _ready(self, batch: _Batch, i: int) -> None:
        self.ready[self.pipeline.stages[i].lane].put((self.pipeline.last[i], batch.order, i, batch))
