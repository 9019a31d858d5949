"""Threads that share the one simulated accelerator of an overlay. Nothing is simulated here."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from chai.devices import placed
from chai.devices.rtlsim import program
from chai.errors import DeviceError
from chai.overlay import load
from chai.util.sharing import Mutex
from tests.conftest import HANG
from tests.kernels.common import in_child


def segment() -> Any:
    """A Chain of no blobs, as far as a Program looks at it before it runs."""
    regions = SimpleNamespace(given=[])
    return SimpleNamespace(
        overlay=load(), sizes={}, shapes={}, regions=regions, wanted=[], written=[], read=[], tasks=[object()]
    )


def test_who_waited_while_a_run_failed_does_not_take_its_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed there may still be running."""
    failing, other = segment(), segment()
    inside, asked, ran = threading.Event(), threading.Event(), list[Any]()

    class Simulated:
        busy = False

        def __init__(self) -> None:
            self.lock = Mutex()

        def run(self, chain: Any, memory: Any) -> int:
            ran.append(self)
            if chain is failing:
                inside.set()
                assert asked.wait(HANG)
                raise DeviceError("it does not end")
            return 1

    simulators = lru_cache(lambda _: Simulated())

    def accelerator(overlay: Any) -> Any:
        simulated = simulators(overlay)
        if inside.is_set():
            asked.set()
        return simulated

    accelerator.cache_clear = simulators.cache_clear  # type: ignore[attr-defined]
    monkeypatch.setattr(program, "accelerator", accelerator)
    monkeypatch.setattr(placed, "place", lambda *_: None)

    def waiting() -> None:
        assert inside.wait(HANG)
        program.RtlProgram(other, {}).run({})

    thread = threading.Thread(target=waiting)
    thread.start()
    with pytest.raises(DeviceError, match="does not end"):
        program.RtlProgram(failing, {}).run({})
    thread.join(HANG)
    first, second = ran
    assert second is not first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_during_a_run_has_an_accelerator_and_memory_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that ran the chain is not there: it would never end it, and has left both in any state."""
    inside, go_on, ran = threading.Event(), threading.Event(), list[tuple[Any, Any]]()

    class Simulated:
        busy = False

        def __init__(self, overlay: Any) -> None:
            self.lock = Mutex()

        def run(self, chain: Any, memory: Any) -> int:
            ran.append((self, memory))
            inside.set()
            assert go_on.wait(HANG)
            return 1

    monkeypatch.setattr(program, "Simulated", Simulated)
    monkeypatch.setattr(placed, "place", lambda *_: None)
    program.accelerator.cache_clear()
    one = program.RtlProgram(segment(), {})
    thread = threading.Thread(target=one.run, args=({},))
    thread.start()
    assert inside.wait(HANG)

    def twice() -> bool:
        go_on.set()
        one.run({})
        one.run({})
        return len({id(s) for s, _ in ran}) == len({id(m) for _, m in ran}) == 2 and ran[1] == ran[2]

    ended = in_child(twice)
    go_on.set()
    thread.join(HANG)
    program.accelerator.cache_clear()
    assert ended == 0
