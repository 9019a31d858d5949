"""A simulated clock that advances when code waits on it, so that no test sleeps."""

from __future__ import annotations

import asyncio
from concurrent.futures import wait
from time import monotonic
from typing import Any

from chai.devices.pynq import program
from tests.conftest import HANG

TURNS = 10  # from the acknowledgement to the end of a wait pynq needs fewer


class Clock:
    """What stands in for the driver's time. The last of ``boards`` is told when it passes; ``slept`` counts how often."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0
        self.boards: list[Any] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += 1

    def until(self, future: Any, seconds: float) -> bool:
        """Until a future is done: time jumps to what comes next on the board. Its thread then needs some real time."""
        if future.done():
            return True
        self.slept += 1
        board = self.boards[-1]
        self.now = max(self.now, min(self.now + seconds, board.accelerator.due))
        patience = monotonic() + HANG
        while True:
            board.tick()
            if not board.controller.coming:
                # pynq may be about to tell; it can lose an edge that comes before it has acknowledged the last one
                self._settle()
                return bool(future.done())
            if future.done():
                return True
            assert monotonic() < patience, "an interrupt is there, and nobody hears it"
            wait((future,), 0.001)

    @staticmethod
    def _settle() -> None:
        """Let the thread that serves interrupts finish what it has begun: each turn of its loop calls what is ready."""
        for opened in program._boards.values():
            for _ in range(TURNS):
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), opened._waiting._loop).result(HANG)
