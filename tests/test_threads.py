"""Several threads with one Net: every call has its own answer, no layer runs twice at once, and nothing hangs."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.net
from chai import devices
from chai.artifact.save import save
from chai.devices.base import Program, Ran
from chai.devices.null import NullDevice
from chai.env import env
from chai.plugins.definition import CustomOptions, CustomType
from chai.runtime import dump
from chai.tasks.work import Work
from tests.conftest import HANG
from tests.kernels.common import in_child
from tests.leftovers import Leftovers
from tests.passes.common import CONV, network

Array = np.ndarray
SHORT = 0.3  # seconds for another thread to do what it must not do
KINDS = ["float", "emulator", "chai"]
LINES = f"""c1 Convolution data -> c1 : {CONV}
    early early c1 -> e1 : user_defined_layer: true
    c2 Convolution e1 -> c2 : {CONV}
    late late c2 -> l1 : user_defined_layer: true
    c3 Convolution l1 -> c3 : {CONV}"""


@dataclass
class Hooks:
    """What the two custom layers do beside computing."""

    early: Callable[[], None] = lambda: None
    late: Callable[[], None] = lambda: None


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


def data(seed: int, images: int = 2, height: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal((images, 3, height, 7)).astype(np.float32)


def custom(hooks: Hooks) -> dict[str, CustomType]:
    def early(x: chai.xChangeLayer) -> None:
        hooks.early()
        x.top[0][...] = x.bottom[0] * 0.5

    def late(x: chai.xChangeLayer) -> None:
        hooks.late()
        x.top[0][...] = x.bottom[0][:, ::-1]

    types = {f.__name__: CustomType(f.__name__, f, False, CustomOptions()) for f in (early, late)}
    for custom in types.values():
        custom.shape(lambda x: [tuple(x.input_dims[0])])
    return types


def load(kind: str, folder: Path, hooks: Hooks, calibrated: bool = True) -> chai.Net:
    """The network of ``LINES`` for batches of two."""
    device = "float" if kind == "float" else "emulator"
    net = network(folder, LINES, device=device, custom=custom(hooks))
    if calibrated:
        net.calibrate(data(99))
    if kind != "chai":
        return net
    save(net, folder / "net.chai")
    return chai.Net(folder / "net.chai", device=device, custom=custom(hooks))


class Caller(threading.Thread):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.call, self.result, self.error = call, None, None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error

    def answer(self) -> Any:
        self.join(HANG)
        assert not self.is_alive(), f"{self.name} hangs"
        if self.error is not None:
            raise self.error
        return self.result


def name() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_returns_its_own_answer_whichever_pass_ends_last(
    kind: str, tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both passes are over, and neither call has returned: the log of a pass waits for the other one."""
    net = load(kind, tmp_path, hooks)
    batches = [data(1), data(2)]
    expected = [net.forward(b)["c3"] for b in batches]
    barrier = threading.Barrier(2, timeout=HANG)
    met: set[str] = set()

    def wait(record: logging.LogRecord) -> bool:
        if name().startswith("call") and name() not in met:
            met.add(name())
            barrier.wait()
        return True

    logger = logging.getLogger("chai")
    monkeypatch.setattr(dump, "env", lambda: env()._replace(debug=2))
    logger.setLevel(logging.INFO)
    logger.addFilter(wait)
    try:
        calls = [Caller(lambda b=b: net.forward(b)["c3"], f"call {i}") for i, b in enumerate(batches)]
        answers = [call.answer() for call in calls]
    finally:
        logger.removeFilter(wait)
        logger.setLevel(logging.NOTSET)
    assert met == {"call 0", "call 1"}
    assert all(np.array_equal(a, e) for a, e in zip(answers, expected))
    assert any(np.array_equal(net.blobs["c3"], e) for e in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_two_passes_overlap_and_keep_their_numbers(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    """One is in the late layer while the other is in the early one; with other sizes, too."""
    net = load(kind, tmp_path, hooks)
    other = data(2, 3) if kind == "chai" else data(2, 1, 9)
    expected = [net.forward(b)["c3"] for b in (data(1), other)]
    barrier, through = threading.Barrier(2, timeout=HANG), threading.Event()
    met: list[str] = []

    def early() -> None:
        if name() == "second" and name() not in met:
            met.append(name())
            barrier.wait()

    def late() -> None:
        if name() == "first":
            through.set()
            barrier.wait()

    hooks.early, hooks.late = early, late
    first = Caller(lambda: net.forward(data(1))["c3"], "first")
    assert through.wait(HANG)
    second = Caller(lambda: net.forward(other)["c3"], "second")
    assert np.array_equal(first.answer(), expected[0])
    assert np.array_equal(second.answer(), expected[1])
    assert met == ["second"]


class Crowd:
    """A hook that notes whether it runs in two threads at once, and gives a second one the time to come."""

    def __init__(self) -> None:
        self.busy, self.most, self.calls = 0, 0, 0
        self.lock, self.second = threading.Lock(), threading.Event()

    def __call__(self) -> None:
        with self.lock:
            self.busy += 1
            self.calls += 1
            self.most = max(self.most, self.busy)
        if self.busy > 1:
            self.second.set()
        if self.calls < 3:
            self.second.wait(SHORT)
        with self.lock:
            self.busy -= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_runs_in_one_thread_at_a_time(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    net = load(kind, tmp_path, hooks)
    crowd = Crowd()
    hooks.early = crowd
    calls = [Caller(lambda i=i: net.forward(data(i)), f"call {i}") for i in range(3)]
    calls.append(Caller(lambda: list(net.stream([data(7), data(8)])), "stream"))
    for call in calls:
        call.answer()
    assert (crowd.calls, crowd.most) == (5, 1)


def test_copies_of_a_layer_for_several_sizes_do_not_run_at_once_either(tmp_path: Path, hooks: Hooks) -> None:
    net = load("emulator", tmp_path, hooks)
    sizes = [data(i, 1, 5 + 2 * i) for i in range(3)]
    for size in sizes:
        net.forward(size)
    crowd = Crowd()
    hooks.late = crowd
    for call in [Caller(lambda b=b: net.forward(b), "call") for b in sizes]:
        call.answer()
    assert (crowd.calls, crowd.most) == (3, 1)


def test_the_first_batches_of_two_threads_are_calibrated_once(
    tmp_path: Path, hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    """The first stays in its calibration pass; the second must not take its sizes or formats away."""
    net = load("emulator", tmp_path, hooks, calibrated=False)
    started, over = threading.Event(), threading.Event()

    def early() -> None:
        if name() == "first" and not over.is_set():
            started.set()
            over.wait(SHORT)

    hooks.early = early
    first = Caller(lambda: net.forward(data(1)), "first")
    assert started.wait(HANG)

    def other() -> Array:
        result: Array = net.forward(data(2, 1, 9))["c3"]
        over.set()
        return result

    second = Caller(other, "second")
    assert first.answer()["c3"].shape == (2, 4, 5, 7)
    assert second.answer().shape == (1, 4, 9, 7)
    assert np.array_equal(net.forward(data(2, 1, 9))["c3"], second.answer())
    assert [r.message for r in caplog.records if "no precision_param" in r.message][1:] == []


@pytest.mark.parametrize("kind", KINDS)
def test_forward_inside_of_a_stream_does_not_wait_for_its_end(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    net = load(kind, tmp_path, hooks)
    batches = [data(i) for i in range(6)]
    expected = [net.forward(b)["c3"] for b in batches]

    def both() -> Iterator[tuple[Array, Array]]:
        for i, out in enumerate(net.stream(batches)):
            yield out["c3"], net.forward(batches[-i])["c3"]
            assert np.array_equal(net.blobs["c3"], expected[-i])

    answers = Caller(lambda: list(both()), "both").answer()
    for i, (streamed, run) in enumerate(answers):
        assert np.array_equal(streamed, expected[i])
        assert np.array_equal(run, expected[-i])


class Board(NullDevice):
    """The emulator, with Programs that say whether one ran after it was closed."""

    def __init__(self) -> None:
        super().__init__("board", "")
        vars(self).update(alive=0, late=[])

    def compile(self, work: Work) -> Program:
        real, device = devices.open("emulator").compile(work), vars(self)
        device["alive"] += 1

        class Counted(Program):
            closed = False

            def run(self, blobs: dict[str, Any]) -> Ran:
                if self.closed:
                    device["late"].append(work)
                return real.run(blobs)

            def close(self) -> None:
                assert not self.closed
                self.closed = True
                device["alive"] -= 1

        return Counted()


def on_board(tmp_path: Path, hooks: Hooks) -> tuple[chai.Net, dict[str, Any]]:
    net = network(tmp_path, LINES, device=Board(), custom=custom(hooks))
    net.calibrate(data(99))
    return net, vars(net.device)


FORGETTING: dict[str, Callable[[chai.Net], Any]] = {
    "calibrate": lambda net: net.calibrate(data(98)),
    "params": lambda net: net.params,
    "other sizes": lambda net: [net.forward(data(0, 1, h)) for h in range(6, 11)],
}


@pytest.mark.parametrize("what", FORGETTING)
def test_an_unfinished_stream_keeps_what_another_thread_forgets(what: str, tmp_path: Path, hooks: Hooks) -> None:
    net, board = on_board(tmp_path, hooks)
    batches = [data(i) for i in range(12)]
    expected = [net.forward(b)["c3"] for b in batches]
    results = net.stream(batches)
    answers = [next(results)["c3"]]
    before = board["alive"]
    Caller(lambda: FORGETTING[what](net), "other").answer()
    assert board["alive"] >= before
    answers += [out["c3"] for out in results]
    assert all(np.array_equal(f, e) for f, e in zip(answers, expected, strict=True))
    assert board["late"] == []
    net.close()
    assert board["alive"] == 0


@pytest.mark.parametrize("what", FORGETTING)
def test_a_running_pass_keeps_what_another_thread_forgets(what: str, tmp_path: Path, hooks: Hooks) -> None:
    net, board = on_board(tmp_path, hooks)
    expected = net.forward(data(1))["c3"]
    reached, forgotten = threading.Event(), threading.Event()

    def early() -> None:
        if name() == "pass":
            reached.set()
            forgotten.wait(SHORT)  # what forgets may wait for this pass

    hooks.early = early
    running = Caller(lambda: net.forward(data(1))["c3"], "pass")
    assert reached.wait(HANG)
    other = Caller(lambda: (FORGETTING[what](net), forgotten.set()), "other")
    assert np.array_equal(running.answer(), expected)
    other.answer()
    assert board["late"] == []
    net.close()
    assert board["alive"] == 0


def test_a_network_that_is_closed_ends_its_running_pass_first(tmp_path: Path, hooks: Hooks) -> None:
    net, board = on_board(tmp_path, hooks)
    expected = net.forward(data(1))["c3"]
    reached, closed = threading.Event(), threading.Event()
    hooks.early = lambda: (reached.set(), closed.wait(HANG))[0]
    running = Caller(lambda: net.forward(data(1))["c3"], "pass")
    assert reached.wait(HANG)
    net.close()
    with pytest.raises(chai.UsageError, match="is closed"):
        net.forward(data(1))
    assert board["alive"] > 0
    closed.set()
    assert np.array_equal(running.answer(), expected)
    assert (board["alive"], board["late"], net.blobs) == (0, [], {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_a_closed_network_says_so(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    net = load(kind, tmp_path, hooks)
    left = Leftovers()
    results = net.stream(data(i) for i in range(20))
    next(results)
    net.close()
    with pytest.raises(chai.UsageError, match="is closed"):
        next(results)
    assert left.threads == []


NESTED: dict[str, Callable[[chai.Net], Any]] = {
    "forward": lambda net: net.forward(data(1)),
    "stream": lambda net: list(net.stream([data(1)])),
    "calibrate": lambda net: net.calibrate(data(1)),
    "reshape": lambda net: net.reshape(data=(1, 3, 5, 7)),
    "params": lambda net: net.params,
    "schedule": lambda net: net.schedule,
}


@pytest.mark.parametrize("way", ["forward", "stream"])
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (kind, what)
        for kind in KINDS
        for what in NESTED
        if (kind, what) not in (("float", "schedule"), ("chai", "calibrate"), ("chai", "params"), ("chai", "schedule"))
    ],
)
def test_a_layer_that_asks_its_own_network_is_refused(
    kind: str, what: str, way: str, tmp_path: Path, hooks: Hooks
) -> None:
    net = load(kind, tmp_path, hooks)
    expected = net.forward(data(1))["c3"]
    hooks.early = lambda: NESTED[what](net)
    call = Caller(lambda: net.forward(data(2)) if way == "forward" else list(net.stream([data(2)] * 3)), "call")
    with pytest.raises(chai.PluginError, match="layer 'early' asks its own network"):
        call.answer()
    hooks.early = lambda: None
    assert np.array_equal(net.forward(data(1))["c3"], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_resumes_a_stream_of_its_own_network_is_refused(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    net = load(kind, tmp_path, hooks)
    results = net.stream([data(i) for i in range(20)])
    next(results)
    hooks.early = lambda: next(results) if name() == "call" else None
    with pytest.raises(chai.PluginError, match="layer 'early' asks its own network"):
        Caller(lambda: net.forward(data(2)), "call").answer()


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_may_run_another_network(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    """That one must not come back to the first, however it was run."""
    (tmp_path / "inner").mkdir()
    outer, middle = load(kind, tmp_path, hooks), Hooks()
    inner = load(kind, tmp_path / "inner", middle)
    hooks.early = lambda: inner.forward(data(3))
    Caller(lambda: outer.forward(data(1)), "call").answer()
    middle.early = lambda: outer.forward(data(2))
    hooks.early = lambda: list(inner.stream([data(3)]))
    with pytest.raises(chai.PluginError, match="layer 'early' asks its own network"):
        Caller(lambda: outer.forward(data(1)), "call").answer()


def test_a_stream_that_nobody_finishes_may_be_collected_in_a_layer(tmp_path: Path, hooks: Hooks) -> None:
    """Its worker waits for the layer, and the layer's thread must not wait for the worker."""
    net = load("emulator", tmp_path, hooks)
    expected = net.forward(data(1))["c3"]
    collected: list[int] = []

    def late() -> None:
        time.sleep(0.05)  # the worker is slow: when the other thread comes to this layer, it is not through
        if name() == "call":
            time.sleep(SHORT)
            collected.append(gc.collect())

    holder: dict[str, Any] = {"stream": net.stream(data(i) for i in range(50))}
    holder["self"] = holder
    hooks.late = late
    next(holder["stream"])
    del holder
    assert np.array_equal(Caller(lambda: net.forward(data(1))["c3"], "call").answer(), expected)
    assert collected


def test_sizes_of_several_threads_do_not_mix(tmp_path: Path, hooks: Hooks) -> None:
    net = load("emulator", tmp_path, hooks)
    batches = [data(i, 1 + i % 3, 5 + i % 4) for i in range(12)]
    expected = [net.forward(b)["c3"] for b in batches]
    order = [np.random.default_rng(i).permutation(12) for i in range(4)]

    def run(i: int) -> bool:
        for j in order[i]:
            net.reshape(data=(1 + i, 3, 6, 7))
            if not np.array_equal(net.forward(batches[j])["c3"], expected[j]):
                return False
        return True

    assert all(call.answer() for call in [Caller(lambda i=i: run(i), f"call {i}") for i in range(4)])


def test_pictures_are_prepared_for_the_sizes_that_the_call_began_with(tmp_path: Path) -> None:
    from PIL import Image

    net = chai.Net("digits", device="float")

    def pictures() -> Iterator[Image.Image]:
        yield Image.new("L", (8, 8))
        Caller(lambda: net.reshape(data=(1, 1, 8, 8)), "other").answer()
        net._shapes = {**net._shapes, "data": (1, 1, 4, 4)}
        yield Image.new("L", (8, 8))

    assert net.preprocess(pictures()).shape == (2, 1, 8, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_not_pickled(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    with pytest.raises(chai.UsageError, match="cannot be pickled or copied"):
        pickle.dumps(load(kind, tmp_path, hooks))


# -- forked processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_forked_during_a_pass_of_another_thread_runs_the_network(
    kind: str, tmp_path: Path, hooks: Hooks
) -> None:
    """The thread that holds a layer's turn is not there, and would never end it."""
    net = load(kind, tmp_path, hooks)
    wanted = net.forward(data(1))["c3"]
    inside, go_on = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        go_on.wait(HANG)

    hooks.late = stay
    thread = threading.Thread(target=net.forward, args=(data(1),))
    thread.start()
    assert inside.wait(HANG)

    def again() -> bool:
        hooks.late = lambda: None
        return np.array_equal(net.forward(data(1))["c3"], wanted)

    ended = in_child(again)
    go_on.set()
    thread.join(HANG)
    assert ended == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_began_before_a_fork(kind: str, tmp_path: Path, hooks: Hooks) -> None:
    """A forked process has none of its threads: it is told so, and may begin another. The first process goes on."""
    net = load(kind, tmp_path, hooks)
    wanted = [net.forward(data(i))["c3"] for i in range(6)]
    stream = net.stream(map(data, range(6)))
    assert np.array_equal(next(stream)["c3"], wanted[0])

    def resumed() -> bool:
        if kind == "float":  # which has no threads
            return all(np.array_equal(answer["c3"], right) for answer, right in zip(stream, wanted[1:], strict=True))
        with pytest.raises(chai.UsageError, match="began before a fork") as refused:
            list(stream)
        assert refused.value.hint == "begin it after the fork"
        return True

    def closed() -> bool:
        stream.close()
        return all(np.array_equal(a["c3"], w) for a, w in zip(net.stream(map(data, range(6))), wanted, strict=True))

    assert in_child(resumed) == 0
    assert in_child(closed) == 0
    assert all(np.array_equal(answer["c3"], right) for answer, right in zip(stream, wanted[1:], strict=True))
