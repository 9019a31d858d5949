"""Scratch memory that kernels reuse."""

from __future__ import annotations

from math import prod
from mmap import ACCESS_COPY, mmap

from ..blob import Array
from ..util.lazy_numpy import np

LEAST = 4 << 20  # bytes of a mapping: untouched pages are free, but a new mapping must fault every page in again


class Scratch:
    """Arrays of floats by name; each is overwritten by the next use of the same name.

    They are mapped, not allocated: mappings that are too small are returned to the system, and all are at the end, while
    ``malloc`` would keep blocks of every size that a network's layers need.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def take(self, name: str, *shape: int, wide: bool = False) -> Array:
        """Return an uninitialised array of this shape, float32 or ``wide``: float64."""
        size = prod(shape)
        bytes = size * (8 if wide else 4)
        if name not in self._buffers or self._buffers[name].size < bytes:
            self._buffers.pop(name, None)
            self._buffers[name] = np.frombuffer(mmap(-1, max(bytes, LEAST), access=ACCESS_COPY), np.uint8)
        return self._buffers[name][:bytes].view(np.float64 if wide else np.float32).reshape(shape)
