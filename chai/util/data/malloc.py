"""Take memory in large blocks, and tell malloc what to do with what is freed.

Written for glibc and numpy: with another C library nothing may change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from ..lazy_numpy import np
from ..rounding import round_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 32 << 20  # bytes of a block that glibc may keep
LARGE = 1 << 19  # bytes of an array whose memory is returned when it is freed
LINE = 16  # float32 of a line of the cache
_MMAP_THRESHOLD = -3  # malloc.h


class Room:
    """Memory for float32 arrays of these sizes (in elements), which is freed with the last of them.

    As one block it has large pages, which numpy asks for from 4 MB on. Pages that no array uses are never taken.
    """

    def __init__(self, sizes: Iterable[int]) -> None:
        try:
            self._rest: NDArray[np.float32] = np.empty(sum(round_up(size, LINE) for size in sizes), np.float32)
        except MemoryError:  # there may be enough for each, but not for one block of all
            self._rest = np.empty(0, np.float32)

    def take(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return an uninitialised array, in memory of its own if there is not enough left."""
        size = prod(shape)
        if size > len(self._rest):
            return np.empty(shape, np.float32)
        taken, self._rest = self._rest[:size], self._rest[round_up(size, LINE) :]
        return taken.reshape(shape)


def keep_freed(size: int) -> None:
    """Let malloc keep what is freed, so that what is allocated next needs no new pages; ``size`` bytes are often freed.

    glibc returns freed memory above twice the largest block that was ever mapped by itself and freed. Such a block is not
    used here, so that it costs no page. A second one lies in the memory that is kept: of 4 MB or more, numpy asks for
    large pages there, each of which saves some hundred faults.
    """
    for _ in range(2):
        np.empty(min(size, MOST), np.uint8)


def claim(size: int) -> None:
    """Take pages for so many bytes from the system, as ``keep_freed`` keeps them: taking them one by one takes long."""
    from mmap import PAGESIZE  # a library of its own

    keep_freed(size)
    np.empty(min(size, MOST), np.uint8)[::PAGESIZE] = 0


def return_large_arrays() -> bool:
    """Let malloc map each large array by itself, from now on; return whether it can.

    glibc raises the size from which it does so up to 32 MB, as arrays are freed. Then the holes that they leave between
    others stay memory of the process, and more of them the more batches it has seen.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE))
    except (OSError, AttributeError, TypeError):  # another C library, or another system
        return False
