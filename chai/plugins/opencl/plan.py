"""Plan the kernels of a layer for its sizes: sources, arguments, memory, and what is copied in and out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from ...blob import Array
from ...errors import PluginError
from ...limits import limits
from ...util.lazy_numpy import np
from ..failure import report
from ..fields import Called
from ..xchange import xChangeLayer
from . import half
from .description import Port
from .formula import DIMS
from .rendering import dims
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


class Planner(ABC):
    """Source and plan of a layer's kernels for the sizes of ``x``; creating one refuses those that do not fit, with PluginError.

    ``place``   path:line of what describes them, for errors
    ``source``  what is compiled, of all kernels
    """

    source: str

    def __init__(self, place: str, layer: Called, x: xChangeLayer) -> None:
        self.place, self.layer, self.x = place, layer, x
        sides = {"input": x.input_dims, "output": x.output_dims}
        self.shapes = {side: [tuple(map(int, dims)) for dims in blobs] for side, blobs in sides.items()}
        self.values = layer.named(*self.shapes.values())
        try:
            self.dims = {Port(s, i): dims(shape) for s, blobs in self.shapes.items() for i, shape in enumerate(blobs)}
        except ValueError as error:
            raise self.wrong(str(error)) from None

    @abstractmethod
    def plan(self) -> LaunchPlan:
        """Return all that is needed to run the kernels, with the trained parameters. Raises PluginError."""

    def wrong(self, reason: str, hint: str | None = None, place: str | None = None) -> PluginError:
        """Return the error for this layer; ``place`` is that of one kernel."""
        return report(self.layer.where, place or self.place, reason, hint)

    def check(
        self, texts: Iterable[tuple[str, str]], sizes: Sequence[int], local: Sequence[int], place: str | None = None
    ) -> None:
        """Refuse sources and work sizes that OpenCL or chai cannot take."""
        if prod(sizes) > limits().kernel_items:
            shown = "x".join(map(str, sizes))
            exceeded = limits().exceeded("kernel_items", prod(sizes))
            raise self.wrong(f"global work size {shown}: {exceeded}", place=place)
        for size, part in zip(sizes, local):
            if size % part:
                raise self.wrong(f"global work size {size} is no multiple of the local one, {part}", place=place)
        half.check(texts, lambda reason, hint: self.wrong(reason, hint, place))

    def blob(self, plan: LaunchPlan, port: Port, order: str) -> int:
        """Add the memory of a bottom or top, with its axes in this order; return the index of the buffer."""
        shape = tuple(self.dims[port][dim] for dim in order)
        buffer = plan.buffer(np.dtype(plan.dtype).itemsize * prod(shape))
        copies = plan.inputs if port.side == "input" else plan.outputs
        copies.append(BufferCopy(port.number, buffer, tuple(DIMS.index(dim) for dim in order), shape))
        return buffer
