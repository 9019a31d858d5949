"""Threads that share the one simulated accelerator of an overlay. Nothing is simulated here."""

from __future__ import annotations

import threading
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest

from chai.devices.rtlsim import program
from chai.errors import DeviceError
from chai.overlay import load
from tests.conftest import HANG


def test_who_waited_while_a_run_failed_does_not_take_its_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed there may still be running."""
    overlay = load()
    failing, other = (SimpleNamespace(overlay=overlay, sizes={}) for _ in range(2))
    inside, asked, ran = threading.Event(), threading.Event(), list[Any]()

    class Simulated:
        failed = False

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def run(self, chain: Any, memory: Any) -> int:
            ran.append(self)
            if chain is failing:
                inside.set()
                assert asked.wait(HANG)
                raise DeviceError("it does not end")
            return 1

    made = lru_cache(lambda _: Simulated())

    def accelerator(overlay: Any) -> Any:
        found = made(overlay)
        if inside.is_set():
            asked.set()
        return found

    accelerator.cache_clear = made.cache_clear  # type: ignore[attr-defined]
    monkeypatch.setattr(program, "accelerator", accelerator)
    monkeypatch.setattr(program, "place", lambda *_: None)
    monkeypatch.setattr(program, "run", lambda chain, memory, blobs, views, start: start())

    def waiting() -> None:
        assert inside.wait(HANG)
        program.RtlProgram(other, {}).run({})  # type: ignore[arg-type]

    thread = threading.Thread(target=waiting)
    thread.start()
    with pytest.raises(DeviceError, match="does not end"):
        program.RtlProgram(failing, {}).run({})  # type: ignore[arg-type]
    thread.join(HANG)
    first, second = ran
    assert second is not first
