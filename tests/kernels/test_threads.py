"""Several threads: the same codes as one, whoever calls, and nobody waits for a piece of work that nobody has."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.blob import View
from chai.errors import UsageError
from chai.fixed import Requantization
from chai.kernels.native import library, program as programs
from chai.kernels.native.program import NativeProgram
from chai.kernels.native.table import Table
from chai.tasks.conv import Conv
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from tests.conftest import HANG

from .common import LIBRARY, NAMES, VARIANTS, Calls, fork, in_child, program, used, with_calls

needs_library = pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
BATCHES = [np.random.default_rng(i).uniform(0, 16, (5, 1, 8, 8)).astype(np.float32) for i in range(2)]


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads for every run, however short."""
    monkeypatch.setattr(programs, "threads", lambda: 3)
    monkeypatch.setattr(programs, "SHARED", 0)


def conv(source: str, target: str, inputs: int, outputs: int, kernel: int) -> Conv:
    rng = np.random.default_rng(outputs)
    weights = rng.integers(-127, 128, (outputs, inputs, kernel, kernel)).astype(np.int8)
    r = Requantization(np.full((outputs, 1, 1), 300), 19, -128, 127)
    window = Window((kernel,) * 2, (1, 1), (kernel // 2,) * 2)
    return Conv((source,), target, (target,), weights, np.arange(outputs), window, 1, r)


def inception() -> tuple[list[Conv | Pool | Eltwise], dict[str, tuple[int, ...]], dict[str, View]]:
    """Branches that meet in one blob, a sum, and a chain of small layers at the end."""
    pool = Pool(("x",), "pooled", ("p",), Window((3, 3), (1, 1), (1, 1)), (23, 29), None)
    total = Eltwise(("whole", "twice"), "sum", ("s",), (3, 5), None, Requantization(np.array(1), 3, -128, 127), (0, 0))
    tasks = [
        conv("x", "a", 20, 33, 1),
        conv("x", "narrow", 20, 9, 1),
        conv("narrow", "b", 9, 40, 3),
        pool,
        conv("pooled", "c", 20, 17, 1),
        conv("whole", "twice", 90, 90, 3),
        total,
        conv("sum", "d", 90, 7, 1),
        conv("d", "y", 7, 12, 3),
    ]
    channels = {
        "a": 33,
        "narrow": 9,
        "b": 40,
        "pooled": 20,
        "c": 17,
        "whole": 90,
        "twice": 90,
        "sum": 90,
        "d": 7,
        "y": 12,
    }
    views = {"a": View("whole", 0), "b": View("whole", 33), "c": View("whole", 73)}
    return tasks, {blob: (2, c, 23, 29) for blob, c in channels.items()}, views


@needs_library
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [2, 3, 7])
def test_codes_are_those_of_one_thread(variant: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, shapes, views = inception()
    x = np.random.default_rng(0).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    wanted: dict[str, np.ndarray] = {}
    with used(variant):
        task_program = program(tasks, {"x": x}, shapes, views, ("whole", "y"))
        assert [type(part) for part in task_program.parts] == [NativeProgram]
        for several in (1, *[count] * 10):
            monkeypatch.setattr(programs, "threads", lambda several=several: several)
            blobs = {"x": x}
            times = task_program.run(blobs).tasks
            assert times is not None
            assert len(times) == len(tasks)
            assert min(times) >= 0
            wanted = wanted or blobs
            assert all(np.array_equal(blobs[blob], wanted[blob]) for blob in ("whole", "y"))
    with used("numpy"):
        blobs = {"x": x}
        program(tasks, {"x": x}, shapes, views, ("whole", "y")).run(blobs)
    assert all(np.array_equal(blobs[blob], wanted[blob]) for blob in ("whole", "y"))
    if Path("/proc/self/task").is_dir():
        assert workers() >= count - 1


@needs_library
def test_a_table_for_one_thread_runs_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no order between its operations."""
    tasks, shapes, views = inception()
    x = np.random.default_rng(3).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    counts, run = list[int](), library.Library.run

    def counted(self: library.Library, table: Table, frame: library.RunArguments, threads: int = 1) -> Sequence[float]:
        counts.append(threads)
        return run(self, table, frame, threads)

    monkeypatch.setattr(library.Library, "run", counted)
    ordered = []
    with used(NAMES[0]):
        for count in (1, 3):
            with monkeypatch.context() as patch:
                patch.setattr(programs, "threads", lambda count=count: count)
                compiled = program(tasks, {"x": x}, shapes, views, ("y",))
            compiled.run({"x": x})
            (part,) = compiled.parts
            assert isinstance(part, NativeProgram)
            ordered.append(any(operation.after for operation in part.table))
    assert counts == [1, 3]
    assert ordered == [False, True]


def workers() -> int:
    """Return how many threads of the library this process has."""
    names = []
    for task in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # of another thread, which has just ended
            names.append(task.read_text())
    return names.count("chai-kernels\n")


@needs_library
def test_a_run_goes_on_where_it_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every piece of work of the caller, as after 100 ms, so that Python sees signals."""
    tasks, shapes, views = inception()
    x = np.random.default_rng(2).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    results = []
    with used(NAMES[0]):
        for pause, count in ((1e9, 1), (0.0, 3), (0.0, 1)):
            monkeypatch.setattr(library, "PAUSE", pause)
            monkeypatch.setattr(programs, "threads", lambda count=count: count)
            blobs, returned = {"x": x}, list[int]()
            task_program = program(tasks, blobs, shapes, views, ("whole", "y"))
            (part,) = task_program.parts
            assert isinstance(part, NativeProgram)
            part._library = with_calls(part._library, Calls(part._library.calls, returned.append))
            task_program.run(blobs)
            results.append(blobs)
    assert len(returned) > 40  # with one thread; others may do all the rest before the first caller looks at the time
    assert returned == [0] * (len(returned) - 1) + [1]
    assert all(np.array_equal(results[0][blob], other[blob]) for other in results for blob in ("whole", "y"))


@needs_library
def test_two_networks_from_four_threads() -> None:
    """One caller has the workers, the others compute alone."""
    with used(NAMES[0]):
        nets = [chai.Net("digits") for _ in range(2)]
        wanted = [net.forward(BATCHES[i])["prob"].copy() for i, net in enumerate(nets)]
        assert "fpga:Convolution" in nets[0].schedule.engines()
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(15) if not np.array_equal(nets[i].forward(BATCHES[i])["prob"], wanted[i]))

    callers = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(HANG)
    assert wrong == []


@needs_library
def test_close_while_others_compute() -> None:
    """A pass ends with its numbers, or is refused by its name: the network is closed."""
    with used(NAMES[0]):
        net = chai.Net("digits")
        wanted = net.forward(BATCHES[0])["prob"].copy()
    begun, verdicts = threading.Barrier(3), list[object]()

    def work() -> None:
        begun.wait(HANG)
        try:
            for _ in range(1000):
                verdicts.append(np.array_equal(net.forward(BATCHES[0])["prob"], wanted))
        except UsageError as error:
            verdicts.append("closed" in str(error))

    callers = [threading.Thread(target=work) for _ in range(2)]
    for caller in callers:
        caller.start()
    begun.wait(HANG)
    net.close()
    for caller in callers:
        caller.join(HANG)
    assert all(verdicts)
    assert verdicts


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_starts_its_own_workers() -> None:
    tasks, shapes, views = inception()
    x = np.random.default_rng(1).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program(tasks, {"x": x}, shapes, views, ("y",))
    blobs = {"x": x}
    task_program.run(blobs)
    child = fork()
    if not child:
        code = 2
        try:
            before, again = workers(), {"x": x}
            task_program.run(again)
            code = int(not np.array_equal(again["y"], blobs["y"])) + 4 * before + 8 * (workers() != 2)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def several_processors() -> set[int]:
    """The processors that the process may use, at least two."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")
    return allowed


def with_two_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """A function that runs Tasks with two threads."""
    monkeypatch.setattr(programs, "threads", lambda: 2)
    tasks, shapes, views = inception()
    x = np.random.default_rng(1).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program(tasks, {"x": x}, shapes, views, ("y",))
    return lambda: task_program.run({"x": x})


@needs_library
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system has no /proc of Linux")
def test_the_worker_of_a_forked_process_is_kept_off_its_callers_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux may wake it there, though another processor is idle."""
    allowed = several_processors()
    run = with_two_threads(monkeypatch)
    child = fork()  # with one worker
    if not child:
        code = 2
        try:
            signal.alarm(HANG)  # which ends it, should that never be
            run()
            (worker,) = {*map(int, os.listdir("/proc/self/task"))} - {os.getpid()}
            for own in (min(allowed), max(allowed)):
                while os.sched_getaffinity(worker) != allowed - {own}:
                    os.sched_setaffinity(0, {own})
                    os.sched_setaffinity(0, allowed)  # from where it may move, or be on its own for a while
                    run()
            os.sched_setaffinity(worker, {max(allowed)})
            os.sched_setaffinity(0, {min(allowed)})
            run()
            code = int(os.sched_getaffinity(worker) != {max(allowed)})  # a caller with one processor changes nothing
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_library
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system has no /proc of Linux")
def test_workers_that_a_pinned_caller_has_started_are_kept_off_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have its processor, too, until a caller that has several begins a run, be it on the same one."""
    allowed = several_processors()
    run = with_two_threads(monkeypatch)

    def placed() -> bool:
        os.sched_setaffinity(0, {min(allowed)})
        run()
        (worker,) = {*map(int, os.listdir("/proc/self/task"))} - {os.getpid()}
        os.sched_setaffinity(worker, allowed)
        os.sched_setaffinity(0, allowed)
        while os.sched_getaffinity(worker) == allowed:  # for a while the caller may be on its own
            run()
        return len(os.sched_getaffinity(worker)) == len(allowed) - 1

    assert in_child(placed) == 0


@needs_library
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "pthread_setattr_default_np"), reason="not glibc")
def test_workers_of_a_forked_process_have_stacks_large_enough() -> None:
    """A piece of a convolution in tiles takes more than the 128 KB that musl gives a thread."""
    x = np.random.default_rng(1).integers(-128, 128, (4, 64, 60, 60)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program([conv("x", "y", 64, 64, 3)], {"x": x}, {"y": x.shape})
    child = fork()
    if not child:
        code = 2
        try:
            c, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
            c.pthread_attr_init(attributes)
            c.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 16))
            code = 4 * bool(c.pthread_setattr_default_np(attributes))
            for _ in range(5):
                task_program.run({"x": x})
            code += 8 * (workers() != 2)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_while_another_thread_packs_weights_packs_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """That thread is not there, and would never release what it holds."""
    tasks, shapes, views = inception()
    x = np.random.default_rng(1).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    with used(NAMES[0]):
        task_program, other = (program(tasks, {"x": x}, shapes, views, ("y",)) for _ in range(2))
    wanted, packing, go_on = {"x": x}, threading.Event(), threading.Event()
    other.run(wanted)
    packed = NativeProgram._packed

    def slowly(self: NativeProgram) -> np.ndarray:
        packing.set()
        go_on.wait(HANG)
        return packed(self)

    monkeypatch.setattr(NativeProgram, "_packed", slowly)
    blobs = {"x": x}
    thread = threading.Thread(target=task_program.run, args=(blobs,))
    thread.start()
    assert packing.wait(HANG)

    def again() -> bool:
        NativeProgram._packed, results = packed, {"x": x}  # type: ignore[method-assign]
        task_program.run(results)
        return np.array_equal(results["y"], wanted["y"])

    assert in_child(again) == 0
    go_on.set()
    thread.join(HANG)
    assert np.array_equal(blobs["y"], wanted["y"])


@needs_library
def test_a_program_closed_during_a_run_keeps_what_the_run_needs_and_no_longer() -> None:
    tasks, shapes, views = inception()
    x = np.random.default_rng(1).integers(-128, 128, (2, 20, 23, 29)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program(tasks, {"x": x}, shapes, views, ("y",))
    (part,) = task_program.parts
    assert isinstance(part, NativeProgram)
    wanted = {"x": x}
    task_program.run(wanted)
    calls = part._library.calls

    class Closing:
        """The library, whose run begins when another thread has closed the program."""

        def __getattr__(self, name: str) -> object:
            if name == "chai_run":
                thread = threading.Thread(target=task_program.close)
                thread.start()
                thread.join(HANG)
            return getattr(calls, name)

    part._library = with_calls(part._library, Closing())
    for _ in range(2):
        blobs = {"x": x}
        task_program.run(blobs)
        assert np.array_equal(blobs["y"], wanted["y"])
        assert (part._memory, part._frames) == (None, [])
    part._library = with_calls(part._library, calls)
    task_program.run(blobs)
    assert part._memory is not None
    assert len(part._frames) == 1


@needs_library
def test_control_c_ends_a_run_of_several_threads() -> None:
    """And the workers are free again: the next run has its codes."""
    draw = np.random.default_rng(1)
    x = draw.integers(-128, 128, (40, 256, 40, 40), np.int8)  # many seconds; copies of an image would be computed once
    small = draw.integers(-128, 128, (1, 256, 5, 6), np.int8)
    task = conv("x", "y", 256, 256, 3)
    with used("plain"):
        task_program = program([task], {"x": x}, {"y": x.shape}, None, ("y",))
        after_it = program([task], {"x": small}, {"y": small.shape}, None, ("y",))
    (part,) = task_program.parts
    assert isinstance(part, NativeProgram)
    returned: list[int] = []

    def interrupt(done: int) -> None:
        returned.append(done)
        os.kill(os.getpid(), signal.SIGINT)

    part._library = with_calls(part._library, Calls(part._library.calls, interrupt))
    with pytest.raises(KeyboardInterrupt):
        task_program.run({"x": x})
    assert returned == [0]  # once, and not at its end
    blobs = {"x": small}
    after_it.run(blobs)
    assert np.array_equal(blobs["y"], task.define(small))
