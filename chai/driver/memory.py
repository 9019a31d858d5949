"""A Chain in a device's memory: descriptors and constants are placed once, blobs are stored and loaded around each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..blob import codes_of
from ..codegen.memory_map import FIXED

if TYPE_CHECKING:
    from ..blob import Array, Shape, View
    from ..codegen.memory_map import Buffers, Regions

Result = TypeVar("Result")


class Executable(Protocol):
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


def place(segment: Executable, memory: Buffers) -> None:
    """Write descriptors and constants into new buffers."""
    segment.fix(memory.addresses, memory.bytes[FIXED])
    # and what only the accelerator writes: lines of it that are dirty would be written back over results later
    memory.flush([region for region in memory.addresses if region not in segment.written])


def run(
    segment: Executable,
    memory: Buffers,
    blobs: dict[str, Array],
    views: Mapping[str, View],
    start: Callable[[], Result],
) -> Result | None:
    """Store the inputs, ``start`` the chain and wait for its end, and load the outputs.

    Returns what ``start`` returns, None without Tasks.
    """
    result = None
    for blob in segment.regions.given:
        segment.store(blob, codes_of(blob, blobs, segment.shapes, views), memory.bytes)
    memory.flush(segment.written)
    if segment.tasks:
        result = start()
    memory.invalidate(segment.read)
    for blob, first, channels in segment.wanted:
        out = codes_of(blob, blobs, segment.shapes, views)[:, first : first + channels]
        segment.load(blob, first, out, memory.bytes)
    return result
