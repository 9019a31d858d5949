"""The pipeline: order, overlap, back-pressure, and what happens when something goes wrong."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import devices
from chai.devices.base import Program, Ran
from chai.devices.null import NullDevice
from chai.plugins.frame import Frame
from chai.runtime import lanes
from chai.runtime.lanes import Pipeline, PipelineStage
from chai.tasks.work import Work
from tests.conftest import HANG
from tests.leftovers import Leftovers


@pytest.fixture
def left() -> Leftovers:
    """The threads of a test."""
    return Leftovers()


def stage(lane: str, needs: set[int], run: Any) -> PipelineStage:
    return PipelineStage(lane, frozenset(needs), run)


def test_results_come_in_order_and_every_stage_runs_once(left: Leftovers) -> None:
    def note(word: str) -> Any:
        return lambda state: state.append(word)

    stages = [stage("host", set(), note("a")), stage("fpga", {0}, note("b")), stage("host", {1}, note("c"))]
    states = list(Pipeline(stages, 3).stream([i] for i in range(20)))
    assert states == [[i, "a", "b", "c"] for i in range(20)]
    assert left.threads == []


def test_branches_of_one_batch_overlap() -> None:
    """Both sides have to be at work at once, or the barrier breaks."""
    barrier = threading.Barrier(2, timeout=HANG)
    stages = [stage("host", set(), lambda s: barrier.wait()), stage("fpga", set(), lambda s: barrier.wait())]
    assert list(Pipeline(stages, 1).stream([1])) == [1]


def test_neighbouring_batches_overlap() -> None:
    """The host works on batch n + 1 while the device works on batch n."""
    barrier = threading.Barrier(2, timeout=HANG)
    met = []

    def host(state: int) -> None:
        if state > 0:
            met.append(barrier.wait())

    def device(state: int) -> None:
        if state < 3:
            met.append(barrier.wait())

    assert list(Pipeline([stage("host", set(), host), stage("fpga", {0}, device)], 2).stream(range(4))) == [0, 1, 2, 3]
    assert len(met) == 6


def test_a_lane_does_one_thing_at_a_time() -> None:
    busy = threading.Lock()

    def run(state: int) -> None:
        assert busy.acquire(blocking=False)
        time.sleep(0.001)
        busy.release()

    stages = [stage("host", set(), run), stage("host", set(), run), stage("host", {0, 1}, run)]
    assert len(list(Pipeline(stages, 4).stream(range(10)))) == 10


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_no_more_is_taken_than_there_is_room_for(depth: int) -> None:
    taken = []

    def states() -> Iterator[int]:
        for i in range(12):
            taken.append(i)
            yield i

    results = Pipeline([stage("host", set(), lambda s: None)], depth).stream(states())
    for done, _ in enumerate(results, 1):
        assert len(taken) <= done + depth - 1
    assert taken == list(range(12))


def test_a_finished_batch_waits_for_no_later_one() -> None:
    """Each state is there only after the result of the one before it, though there is room for five."""
    there: deque[int] = deque([0])
    wakes: list[Any] = []

    def states() -> Iterator[int]:
        while there:
            yield there.popleft()

    def ready(wake: Any) -> bool:
        wakes.append(wake)
        return bool(there)

    results = Pipeline([stage("host", set(), lambda s: None), stage("fpga", {0}, lambda s: None)], 5).stream(
        states(), ready
    )
    for i in range(6):
        assert next(results) == i
        if i < 5:
            there.append(i + 1)
    assert list(results) == []
    assert wakes


def test_a_state_that_comes_meanwhile_is_taken_at_once() -> None:
    """The first batch ends only when the second one has begun, which came after it was asked for."""
    begun, there, asked = threading.Event(), [0], list[Any]()

    def host(state: int) -> None:
        if state == 1:
            begun.set()

    def device(state: int) -> None:
        if state == 0:
            assert begun.wait(HANG)

    def states() -> Iterator[int]:
        while there:
            yield there.pop()

    def ready(wake: Any) -> bool:
        if not asked:
            asked.append(wake)
            there.append(1)
            threading.Timer(0.05, wake).start()
            return False
        return bool(there)

    assert list(Pipeline([stage("host", set(), host), stage("fpga", {0}, device)], 3).stream(states(), ready)) == [0, 1]


@pytest.mark.parametrize("bad", [0, 3, 7])
def test_an_error_comes_in_the_place_of_its_batch(bad: int, left: Leftovers) -> None:
    def fail(state: int) -> None:
        if state == bad:
            raise ValueError(f"batch {state}")

    seen = []
    with pytest.raises(ValueError, match=f"batch {bad}"):
        seen.extend(Pipeline([stage("host", set(), fail), stage("fpga", {0}, lambda s: None)], 4).stream(range(8)))
    assert seen == list(range(bad))
    assert left.threads == []


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_error_of_the_source_comes_in_the_place_of_its_batch(bad: int, left: Leftovers) -> None:
    """What was taken before it is computed and given to the caller."""

    def states() -> Iterator[int]:
        yield from range(bad)
        raise OSError("no more")

    seen = []
    with pytest.raises(OSError, match="no more"):
        seen.extend(Pipeline([stage("host", set(), lambda s: None)], 3).stream(states()))
    assert seen == list(range(bad))
    assert left.threads == []


def test_an_interrupt_in_the_source_ends_the_workers_at_once(left: Leftovers) -> None:
    def states() -> Iterator[int]:
        yield 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(Pipeline([stage("host", set(), lambda s: None)], 3).stream(states()))
    assert left.threads == []


def test_what_a_signal_handler_raises_in_the_source_does_not_wait_for_its_place(left: Leftovers) -> None:
    class Timeout(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Timeout

    def states() -> Iterator[int]:
        yield 0
        signal.raise_signal(signal.SIGUSR1)
        yield 1

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Timeout):
            next(Pipeline([stage("host", set(), lambda s: None)], 3).stream(states()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert left.threads == []


@pytest.mark.parametrize("started", [0, 1, 2])
def test_threads_that_cannot_be_started(started: int, left: Leftovers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were are ended."""
    start, starts = threading.Thread.start, []

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    def limited(thread: threading.Thread) -> None:
        starts.append(thread.name)
        (start if len(starts) <= started - 1 else refuse)(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    if not started:
        monkeypatch.setattr(lanes, "start_new_thread", refuse)
    stages = [stage("host", set(), lambda s: None), stage("fpga", {0}, lambda s: None)]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(Pipeline(stages, 2).stream(range(5)))
    assert len(starts) == started
    assert left.threads == []


def test_a_caller_that_stops_early_leaves_no_worker(left: Leftovers) -> None:
    results = Pipeline([stage("host", set(), lambda s: None)], 3).stream(range(100))
    assert next(results) == 0
    results.close()
    assert left.threads == []


def test_an_interrupt_in_the_caller_ends_the_workers(left: Leftovers) -> None:
    def interrupted() -> None:
        for state in Pipeline([stage("host", set(), lambda s: None)], 3).stream(range(100)):
            if state == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert left.threads == []


NET = """
name: "t"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 9 dim: 7 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 16 kernel_size: 3 } }
layer { name: "mine" type: "mine" bottom: "c1" top: "m" user_defined_layer: true
  xcustom_param { top_dim: [1, 16, 7, 5] } }
layer { name: "c2" type: "Convolution" bottom: "m" top: "c2" convolution_param { num_output: 8 kernel_size: 2 } }
layer { name: "side" type: "TanH" bottom: "c1" top: "side" }
"""


def network(tmp_path: Path, function: Any, device: str = "emulator", text: str = NET) -> chai.Net:
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    return chai.Net(path, device=device, custom={"mine": function})


def halve(x: chai.xChangeLayer) -> None:
    x.out_ptrs[0][:] = x.in_ptrs[0] * np.float32(0.5)


@pytest.mark.parametrize("device", ["emulator", "float"])
def test_a_stream_gives_the_bits_of_forward(tmp_path: Path, device: str, left: Leftovers) -> None:
    batches = [np.random.default_rng(i).standard_normal((2, 3, 9, 7)).astype(np.float32) for i in range(9)]
    net = network(tmp_path, halve, device)
    net.calibrate(batches[0])
    one_by_one = [net.forward(b) for b in batches]
    streamed = list(net.stream(batches))
    assert len(streamed) == 9
    for a, b in zip(one_by_one, streamed):
        assert set(a) == set(b) == {"c2", "side"}
        assert all(np.array_equal(a[k], b[k]) for k in a)
    assert list(net.stream([])) == []
    assert left.threads == []


BRANCHES = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 9 dim: 7 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 3 kernel_size: 1 } }
layer { name: "mine" type: "mine" bottom: "data" top: "m" user_defined_layer: true
  xcustom_param { top_dim: [2, 3, 9, 7] } }
layer { name: "join" type: "Concat" bottom: "c" bottom: "m" top: "j" concat_param { axis: 2 } }  # on the host
"""
CHAIN = BRANCHES.replace('bottom: "data" top: "m"', 'bottom: "c" top: "m"')


class Meeting(NullDevice):
    """Its programs, and the function ``mine``, each wait until the other is running too; else the barrier breaks."""

    barrier = threading.Barrier(2)

    def compile(self, work: Work) -> Program:
        device = self
        real = devices.open("emulator").compile(work)

        class Waiting(Program):
            def run(self, blobs: dict[str, Any]) -> Ran:
                device.barrier.wait(timeout=HANG)
                return real.run(blobs)

        return Waiting()


@pytest.fixture
def meeting(tmp_path: Path) -> chai.Net:
    """The network with branches, on a device that meets its custom layer."""
    device = Meeting("meeting", "")

    def mine(x: chai.xChangeLayer) -> None:
        device.barrier.wait(timeout=HANG)
        halve(x)

    net = network(tmp_path, mine, device, BRANCHES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "barrier", threading.Barrier(1))  # nobody to meet in the float pass
        net.calibrate(DATA)
    return net


DATA = np.random.default_rng(3).standard_normal((2, 3, 9, 7)).astype(np.float32)


def test_forward_runs_branches_of_host_and_device_at_once(meeting: chai.Net, tmp_path: Path, left: Leftovers) -> None:
    assert meeting.schedule.engines().count("host:mine") == 1
    plain = network(tmp_path, halve, "emulator", BRANCHES)
    plain.calibrate(DATA)
    for data in (DATA, -DATA):
        wanted = plain.forward(data)["j"]
        assert np.array_equal(meeting.forward(data)["j"], wanted)
        assert wanted.any()
    assert {s.engine for s in meeting.perf.steps} == {"host", "fpga", "custom"}
    assert left.threads == []


def test_what_a_branch_raises_comes_out_of_forward(
    meeting: chai.Net, monkeypatch: pytest.MonkeyPatch, left: Leftovers
) -> None:
    """And the network lives on."""
    right = meeting.forward(DATA)["j"]
    monkeypatch.setattr(Frame, "run", lambda *_: 1 / 0)
    monkeypatch.setattr(meeting.device, "barrier", threading.Barrier(1))
    with pytest.raises(ZeroDivisionError):
        meeting.forward(DATA)
    assert left.threads == []
    monkeypatch.undo()
    assert np.array_equal(meeting.forward(DATA)["j"], right)


def test_forward_of_a_chain_starts_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(tmp_path, halve, "emulator", CHAIN)
    net.calibrate(DATA)
    wanted = next(iter(net.stream([DATA])))["j"]
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was started"))
    assert np.array_equal(net.forward(DATA)["j"], wanted)
    assert "host:mine" in net.schedule.engines()


def test_what_a_layer_raises_names_it_and_the_net_lives_on(tmp_path: Path, left: Leftovers) -> None:
    calls = []

    def mine(x: chai.xChangeLayer) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("broken")
        halve(x)

    batches = [np.full((2, 3, 9, 7), i, np.float32) for i in range(1, 9)]
    net = network(tmp_path, mine)
    net.calibrate(batches[-1])
    calls.clear()
    done = []
    with pytest.raises(chai.PluginError, match=r"layer 'mine'.*broken"):
        done.extend(net.stream(batches))
    assert len(done) == 4
    assert left.threads == []
    assert np.array_equal(net.forward(batches[0])["c2"], done[0]["c2"])


def test_batches_of_a_stream_have_one_size(tmp_path: Path, left: Leftovers) -> None:
    net = network(tmp_path, halve)
    with pytest.raises(chai.UsageError, match="input 'data' of 1x3x9x7 in a stream of 2x3x9x7"):
        list(net.stream([np.ones((2, 3, 9, 7)), np.ones((1, 3, 9, 7))]))
    assert left.threads == []


def test_throughput_is_counted_over_the_stream(tmp_path: Path) -> None:
    net = network(tmp_path, halve)
    list(net.stream(np.ones((2, 3, 9, 7)) for _ in range(6)))
    assert net.perf.batch == 12
    assert net.perf.images_per_second == pytest.approx(12 * 1000 / net.perf.wall_ms)
    assert {s.engine for s in net.perf.steps} == {"host", "fpga", "custom"}
