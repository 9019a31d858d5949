"""Arrays in temporary files, which need a process's memory only while they are used."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..lazy_numpy import np
from ..rounding import round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE = 16 << 20  # bytes of a file, unless an array is larger
ALIGNMENT = 64


class Shelf:
    """Stores arrays in mapped files without names. A file goes with the last reference to its arrays."""

    def __init__(self) -> None:
        self._files = WeakSet[mmap.mmap]()
        self._current: mmap.mmap | None = None
        self._end = 0  # of what the current file holds
        self._lock = threading.Lock()

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of an array that lies in a file; the array itself if it is empty or the disk is full."""
        if not array.size:
            return array
        with self._lock:
            begin = round_up(self._end, ALIGNMENT)
            if self._current is None or begin + array.nbytes > len(self._current):
                try:
                    self._current, begin = _mapped(max(FILE, array.nbytes)), 0
                except OSError:
                    return array
                self._files.add(self._current)
            self._end = begin + array.nbytes
            stored: NDArray[Any] = np.frombuffer(self._current, array.dtype, array.size, begin).reshape(array.shape)
        stored[...] = array
        return stored

    def rest(self) -> None:
        """Take all arrays out of the process's memory. One that is used again comes from the page cache, or from the disk."""
        with self._lock:  # other threads put arrays into new files
            files = [*self._files]
        for file in files:
            file.madvise(mmap.MADV_DONTNEED)


def _mapped(size: int) -> mmap.mmap:
    """Return a new file of this size in memory. Raises OSError if there is no room for it."""
    with tempfile.TemporaryFile(prefix="chai-") as file:
        os.posix_fallocate(file.fileno(), 0, size)  # else a write beyond the disk's end would kill the process
        return mmap.mmap(file.fileno(), size)
