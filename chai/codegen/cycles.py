"""Cycle model of a chain: two engines, each in order, every Task after those that it waits for, and one memory for all.

Rows and constants of the array's Tasks come in two streams, each in order, while Tasks before them work, as far as there is
room for them. An engine works on a Task when it is free, the Tasks that it waits for have finished and the first rows are
there. It has finished when its last writes are answered, some cycles later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

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
    return _ChainRun(efforts, after, begin).makespan() if efforts else 0


class _ChainRun:
    """A run of a chain: what each engine and each stream of the array does, one thing after the other.

    Each is a process, which yields the cycle in which it may go on; inf if that is when something has ended.
    """

    def __init__(self, efforts: Sequence[Effort], after: Sequence[Finished], begin: float) -> None:
        self._efforts, self._after, self._engines = efforts, after, Engines(begin)
        self._on_array, self._on_window = (
            [i for i, e in enumerate(efforts) if e.engine == name] for name in (ARRAY, WINDOW)
        )
        self._ends: dict[str, list[float]] = {ARRAY: [], WINDOW: []}  # when the Tasks that have worked finish
        self._done = NONE
        # of the array's rows: whether a Task may work when those that come are there, and how many may by now
        self._enough, self._arrived = False, 0
        self._drained = [0.0, 0.0]  # when each Task of the array has been drained, after two that are not there
        # of its constants: the Tasks for which more may be requested, and those whose first ones are there
        self._more, self._there = AHEAD, set[int]()
        # when the first word of the next ones is there, None if they are not asked for
        self._comes: float | None = None
        self._blocks = 0  # of Tasks whose first constants have been requested, without those of Tasks that have worked

    def makespan(self) -> int:
        """Return the cycle in which the last Task has finished."""
        engines, processes = self._engines, [self._fetch_rows(), self._array(), self._window(), self._fetch_constants()]
        while sum(self._done) < len(self._efforts):
            moments = [next(process, inf) for process in processes]
            moments += [ends[count] for ends, count in zip(self._ends.values(), self._done) if count < len(ends)]
            for name, i in engines.advance(min(moments)):
                self._ended(name, i)
            self._done = Finished(*(bisect_right(ends, engines.now + INSTANT) for ends in self._ends.values()))
        return ceil(engines.now - INSTANT)

    def _free(self, name: str, there: float) -> Iterator[float]:
        """Wait until the cycle ``there``, and until an engine or a stream is free."""
        while there > self._engines.now + INSTANT:
            yield there
        while not self._engines.free(name):
            yield inf

    def _waits(self, number: int) -> bool:
        """Return whether a Task that it waits for has not finished."""
        return self._after[number] | self._done != self._done

    def _window(self) -> Iterator[float]:
        """Work on the window engine: the next Task leads while the one before it works."""
        for i in self._on_window:
            one = self._efforts[i]
            while self._waits(i):
                yield inf
            yield from self._free(WINDOW, self._engines.now + one.waits.lead)
            self._engines.start(WINDOW, i, one.waits.work, one.loads)

    def _array(self) -> Iterator[float]:
        """Work on the array: a Task whose first rows are there, when its sums may be drained and constants have come."""
        for begun, i in enumerate(self._on_array):
            one = self._efforts[i]
            while begun >= self._arrived or not self._engines.free(ARRAY):
                yield inf
            held_up = max(0.0, self._drained[-1] - one.waits.first_sums - self._engines.now)
            self._engines.start(ARRAY, i, max(one.waits.work + held_up, self._constants_left(i)), one.loads)

    def _fetch_rows(self) -> Iterator[float]:
        """Fetch the rows of the array's Tasks: of each some that have room while the Task before it works, and the others.

        It has room for two plans, so a Task's rows are asked for when the one before the last has been drained.
        """
        engines, worked, room = self._engines, self._ends[ARRAY], 1.0
        for place, i in enumerate(self._on_array):
            one, waits = self._efforts[i], self._efforts[i].waits
            early = -1.0  # cycles of the rows that have room
            if waits.rows <= room:
                chunks = (room - waits.rows) // waits.chunk * waits.chunk if waits.chunk else 0.0
                early = waits.reading * min(1.0, (waits.rows + chunks) / waits.all if waits.all else 1.0)
            to_end, begin = max(0.0, waits.first + waits.work - waits.reading), -1.0
            for end in sorted({waits.first, early, waits.reading}):
                if end <= begin:
                    continue
                while end > early and len(worked) < place:
                    yield inf
                there = engines.now
                if begin < 0:
                    while self._waits(i) or len(worked) < place - 1:
                        yield inf
                    there = max(engines.now, self._drained[place]) + waits.delay
                yield from self._free(ROWS, there)
                self._enough = end == waits.first
                engines.start(ROWS, i, end - max(begin, 0.0), one.rows, waits.reading - end + to_end)
                begin = end
            room = 1 - waits.keeps

    def _fetch_constants(self) -> Iterator[float]:
        """Fetch constants: those of a few blocks of outputs ahead of the array, and of ``AHEAD`` Tasks.

        The first ones of a Task, as many as there is room for, come before it works; the last ones while it does.
        """
        engines = self._engines
        for i in self._on_array:
            one = self._efforts[i]
            while not self._more:
                yield inf
            while (wait := self._blocks_wait()) > 1:
                yield engines.now + wait
            self._comes = engines.now + one.waits.delay
            yield from self._free(CONSTANTS, self._comes)
            self._comes = None
            self._more -= 1
            self._blocks += one.waits.blocks
            first, last = self._constants(i)
            if first:
                engines.start(CONSTANTS, i, first, one.constants, last)
            if last:
                while engines.task(ARRAY) != i or not engines.free(CONSTANTS):
                    yield inf
                engines.start(CONSTANTS, i, last, one.constants)

    def _blocks_wait(self) -> float:
        """Return the cycles until few enough blocks are left of the Tasks before."""
        works = self._engines.task(ARRAY)
        more = self._blocks - TABLES + 1
        if works < 0:
            return 0.0 if more <= 0 else inf
        waits = self._efforts[works].waits
        each = waits.work / waits.blocks
        return more * each - max(0.0, waits.work - self._engines.left(ARRAY))

    def _constants(self, number: int) -> tuple[float, float]:
        """Return the cycles in which the first constants of a Task come, and its last ones."""
        waits = self._efforts[number].waits
        return waits.constants * waits.held, waits.constants * (1 - waits.held)

    def _constants_left(self, number: int) -> float:
        """Return the cycles until all constants of a Task have come, if nothing else runs."""
        engines, (first, last) = self._engines, self._constants(number)
        if number in self._there or not first:
            return last
        if engines.task(CONSTANTS) == number:
            return last + engines.left(CONSTANTS)
        comes = engines.now + self._efforts[number].waits.delay if self._comes is None else self._comes
        return max(0.0, comes - engines.now) + first + last

    def _ended(self, name: str, number: int) -> None:
        """Note that rows or constants have come, or that a Task has worked: it finishes after its tail."""
        now, waits = self._engines.now, self._efforts[number].waits
        if name == ROWS:
            self._arrived += self._enough
        elif name == CONSTANTS:
            self._there.add(number)
        else:
            self._ends[name].append(max([now + waits.tail, *self._ends[name][-1:]]))
        if name == ARRAY:
            self._drained.append(now + waits.draining)
            self._more += 1
            self._blocks -= waits.blocks
