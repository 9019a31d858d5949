"""An exception of a signal handler, as Ctrl-C's, may come anywhere in a pass: it comes out as it is, and nothing stays locked,
running or open."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from inspect import CO_GENERATOR
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.util.sharing import Turn, inside
from tests.conftest import HANG, report
from tests.leftovers import Leftovers

Array = np.ndarray
KINDS = ["float", "emulator", "chai"]
CALLS = ["forward", "stream", "branches"]
NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 9 dim: 7 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 5 kernel_size: 3 } }
layer { name: "mine" type: "mine" bottom: "c1" top: "m" user_defined_layer: true
  xcustom_param { top_dim: [2, 5, 7, 5] } }
layer { name: "c2" type: "Convolution" bottom: "m" top: "c2" convolution_param { num_output: 8 kernel_size: 2 } }
"""
# its host layer and its segment depend on the input only: forward runs them in two threads on an overlay
BRANCHES = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 9 dim: 7 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 5 kernel_size: 3 } }
layer { name: "mine" type: "mine" bottom: "data" top: "m" user_defined_layer: true
  xcustom_param { top_dim: [2, 3, 9, 7] } }
layer { name: "c2" type: "Convolution" bottom: "c1" top: "c2" convolution_param { num_output: 8 kernel_size: 2 } }
"""


class Timeout(Exception):
    """What a handler raises."""


def mine(x: chai.xChangeLayer) -> None:
    x.out_ptrs[0][:] = x.in_ptrs[0] * np.float32(0.5)


def data(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((2, 3, 9, 7)).astype(np.float32)


def load(kind: str, folder: Path, text: str = NET, function: Callable[[Any], None] = mine) -> chai.Net:
    """A network with a custom layer and two convolutions, calibrated, from a prototxt or as .chai."""
    path = folder / "net.prototxt"
    path.write_text(text)
    custom = {"mine": function}
    device = kind if kind in ("float", "vtasim") else "emulator"
    options: dict[str, Any] = {"overlay": "vta-z7020"} if kind == "vtasim" else {}
    net = chai.Net(path, device=device, custom=custom, jit=False, **options)
    net.calibrate(data(99))
    if kind == "chai":
        save(net, folder / "net.chai")
        net.close()
        net = chai.Net(folder / "net.chai", custom=custom, jit=False)
    if kind != "float":
        assert net.schedule.engines().count("host:mine") == 1
    return net


def call_of(what: str, net: chai.Net) -> Callable[[], Any]:
    return (lambda: list(net.stream(map(data, range(3))))) if what == "stream" else lambda: net.forward(data(1))


class Injection:
    """Raises a signal at one of the moments of a call at which Python would run the handler of a signal.

    These are the start of a function in Python, and the end of a call of one in C.
    """

    def __init__(self, moment: int) -> None:
        self.moment, self.now = moment, 0

    def run(self, call: Callable[[], Any]) -> None:
        callbacks = list(gc.callbacks)
        gc.callbacks.clear()  # that of hypothesis, in which Python drops any exception
        sys.setprofile(self._event)
        try:
            call()
        finally:
            sys.setprofile(None)
            gc.callbacks.extend(callbacks)

    def _event(self, frame: Any, event: str, _: Any) -> None:
        generator = (
            event == "call" and frame.f_code.co_flags & CO_GENERATOR
        )  # it may be closed, and no handler runs then
        weak = frame.f_code.co_filename.endswith("_weakrefset.py")  # threading's, in which Python drops any exception
        if event in ("call", "c_return", "c_exception") and not generator and not weak:
            self.now += 1
            if self.now == self.moment:
                signal.raise_signal(signal.SIGALRM)


def in_thread(call: Callable[[], Any]) -> Any:
    """The result of a call in another thread, which would wait for what stayed locked."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(HANG)
    assert results, "it hangs, or failed"
    return results[0]


@pytest.fixture
def alarm() -> Iterator[None]:
    """A handler of SIGALRM that raises Timeout."""

    def handler(number: int, frame: Any) -> None:
        raise Timeout

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


def check_unharmed(net: chai.Net, wanted: Array) -> None:
    """Assert that no worker runs, and that this thread and another get the right numbers."""
    for worker in threading.enumerate():
        if worker.name.startswith("chai-"):
            worker.join(HANG)
            assert not worker.is_alive(), f"{worker.name} was left"
    assert inside() == ()
    assert not Turn._waits
    assert gc.isenabled()
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":  # where errstate belongs to the thread, not to a context
        np.seterr(all="warn", under="ignore")  # as it is at first
    assert "warn" in np.geterr().values()
    assert np.array_equal(in_thread(lambda: net.forward(data(1)))["c2"], wanted)
    assert np.array_equal(net.forward(data(1))["c2"], wanted)


def sweep(kind: str, what: str, folder: Path, step: int) -> int:
    """Interrupt a call at each of its moments, or at every ``step``-th; return how many it has."""
    left = Leftovers()
    net = load(kind, folder, BRANCHES if what == "branches" else NET)
    call = call_of(what, net)
    call()
    wanted, moment, injection = net.forward(data(1))["c2"], 0, Injection(0)
    while injection.now >= moment:
        moment += step
        injection = Injection(moment)
        with suppress(Timeout):
            injection.run(call)
        assert not leased(net), moment
        check_unharmed(net, wanted)
    net.close()
    assert not left
    return injection.now


def leased(net: chai.Net) -> bool:
    """Whether a batch has a part of a device's memory."""
    listed = net.offload._programs.values() if net.overlay is not None else ()
    return any(used.lease for programs in listed for one in programs for used in getattr(one, "_sets", ()))


@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_at_any_moment_leaves_nothing(kind: str, what: str, tmp_path: Path, alarm: None) -> None:
    assert sweep(kind, what, tmp_path, {"forward": 2, "branches": 3, "stream": 7}[what]) > 150


@pytest.mark.parametrize("what", CALLS)
def test_an_exception_at_any_moment_leaves_a_devices_memory_to_others(what: str, tmp_path: Path, alarm: None) -> None:
    assert sweep("vtasim", what, tmp_path, {"forward": 59, "branches": 61, "stream": 167}[what]) > 150


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_at_every_moment_leaves_nothing(kind: str, what: str, tmp_path: Path, alarm: None) -> None:
    report(f"{what} of {kind}: a Timeout at each of {sweep(kind, what, tmp_path, 1)} moments")


class Sender(threading.Thread):
    """Sends a signal to the main thread, ``seconds`` after each time that one is ``wanted``."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self.number, self.seconds, self.wanted = number, 0.0, threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        while self.wanted.acquire():
            time.sleep(self.seconds)
            signal.pthread_kill(threading.main_thread().ident or 0, self.number)


def tasks() -> int:
    """The threads of this process that the system knows."""
    return len(os.listdir("/proc/self/task"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM])
def test_two_thousand_signals_leave_nothing(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come at random moments: the verdict does not depend on which these are."""
    kind = KeyboardInterrupt if number == signal.SIGINT else Timeout
    left, threads = Leftovers(), tasks()
    handled, dropped, counts = [0], list[str](), Counter[str]()
    monkeypatch.setattr(sys, "unraisablehook", lambda what: dropped.append(repr(what.object)))

    def handler(_number: int, _frame: Any) -> None:
        handled[0] += 1
        raise kind

    cases = []
    for case in (f"{device} {what}" for device in KINDS for what in CALLS):
        folder = tmp_path / case
        folder.mkdir()
        device, what = case.split()
        net = load(device, folder, BRANCHES if what == "branches" else NET)
        call = call_of(what, net)
        begin = time.perf_counter()
        call()
        wanted = net.forward(data(1))["c2"]
        cases.append((case, net, call, wanted, time.perf_counter() - begin))
    sender, rng = Sender(number), np.random.default_rng(number)
    before = signal.signal(number, handler)
    try:
        for case, net, call, wanted, seconds in islice(cycle(cases), 2000):
            last = handled[0]
            sender.seconds = float(rng.uniform(0, 2 * seconds))
            with suppress(kind):
                sender.wanted.release()
                while handled[0] == last:
                    call()
            counts[case] += 1
            check_unharmed(net, wanted)
    finally:
        signal.signal(number, before)
    assert counts.total() == handled[0] == 2000
    for _, net, *_ in cases:
        net.close()
    assert left.files == []
    assert left.threads == [sender.name]
    end = time.monotonic() + HANG
    while tasks() > threads + 1 and time.monotonic() < end:  # the system ends a thread a moment after Python does
        time.sleep(0.01)
    assert tasks() == threads + 1, "the sender, and others"
    name = signal.Signals(number).name
    report(f"2000 {name}: {dict(counts)}; {len(dropped)} dropped by Python in {dict(Counter(dropped))}")
