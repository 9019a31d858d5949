"""Threads that compute elsewhere: kernels leave them their processors."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.errors import DeviceError
from chai.kernels.native import library, program as programs
from tests.conftest import HANG

from .common import NAMES, in_child, program, used
from .test_threads import BATCHES, conv, inception, needs_library, several_processors, workers


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads for every run, however short."""
    monkeypatch.setattr(programs, "threads", lambda: 3)
    monkeypatch.setattr(programs, "SHARED", 0)


class Elsewhere:
    """A thread that computes, as far as kernels know, within ``with``."""

    def __enter__(self) -> None:
        self._end, begun = threading.Event(), threading.Event()

        def busy() -> None:
            begun.set()
            assert self._end.wait(HANG)

        self._thread = threading.Thread(target=library.computing, args=(busy,))
        self._thread.start()
        assert begun.wait(HANG)

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def counted() -> bool:
    """Whether this thread counts among those that compute."""
    variant = library.library()
    assert variant is not None
    return bool(variant.calls.chai_computing(-1))


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_kernels_leave_a_processor_to_what_computes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three threads one is another's, then two, then none: in a process without workers they show what a run has."""
    tasks, shapes, views = inception()
    x = np.random.default_rng(1).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program(tasks, {"x": x}, shapes, views, ("y",))
    wanted = {"x": x}
    task_program.run(wanted)

    def right() -> bool:
        blobs = {"x": x}
        task_program.run(blobs)
        return np.array_equal(blobs["y"], wanted["y"])

    def work() -> bool:
        with Elsewhere(), Elsewhere():
            assert right()
            assert workers() == 0
        assert right()
        assert workers() == 2
        return True

    assert in_child(work) == 0
    with Elsewhere(), Elsewhere():  # whose threads do not exist in a forked process
        assert in_child(lambda: right() and workers() == 2) == 0


def ticks(name: str) -> int:
    """The processor's time that threads of a name have had, in the system's units."""
    fields = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            if (task / "comm").read_text() == f"{name}\n":
                fields.append((task / "stat").read_text().rpartition(")")[2].split())
    return sum(int(each[11]) + int(each[12]) for each in fields)


@needs_library
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system has no /proc of Linux")
def test_a_worker_leaves_a_run_when_another_thread_begins_to_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a piece; the caller then computes the many that are left."""
    several_processors()
    monkeypatch.setattr(programs, "threads", lambda: 2)
    monkeypatch.setattr(library, "PAUSE", 1e9)
    draw = np.random.default_rng(1)
    x = draw.integers(-128, 128, (24, 256, 20, 20), np.int8)
    task = conv("x", "y", 256, 256, 3)
    with used("plain"):
        task_program = program([task], {"x": x}, {"y": x.shape}, None, ("y",))
    wanted = task.define(x[5:6])[0]

    def work() -> bool:
        blobs = {"x": x}
        run = threading.Thread(target=task_program.run, args=(blobs,))
        run.start()
        while run.is_alive() and ticks("chai-kernels") < 3:
            time.sleep(0.002)  # this thread needs a processor, too
        with Elsewhere():
            helped = ticks("chai-kernels")
            run.join()
            assert ticks("chai-kernels") <= helped + 3
        return helped >= 3 and np.array_equal(blobs["y"][5], wanted)

    # A new process has no record of time that a worker lost. A worker that sees the thread of the test compute stays away.
    assert any(in_child(work) == 0 for _ in range(5))


@needs_library
def test_a_thread_counts_until_its_call_ends_however_it_does() -> None:
    inner = lambda: (library.computing(counted), counted())  # noqa: E731
    assert not counted()
    assert library.computing(inner) == (True, True)
    assert not counted()
    with pytest.raises(ZeroDivisionError):
        library.computing(lambda: 1 / 0)
    with pytest.raises(KeyboardInterrupt):
        library.computing(signal.raise_signal, signal.SIGINT)
    assert not counted()


@needs_library
def test_runs_while_others_begin_and_end_to_compute() -> None:
    """Nobody waits for a worker that has left, and the codes are the same."""
    tasks, shapes, views = inception()
    x = np.random.default_rng(4).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program(tasks, {"x": x}, shapes, views, ("y",))
    wanted = {"x": x}
    task_program.run(wanted)
    over = threading.Event()

    def others() -> None:
        while not over.is_set():
            library.computing(lambda: None)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(200):
            blobs = {"x": x}
            task_program.run(blobs)
            assert np.array_equal(blobs["y"], wanted["y"])
    finally:
        over.set()
        thread.join()


@needs_library
@pytest.mark.parametrize("device", ["emulator", "float"])
def test_a_thread_with_a_small_stack_is_refused(device: str) -> None:
    """A kernel's tile takes more than such a stack: it would end the process."""
    net = chai.Net("digits", device=device)
    results: list[object] = []

    def call() -> None:
        try:
            results.append(net.forward(BATCHES[0]))
        except DeviceError as error:
            results.append(error)

    before = threading.stack_size()
    for size in (128 << 10, 1 << 20):
        threading.stack_size(size)
        try:
            thread = threading.Thread(target=call)
            thread.start()
        finally:
            threading.stack_size(before)
        thread.join(HANG)
    small, large = results
    assert isinstance(small, DeviceError) and "stack is too small" in str(small), small
    assert isinstance(large, dict)
