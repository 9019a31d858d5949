"""Plan of a layer's kernels for its sizes: sources, arguments, memory, and what is copied in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...blob import Array
from .worker.memory import regions


@dataclass(frozen=True)
class Launch:
    """One kernel with its arguments and work sizes; ``place`` is path:line of its description."""

    entry: str
    source: str
    options: str
    arguments: tuple[Mapping[str, Any], ...]
    sizes: tuple[int, ...]
    local: tuple[int, ...]
    threads: int | None
    place: str


@dataclass(frozen=True)
class BufferCopy:
    """Bottom or top ``blob`` in a buffer, with its four axes in the order ``axes``, which has the shape ``shape``."""

    blob: int
    buffer: int
    axes: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass
class LaunchPlan:
    """The kernels of a layer for its sizes. ``constants`` are copied into their buffers once."""

    launches: list[Launch] = field(default_factory=list)
    inputs: list[BufferCopy] = field(default_factory=list)
    outputs: list[BufferCopy] = field(default_factory=list)
    constants: list[tuple[int, Array]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # bytes of each buffer
    dtype: str = "float32"  # of bottoms and tops

    def buffer(self, size: int) -> int:
        """Add a buffer of ``size`` bytes, and return its index."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def constant(self, values: Array) -> int:
        """Add a buffer that holds these values, and return its index."""
        self.constants.append((self.buffer(values.nbytes), values))
        return self.constants[-1][0]

    @cached_property
    def spec(self) -> dict[str, Any]:
        """Return what the worker needs, for JSON."""
        buffers, size = regions(self.sizes)
        return {"stages": [vars(launch) for launch in self.launches], "regions": buffers, "bytes": size}
