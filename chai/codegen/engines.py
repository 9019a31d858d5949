"""Two engines and the streams of the array's rows and constants: how fast each is while others use the same ports and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from .dependencies import Finished

INSTANT = 1e-6  # cycles, less than which is a rounding error
ARRAY, WINDOW = Finished._fields
ROWS, CONSTANTS = "rows", "constants"  # the streams of the array

Loads = tuple[float, ...]  # shares of rates: the memory's, each port's


@dataclass(slots=True)
class _Running:
    """A Task on an engine, or what a stream brings for it: its number, the cycles that are left if nothing else runs, its loads.

    ``to_end``  cycles from the end of a stream to the end of its Task's work, at least
    """

    number: int
    left: float
    loads: Loads
    to_end: float


class Engines:
    """The engines and streams at the cycle ``now``, each with a Task or free.

    The array cannot end a Task before all that its streams bring has come. Of those that use a rate each gets the same share,
    or more where others need less; but rows that the array waits for go before constants at a port.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._running: dict[str, _Running] = {}
        self._speeds: Mapping[str, float] = {}  # of those that run, {} when that has changed

    def free(self, name: str) -> bool:
        """Return whether an engine or a stream has no Task."""
        return name not in self._running

    def task(self, name: str) -> int:
        """Return the number of the Task of an engine or a stream, -1 if it has none."""
        return self._running[name].number if name in self._running else -1

    def left(self, name: str) -> float:
        """Return the cycles until an engine or a stream is free if nothing else runs."""
        return self._running[name].left if name in self._running else 0.0

    def start(self, name: str, number: int, cycles: float, loads: Loads, to_end: float = 0.0) -> None:
        """Start a Task on an engine, or what a stream brings for it; either is free, and takes so many cycles."""
        self._running[name], self._speeds = _Running(number, cycles, loads, to_end), {}

    def advance(self, until: float = inf) -> list[tuple[str, int]]:
        """Run until something ends, or until a cycle; return what is free then, and the Tasks that leave it so."""
        running, own = self._running, self._own()
        if not self._speeds:
            loads = tuple([(name, one.loads) for name, one in running.items()])
            self._speeds = _speeds(loads, self._waits_for_rows(own))
        speeds = self._speeds
        ends = {name: one.left / speeds[name] if speeds[name] else inf for name, one in running.items()}
        for name in own:
            ends[ARRAY] = max(ends[ARRAY], ends[name] + running[name].to_end)
        passed = min([until - self.now, *ends.values()])
        self.now += passed
        for name, one in running.items():
            one.left -= passed * speeds[name]
        for name in own:
            running[ARRAY].left = max(running[ARRAY].left, running[name].left + running[name].to_end)
        ended = [(name, one.number) for name, one in running.items() if one.left < INSTANT]
        for name, _ in ended:
            del running[name]
            self._speeds = {}
        return ended

    def _own(self) -> list[str]:
        """Return the streams that bring something for the Task on which the array works."""
        works = self.task(ARRAY)
        return [name for name in (CONSTANTS, ROWS) if works == self.task(name) >= 0]

    def _waits_for_rows(self, own: list[str]) -> bool:
        """Return whether the array waits for rows and for no constants of its Task, which has these streams."""
        if ARRAY not in self._running:
            return True
        return own == [ROWS] and self.left(ROWS) + self._running[ROWS].to_end > self.left(ARRAY) - INSTANT


@lru_cache(maxsize=1024)
def _speeds(loads: tuple[tuple[str, Loads], ...], rows_first: bool) -> Mapping[str, float]:
    """Return the speed of each by name, 1 where no rate is asked for more than it has; rows may go before constants at a port."""
    speeds = {name: 1.0 for name, _ in loads}
    rates = max((len(shares) for _, shares in loads), default=0)
    for i in (*range(1, rates), 0):  # the memory moves what the ports leave
        asked, rest = {name: shares[i] * speeds[name] for name, shares in loads}, 1.0
        if sum(asked.values()) <= rest:
            continue
        if i and rows_first and asked.get(ROWS) and asked.get(CONSTANTS):
            rest -= asked.pop(ROWS)
        for name, speed in _fair(asked, rest):
            speeds[name] *= speed
    return speeds


def _fair(asked: Mapping[str, float], rate: float) -> Iterator[tuple[str, float]]:
    """Yield the speed of each that asks for a share of a rate; the one that asks for least is first."""
    for place, name in enumerate(sorted(asked, key=asked.__getitem__)):
        share = min(asked[name], rate / (len(asked) - place))
        rate -= share
        if asked[name]:
            yield name, share / asked[name]
