"""The memory of a pass on the host: the bytes of its blobs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import inf, prod
from typing import TYPE_CHECKING, Any

from ...blob import Array, Shape

if TYPE_CHECKING:
    from ...kernels.native.chain import NativeChain

CLAIMED = 24 << 20  # bytes at most that are taken before the first pass


class BlobLog:
    """Arrays as they came and went in a pass. As a number it is the bytes that existed at once, computed when it is asked for."""

    def __init__(self) -> None:
        # a name, the owner of its memory, its bytes; or a name alone, which is dropped
        self._events: list[tuple[Any, ...]] = []

    def add(self, name: Hashable, array: Array) -> None:
        """Note an array, which has to exist until ``drop``; it replaces one of the same name. Views of one count once."""
        base = array.base
        self.note(name, id(array if base is None else base), array.nbytes)

    def note(self, name: Hashable, owner: Hashable, size: int) -> None:
        """Note so many bytes in the memory of an owner."""
        self._events.append((name, owner, size))

    def drop(self, names: Iterable[Hashable]) -> None:
        """Note that the arrays of these names are gone, those that there are."""
        self._events.extend(zip(names))

    def __int__(self) -> int:
        alive = peak = 0
        owners: dict[Hashable, Hashable] = {}
        # of each owner of memory: the number of its names, and the bytes that they count
        arrays: dict[Hashable, tuple[int, int]] = {}
        for name, *added in self._events:
            if (owner := owners.pop(name, None)) is not None:
                names, counted = arrays.pop(owner)
                if names > 1:
                    arrays[owner] = names - 1, counted
                else:
                    alive -= counted
            if added:
                owner, size = added
                owners[name] = owner
                names, counted = arrays.get(owner, (0, 0))
                arrays[owner] = names + 1, max(size, counted)
                alive += max(size - counted, 0)
                peak = max(peak, alive)
        return peak


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
