"""Plans of the kernels of a layer for its sizes: sources, arguments, memory, and what is copied in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from ...limits import limits
from ...util.lazy_numpy import np
from .worker.memory import Region, regions

if TYPE_CHECKING:
    from ...blob import Array


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

    @property
    def spec(self) -> dict[str, Any]:
        """Return what the worker needs, for JSON."""
        return {
            "entry": self.entry,
            "source": self.source,
            "options": self.options,
            "arguments": self.arguments,
            "global": self.sizes,
            "local": self.local,
            "threads": self.threads,
        }


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

    def layout(self) -> tuple[list[Region], int]:
        """Return the buffers' places in memory, and the memory's size."""
        return regions(self.sizes)

    def spec(self) -> dict[str, Any]:
        """Return what the worker needs, for JSON."""
        buffers, size = self.layout()
        return {
            "stages": [launch.spec for launch in self.launches],
            "regions": [(b.offset, b.size) for b in buffers],
            "bytes": size,
        }


class LaunchPlanner(Protocol):
    """Source and plan of a layer's kernels for its sizes; creating one refuses sizes that do not fit."""

    def source(self) -> str:
        """Return what is compiled, of all kernels."""

    def plan(self) -> LaunchPlan:
        """Return all that is needed to run the kernels, with the trained parameters. Raises PluginError."""


def scalar(kind: str, value: Any) -> Mapping[str, Any]:
    """Return the argument for a scalar parameter, ``kind`` int or float."""
    return {"type": f"{kind}32", "value": int(value) if kind == "int" else float(np.float32(value))}


def check_work(
    sizes: Sequence[int], local: Sequence[int], wrong: Callable[[str], Exception]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return work sizes that OpenCL can take; raise ``wrong(reason)`` for others."""
    if prod(sizes) > limits().kernel_items:
        shown = "x".join(map(str, sizes))
        raise wrong(f"global work size {shown}: " + limits().exceeded("kernel_items", prod(sizes)))
    for size, part in zip(sizes, local):
        if size % part:
            raise wrong(f"global work size {size} is no multiple of the local one, {part}")
    return tuple(sizes), tuple(local)
