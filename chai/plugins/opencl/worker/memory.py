"""Memory that a network and the process of its kernels share, with guards around every buffer."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from mmap import mmap
from typing import NamedTuple

from ....blob import Array
from ....util.lazy_numpy import np

PAGE = 4096
GUARD = 1024  # bytes around every buffer that must not change, at least
MARK = 0xA5


class Region(NamedTuple):
    """A buffer: its first byte and its size."""

    offset: int
    size: int


def regions(sizes: Sequence[int]) -> tuple[list[Region], int]:
    """Return buffers of these sizes in bytes, each at a page, and the size of the memory that holds them."""
    spans, at = [], PAGE
    for size in sizes:
        spans.append(Region(at, max(size, 1)))
        at = -(-(at + size + GUARD) // PAGE) * PAGE
    return spans, at


class MemoryFile:
    """An unnamed file in memory: nothing is left of it when its last process ends. Raises OSError if there is no room."""

    def __init__(self, regions: Sequence[Region], size: int) -> None:
        self.file = _unnamed()
        weakref.finalize(self, os.close, self.file)
        os.posix_fallocate(self.file, 0, size)  # a lack of memory is an error here, not a signal later
        self.map = mmap(self.file, size)
        bytes: Array = np.frombuffer(self.map, np.uint8)
        ends = [0, *(r.offset + r.size for r in regions)]
        starts = [*(r.offset for r in regions), size]
        self._guards = [bytes[end:start] for end, start in zip(ends, starts)]
        for guard in self._guards:
            guard[:] = MARK
        self.buffers = [bytes[r.offset : r.offset + r.size] for r in regions]

    def broken(self) -> int | None:
        """Return the index of the buffer next to which a kernel wrote, and restore its guard; None if none did."""
        for index, guard in enumerate(self._guards):
            changed = np.flatnonzero(guard != MARK)
            if changed.size:
                guard[:] = MARK
                near_next = len(guard) - int(changed[0]) < int(changed[0])
                return min(max(index - 1 + near_next, 0), len(self.buffers) - 1)
        return None


def _unnamed() -> int:
    """Return a file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("chai-opencl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
