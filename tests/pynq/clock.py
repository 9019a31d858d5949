"""Time that passes when somebody waits for it: no test sleeps."""

from __future__ import annotations

from concurrent.futures import wait
from time import monotonic
from typing import Any


class Clock:
    """What stands in for the driver's time. ``boards`` are told when it passes; ``slept`` counts how often it did."""

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
        """Until a future is done: time jumps to what comes next on a board. Real time is what its thread needs to hear of it."""
        if future.done():
            return True
        self.slept += 1
        ends = [b.accelerator.ends for b in self.boards if b.accelerator._bit("busy")]
        self.now = max(self.now, min([self.now + seconds, *ends]))
        patience = monotonic() + 20
        while True:
            for board in self.boards:
                board.tick()
            coming = any(b.accelerator.line and b.controller and b.controller.path for b in self.boards)
            if future.done() or not coming:
                return bool(future.done())
            assert monotonic() < patience, "the line is high, and nobody hears it"
            wait((future,), 0.001)
