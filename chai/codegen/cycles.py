"""Cycle model of a chain: two engines, each in order, every Task after those that it waits for, and one memory for all.

A Task has three phases. It leads from the cycle in which the Tasks that it waits for have finished until its first rows have
arrived. Then it works, as soon as its engine is free. It has finished when its last writes are answered, some cycles later.
The array's port reads the rows of one Task after the other, and its drain takes their sums so: either may hold up the next Task.
Its constants come while Tasks before it work, and take their share of the ports and of the memory.
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
LEAST = 0.1  # of a port, for constants while rows come: what it has accepted comes in order, by assumption
AHEAD = 2  # Tasks whose constants are requested before the first one has worked
# the engine that has constants, and the fetch of these, in parallel to both engines
ARRAY, CONSTANTS = "array", "constants"
# cycles of the first descriptor besides the latency: its beats (16), its check (14) and the array's plan (140)
FETCH = 170


@dataclass(eq=False, slots=True)
class Effort:
    """The waits of a Task on its ``engine``, and the shares of rates that it uses: of the memory, of each port.

    ``loads``     the shares while it works; ``fetching``: while its constants come
    ``rate``   of a port that reads: words a cycle
    ``queue``  words that the port may have accepted before the Task's first ones
    ``stored`` words of constants that are stored in a cycle
    ``ports``  through which they come
    ``early``  cycles that it works less if its rows come before it works: at most, and for each cycle that they do
    """

    engine: str
    loads: tuple[float, ...]
    waits: Waits
    rate: float = 1.0
    queue: int = 0
    stored: float = 1.0
    ports: int = 1
    fetching: tuple[float, ...] = ()
    early: tuple[float, float] = (0.0, 0.0)

    @property
    def cycles(self) -> float:
        """Return the cycles until it has finished, if nothing else runs."""
        return sum(self.waits[:3])

    def lead(self, others: float, busy: float) -> float:
        """Return the cycles until its first rows have arrived, while other constants are on their way for so many cycles.

        Those that its port has accepted come first. The others take turns with the rows while the engine is ``busy``; once it
        waits for the rows, these go first.
        """
        accepted = min(others * self.stored / self.ports, self.queue) / self.rate
        turns = min(others, busy, 2 * self.waits.lead) / 2 if self.queue else 0.0
        return self.waits.lead + max(accepted, turns)


def effort(overlay: Overlay, task: Task, shapes: Mapping[str, Shape]) -> Effort:
    """Return the effort of a Task; it moves its bytes evenly over the time in which it works, its constants before."""
    moving, waits = task.moving_cycles(overlay, shapes), task.waits(overlay, shapes)
    port, count = overlay.memory_port, overlay.ports.constants
    rate, queue = overlay.rates()[0], 0
    if port and task.engine == ARRAY:  # whose ports are those of its constants
        queue = port.reads.bursts_min * overlay.burst_words
    every = moving, *(read / BEAT / rate for read in task.reads(overlay, shapes))
    constants = overlay.memory_cycles(waits.constants * BEAT), *[waits.constants / count / rate] * count
    constants += (0.0,) * (len(every) - len(constants))
    stored = min(overlay.constants_at_once, count * rate)
    reading, slower = overlay.memory_cycles(task.moved(overlay, shapes)[0]), max(0.0, moving - waits.work)
    early = min(slower, waits.room * reading), reading / waits.reading if waits.reading else 0.0
    waits = waits._replace(work=waits.work + slower)
    loads = tuple(min(1.0, (cycles - fetched) / waits.work) for cycles, fetched in zip(every, constants))
    fetching = tuple(min(1.0, cycles * stored / max(1.0, waits.constants)) for cycles in constants)
    return Effort(task.engine, loads, waits, rate, queue, stored, count, fetching, early)


class Engines:
    """The engines at the cycle ``now``, each with a Task (numbered as the ``efforts``) or free; ``CONSTANTS`` is one of them.

    Of what goes on at once each has half of the memory's rate, or more where the others need less, and so of a port's.
    """

    def __init__(self, efforts: Sequence[Effort], now: float = 0.0) -> None:
        self.now = now
        self._efforts = efforts
        self._running: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self._speeds: dict[str, float] = {}  # of those that run, {} when that has changed

    def free(self, engine: str) -> bool:
        """Return whether an engine has no Task."""
        return engine not in self._running

    def holds(self, number: int) -> bool:
        """Return whether the input buffer has room for a Task's first rows beside what the Task on its engine keeps."""
        now = self._running.get(self._efforts[number].engine)
        return now is None or self._efforts[now].waits.keeps + self._efforts[number].waits.rows <= 1

    def start(self, number: int, until: float = 0.0, more: float = 0.0) -> None:
        """Start a Task on its engine, which is free; it works ``more`` cycles longer, at least until the cycle ``until``."""
        one = self._efforts[number]
        self._running[one.engine], self._speeds = number, {}
        self._left[one.engine] = max(one.waits.work + more, until - self.now)

    def fetch(self, number: int) -> None:
        """Start the fetch of a Task's constants; no others are on their way."""
        self._running[CONSTANTS], self._speeds = number, {}
        self._left[CONSTANTS] = self._efforts[number].waits.constants / self._efforts[number].stored

    @property
    def fetching(self) -> tuple[int, float]:
        """Return the Task whose constants are on their way, -1 if none are, and for how many cycles if nothing else goes on."""
        number = self._running.get(CONSTANTS, -1)
        return number, self._left[CONSTANTS] if number >= 0 else 0.0

    def busy(self, engine: str) -> float:
        """Return for how many cycles an engine works on its Task if nothing else goes on, 0 if it has none."""
        return self._left.get(engine, 0.0) if engine in self._running else 0.0

    def advance(self, until: float = inf) -> list[tuple[str, int]]:
        """Run until something ends, or until a cycle; return the engines and the Tasks that leave them free."""
        speeds, left = self._speeds or self._shared(), self._left
        passed = min([until - self.now, *(left[name] / speed for name, speed in speeds.items())])
        self.now += passed
        for name, speed in speeds.items():
            left[name] -= passed * speed
        if self._running.get(ARRAY) == self._running.get(CONSTANTS, -1):  # it cannot end before its own have come
            left[ARRAY] = max(left[ARRAY], left[CONSTANTS])
        ends = [name for name in speeds if left[name] < INSTANT]
        self._speeds = {} if ends else speeds
        return [(name, self._running.pop(name)) for name in ends]

    def _shared(self) -> dict[str, float]:
        """Return the speed of each engine that runs: 1 where no rate is asked for more than it has.

        At a port (all rates but the first, the memory's) rows of Tasks go before constants of a Task that does not work yet.
        """
        efforts = {name: self._efforts[i] for name, i in self._running.items()}
        loads = {name: one.fetching if name == CONSTANTS else one.loads for name, one in efforts.items()}
        speeds = dict.fromkeys(loads, 1.0)
        of_later_task = CONSTANTS in loads and self._running.get(ARRAY) != self._running[CONSTANTS]
        for i, shares in enumerate(zip(*loads.values())):
            if (total := sum(shares)) > 1:
                constants = loads[CONSTANTS][i] if of_later_task and i else 0.0
                for name, load in zip(loads, shares):
                    if name == CONSTANTS and constants:
                        speed = max(LEAST, 1 - (total - constants)) / constants
                    else:
                        speed = _speed(load, total - constants)
                    speeds[name] = min(speeds[name], speed)
        return speeds


def _speed(load: float, total: float) -> float:
    """Return the speed of a Task, 1 if it ran alone; ``load`` and ``total`` are the shares of a rate that it and all ask for."""
    return max(0.5, 1 - (total - load)) / load if load else 1.0


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
    engines, constants = Engines(efforts, begin), _Constants(efforts)
    lines, done = {name: _Line(name, efforts, constants) for name in Finished._fields}, NONE
    while sum(done) < len(efforts):
        moments = []
        constants.begin(engines)
        for line in lines.values():
            line.begin(engines, after, done)
            moments += line.moments(engines.now)
        for name, i in engines.advance(min(moments, default=inf)):
            if name == CONSTANTS:
                constants.there.add(i)
            else:
                lines[name].worked(i, engines.now)
        done = Finished(**{name: line.finished(engines.now) for name, line in lines.items()})
    return ceil(engines.now - INSTANT) if efforts else 0


class _Constants:
    """The constants of the array's Tasks, fetched in order: those of ``AHEAD`` Tasks, and of one more when a Task has worked.

    ``there``  Tasks whose constants have arrived
    """

    def __init__(self, efforts: Sequence[Effort]) -> None:
        self._efforts = efforts
        self._queue = deque(i for i, one in enumerate(efforts) if one.engine == ARRAY)
        self._more, self.there = AHEAD, set[int]()

    def begin(self, engines: Engines) -> None:
        """Fetch those of the next Task if they may come and no others are on their way."""
        while self._queue and self._more and engines.free(CONSTANTS):
            i = self._queue.popleft()
            self._more -= 1
            if self._efforts[i].waits.constants:
                engines.fetch(i)

    def worked(self, number: int) -> None:
        """Note that a Task has worked."""
        self._more += self._efforts[number].engine == ARRAY

    def left(self, number: int, engines: Engines) -> float:
        """Return the cycles until those that the weight buffer does not hold have arrived, 0 for a Task without constants."""
        one, (coming, cycles) = self._efforts[number], engines.fetching
        if not one.waits.constants:
            return 0.0
        all_of_them = 0.0 if number in self.there else cycles + (number != coming) * one.waits.constants / one.stored
        return max(all_of_them, (one.waits.constants - one.waits.held) / one.stored)


class _Line:
    """The Tasks of one engine, in order: the next one leads while the one before it works.

    ``_read``, ``_drained``  when the rows of the Tasks so far have been read, and when their sums have been drained. The array
    has room for two plans, so a Task's rows are asked for when the one before the last has been drained.
    """

    def __init__(self, engine: str, efforts: Sequence[Effort], constants: _Constants) -> None:
        self._engine, self._efforts, self._constants = engine, efforts, constants
        self._queue = deque(i for i, one in enumerate(efforts) if one.engine == engine)
        # the next Task, when its first rows are there, and from when on they are read
        self._leads: tuple[int, float, float] | None = None
        self._ends: deque[float] = deque()  # when Tasks that have worked have finished
        self._count, self._read, self._drained = 0, 0.0, 0.0

    def begin(self, engines: Engines, after: Sequence[Finished], done: Finished) -> None:
        """Let the next Task lead if those that it waits for have finished, and work if its engine is free."""
        self._lead(engines, after, done)
        if self._leads and self._leads[1] <= engines.now + INSTANT and engines.free(self._engine):
            (i, _, reads), now = self._leads, engines.now
            (most, each), first_sums = self._efforts[i].early, self._efforts[i].waits.first_sums
            held_up = max(0.0, self._drained - first_sums - now)
            engines.start(i, now + self._constants.left(i, engines), held_up - min(most, each * (now - reads)))
            self._leads = None
            self._lead(engines, after, done)

    def _lead(self, engines: Engines, after: Sequence[Finished], done: Finished) -> None:
        waits = self._leads or not self._queue or after[self._queue[0]] | done != done
        if not waits and engines.holds(self._queue[0]):
            i, begin = self._queue.popleft(), max(engines.now, self._read, self._drained)
            one, (_, others) = self._efforts[i], engines.fetching
            self._leads = i, begin + one.lead(others, engines.busy(self._engine)), begin
            self._read = begin + one.waits.reading

    def worked(self, number: int, now: float) -> None:
        """Note that a Task has worked: it finishes after its tail."""
        self._constants.worked(number)
        self._drained = now + self._efforts[number].waits.draining
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
