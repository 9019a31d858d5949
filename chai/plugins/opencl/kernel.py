"""Kernels as the function of a custom type: planned for a layer and its sizes, compiled and run."""

from __future__ import annotations

import itertools
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from ...blob import Array, show
from ...env import env
from ...errors import PluginError
from ...limits import limits
from ...text import number_of
from ...util.lazy_numpy import np
from ...util.log import warn_once
from ...util.sharing import forgets
from ..failure import report
from ..fields import Called
from ..reach import digest
from ..xchange import xChangeLayer
from . import half
from .description import Port
from .formula import DIMS
from .rendering import TEXT, Sizes
from .worker.engine import EngineError
from .worker.memory import MemoryFile, regions
from .worker.process import Died, Here, Process

UNWRITTEN = 0xA5  # a byte
INSTALL = 'pip install "chai-fpga[opencl]"'
# clang's form, and PoCL's
_ERROR = re.compile(r"(?:error: )?([^\s:][^:]*):(\d+):\d+: *(?:(?:fatal )?error: )?(.*)")
_numbers = itertools.count()


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


class Kernels:
    """The function of a custom type that is computed by kernels.

    ``place``  path:line of what describes them
    ``bound``  returns the BoundKernels of a layer, given it and x for the shapes of its bottoms and tops
    ``parts``  texts and functions that decide what is compiled and how it is run
    """

    way = "opencl"

    def __init__(self, type: str, place: str, bound: Callable[..., BoundKernels], parts: Sequence[Any]) -> None:
        self.__name__, self.place, self.bind, self._parts = type, place, bound, parts

    @property
    def sources(self) -> tuple[str, ...]:
        """Return what changes whenever one of the parts is edited."""
        return tuple([digest(part) if callable(part) else repr(part) for part in self._parts])

    def __call__(self, x: xChangeLayer) -> None:
        raise PluginError(f"{self.place}: a kernel runs as part of a layer only", hint="chai.run_layer")


class BoundKernels(ABC):
    """The function of one layer for bottoms and tops of the sizes of ``x``; creating one refuses those that do not fit.

    ``place``          path:line of what describes the kernels, for errors
    ``opencl_source``  what is compiled, of all kernels, when it is called first
    """

    opencl_source: str
    _runner: Process | Here | None = None

    def __init__(self, place: str, layer: Called, x: xChangeLayer) -> None:
        self.place, self.layer, self.x = place, layer, x
        sides = {"input": x.input_dims, "output": x.output_dims}
        self.shapes = {side: [tuple(map(int, dims)) for dims in blobs] for side, blobs in sides.items()}
        self.values = layer.named(*self.shapes.values())
        self.dims: dict[Port, Sizes] = {}
        for side, blobs in self.shapes.items():
            for i, shape in enumerate(blobs):
                if len(shape) > len(DIMS):
                    raise self.wrong(f"a blob of {number_of(len(shape), 'axis')}, OpenCL layers take at most 4")
                self.dims[Port(side, i)] = dict(zip(DIMS, (*shape, 1, 1, 1, 1)))  # axes that it does not have are 1
        self._number = next(_numbers)
        self._proven = False
        forgets(self)

    # -- planning

    @abstractmethod
    def planned(self) -> LaunchPlan:
        """Return all that is needed to run the kernels, with the trained parameters. Raises PluginError."""

    @cached_property
    def plan(self) -> LaunchPlan:
        """The kernels with sources, arguments and memory. Raises PluginError."""
        return self.planned()

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

    # -- running

    def forget(self) -> None:
        """Leave the memory to the process that this one was forked from: both would write into it."""
        self.__dict__.pop("_memory", None)

    @cached_property
    def _memory(self) -> MemoryFile:
        buffers, size = regions(self.plan.sizes)
        try:
            memory = MemoryFile(buffers, size)
        except OSError as error:
            raise self.wrong(f"no memory for its buffers, {size:,} bytes: {error.strerror}") from None
        for buffer, values in self.plan.constants:
            memory.buffers[buffer][:] = _bytes(values)
        return memory

    def __call__(self, x: xChangeLayer, *_named: Any) -> None:
        """Compute the tops of ``x``. Raises PluginError for whatever a kernel does wrong.

        In the first call with several images, and with CHAI_CHECK=1 in all, they are computed from two fillings: what has
        both was not written.
        """
        check = env().check or (not self._proven and any(c.shape[c.axes.index(0)] > 1 for c in self.plan.outputs))
        if check:
            self._compute(x, UNWRITTEN)
            left = [self._holds(copy, UNWRITTEN) for copy in self.plan.outputs]
        self._compute(x, 0)
        if check:
            self._check_written(left)
            self._proven = True
        for copy in self.plan.outputs:
            top = _four(x.top[copy.blob])
            top.transpose(copy.axes)[...] = self._view(copy)

    def _compute(self, x: xChangeLayer, filling: int) -> None:
        """Run the kernels on tops whose bytes are all ``filling``."""
        for copy in self.plan.inputs:
            self._view(copy)[...] = _four(x.bottom[copy.blob]).transpose(copy.axes)
        for copy in self.plan.outputs:
            self._memory.buffers[copy.buffer][:] = filling
        self._run()
        self._check(x)

    def _view(self, copy: BufferCopy) -> Array:
        return self._memory.buffers[copy.buffer].view(self.plan.dtype).reshape(copy.shape)

    def _holds(self, copy: BufferCopy, filling: int) -> Array:
        """Return which elements of a top, in its four axes, have nothing but ``filling``."""
        items = self._memory.buffers[copy.buffer].reshape(*copy.shape, -1)
        holds: Array = (items == filling).all(4).transpose(np.argsort(copy.axes))
        return holds

    def _check_written(self, left: Sequence[Array]) -> None:
        """Refuse an image of a top that was not written, with CHAI_CHECK=1 any part of a top."""
        for copy, before in zip(self.plan.outputs, left):
            unwritten = before & self._holds(copy, 0)
            images = np.flatnonzero(unwritten.all((1, 2, 3)))
            if len(images) and len(unwritten) > 1:
                raise self.wrong(
                    f"it writes nothing into top {copy.blob} of image {images[0]}, the batch is {len(unwritten)}",
                    "are its work sizes those of one image? Formulas without B are, for which it runs once per image",
                )
            places = np.argwhere(unwritten)
            if env().check and len(places):
                first = ", ".join(map(str, places[0]))
                raise self.wrong(
                    f"it writes nothing into {len(places)} of {before.size} elements of top {copy.blob}, first ({first})",
                    "its work sizes, or a condition, leave them out; elsewhere they would hold anything",
                )

    def _run(self) -> None:
        if self._runner is None:
            self._check_installed()
            if any(half.macros() in launch.source for launch in self.plan.launches):
                warn_once("chai.opencl", "OpenCL: half is computed as float32")
            if env().opencl_inprocess:
                where = "kernels run in this process, which a wrong one ends (CHAI_OPENCL_INPROCESS)"
                warn_once("chai.opencl", f"OpenCL: {where}")
            resources = self.layer.resources
            self._runner = resources.of(Here) if env().opencl_inprocess else resources.of(Process)
        try:
            self._runner.run(self._number, self.plan.spec, self._memory)
        except EngineError as error:
            self._refused(error)
        except Died as error:
            launches = "; ".join(_words(launch, self.plan) for launch in self.plan.launches)
            hint = "the network can be used on: a new process is started for the next pass"
            raise self.wrong(f"the process of its kernel {error}: {launches}", hint) from None

    def _check(self, x: xChangeLayer) -> None:
        """Compare all memory that the kernels must not change."""
        shapes = {c.buffer: f"bottom {c.blob}" for c in self.plan.inputs}
        shapes |= {c.buffer: f"top {c.blob}" for c in self.plan.outputs}
        shapes |= {b: "a trained parameter" for b, _ in self.plan.constants}
        near = self._memory.broken()
        if near is not None:
            size = self.plan.sizes[near]
            raise self.wrong(f"it wrote outside of {shapes.get(near, 'a buffer')}, which has {size} bytes")
        for copy in self.plan.inputs:
            bottom = _four(x.bottom[copy.blob]).transpose(copy.axes)
            bits = "i4" if bottom.dtype.itemsize == 4 else "i1"  # a NaN equals itself
            if not np.array_equal(self._view(copy).view(bits), bottom.view(bits)):
                raise self.wrong(f"it wrote into bottom {copy.blob}, which it may only read")
        for buffer, values in self.plan.constants:
            if not np.array_equal(self._memory.buffers[buffer], _bytes(values)):
                self._memory.buffers[buffer][:] = _bytes(values)
                raise self.wrong("it wrote into a trained parameter, which it may only read")

    # -- errors

    def _refused(self, error: EngineError) -> NoReturn:
        launch = self.plan.launches[error.stage]
        first = next((line for line in error.log.splitlines() if re.search(r"\berror\b", line)), str(error))
        place, what, hint = launch.place, first, None
        message = _ERROR.search(first)
        if message is not None:
            file, line, what = message.groups()
            what = f"error: {what}"
            place, what = (
                (place, f"line {line}: {what}") if file == TEXT else (f"{Path(self.place).parent / file}:{line}", what)
            )
            hint = "chai show NET --source LAYER prints what was compiled"
        raise self.wrong(f"kernel {launch.entry!r}: {what}", hint, place) from None

    def _check_installed(self) -> None:
        if find_spec("pyopencl") is not None:
            return
        hint = f"{INSTALL}; the same as a Python function: @chai.custom({self.layer.type!r})"
        if platform.machine() == "armv7l":
            hint = f"pyopencl has no package for armv7l: write the layer in Python, @chai.custom({self.layer.type!r})"
        raise self.wrong("its kernels need pyopencl, which is not installed", hint)

    def __del__(self) -> None:
        if self._runner is not None:
            self._runner.drop(self._number)


def _words(launch: Launch, plan: LaunchPlan) -> str:
    sizes = " x ".join(map(str, launch.sizes))
    blobs = [f"bottom {copy.blob} {show(copy.shape)}" for copy in plan.inputs]
    blobs += [f"top {copy.blob} {show(copy.shape)}" for copy in plan.outputs]
    local = f", local {' x '.join(map(str, launch.local))}" if launch.local else ""
    return f"{launch.entry!r}, work size {sizes}{local}, {', '.join(blobs)}"


def _four(blob: Array) -> Array:
    """Return a view of four axes; a blob with fewer gets axes of 1 at its end."""
    return blob.reshape((*blob.shape, *(1,) * (4 - blob.ndim)))


def _bytes(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
