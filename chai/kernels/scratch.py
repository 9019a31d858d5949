"""Memory that kernels use one after the other."""

from __future__ import annotations

from math import prod
from mmap import ACCESS_COPY, mmap
from typing import TYPE_CHECKING

from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array

LEAST = 4 << 20  # bytes of a map: pages that nobody writes to cost nothing, and a new map has its pages to come by anew


class Scratch:
    """float32 arrays that are overwritten by the next who asks by the same name.

    Mapped, not allocated: a map that has grown too small, and all of them in the end, go back to the system, where
    ``malloc`` would keep pieces of every size that a network's layers have asked for.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def take(self, name: str, *shape: int) -> Array:
        """Return an array of this shape, with anything in it."""
        size = prod(shape)
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers.pop(name, None)
            self._buffers[name] = np.frombuffer(mmap(-1, max(4 * size, LEAST), access=ACCESS_COPY), np.float32)
        return self._buffers[name][:size].reshape(shape)
