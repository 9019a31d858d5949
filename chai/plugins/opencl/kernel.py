"""Kernels as the function of a custom type: bound to a layer and its sizes, they are compiled and run."""

from __future__ import annotations

import itertools
import platform
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from ...blob import Array, show
from ...env import env
from ...errors import PluginError
from ...util.lazy_numpy import np
from ...util.log import warn_once
from ...util.sharing import forgets
from ..fields import Called
from ..reach import digest
from ..xchange import xChangeLayer
from . import half
from .plan import BufferCopy, Launch, LaunchPlan, Planner
from .rendering import TEXT
from .worker.engine import EngineError
from .worker.memory import MemoryFile, regions
from .worker.process import Died, Here, Process, runner

UNWRITTEN = 0xA5  # a byte
INSTALL = 'pip install "chai-fpga[opencl]"'
# clang's form, and PoCL's
_ERROR = re.compile(r"(?:error: )?([^\s:][^:]*):(\d+):\d+: *(?:(?:fatal )?error: )?(.*)")
_numbers = itertools.count()


class Kernels:
    """The function of a custom type that is computed by kernels.

    ``place``    path:line of what describes them
    ``planner``  makes their Planner for a layer, and x for the shapes of its bottoms and tops
    ``parts``    texts and functions that decide what is compiled and how it is run
    """

    way = "opencl"

    def __init__(self, type: str, place: str, planner: Callable[..., Planner], parts: Sequence[Any]) -> None:
        self.__name__, self.place, self._planner, self._parts = type, place, planner, parts

    @property
    def sources(self) -> tuple[str, ...]:
        """Return what changes whenever one of the parts is edited."""
        return tuple([digest(part) if callable(part) else repr(part) for part in self._parts])

    def __call__(self, x: xChangeLayer) -> None:
        raise PluginError(f"{self.place}: a kernel runs as part of a layer only", hint="chai.run_layer")

    def bind(self, layer: Called, x: xChangeLayer) -> Bound:
        """Return the function for a layer with inputs of the shapes of x. Raises PluginError for what does not fit."""
        return Bound(self._planner(layer, x))


class Bound:
    """The function of one layer for inputs of one size: compiled when it is called first."""

    def __init__(self, planner: Planner) -> None:
        self._planner, self._layer, self._failed = planner, planner.layer, planner.wrong
        self.opencl_source = planner.source  # what is compiled
        self._number = next(_numbers)
        self._proven = False
        self._runner: Process | Here | None = None
        forgets(self)

    def forget(self) -> None:
        """Leave the memory to the process that this one was forked from: both would write into it."""
        self.__dict__.pop("_memory", None)

    @cached_property
    def plan(self) -> LaunchPlan:
        """The kernels with sources, arguments and memory. Raises PluginError."""
        return self._planner.plan()

    @cached_property
    def _memory(self) -> MemoryFile:
        buffers, size = regions(self.plan.sizes)
        try:
            memory = MemoryFile(buffers, size)
        except OSError as error:
            raise self._failed(f"no memory for its buffers, {size:,} bytes: {error.strerror}") from None
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
                raise self._failed(
                    f"it writes nothing into top {copy.blob} of image {images[0]}, the batch is {len(unwritten)}",
                    "are its work sizes those of one image? Formulas without B are, for which it runs once per image",
                )
            places = np.argwhere(unwritten)
            if env().check and len(places):
                first = ", ".join(map(str, places[0]))
                raise self._failed(
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
            self._runner = self._layer.resources.of(runner)
        try:
            self._runner.run(self._number, self.plan.spec, self._memory)
        except EngineError as error:
            self._refused(error)
        except Died as error:
            launches = "; ".join(_words(launch, self.plan) for launch in self.plan.launches)
            hint = "the network can be used on: a new process is started for the next pass"
            raise self._failed(f"the process of its kernel {error}: {launches}", hint) from None

    def _check(self, x: xChangeLayer) -> None:
        """Compare all memory that the kernels must not change."""
        shapes = {c.buffer: f"bottom {c.blob}" for c in self.plan.inputs}
        shapes |= {c.buffer: f"top {c.blob}" for c in self.plan.outputs}
        shapes |= {b: "a trained parameter" for b, _ in self.plan.constants}
        near = self._memory.broken()
        if near is not None:
            size = self.plan.sizes[near]
            raise self._failed(f"it wrote outside of {shapes.get(near, 'a buffer')}, which has {size} bytes")
        for copy in self.plan.inputs:
            bottom = _four(x.bottom[copy.blob]).transpose(copy.axes)
            bits = "i4" if bottom.dtype.itemsize == 4 else "i1"  # a NaN equals itself
            if not np.array_equal(self._view(copy).view(bits), bottom.view(bits)):
                raise self._failed(f"it wrote into bottom {copy.blob}, which it may only read")
        for buffer, values in self.plan.constants:
            if not np.array_equal(self._memory.buffers[buffer], _bytes(values)):
                self._memory.buffers[buffer][:] = _bytes(values)
                raise self._failed("it wrote into a trained parameter, which it may only read")

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
                (place, f"line {line}: {what}")
                if file == TEXT
                else (f"{Path(self._planner.place).parent / file}:{line}", what)
            )
            hint = "chai show NET --source LAYER prints what was compiled"
        raise self._failed(f"kernel {launch.entry!r}: {what}", hint, place) from None

    def _check_installed(self) -> None:
        if find_spec("pyopencl") is not None:
            return
        hint = f"{INSTALL}; the same as a Python function: @chai.custom({self._layer.type!r})"
        if platform.machine() == "armv7l":
            hint = f"pyopencl has no package for armv7l: write the layer in Python, @chai.custom({self._layer.type!r})"
        raise self._failed("its kernels need pyopencl, which is not installed", hint)

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
