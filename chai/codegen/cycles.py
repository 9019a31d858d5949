"""Cycle model of a chain: two engines, each in order, every Task after those that it waits for, and one memory for both.

A Task has three phases. It leads from the cycle in which the Tasks that it waits for have finished until its first rows have
arrived. Then it works, as soon as its engine is free. It has finished when its last writes are answered, some cycles later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.sections import BEAT
from ..tasks import Task
from ..tasks.waits import Waits, latency
from .dependencies import NONE, Finished

INSTANT = 1e-6  # cycles, less than which is a rounding error
AHEAD = 2  # Tasks whose constants are requested before the first one has worked
# fitted to networks: cycles of the first descriptor besides the latency, for its beats, its check and the plan; and of each band
# after a Task's first, whose rows come while both engines want theirs
FETCH, BAND = 200, 200


@dataclass(eq=False, slots=True)
class Effort:
    """The waits of a Task on its ``engine``, and the shares of rates that it uses while it works: of the memory, of each port.

    ``rate``   of a port that reads: words a cycle
    ``queue``  words that the port may have accepted before the Task's first ones
    ``stored`` words of constants that are stored in a cycle
    ``ports``  through which they come
    """

    engine: str
    loads: tuple[float, ...]
    waits: Waits
    rate: float = 1.0
    queue: int = 0
    stored: float = 1.0
    ports: int = 1

    @property
    def cycles(self) -> float:
        """Return the cycles until it has finished, if nothing else runs."""
        return sum(self.waits[:3])

    def lead(self, other: float) -> float:
        """Return the cycles until its first rows have arrived, while its port has ``other`` words of constants to read.

        Constants that the port has accepted come first; the others take turns with the rows.
        """
        return self.waits.lead + min(other, self.queue + self.waits.first) / self.rate


def effort(overlay: Overlay, task: Task, shapes: Mapping[str, Shape]) -> Effort:
    """Return the effort of a Task; it moves its bytes evenly over the time in which it works."""
    moving, waits = task.moving_cycles(overlay, shapes), task.waits(overlay, shapes)
    port = overlay.memory_port
    rate, queue = overlay.rates()[0], port.reads.bursts_min * overlay.burst_words if port else 0
    ports = [read / BEAT / rate for read in task.reads(overlay, shapes)]
    stored = min(overlay.constants_at_once, overlay.ports.constants * rate)
    waits = waits._replace(work=max(waits.work, moving) + (BAND if task.rows and task.rows[0] else 0))
    loads = tuple(min(1.0, cycles / waits.work) for cycles in (moving, *ports))
    return Effort(task.engine, loads, waits, rate, queue, stored, overlay.ports.constants)


class Engines:
    """The engines at the cycle ``now``, each with a Task (numbered as the ``efforts``) or free.

    Two Tasks that work at once have half of the memory's rate each, or more where the other one needs less, and so of a port's.
    """

    def __init__(self, efforts: Sequence[Effort], now: float = 0.0) -> None:
        self.now = now
        self._efforts = efforts
        self._running: dict[str, int] = {}
        self._left = [float(one.waits.work) for one in efforts]

    def free(self, engine: str) -> bool:
        """Return whether an engine has no Task."""
        return engine not in self._running

    def holds(self, number: int) -> bool:
        """Return whether the input buffer has room for a Task's first rows beside what the Task on its engine keeps."""
        now = self._running.get(self._efforts[number].engine)
        return now is None or self._efforts[now].waits.keeps + self._efforts[number].waits.rows <= 1

    def start(self, number: int, until: float = 0.0) -> None:
        """Start a Task on its engine, which is free; it keeps the engine at least until the cycle ``until``."""
        self._running[self._efforts[number].engine] = number
        self._left[number] = max(self._left[number], until - self.now)

    def advance(self, until: float = inf) -> list[int]:
        """Run until a Task has worked, or until a cycle; return those that have, which leave their engines free."""
        loads = {i: self._efforts[i].loads for i in self._running.values()}
        totals = [sum(shares) for shares in zip(*loads.values())]
        speeds = {i: min(map(_speed, shares, totals)) for i, shares in loads.items()}
        passed = min([until - self.now, *(self._left[i] / speed for i, speed in speeds.items())])
        self.now += passed
        for i, speed in speeds.items():
            self._left[i] -= passed * speed
        ended = [i for i in speeds if self._left[i] < INSTANT]
        for i in ended:
            del self._running[self._efforts[i].engine]
        return ended


def _speed(load: float, total: float) -> float:
    """Return the speed of a Task, 1 if it ran alone; ``load`` and ``total`` are the shares of a rate that it and all ask for."""
    return min(1.0, max(0.5, 1 - (total - load)) / load) if load else 1.0


def chain_cycles(
    overlay: Overlay, tasks: Sequence[Task], shapes: Mapping[str, Shape], after: Sequence[Finished]
) -> int:
    """Return the clock cycle in which the last Task has finished; ``after`` is what each waits for."""
    return makespan([effort(overlay, task, shapes) for task in tasks], after, first_cycle(overlay))


def first_cycle(overlay: Overlay) -> float:
    """Return the cycle from which on the first Task of a chain may lead."""
    return FETCH + latency(overlay)


def makespan(efforts: Sequence[Effort], after: Sequence[Finished], begin: float = 0.0) -> int:
    """Return what ``chain_cycles`` does, for Tasks with these efforts; the first may lead from the cycle ``begin`` on."""
    engines, lines = Engines(efforts, begin), {name: _Line(name, efforts) for name in Finished._fields}
    done = NONE
    while sum(done) < len(efforts):
        moments = []
        for line in lines.values():
            line.begin(engines, after, done)
            moments += line.moments(engines.now)
        for i in engines.advance(min(moments, default=inf)):
            lines[efforts[i].engine].worked(i, engines.now)
        done = Finished(**{name: line.finished(engines.now) for name, line in lines.items()})
    return ceil(engines.now - INSTANT) if efforts else 0


class _Line:
    """The Tasks of one engine, in order: the next one leads while the one before it works.

    ``_fetched``  when the constants of each Task have arrived. Those of the next Task are requested when these have arrived
    and one more Task has worked.
    """

    def __init__(self, engine: str, efforts: Sequence[Effort]) -> None:
        self._engine, self._efforts = engine, efforts
        self._queue = deque(i for i, one in enumerate(efforts) if one.engine == engine)
        self._leads: tuple[int, float] | None = None  # the next Task, and when its first rows are there
        self._ends: deque[float] = deque()  # when Tasks that have worked have finished
        self._count, self._fetched = 0, deque[float]()
        self._to_fetch = deque(self._queue)
        for _ in range(AHEAD):
            self._fetch(0.0)

    def _fetch(self, now: float) -> None:
        """Request the constants of the next Task."""
        if self._to_fetch:
            one = self._efforts[self._to_fetch.popleft()]
            begin = max(now, self._fetched[-1] if self._fetched else 0.0)
            self._fetched.append(begin + one.waits.constants / one.stored)

    def begin(self, engines: Engines, after: Sequence[Finished], done: Finished) -> None:
        """Let the next Task lead if those that it waits for have finished, and work if its engine is free."""
        self._lead(engines, after, done)
        if self._leads and self._leads[1] <= engines.now + INSTANT and engines.free(self._engine):
            i, waits = self._leads[0], self._efforts[self._leads[0]].waits
            stored = self._efforts[i].stored
            there = max(self._fetched.popleft(), engines.now + (waits.constants - waits.held) / stored)
            engines.start(i, there if waits.constants else 0.0)
            self._leads = None
            self._lead(engines, after, done)

    def _lead(self, engines: Engines, after: Sequence[Finished], done: Finished) -> None:
        waits = self._leads or not self._queue or after[self._queue[0]] | done != done
        if not waits and engines.holds(self._queue[0]):
            i, now = self._queue.popleft(), engines.now
            busy, one = max(0.0, self._fetched[-1] - now) if self._fetched else 0.0, self._efforts[i]
            self._leads = i, now + one.lead(busy * one.stored / one.ports)

    def worked(self, number: int, now: float) -> None:
        """Note that a Task has worked: it finishes after its tail."""
        self._fetch(now)
        self._ends.append(max(now + self._efforts[number].waits.tail, self._ends[-1] if self._ends else 0.0))

    def finished(self, now: float) -> int:
        """Return how many have finished."""
        while self._ends and self._ends[0] <= now + INSTANT:
            self._ends.popleft()
            self._count += 1
        return self._count

    def moments(self, now: float) -> list[float]:
        """Return when the next Task's first rows are there, if that is to come, and when the next one finishes."""
        leads = [self._leads[1]] if self._leads and self._leads[1] > now + INSTANT else []
        return leads + [*self._ends][:1]
