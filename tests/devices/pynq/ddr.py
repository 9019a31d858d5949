"""The memory of the simulated board, and the host's write-back cache of it, on its worst day (``Buffer``)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

PAGE = 4096
LINE = 32  # bytes of the cache's lines
DIRTY, STALE = 0xCC, 0xDD  # what a new buffer holds, in the cache and in DDR


class BusError(Exception):
    """An address that nothing answers at."""


class Buffer:
    """Contiguous memory, and the host's write-back cache of it: bytes in DDR, and as the ``host`` sees them.

    Every line is in the cache, and is fetched again only after it was invalidated; a new buffer's are dirty. Dirty lines are
    written back when they are flushed, or when the cache needs the room (``evict``). A line that is invalidated is dropped, dirty
    or not. The accelerator sees DDR, or through a ``coherent`` port what the host sees: its writes then make lines dirty.
    """

    def __init__(self, address: int, size: int, coherent: bool) -> None:
        self.address, self.size = address, size
        self.host, self._ddr = np.full(size, DIRTY, np.uint8), np.full(size, STALE, np.uint8)
        self._clean = self._ddr.copy()  # what lines held when they were fetched or written back
        self.device = self.host if coherent else self._ddr

    def evict(self, end: int | None = None) -> None:
        """Write dirty lines back, those before ``end``."""
        dirty = np.logical_or.reduceat(self.host != self._clean, np.arange(0, self.size, LINE))
        bytes = np.flatnonzero(np.repeat(dirty, LINE)[: self.size][:end])
        self._ddr[bytes] = self._clean[bytes] = self.host[bytes]

    def invalidate(self) -> None:
        """Drop all lines, as a 32-bit Arm's outer cache does, and fetch them again."""
        self.host[...] = self._clean[...] = self._ddr


class Ddr:
    """A finite pool. ``fail_at`` makes the n-th allocation from now fail; ``held`` is what is not given back yet."""

    def __init__(self, begin: int, size: int, coherent: bool) -> None:
        self.begin, self.size, self.coherent = begin, size, coherent
        self.held: dict[int, Buffer] = {}
        self._lock = threading.RLock()  # as the kernel's; garbage may be collected, and a buffer released, in allocate
        self.fail_at = 0
        self.on_release: Callable[[], None] = lambda: None

    def allocate(self, size: int) -> Buffer:
        with self._lock:
            self.fail_at -= 1
            room = -(-size // PAGE) * PAGE
            address = self.begin
            for buffer in sorted(self.held.values(), key=lambda b: b.address):
                if buffer.address - address >= room + PAGE:
                    break
                address = buffer.address + -(-buffer.size // PAGE) * PAGE + PAGE  # a page between any two
            if self.fail_at == 0 or address + room > self.begin + self.size:
                raise RuntimeError("BO allocation failed: Cannot allocate memory")
            buffer = self.held[address] = Buffer(address, size, self.coherent)
            return buffer

    def release(self, address: int) -> None:
        self.on_release()
        with self._lock:
            del self.held[address]

    def written(self, address: int) -> None:
        """Let the cache write back, after the accelerator wrote at an address, what is dirty of that buffer: over the results."""
        if not self.coherent:
            self.around(address).evict()

    def at(self, address: int, size: int) -> np.ndarray:
        """What the accelerator has at an address. BusError outside of what is allocated, by a byte even."""
        buffer = self.around(address)
        offset = address - buffer.address
        if offset + size > buffer.size:
            raise BusError(f"{size} bytes at {address:#x}: the buffer ends {offset + size - buffer.size} before")
        return buffer.device[offset : offset + size]

    def around(self, address: int) -> Buffer:
        for buffer in list(self.held.values()):  # another thread may allocate
            if buffer.address <= address < buffer.address + buffer.size:
                return buffer
        raise BusError(f"{address:#x}: no buffer is there")
