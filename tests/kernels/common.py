"""The variants of the library that run here, and Tasks run by one of them."""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from chai import overlay
from chai.blob import View
from chai.devices.emulator import EmulatedProgram
from chai.kernels.native import library, program as programs, single as singles
from chai.kernels.native.single import Single
from chai.tasks import Task
from chai.tasks.work import Work
from tests.conftest import HANG

LIBRARY = library.state()
AMX = [variant.name for variant in LIBRARY.variants if variant.name.startswith("amx")]  # others but for convolutions
NAMES = [variant.name for variant in LIBRARY.variants if variant.name not in AMX]
VARIANTS = NAMES or [pytest.param("none", marks=pytest.mark.skip(reason=LIBRARY.reason))]
Blobs = dict[str, np.ndarray]


@contextmanager
def used(name: str) -> Iterator[None]:
    """Tasks run by this variant, or in numpy."""
    chosen = library.variant(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "state", lambda: library.LibraryState(LIBRARY.variants, LIBRARY.reason, chosen))
        aligned = programs.aligned

        def used_before(size: int) -> np.ndarray:
            """Memory that is not 0, as the process may get it: whatever a kernel reads has to be written first."""
            memory = aligned(size)
            memory[...] = 0xA5
            return memory

        patch.setattr(programs, "aligned", used_before)
        yield


def with_calls(known: library.Library, calls: Any) -> library.Library:
    """The same variant, with other functions."""
    return library.Library(known.name, known.number, calls)


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-2, 2, shape).astype(np.float32)


def nearest(x: np.ndarray, step: float, clamp: tuple[int, int, int]) -> np.ndarray:
    """The codes of quotients in float32: those in float64, which numpy divides exactly on ARMv7, too, round to the same."""
    low, high, zero = clamp
    with np.errstate(all="ignore"):
        quotients = np.clip((x.astype(np.float64) / step).astype(np.float32).astype(np.float64), -1000, 1000)
    return np.clip(np.copysign(np.floor(np.abs(quotients) + 0.5), quotients) + zero, low, high)


def products(codes: np.ndarray, step: float, zero: int) -> np.ndarray:
    """The products in float32: those in float64 are exact."""
    return ((codes.astype(np.float64) - zero) * step).astype(np.float32)


def computed_in_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many operations the library has run."""
    kinds: list[int] = []
    run = Single.run

    def counted(self: Single, *arrays: np.ndarray) -> np.ndarray:
        kinds.append(self._table[0].kind)
        return run(self, *arrays)

    monkeypatch.setattr(Single, "run", counted)
    return lambda: len(kinds)


def several(patch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Let every operation on arrays of the host use so many threads; return a list of those of each run."""
    counts, run = list[int](), library.Library.run_one

    def counted(self: library.Library, *arguments: Any) -> None:
        counts.append(arguments[1])
        run(self, *arguments)

    patch.setattr(library.Library, "run_one", counted)
    patch.setattr(singles, "threads", lambda: count)
    patch.setattr(singles, "SHARED", 0)
    return counts


def program(
    tasks: Sequence[Task],
    blobs: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    views: Mapping[str, View] | None = None,
    writes: Sequence[str] = (),
) -> EmulatedProgram:
    every = {**shapes, **{name: x.shape for name, x in blobs.items()}}
    return EmulatedProgram(Work(overlay.load(), tasks, every, views or {}, tuple(blobs), writes))


def fork() -> int:
    """Fork, though there are threads, of which Python 3.12 and later warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], bool]) -> int:
    """Return the exit code of a forked process that does some work: 0 if it returns True, 1 for False, 2 if it raises.

    An alarm ends a process that waits forever.
    """
    child = fork()
    if not child:
        code = 2
        try:
            signal.alarm(HANG)
            code = int(not work())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Calls:
    """The library's functions; ``after`` is called when a run has returned."""

    def __init__(self, calls: ctypes.CDLL, after: Any) -> None:
        self._calls, self._after = calls, after

    def __getattr__(self, name: str) -> Any:
        if name != "chai_run":
            return getattr(self._calls, name)

        def run(*args: Any) -> int:
            done: int = self._calls.chai_run(*args)
            self._after(done)
            return done

        return run
