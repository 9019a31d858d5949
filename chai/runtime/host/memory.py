"""The memory of a pass on the host: the bytes of its blobs, and what the allocator keeps for them."""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Mapping
from math import prod
from typing import TYPE_CHECKING

from ...blob import Shape
from ...util.lazy_numpy import np

if TYPE_CHECKING:
    from ...blob import Array
    from ...graph import Graph

CLAIMED = 24 << 20  # bytes at most


class Alive:
    """Counts the bytes of arrays that exist at once, by their names; views of one array count once.

    ``peak`` is their largest number so far.
    """

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self._owners: dict[Hashable, int] = {}
        self._arrays: dict[int, tuple[int, int]] = {}  # of each owner of memory: its names, and the bytes they count

    def add(self, name: Hashable, array: Array) -> None:
        """Count an array, which has to exist until ``drop``; it replaces one of the same name."""
        if name in self._owners:
            self.drop(name)
        owner, size = id(array if array.base is None else array.base), array.nbytes
        names, counted = self._arrays.get(owner, (0, 0))
        self._owners[name] = owner
        self._arrays[owner] = names + 1, size if size > counted else counted
        if size > counted:
            self.bytes += size - counted
            if self.bytes > self.peak:
                self.peak = self.bytes

    def alone(self, name: Hashable) -> bool:
        """Return whether no other name is for the same memory."""
        return self._arrays[self._owners[name]][0] == 1

    def drop(self, name: Hashable) -> None:
        """Count the array of this name no longer, if there is one."""
        owner = self._owners.pop(name, None)
        if owner is None:
            return
        names, size = self._arrays.pop(owner)
        if names > 1:
            self._arrays[owner] = names - 1, size
        else:
            self.bytes -= size


def claim(graph: Graph, shapes: Mapping[str, Shape]) -> None:
    """Allocate and free memory before the first pass, which would otherwise spend a tenth of its time on this.

    The allocator keeps freed memory; glibc's does so from the second free of a block on, up to 32 MB.
    """
    for _ in range(2):
        np.empty(_claimed(graph, shapes), np.uint8)[:: mmap.PAGESIZE] = 0


def keep_freed(graph: Graph, shapes: Mapping[str, Shape]) -> None:
    """Let the allocator keep what a pass frees, so that the next one needs no new pages.

    glibc returns freed memory above twice the largest block that was ever mapped and freed. Here such a block is not used, so
    that it costs no page; loading weights from a caffemodel may have had the same effect.
    """
    np.empty(_claimed(graph, shapes), np.uint8)


def _claimed(graph: Graph, shapes: Mapping[str, Shape]) -> int:
    """Return the bytes in float32 of the largest layer's blobs, and as many again for a kernel's scratch memory."""
    blobs = ((*layer.bottoms, *layer.tops) for layer in graph.layers)
    largest = max((sum(prod(shapes[b]) for b in around if b in shapes) for around in blobs), default=0)
    return min(2 * 4 * largest, CLAIMED)
