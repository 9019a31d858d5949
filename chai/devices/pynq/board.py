"""The opened board: the programs that use it, and what it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from ...errors import DeviceError
from ...overlay import Overlay
from .finding import claim
from .memory import PynqBuffers


class Board:
    """A downloaded bitstream. It runs one program at a time: a Chain, or what the overlay's architecture has instead.

    ``stuck``   what it started last may still write to memory
    ``closed``  it has to be opened again
    """

    closed = False

    device: Any  # pynq's

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.lock = threading.Lock()  # no fork asks for it: ``check_process`` comes before
        self.users: WeakSet[Any] = WeakSet()  # Programs that are not closed
        self.stuck = False
        self.process = os.getpid()
        self._claim = claim()
        try:
            self.open()
        except BaseException:
            self.close()
            raise

    def open(self) -> None:
        """Load the bitstream and make sure that it answers. Raises DeviceError."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the board for other processes."""
        self.closed = True
        os.close(self._claim)

    def check_process(self) -> None:
        """Raise DeviceError in a fork, which shares lock, registers and buffers with the process that opened this."""
        if os.getpid() != self.process:
            raise DeviceError(
                f"process {self.process} has the board, and this one was forked from it",
                hint='start workers before the first network is loaded, or with multiprocessing\'s "spawn"',
            )

    def checks(self) -> Iterator[tuple[str, str]]:
        """Yield names of what no program shows, and what is wrong with it, "" if nothing is. Raises DeviceError."""
        yield from ()

    def memory(self, sizes: Mapping[int, int], first: PynqBuffers | None = None) -> PynqBuffers:
        """Return buffers for a program, or further ones than the ``first``. Raises NoRoom."""
        return PynqBuffers(sizes, self.device, self.overlay.coherent, first)

    def check_program(self, segment: Any, memory: PynqBuffers) -> None:
        """Check a program that was placed in memory, before its first run. Raises DeviceError."""

    def run(self, segment: Any, memory: PynqBuffers, seconds: float, expected: float = 0.0) -> float | None:
        """Run a program in memory for at most ``seconds``; ``expected`` is how long it takes in the model.

        Returns the milliseconds that the accelerator counted, None if unknown.

        Raises DeviceError that names the layer; the accelerator is then reset, and ``stuck`` if even that fails.

        Raises Lost if the accelerator is missing before or after the program.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the accelerator; ``stuck`` if it cannot be stopped. Raises DeviceError."""
        raise NotImplementedError

    def check_running(self) -> None:
        """Raise DeviceError if it was stopped during the wait for its program: a signal's handler closed a network."""
        if not self.stuck:
            raise DeviceError("the network was closed while the board ran it")
