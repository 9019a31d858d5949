"""Tell malloc what to do with memory that is freed. Written for glibc: with another C library nothing may change."""

from __future__ import annotations

import ctypes
import mmap

from ..lazy_numpy import np

MOST = 32 << 20  # bytes of a block that glibc may keep
LARGE = 1 << 19  # bytes of an array whose memory is returned when it is freed
_MMAP_THRESHOLD = -3  # malloc.h


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
    keep_freed(size)
    np.empty(min(size, MOST), np.uint8)[:: mmap.PAGESIZE] = 0


def return_large_arrays() -> bool:
    """Let malloc map each large array by itself, from now on; return whether it can.

    glibc raises the size from which it does so up to 32 MB, as arrays are freed. Then the holes that they leave between
    others stay memory of the process, and more of them the more batches it has seen.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE))
    except (OSError, AttributeError, TypeError):  # another C library, or another system
        return False
