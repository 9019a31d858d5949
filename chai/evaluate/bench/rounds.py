"""Time several programs side by side: interleaved rounds, in which each follows each other one equally often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import pbkdf2_hmac
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

from ...runtime.perf import spread

REACHED = 0.9  # of the number of threads: 1.8 times the work with two
_WORK = 20_000  # iterations: about 4 ms of hashing, which needs no memory and no lock of the interpreter's


def order(count: int, number: int) -> list[int]:
    """Return the order of ``count`` programs in a round.

    A program finds the caches as the one before it left them. Over ``count`` rounds, twice as many if it is odd, each comes
    once in each place and once after each other one: a Latin square balanced for carry-over effects (Williams 1949).
    """
    zigzag = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]
    row = [(place + number) % count for place in zigzag]
    return row[::-1] if count % 2 and number // count % 2 else row


def timed(
    programs: Sequence[Callable[[], Any]],
    rounds: Iterable[int],
    threads: int,
    clock: Callable[[], float] = perf_counter,
) -> list[list[float]]:
    """Return the milliseconds of each program in each round, by a ``clock`` of seconds; all have run before.

    With several threads a program begins when those of the one before sleep, and its second pass counts: some libraries
    keep their threads busy for 40 ms after a pass, so that they are awake for the next.
    """
    times: list[list[float]] = [[] for _ in programs]
    for number in rounds:
        for i in order(len(programs), number):
            if threads > 1:
                settle()
                programs[i]()
            begin = clock()
            programs[i]()
            times[i].append((clock() - begin) * 1000)
    return times


def settle() -> None:
    """Wait until no thread of this process works, half a second at most."""
    last = process_time()
    for _ in range(100):
        sleep(0.005)
        last, before = process_time(), last
        if last - before < 0.001:
            return


def noise(times: Sequence[float]) -> float:
    """Return the relative difference of the medians of the two halves of a run; 0 for one round."""
    half = len(times) // 2
    if not half:
        return 0.0
    first, second = median(times[:half]), median(times[half:])
    return abs(first - second) / min(first, second)


def ratios(times: Sequence[float], of: Sequence[float]) -> dict[str, float]:
    """Return the median and the least time as multiples of those of ``of``."""
    mine, other = spread(times), spread(of)
    return {"median": mine.median / other.median, "min": mine.min / other.min}


class Spin:
    """Times work in registers that shares nothing, with one thread and with several, in the rounds of a run."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self._times: list[tuple[float, float]] = []

    def __call__(self) -> None:
        """Time one thread, then all."""
        self._times.append((self._ms(1), self._ms(self._threads)))

    def _ms(self, threads: int) -> float:
        begin = perf_counter()
        for work in [self._pool.submit(pbkdf2_hmac, "sha256", b"", b"", _WORK) for _ in range(threads)]:
            work.result()
        return (perf_counter() - begin) * 1000

    @property
    def speedup(self) -> dict[str, float]:
        """Return the work that all do in the time of one: by the least times, and by the medians."""
        one, all = (spread(times) for times in zip(*self._times))
        return {"median": self._threads * one.median / all.median, "min": self._threads * one.min / all.min}

    @property
    def reached(self) -> bool:
        """Return whether the threads had as many processors at least once: whether least times can be compared."""
        return self.speedup["min"] >= REACHED * self._threads
