"""The library of compiled kernels: found beside its sources, and used if it was made from them.

``CHAI_KERNELS`` chooses a variant; ``sgemm`` none, so that Tasks run in numpy.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from ...blob import Array
from ...env import env
from ...errors import DeviceError, UsageError
from ...util.lazy_numpy import np
from . import build
from .table import Extent, Kind, Operation, Table

T = TypeVar("T")
NONE = "sgemm"  # the value of CHAI_KERNELS for no library
COMPLETE = 1  # a run: all operations are done
PAUSE = 100.0  # milliseconds after which a run returns, so that Python handles signals
ALIGNMENT = 64  # of memory that blobs share, and of each of them there
_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer  # a fifth of a short call is to find them
SLOW = ("plain", "amx_vnni", "amx_plain")  # slower than numpy's sgemm: only if they are asked for


_Progress = ctypes.c_int * 3  # of a table of one operation, see pool.h


class Library:
    """``name`` is the variant in use, ``number`` its index, ``calls`` the functions of run.c."""

    __slots__ = ("calls", "name", "number")

    def __init__(self, name: str, number: int, calls: ctypes.CDLL) -> None:
        self.name, self.number, self.calls = name, number, calls

    def check(self, table: Table, extents: ctypes.Array[Extent]) -> int:
        """Return the first operation of a table that could leave its buffers, which have these sizes; -1 if none can."""
        counts = ctypes.c_int64(len(table)), ctypes.c_int64(len(extents))
        return int(self.calls.chai_check(self.number, table, counts[0], extents, counts[1]))

    def verify(self, table: Table, extents: ctypes.Array[Extent]) -> None:
        """Raise DeviceError if an operation of a table could leave its buffers, which have these sizes."""
        wrong = self.check(table, extents)
        if wrong >= 0:
            o = table[wrong]
            source, target = (o.images, o.channels, o.height, o.width), (o.images, o.outputs, o.out_height, o.out_width)
            raise DeviceError(
                f"operation {wrong}, {Kind.name(o.kind)} from {source} to {target}, would leave its memory"
            )

    def run_one(
        self,
        operation: Operation,
        threads: int,
        first: Array,
        second: Array,
        third: Array | None = None,
        fourth: Array | None = None,
    ) -> None:
        """Run a checked operation of Task 0 on its buffers, with at most so many threads; faster than ``run``.

        With 0 it runs in this thread to its end: for short ones.
        """
        number, at, a, b = self.number, _addressof(operation), address(first), address(second)
        c, d = third if third is None else address(third), fourth if fourth is None else address(fourth)
        if threads:
            run, progress = self.calls.chai_one, _Progress()
            while not (state := run(number, at, a, b, c, d, threads, PAUSE, progress)):
                pass  # Python handles signals
        else:
            state = self.calls.chai_alone(number, at, a, b, c, d)
        if state < 0:
            raise _small_stack()

    def run(self, table: Table, frame: RunArguments, threads: int = 1) -> Sequence[float]:
        """Run a checked table on the buffers of a frame, with at most so many threads; return the milliseconds of each Task."""
        run, number, count = self.calls.chai_run, self.number, len(table)
        while (
            state := run(number, table, count, frame.addresses, threads, PAUSE, frame.ms, frame.progress)
        ) != COMPLETE:
            if state < 0:
                raise _small_stack()  # else Python handles signals, and the run goes on
        ms: list[float] = frame.ms[:]
        return ms


def _small_stack() -> DeviceError:
    return DeviceError(
        "this thread's stack is too small for the kernels in C, which need 360 KB",
        hint="call threading.stack_size(1 << 20) before its start",
    )


class RunArguments:
    """The arguments of a table's run, for one at a time: addresses of buffers, times of Tasks, and how far it has come.

    A run that breaks off leaves it unusable.
    """

    __slots__ = ("addresses", "buffers", "ms", "progress")

    def __init__(self, table: Table, tasks: int, buffers: Sequence[Array | None]) -> None:
        self.buffers = buffers
        known = (None if array is None else address(array) for array in buffers)
        self.addresses = (ctypes.c_void_p * len(buffers))(*known)
        self.ms, self.progress = (ctypes.c_double * tasks)(), (ctypes.c_int * (2 + len(table)))()


def address(array: Any) -> int:
    """Return the address of an array's first byte."""
    try:
        return _addressof(_from_buffer(array))  # four times as fast as array.ctypes
    except (TypeError, ValueError):  # it is read-only, or empty, or not contiguous
        return int(array.ctypes.data)


def aligned(size: int) -> Array:
    """Return uninitialised bytes (uint8) that begin at a multiple of ``ALIGNMENT``."""
    whole = np.empty(size + ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start : start + size]


def pointer(array: Array) -> ctypes.c_void_p:
    """Return the address of an array's first byte as an argument."""
    return ctypes.c_void_p(address(array))


@dataclass(eq=False, repr=False, slots=True)
class LibraryState:
    """Every variant that can run here, best first, or the reason why there is none; and the one in use."""

    variants: tuple[Library, ...]
    reason: str
    used: Library | None


def library() -> Library | None:
    """Return the library with the variant in use; None if Tasks run in numpy."""
    return state().used


def arithmetic() -> str:
    """Return what computes: the variant in use, or numpy. Each has other last digits in sums of float32."""
    used = library()
    return "numpy" if used is None else used.name


def description() -> str:
    """Return the variant in use in words; ask the system for AMX if that is it."""
    used = library()
    if used is None:
        return f"kernels in numpy: {state().reason}"
    refusal = used.calls.chai_refusal() if used.name == "amx" else 0
    if refusal:
        return f"kernels in C (avx512vnni: the system refuses AMX, {os.strerror(refusal)})"
    return f"kernels in C ({used.name})"


def computing(call: Callable[..., T], *arguments: Any) -> T:
    """Return what ``call`` returns; meanwhile kernels of other threads leave this one a processor."""
    used = library()
    if used is None:
        return call(*arguments)
    note = used.calls.chai_computing
    before = note(-1)
    try:
        note(1)
        return call(*arguments)
    finally:
        note(before)  # in C: whatever comes after it, this thread is not counted for ever


@lru_cache(maxsize=1)
def state() -> LibraryState:
    """Load the library. Raises UsageError if CHAI_KERNELS names a variant that cannot run here."""
    calls, reason = _loaded()
    variants = () if calls is None else tuple(_usable(calls))
    choice = env().kernels
    if choice == NONE:
        return LibraryState(variants, f"CHAI_KERNELS is {NONE}", None)
    used = next((v for v in variants if v.name == choice or (not choice and v.name not in SLOW)), None)
    if choice and used is None:
        names = ", ".join([*(v.name for v in variants), NONE])
        raise UsageError(f"CHAI_KERNELS is {choice!r}; expected {names}", hint=reason or None)
    if variants and used is None:
        reason = f"{os.path.basename(build.library())} has none for this processor"
    return LibraryState(variants, reason, used)


def lost() -> str:
    """Return what a host without kernels in C loses, and the command that compiles them; "" if it has or wants none."""
    known = state()
    if known.used is not None or env().kernels == NONE:
        return ""
    return f"kernels in numpy, which take several times as long as in C: {known.reason}"


def _command() -> str:
    """Return the command that compiles the kernels for this Python."""
    own = f"'{sys.executable}'" if " " in sys.executable else sys.executable
    return build.COMMAND.replace("python", own or "python", 1)


def variant(name: str) -> Library | None:
    """Return the variant of this name, None if it cannot run here."""
    return next((v for v in state().variants if v.name == name), None)


def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """Return the library's functions, or None and the reason."""
    path = build.library()
    name = os.path.basename(path)
    if not os.path.isfile(path):
        return None, f"none were compiled; with a C compiler (e.g. gcc): {_command()}"
    try:
        calls = ctypes.CDLL(path)
        calls.chai_digest.restype = calls.chai_variant.restype = calls.chai_fields.restype = ctypes.c_char_p
        calls.chai_packed.restype = calls.chai_check.restype = ctypes.c_int64
        calls.chai_alone.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 5]
        calls.chai_one.argtypes = [*calls.chai_alone.argtypes, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p]
        calls.chai_run.argtypes = [
            *(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p),
            *(ctypes.c_int64, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p),
        ]
        if calls.chai_digest() != build.digest().encode():
            return None, f"{name} was compiled from other sources; again: {_command()}"
    except (OSError, AttributeError) as error:
        return None, f"{name} cannot be loaded ({error}); again: {_command()}"
    return calls, ""


def _usable(calls: ctypes.CDLL) -> Iterator[Library]:
    """Yield the variants that the processor can run."""
    number = 0
    while (name := calls.chai_variant(number)) is not None:
        if calls.chai_usable(number):
            yield Library(name.decode(), number, calls)
        number += 1
