"""A Chain in a device's memory: descriptors and constants are placed once, blobs are stored and loaded around each run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..blob import codes_of
from ..codegen.memory_map import FIXED

if TYPE_CHECKING:
    from ..blob import Array, Shape, View
    from ..codegen.memory_map import Regions

Result = TypeVar("Result")


class Memory(Protocol):
    """One buffer per region of a Chain: the host's bytes (uint8), and the addresses that the accelerator knows."""

    @property
    def bytes(self) -> Mapping[int, Array]: ...

    @property
    def addresses(self) -> Mapping[int, int]: ...

    def flush(self, regions: Collection[int]) -> None:
        """Let the accelerator see what the host wrote."""

    def invalidate(self, regions: Collection[int]) -> None:
        """Let the host see what the accelerator wrote."""


class Compiled(Protocol):
    """A segment as bytes and blobs in regions: a Chain, or a program of another architecture."""

    @property
    def tasks(self) -> Sequence[Any]: ...

    @property
    def shapes(self) -> Mapping[str, Shape]: ...

    @property
    def regions(self) -> Regions: ...

    @property
    def wanted(self) -> Sequence[tuple[str, int, int]]: ...

    @property
    def written(self) -> list[int]: ...

    @property
    def read(self) -> list[int]: ...

    def fix(self, base: Mapping[int, int], out: Array) -> None: ...

    def store(self, blob: str, codes: Array, memory: Mapping[int, Array]) -> None: ...

    def load(self, blob: str, first: int, out: Array, memory: Mapping[int, Array]) -> None: ...


def place(made: Compiled, memory: Memory) -> None:
    """Write descriptors and constants."""
    made.fix(memory.addresses, memory.bytes[FIXED])
    memory.flush([FIXED])


def run(
    made: Compiled,
    memory: Memory,
    blobs: dict[str, Array],
    views: Mapping[str, View],
    start: Callable[[], Result],
) -> Result | None:
    """Store the inputs, ``start`` the chain and wait for its end, and load the outputs.

    Returns what ``start`` returns, None without Tasks.
    """
    result = None
    for blob in made.regions.given:
        made.store(blob, codes_of(blob, blobs, made.shapes, views), memory.bytes)
    memory.flush(made.written)
    if made.tasks:
        result = start()
    memory.invalidate(made.read)
    for blob, first, channels in made.wanted:
        out = codes_of(blob, blobs, made.shapes, views)[:, first : first + channels]
        made.load(blob, first, out, memory.bytes)
    return result
