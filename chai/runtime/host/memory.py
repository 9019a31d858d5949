"""The memory of a pass on the host: the bytes of its blobs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...blob import Array, Shape

CLAIMED = 24 << 20  # bytes at most that are taken before the first pass


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


def claimed(shapes: Mapping[str, Shape]) -> int:
    """Return the bytes in float32 of the two largest blobs, and as many again for a kernel's scratch memory."""
    return min(2 * 4 * sum(sorted(map(prod, shapes.values()))[-2:]), CLAIMED)
