"""Cycle model of a chain: two engines, each in order, every Task after those that it waits for, and one memory for all.

Rows and constants of the array's Tasks come in two streams, each in order, while Tasks before them work, as far as there is
room for them. An engine works on a Task when it is free, the Tasks that it waits for have finished and the first rows are
there. It has finished when its last writes are answered, some cycles later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.sections import BEAT
from ..tasks import Task
from ..tasks.waits import TABLES, Waits, latency
from .dependencies import NONE, Finished
from .engines import ARRAY, CONSTANTS, INSTANT, ROWS, WINDOW, Engines, Loads

AHEAD = 2  # Tasks whose constants are requested before the first one has worked
# cycles of the first descriptor besides the latency: its beats (16), its check (14) and the array's plan (140)
FETCH = 170


@dataclass(eq=False, slots=True)
class Effort:
    """The waits of a Task on its ``engine``, and the loads of ports and memory while it works and while its streams come.

    ``busy``  cycles for which it keeps its engine if nothing else runs
    """

    engine: str
    waits: Waits
    busy: float
    loads: Loads
    rows: Loads = ()
    constants: Loads = ()

    @property
    def cycles(self) -> float:
        """Return the cycles until it has finished, if nothing else runs."""
        return self.waits.lead + self.busy + self.waits.tail


def effort(overlay: Overlay, task: Task, shapes: Mapping[str, Shape]) -> Effort:
    """Return the effort of a Task; it moves its bytes evenly over the time in which it works, or its streams come."""
    waits, moving = task.waits(overlay, shapes), task.moving_cycles(overlay, shapes)
    busy, ports = max(waits.work, moving), task.reading_cycles(overlay, shapes)
    if task.engine == WINDOW:
        return Effort(WINDOW, waits._replace(work=busy), busy, _shares([moving, *ports], busy))
    read, written = task.moved(overlay, shapes)
    words = task.constant_traffic(overlay, shapes) / BEAT
    each, count = words / overlay.ports.constants / overlay.rates()[0], overlay.ports.constants
    through = [each * (i < count) for i in range(len(ports))]
    return Effort(
        ARRAY,
        waits,
        busy,
        _shares([overlay.memory_cycles(written), *[0.0] * len(ports)], waits.work),
        _shares([overlay.memory_cycles(read), *(all - own for all, own in zip(ports, through))], waits.reading),
        _shares([overlay.memory_cycles(words * BEAT), *through], waits.constants),
    )


def _shares(cycles: Iterable[float], time: float) -> Loads:
    """Return cycles at full rates as shares of a time."""
    return tuple(min(1.0, one / time) if time else 0.0 for one in cycles)


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
    engines, done = Engines(begin), NONE
    constants, window = _Constants(efforts), _WindowLine(efforts)
    array = _ArrayLine(efforts, constants)
    lines: dict[str, _Line | _Constants] = {ARRAY: array, ROWS: array, WINDOW: window, CONSTANTS: constants}
    while sum(done) < len(efforts):
        moments = [*array.begin(engines, after, done), *window.begin(engines, after, done), *constants.begin(engines)]
        for name, i in engines.advance(min(moments, default=inf)):
            lines[name].ended(name, i, engines.now)
        done = Finished(array.finished(engines.now), window.finished(engines.now))
    return ceil(engines.now - INSTANT) if efforts else 0


class _Line:
    """The Tasks of one engine, in order.

    ``worked``  how many have worked
    """

    def __init__(self, engine: str, efforts: Sequence[Effort]) -> None:
        self._efforts = efforts
        self._tasks = [i for i, one in enumerate(efforts) if one.engine == engine]
        self._ends: list[float] = []  # when those that have worked finish
        self._finished = 0

    @property
    def worked(self) -> int:
        return len(self._ends)

    def ended(self, name: str, number: int, now: float) -> None:
        """Note that a Task has worked: it finishes after its tail."""
        self._ends.append(max([now + self._efforts[number].waits.tail, *self._ends[-1:]]))

    def finished(self, now: float) -> int:
        """Return how many have finished."""
        while self._finished < self.worked and self._ends[self._finished] <= now + INSTANT:
            self._finished += 1
        return self._finished

    def moments(self) -> list[float]:
        """Return when the next one finishes, if one has worked."""
        return self._ends[self._finished : self._finished + 1]


class _WindowLine(_Line):
    """The window engine: the next Task leads while the one before it works."""

    def __init__(self, efforts: Sequence[Effort]) -> None:
        super().__init__(WINDOW, efforts)
        self._queue = deque(self._tasks)
        self._there: float | None = None  # when the first word of the next one is there, None if it does not lead

    def begin(self, engines: Engines, after: Sequence[Finished], done: Finished) -> list[float]:
        """Let the next Task lead and work as soon as it may; return the moments until which nothing more happens."""
        while self._queue:
            i = self._queue[0]
            if self._there is None and after[i] | done == done:
                self._there = engines.now + self._efforts[i].waits.lead
            if self._there is None:
                break
            if self._there > engines.now + INSTANT:
                return [self._there, *self.moments()]
            if not engines.free(WINDOW):
                break
            engines.start(WINDOW, i, self._efforts[i].waits.work, self._efforts[i].loads)
            self._queue.popleft()
            self._there = None
        return self.moments()


class _Rows(NamedTuple):
    """Some rows of a Task (its place on the array): the cycles in which they come, and those until its end after them.

    ``begins``  whether they are the Task's first
    ``enough``  whether it may work when they have come
    ``waits``   whether there is no room for them before the Task before it has worked
    """

    place: int
    cycles: float
    to_end: float
    begins: bool
    enough: bool
    waits: bool


class _ArrayLine(_Line):
    """The array, and the stream of its rows.

    It has room for two plans, so a Task's rows are asked for when the one before the last has been drained.
    """

    def __init__(self, efforts: Sequence[Effort], constants: _Constants) -> None:
        super().__init__(ARRAY, efforts)
        self._constants = constants
        self._begun, self._arrived = 0, 0  # Tasks that work or have worked, and those whose first rows are there
        self._drained = [0.0, 0.0]  # when each Task has been drained, after two that are not there
        self._coming: _Rows | None = None
        self._rows = deque(rows for place in range(len(self._tasks)) for rows in self._parts(place))
        # when the first word of the next rows is there, None if they are not asked for
        self._there: float | None = None

    def _parts(self, place: int) -> Iterator[_Rows]:
        """Yield the rows of a Task: some that have room while the Task before it works, and the others."""
        waits = self._efforts[self._tasks[place]].waits
        room = 1 - (self._efforts[self._tasks[place - 1]].waits.keeps if place else 0.0)
        early = -1.0  # those that have room
        if waits.rows <= room:
            chunks = (room - waits.rows) // waits.chunk * waits.chunk if waits.chunk else 0.0
            early = waits.reading * min(1.0, (waits.rows + chunks) / waits.all if waits.all else 1.0)
        to_end, begin = max(0.0, waits.first + waits.work - waits.reading), -1.0
        for end in sorted({waits.first, early, waits.reading}):
            if end > begin:
                cycles, more = end - max(begin, 0.0), waits.reading - end + to_end
                yield _Rows(place, cycles, more, begin < 0, end == waits.first, end > early)
                begin = end

    def begin(self, engines: Engines, after: Sequence[Finished], done: Finished) -> list[float]:
        """Fetch rows and work as soon as that may be; return the moments until which nothing more happens."""
        moments = self._fetch(engines, after, done)
        if self._begun < self._arrived and engines.free(ARRAY):
            i = self._tasks[self._begun]
            one = self._efforts[i]
            held_up = max(0.0, self._drained[-1] - one.waits.first_sums - engines.now)
            cycles = max(one.waits.work + held_up, self._constants.left(i, engines))
            engines.start(ARRAY, i, cycles, one.loads)
            self._begun += 1
        return moments + self.moments()

    def _fetch(self, engines: Engines, after: Sequence[Finished], done: Finished) -> list[float]:
        while self._rows:
            rows = self._rows[0]
            i = self._tasks[rows.place]
            if rows.waits and self.worked < rows.place:
                break
            if rows.begins and self._there is None:
                if after[i] | done != done or self.worked < rows.place - 1:
                    break
                self._there = max(engines.now, self._drained[rows.place]) + self._efforts[i].waits.delay
            if self._there is not None and self._there > engines.now + INSTANT:
                return [self._there]
            if not engines.free(ROWS):
                break
            self._rows.popleft()
            self._coming, self._there = rows, None
            engines.start(ROWS, i, rows.cycles, self._efforts[i].rows, rows.to_end)
        return []

    def ended(self, name: str, number: int, now: float) -> None:
        """Note that rows have come, or that a Task has worked."""
        if name == ROWS:
            self._arrived += self._coming is not None and self._coming.enough
            return
        super().ended(name, number, now)
        self._constants.worked(number)
        self._drained.append(now + self._efforts[number].waits.draining)


class _Constants:
    """The stream of constants: those of a few blocks of outputs ahead of the array, and of ``AHEAD`` Tasks.

    The first ones of a Task, as many as there is room for, come before it works; the last ones while it does.
    """

    def __init__(self, efforts: Sequence[Effort]) -> None:
        self._efforts = efforts
        self._queue = deque(i for i, one in enumerate(efforts) if one.engine == ARRAY)
        self._last: int | None = None  # the Task whose last constants are to come
        self._more, self._there = AHEAD, set[int]()
        # when the first word of the next one's is there, None if they are not asked for
        self._comes: float | None = None
        self._blocks = 0  # of Tasks whose first constants have been requested, without those of Tasks that have worked

    def begin(self, engines: Engines) -> list[float]:
        """Fetch the next ones if they may come and no others are on their way; return a moment at which they may."""
        while True:
            if self._last is not None:
                if engines.task(ARRAY) != self._last or not engines.free(CONSTANTS):
                    return []
                self._start(engines, self._last, self._parts(self._last)[1])
                self._last = None
            if not self._queue or not self._more:
                return []
            if self._comes is None:
                wait = self._wait(engines)
                if wait > 1:
                    return [engines.now + wait]
                self._comes = engines.now + self._efforts[self._queue[0]].waits.delay
            if self._comes > engines.now + INSTANT:
                return [self._comes]
            if not engines.free(CONSTANTS):
                return []
            i, self._comes = self._queue.popleft(), None
            self._more -= 1
            self._blocks += self._efforts[i].waits.blocks
            first, last = self._parts(i)
            self._start(engines, i, first, last)
            if last:
                self._last = i

    def _start(self, engines: Engines, number: int, cycles: float, to_end: float = 0.0) -> None:
        if cycles:
            engines.start(CONSTANTS, number, cycles, self._efforts[number].constants, to_end)

    def _wait(self, engines: Engines) -> float:
        """Return the cycles until few enough blocks are left of the Tasks before."""
        works = engines.task(ARRAY)
        more = self._blocks - TABLES + 1
        if works < 0:
            return 0.0 if more <= 0 else inf
        waits = self._efforts[works].waits
        each = waits.work / waits.blocks
        return more * each - max(0.0, waits.work - engines.left(ARRAY))

    def _parts(self, number: int) -> tuple[float, float]:
        """Return the cycles in which the first constants of a Task come, and its last ones."""
        waits = self._efforts[number].waits
        return waits.constants * waits.held, waits.constants * (1 - waits.held)

    def ended(self, name: str, number: int, now: float) -> None:
        """Note that constants have come."""
        self._there.add(number)

    def worked(self, number: int) -> None:
        """Note that a Task has worked."""
        self._more += 1
        self._blocks -= self._efforts[number].waits.blocks

    def left(self, number: int, engines: Engines) -> float:
        """Return the cycles until all of those of a Task have come, if nothing else runs."""
        first, last = self._parts(number)
        if number in self._there or not first:
            return last
        if engines.task(CONSTANTS) == number:
            return last + engines.left(CONSTANTS)
        comes = engines.now + self._efforts[number].waits.delay if self._comes is None else self._comes
        return max(0.0, comes - engines.now) + first + last
