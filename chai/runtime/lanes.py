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
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from queue import Empty, SimpleQueue as Queue
from typing import Any, Literal, Union

from ..errors import UsageError
from ..util.interpreter import from_signal_handler
from ..util.sharing import entered, inside


@dataclass(frozen=True)
class PipelineStage:
    """One step of every batch: its lane, the indices of the stages it needs, and a function of the batch's state.

    ``claim`` is called before ``run`` until it is true. While it is false the lane runs other stages; the second argument is a
    function that tells it to try again. The oldest batch is served first.
    """

    lane: str
    needs: frozenset[int]
    run: Callable[[Any], None]
    claim: Callable[[Any, Callable[[], object]], bool] | None = None


@dataclass
class _Batch:
    state: Any
    waiting: list[int]  # unfinished needs of each stage
    left: int
    order: int
    error: BaseException | None = None
    running: int = 0  # stages
    over: bool = False  # whether the caller's thread knows that it is finished, or failed


_Ready = tuple[bool, int, int, _Batch]  # a stage of a batch: the least runs first
_Message = Union[_Ready, Literal[True], None]  # for a lane; True: claim again what was not free; None: stop
# whether the next batch is there; else its argument is called when it is
Readiness = Callable[[Callable[[], object]], bool]

RETRY = 0.05  # seconds until a lane claims again even if nothing has told it to


class Pipeline:
    """Runs stages over a stream of states with at most ``depth`` of them in flight.

    ``abandon`` gives back what a state has claimed that goes no further: it or one before it has failed, or the stream ends.
    All stages of a lane run in a context that ``within`` makes.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        depth: int,
        abandon: Callable[[Any], None] = lambda _: None,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.stages = stages
        self.depth = depth
        self.abandon, self.within = abandon, within
        self.readers: list[list[int]] = [[] for _ in stages]
        for i, stage in enumerate(stages):
            for need in stage.needs:
                self.readers[need].append(i)
        self.last = [True] * len(self.stages)  # whether no other lane waits for this stage, directly or not
        for i in reversed(range(len(self.stages))):
            lane = self.stages[i].lane
            self.last[i] = all(self.stages[r].lane == lane and self.last[r] for r in self.readers[i])

    def stream(self, states: Iterable[Any], ready: Readiness | None = None) -> Generator[Any, None, None]:
        """Yield the states in order, each when its last stage is done.

        A new state is taken only when fewer than ``depth`` are in flight; with ``ready`` none in flight waits for one that is
        not there yet. An exception of a stage, or of ``states``, is raised
        in place of its batch, after the batches before it; one of a signal handler at once. All workers have ended by then,
        and also when the caller stops early. Raises UsageError in a process that was forked after the beginning.
        """
        run, context = _Run(self, ready), (copy_context(),)
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

    def __init__(self, pipeline: Pipeline, is_ready: Readiness | None) -> None:
        self.pipeline, self.is_ready = pipeline, is_ready
        self.process = os.getpid()
        self.ready: dict[str, Queue[_Message]] = {}
        for lane in sorted({stage.lane for stage in pipeline.stages}):
            self.ready[lane] = Queue()
        self.first = next(iter(self.ready.values()))
        # batches, or why there is no worker; None: a state is there
        self.over: Queue[_Batch | Exception | None] = Queue()
        self.workers: Queue[list[threading.Thread]] = Queue()  # those that were started, all together
        self.stopped = False
        self.counting = allocate_lock()  # held by workers: of what follows, and of the counts of batches
        self.failed: int | None = None  # the first batch that failed; no step of later ones is started
        self.flying: dict[int, _Batch] = {}  # batches that are not complete, by their order
        self.working = 0  # workers

    # -- in the caller's thread

    def results(self, states: Iterator[Any]) -> Iterator[Any]:
        batches, orders = deque[_Batch](), count()
        more, failure = True, None
        while more or batches:
            while more and len(batches) < self.pipeline.depth and self._can_take(batches):
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
            if batches and self._finished(batches[0]):
                yield batches.popleft().state
        if failure is not None:
            raise failure

    def _start(self, state: Any, order: int) -> _Batch:
        waiting = [len(stage.needs) for stage in self.pipeline.stages]
        batch = self.flying[order] = _Batch(state, waiting, len(waiting), order)
        for i in [i for i, needs in enumerate(waiting) if not needs]:
            self._ready(batch, i)
        return batch

    def _can_take(self, batches: deque[_Batch]) -> bool:
        """Return whether the next state can be taken: it is there, or no batch waits meanwhile."""
        return not batches or self.is_ready is None or self.is_ready(partial(self.over.put, None))

    def _finished(self, batch: _Batch) -> bool:
        """Wait until a batch is finished, and raise its error; return False if a state can be taken before."""
        while not batch.over:
            if os.getpid() != self.process:
                raise UsageError(
                    "a stream that began before a fork cannot go on in the forked process, where its threads do not exist",
                    hint="begin it after the fork",
                )
            other = self.over.get()
            if other is None:
                return False
            if isinstance(other, Exception):
                raise other
            other.over = True
        if batch.error is not None:
            raise batch.error
        return True

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
                with self.counting:
                    self.working += 1
                worker.start()
                workers.append(worker)
        except Exception as error:  # there are too many threads, or no memory
            self._ended()
            self.over.put(error)
            self.first.put(None)
        self.workers.put(workers)

    def _work(self, lane: str) -> None:
        with self.pipeline.within():
            self._run(lane)
        for other in self.ready.values():
            other.put(None)
        self._ended()

    def _run(self, lane: str) -> None:
        """Run the steps of a lane until the stream is to stop."""
        ready, steps = self.ready[lane], list[_Ready]()
        early: dict[int, list[_Ready]] = {}  # steps that cannot have yet what their stage claims, oldest first
        again = partial(ready.put, True)
        while not self.stopped:
            while not steps or not ready.empty():
                step = _next(ready, RETRY if early else None)
                if step is None:
                    self.stopped = True
                    break
                if isinstance(step, tuple):
                    heapq.heappush(steps, step)
                else:
                    steps += chain.from_iterable(early.values())
                    heapq.heapify(steps)
                    early.clear()
            else:
                step = heapq.heappop(steps)
                _, _, i, batch = step
                if i in early or not self._step(batch, i, again):
                    early.setdefault(i, []).append(step)

    def _step(self, batch: _Batch, i: int, again: Callable[[], object]) -> bool:
        """Run a stage of a batch unless one before it has failed; return whether it had what it claims."""
        with self.counting:
            if self.failed is not None and batch.order >= self.failed:
                return True
            batch.running += 1
        stage, claimed, failure = self.pipeline.stages[i], True, None
        try:
            claimed = stage.claim is None or stage.claim(batch.state, again)
            if claimed:
                stage.run(batch.state)
        except BaseException as error:
            failure = error
        with self.counting:
            batch.running -= 1
            over = claimed and self._count(batch, i, failure)
            self._abandon()
        if over:
            self.over.put(batch)
        return claimed

    def _count(self, batch: _Batch, i: int, failure: BaseException | None) -> bool:
        """Note the end of a stage; return whether the batch is over with it."""
        if failure is not None:
            batch.error, before = failure, batch.error
            self.failed = batch.order if self.failed is None else min(self.failed, batch.order)
            return before is None
        batch.left -= 1
        for reader in self.pipeline.readers[i]:
            batch.waiting[reader] -= 1
            if batch.waiting[reader] == 0:
                self._ready(batch, reader)
        if batch.left == 0:  # else a step failed, or some are left
            del self.flying[batch.order]
        return batch.left == 0

    def _ready(self, batch: _Batch, i: int) -> None:
        self.ready[self.pipeline.stages[i].lane].put((self.pipeline.last[i], batch.order, i, batch))

    def _ended(self) -> None:
        """Note that a worker has ended, or was not started."""
        with self.counting:
            self.working -= 1
            self._abandon()

    def _abandon(self) -> None:
        """Give back what batches have claimed that go no further, of which no stage runs."""
        if self.failed is None and self.working:
            return
        for batch in [*self.flying.values()]:
            if not batch.running and (not self.working or (self.failed is not None and batch.order >= self.failed)):
                self.pipeline.abandon(batch.state)


def _next(ready: Queue[_Message], seconds: float | None) -> _Message:
    """Return the next message; after so many seconds, that of something to be claimed again."""
    try:
        return ready.get(timeout=seconds)
    except Empty:
        return True
