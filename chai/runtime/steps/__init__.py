"""The steps of a pass, prepared once to run on many batches: each takes a Slot, and returns its times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING

from ...blob import Array
from ...graph import Layer
from ...kernels.native import Link
from ..slot import Slot, StepBlobs
from ..times import Rows, RunTimes

if TYPE_CHECKING:
    from ...kernels.native.chain import NativeChain
    from ...offload.schedule import Side


class PreparedStep:
    """A step that is ready to run on many batches.

    ``rows``   its times
    ``layer``  the one that it runs on the host
    ``notes``  whether its links note something
    ``converted``  how many codes they count
    ``images``  how many run one after the other in C
    ``large``   whether it is a chain of its own in C
    """

    rows: Rows
    layer: Layer | None = None
    notes = False
    converted = 0
    images = 1
    large = False

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        """Run it on the blobs of a batch."""
        raise NotImplementedError

    def links(self, use: StepBlobs) -> list[Link]:
        """Return it in C, with the names of ``name_of``; nothing if that is not all of it."""
        del use
        return []

    def noted(self, notes: Iterator[int], slot: Slot) -> None:
        """Take over what its links have noted, in order. It may be left out where all of it is 0."""


class ChainMemory:
    """Memory in which chains run: an array for each pass at a time, which all chains share. Those of ``most`` bytes are kept."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._free: list[Array] = []

    def take(self, chain: NativeChain) -> Array:
        try:
            memory = self._free.pop()
        except IndexError:  # passes in other threads have it
            return chain.memory()
        return memory if memory.nbytes >= chain.size else chain.memory()

    def put(self, memory: Array) -> None:
        if memory.nbytes <= self._most:
            self._free.append(memory)


def name_of(side: Side, blob: str) -> str:
    """Return the name of a blob on its side in a chain."""
    return f"{side} {blob}"


def names_of(side: Side, blobs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of blobs on a side."""
    return tuple([name_of(side, blob) for blob in blobs])
