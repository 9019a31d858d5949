"""The memory of a pass on the host: the bytes of its blobs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import inf, prod
from typing import TYPE_CHECKING, Any

from ...blob import Array, Shape

if TYPE_CHECKING:
    from ...kernels.native.chain import NativeChain

CLAIMED = 24 << 20  # bytes at most that are taken before the first pass


class Alive:
    """Counts the bytes of arrays that exist at once, by their names; views of one array count once.

    ``peak`` is their largest number so far.
    """

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self._owners: dict[Hashable, Hashable] = {}
        # of each owner of memory: the number of its names, and the bytes that they count
        self._arrays: dict[Hashable, tuple[int, int]] = {}

    def add(self, name: Hashable, array: Array) -> None:
        """Count an array, which has to exist until ``drop``; it replaces one of the same name."""
        self.count(name, id(array if array.base is None else array.base), array.nbytes)

    def count(self, name: Hashable, owner: Hashable, size: int) -> None:
        """Count an array of this size in the memory of an owner."""
        if name in self._owners:
            self.drop(name)
        self._owners[name] = owner
        if (shared := self._arrays.get(owner)) is None:
            self._arrays[owner] = 1, size
        else:
            names, counted = shared
            self._arrays[owner] = names + 1, max(size, counted)
            size = max(size - counted, 0)
        self.bytes += size
        if self.bytes > self.peak:
            self.peak = self.bytes

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


class BlobLog:
    """Arrays as they came and went in a pass. As a number it is the bytes that existed at once, computed when it is asked for."""

    def __init__(self) -> None:
        # a name, the owner of its memory, its bytes; or a name that is dropped
        self._events: list[tuple[Any, ...]] = []

    def add(self, name: tuple[str, str], array: Array) -> None:
        """Note an array, which has to exist until ``drop``; it replaces one of the same name."""
        base = array.base
        self.note(name, id(array if base is None else base), array.nbytes)

    def note(self, name: tuple[str, str], owner: Hashable, size: int) -> None:
        """Note so many bytes in the memory of an owner."""
        self._events.append((name, owner, size))

    def drop(self, names: Iterable[tuple[str, str]]) -> None:
        """Note that the arrays of these names are gone."""
        self._events.extend(names)

    def __int__(self) -> int:
        alive = Alive()
        for event in self._events:
            if len(event) == 3:
                alive.count(*event)
            else:
                alive.drop(event)
        return alive.peak

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class ChainMemory:
    """Memory in which chains run: an array for each pass at a time, which all chains share. Those of ``most`` bytes are kept."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._free: list[Array] = []

    def take(self, chain: NativeChain) -> Array:
        """Return memory for a chain."""
        try:
            memory = self._free.pop()
        except IndexError:  # passes in other threads have it
            return chain.memory()
        return memory if memory.nbytes >= chain.size else chain.memory()

    def put(self, memory: Array) -> None:
        """Take memory back."""
        if memory.nbytes <= self._most:
            self._free.append(memory)


def claimed(shapes: Mapping[str, Shape]) -> int:
    """Return the bytes in float32 of the two largest blobs, and as many again for a kernel's scratch memory."""
    return min(2 * 4 * sum(sorted(map(prod, shapes.values()))[-2:]), CLAIMED)
