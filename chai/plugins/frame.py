"""Call a custom layer on inputs of one set of sizes: buffers, the object x, checks of the result."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from math import isnan, prod
from time import perf_counter
from typing import Any

from ..blob import Array, Shape, show
from ..errors import PluginError
from ..fixed import Format
from ..util.interpreter import from_signal_handler
from ..util.lazy_numpy import np
from ..util.log import warn_once
from . import compiling, failure, selection
from .definition import Function, Implementation, place_of, takes_self
from .fields import Called, code_fields, fixed_fields
from .reach import digest, plain
from .xchange import VARYING, of_call, xChangeLayer

Formats = tuple[tuple[Format, ...], tuple[Format, ...]]  # of bottoms and tops
WITHOUT_NUMBA = (
    "numba is not installed: custom layers run as plain Python, about a hundred times slower for loops "
    "(an implementation with jit=False and numpy would be taken instead)"
)
GUARD = 64  # elements before and after every top, which must not change
COPIED = 4096  # elements of a top, at most, that is copied from a prepared one: that is faster than to write zeros and guards
SMALL = 4096  # elements of an array in which argmax finds a NaN faster than the maximum does
SECOND_RUN = 5.0  # seconds; time limit of a second run, in plain Python, for a more exact error


def candidates(
    layer: Called, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...], codes: bool = False
) -> list[Implementation]:
    """Return implementations for inputs of these shapes, the best first. Raises PluginError if there is none."""
    x = xChangeLayer({**fixed_fields(layer, bottoms, tops), **layer.constants()})
    fit: list[Implementation] = failure.run(
        layer.where, lambda: selection.eligible(layer.custom, x, codes), layer.custom.function
    )
    if not fit and not codes:
        what = "no implementation takes inputs of these sizes"
        raise failure.report(layer.where, layer.custom.place, what, "one without when= takes all")
    return fit


class Frame:
    """The state shared by calls on bottoms of these shapes; created once, run many times, by one thread at a time.

    ``formats``  formats of bottoms and tops: calls read and write the overlay's codes (int8) instead of float32
    ``python``   the function that runs if nothing is compiled
    """

    def __init__(
        self,
        layer: Called,
        bottoms: tuple[Shape, ...],
        tops: tuple[Shape, ...],
        formats: Formats | None,
        implementation: Implementation,
    ) -> None:
        self.layer, self.implementation = layer, implementation
        self.options = layer.custom.options
        self.formats = formats
        self.bottoms, self.tops = bottoms, tops
        self.seen = self._one_image(bottoms), self._one_image(tops)  # shapes that the function sees
        function = implementation.function
        compilable = implementation.jit or hasattr(function, "py_func")
        self._jit = layer.jit and compilable
        self._type = np.dtype(implementation.dtype)
        inputs, outputs = ([_arranged(s, implementation.layout) for s in shapes] for shapes in self.seen)
        codes = {} if formats is None else code_fields(*formats)
        # the fields of x, without those of a call
        self.static = {**fixed_fields(layer, inputs, outputs), **layer.constants(), **codes}
        self.around = self._around()
        zeros = [f.zero for f in formats[1]] if formats is not None else [0] * len(tops)
        arranged = [_arranged(shape, implementation.layout) for shape in tops]
        self._memory = [TopMemory(shape, implementation.dtype, zero) for shape, zero in zip(arranged, zeros)]
        self.compiled: compiling.JitFunction | None = None
        self._serial: compiling.JitFunction | None = None
        self.python: Function = function
        if compilable:
            self.python = plain(function)
        elif hasattr(function, "bind"):  # kernels are bound to the layer and its sizes
            self.python = function.bind(layer, self._example())
        if self._jit and compiling.available():
            self.compiled = self._compile()
        elif self._jit:
            warn_once("chai.custom", WITHOUT_NUMBA)

    def _compile(self, serial: bool = False) -> compiling.JitFunction:
        function = self.implementation.function
        x = self._example()
        arguments = self._arguments(x)
        compiled: compiling.JitFunction = failure.run(
            self.layer.where, compiling.JitFunction, function, True, function, self.options, x, arguments, serial
        )
        return compiled

    def _example(self) -> xChangeLayer:
        """Return x for these sizes, with arrays of one element."""
        x = xChangeLayer(dict(self.static))
        small = [[np.zeros((1,) * len(s), self.implementation.dtype) for s in side] for side in self.seen]
        self._fill(x, *small)
        return x

    def _arguments(self, x: xChangeLayer) -> tuple[Any, ...]:
        before, after = self.around
        return (*before, x, *after)

    def _around(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the function's arguments before x (self) and after it (named arguments)."""
        function, named = self.implementation.function, self.layer.named(*self.seen)
        arguments = self.layer.custom.call(function, None, {**named, **self._scratch(named)})
        first = int(takes_self(function))
        before = (None,) * first if self._jit else arguments[:first]  # compiled methods get None as self
        return before, arguments[first + 1 :]

    def _scratch(self, values: Mapping[str, Any]) -> dict[str, Array]:
        arrays = {}
        for name, shape in self.layer.custom.scratch.items():
            place = None
            if callable(shape):
                arguments = self.layer.custom.call(shape, xChangeLayer(dict(self.static)), values)
                place, shape = place_of(shape), failure.run(self.layer.where, shape, shape, False, *arguments)
            try:
                arrays[name] = np.zeros(shape, np.float32)
            except (TypeError, ValueError, MemoryError) as error:
                hint = 'expected a shape: scratch={"sums": (4, 5)}, or a function of x that returns one'
                raise self._wrong(f"scratch {name!r} of shape {shape!r}: {error}", hint, place) from None
        return arrays

    # -- x

    def _one_image(self, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if not self.options.per_image:
            return shapes
        return tuple((1, *s[1:]) if s and s[0] == self._batch else s for s in shapes)

    @property
    def _batch(self) -> int:
        return self.bottoms[0][0] if self.bottoms[0] else 1

    def _fill(self, x: xChangeLayer, bottoms: Sequence[Array], tops: Sequence[Array]) -> None:
        x.__dict__.update(zip(VARYING, of_call(VARYING, bottoms, tops, self.options.ports)))

    # -- running

    def run(self, bottoms: Sequence[Array]) -> tuple[Array, ...]:
        """Return the tops (float32, or codes) for bottoms of this frame's shapes. Raises PluginError."""
        layout, dtype = self.implementation.layout, self.implementation.dtype
        try:
            inputs, written, outputs = self._computed(bottoms, self.compiled)
        except PluginError as error:
            if self.compiled is None or not isinstance(error.__cause__, IndexError):
                raise
            raise self._outside("it reads or writes outside of an array", bottoms) from error.__cause__
        for memory, top in zip(self._memory, written):
            if memory.broken(top):
                raise self._outside("it wrote outside of its top", bottoms)
        if dtype != "int8":
            for i, output in enumerate(outputs):
                if _holds_nan(output):
                    self._check_source_of_nan(inputs, i, output)
        if layout == "NHWC":
            outputs = [np.ascontiguousarray(o.transpose(0, 3, 1, 2)) if o.ndim == 4 else o for o in outputs]
        tops = tuple(outputs)
        if self.formats is not None:
            if self.layer.slope != 0 or self.layer.clamps:
                return tops
            return tuple(np.maximum(t, np.int8(f.zero)) for t, f in zip(tops, self.formats[1]))
        return tops if dtype == "float32" else tuple([np.asarray(t, np.float32) for t in tops])

    def _computed(
        self, bottoms: Sequence[Array], compiled: compiling.JitFunction | None
    ) -> tuple[list[Array], list[Array], list[Array]]:
        """Return the bottoms in the function's layout, the tops that it wrote into, and those it gives, without any check."""
        layout = self.implementation.layout
        arranged = bottoms
        if layout == "NHWC":
            arranged = [b.transpose(0, 2, 3, 1) if b.ndim == 4 else b for b in bottoms]
        inputs = [np.ascontiguousarray(b, self._type) for b in arranged]
        written = outputs = [memory.new() for memory in self._memory]
        if self.options.inplace:
            for source, target in zip(inputs, outputs):
                target[...] = source.reshape(target.shape)
        try:
            if self.options.per_image:
                for n in range(self._batch):
                    self._call(self._image(inputs, n), self._image(outputs, n), compiled)
            elif (new := self._call(inputs, outputs, compiled)) is not None:
                outputs = [np.array(array) for array in new]  # the function may write into them again
        except failure.ParallelError:
            self._serial = self._serial or self._compile(serial=True)
            return self._computed(bottoms, self._serial)
        return inputs, written, outputs

    def _image(self, blobs: Sequence[Array], n: int) -> list[Array]:
        """Return image n of blobs that have one per image, and other blobs whole."""
        return [b[n : n + 1] if b.shape[:1] == (self._batch,) else b for b in blobs]

    def _call(self, inputs: Sequence[Array], outputs: Sequence[Array], compiled: compiling.JitFunction | None) -> Any:
        """Call the function on these buffers; return the tops if these need not be the buffers of the same sizes."""
        try:
            result = self._interpreted(inputs, outputs) if compiled is None else compiled(inputs, outputs)
        except (Exception, SystemExit) as error:  # failure.run takes as long as a small function
            failure.explain(self.layer.where, error, self.implementation.function, compiled is not None)
        if self.layer.dynamic or (self.layer.renews and result is not None):
            return result
        if result is not None:
            self._take(result, outputs)
        return None

    def _interpreted(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Any:
        """Call the function as plain Python."""
        x = xChangeLayer(self.static)
        self._fill(x, inputs, outputs)
        x.__dict__["startclk"] = perf_counter()
        result = self.python(*self._arguments(x))
        x.__dict__["endclk"] = perf_counter()
        return result

    def _take(self, result: Any, outputs: Sequence[Array]) -> None:
        """Copy the arrays that the function returned into the tops: one per top, of its shape or flat."""
        several = result if isinstance(result, (tuple, list)) else (result,)
        if len(several) and all(value is None for value in several):  # a lambda whose body is a tuple of calls
            return
        try:
            arrays = [np.asarray(value) for value in several]
        except (TypeError, ValueError):
            arrays = []
        if len(arrays) != len(outputs) or not all(map(_fits, arrays, outputs)):
            words = ", ".join(f"{show(a.shape)} of {a.dtype}" for a in arrays) or type(result).__name__
            raise self._wrong(
                f"it returned {words}; expected nothing, or an array for each top: "
                + ", ".join(f"{show(o.shape)} of {o.dtype}" for o in outputs),
                "write into x.out_ptrs or x.top and return nothing",
            )
        for array, output in zip(arrays, outputs):
            output[...] = array.reshape(output.shape)

    # -- checks

    def _wrong(self, reason: str, hint: str, place: str | None = None) -> PluginError:
        """Return the error at the function, or at a place in it."""
        return failure.report(self.layer.where, place or place_of(self.implementation.function), reason, hint)

    def _outside(self, what: str, bottoms: Sequence[Array]) -> Exception:
        """Return the error for an index out of bounds; a second run, in plain Python, finds its line."""
        place = place_of(self.implementation.function)
        hint = f"tops are {', '.join(map(show, self.tops))}: " + ", ".join(f"{prod(t)} elements" for t in self.tops)
        if self.compiled is not None:
            try:
                with failure.at_most(SECOND_RUN):
                    self._computed(bottoms, None)
            except Exception as error:
                if from_signal_handler(error):
                    raise
                if isinstance(error.__cause__, IndexError):
                    place = failure.place_inside(error.__cause__, place)
                    what += f" ({error.__cause__})"
        return self._wrong(what, hint, place)

    def _check_source_of_nan(self, inputs: Sequence[Array], top: int, output: Array) -> None:
        """Raise PluginError for a top with NaN unless an input or a parameter has one."""
        sources = [*inputs, *self.static["custom_float_params"]]
        if any(s.size and np.isnan(s.min()) for s in sources):
            return
        at = show(tuple(int(i) for i in np.argwhere(np.isnan(output))[0])).replace("x", ", ")
        many = int(np.isnan(output).sum())
        raise self._wrong(
            f"it wrote NaN into top {top}, first at ({at}), {many} in all; its inputs and parameters have none",
            "a division by zero, a root or logarithm of a negative number?",
        )


def best(layer: Called, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...], formats: Formats | None) -> Frame:
    """Return the Frame of the first implementation for these sizes; with ``autotune`` of the fastest one."""
    fit = candidates(layer, bottoms, tops, formats is not None)
    if not layer.autotune or len(fit) == 1 or formats is not None:
        return Frame(layer, bottoms, tops, formats, fit[0])
    rng = np.random.default_rng(0)
    noise = [rng.standard_normal(shape).astype(np.float32) for shape in bottoms]
    custom, sizes = layer.custom, " ".join(map(show, bottoms))
    codes = " ".join(digest(i.function, getattr(i.function, "sources", ()))[:8] for i in fit)
    key = f"{custom.type} {custom.version} {sizes} {platform.machine()} {codes}"
    frame = cache(lambda implementation: Frame(layer, bottoms, tops, None, implementation))
    with np.errstate(all="ignore"):
        return frame(selection.fastest(key, fit, lambda i: frame(i)._computed(noise, frame(i).compiled)))


class TopMemory:
    """Makes the memory for one top of a shape and type, which calls write one after another; it begins as ``value``."""

    __slots__ = ("_mark", "_prepared", "_shape", "_type", "_value")

    def __init__(self, shape: Shape, dtype: str, value: int = 0) -> None:
        self._mark, self._shape, self._type, self._value = _mark(dtype), shape, np.dtype(dtype), value
        self._prepared = self._written() if prod(shape) <= COPIED else None

    def new(self) -> Array:
        """Return a new top, whose base are its bytes between two guards."""
        whole = self._written() if self._prepared is None else bytearray(self._prepared)
        return np.ndarray(self._shape, self._type, whole, len(self._mark))

    def broken(self, top: Array) -> bool:
        """Return whether a guard has changed."""
        whole: Any = top.base
        return not (whole.startswith(self._mark) and whole.endswith(self._mark))

    def _written(self) -> bytearray:
        mark = self._mark
        whole = bytearray(prod(self._shape) * self._type.itemsize + 2 * len(mark))
        if self._value:
            np.frombuffer(whole, self._type)[...] = self._value
        whole[: len(mark)] = whole[-len(mark) :] = mark
        return whole


@cache
def _mark(dtype: str) -> bytes:
    """Return the bytes of a guard."""
    value = {"float32": -1.7e33, "float16": -4321.0, "int8": -86}[dtype]
    return np.full(GUARD, value, dtype).tobytes()


def _holds_nan(array: Array) -> bool:
    if array.size > SMALL:
        return isnan(array.max())
    flat = array.ravel()
    return array.size > 0 and isnan(flat.item(flat.argmax()))  # NaN comes before all numbers


def _fits(array: Array, output: Array) -> bool:
    """Return whether an array can be copied to a top: same shape or flat, and numbers of the same meaning."""
    kind: Any = "no" if output.dtype == np.int8 else "same_kind"
    return array.shape in (output.shape, (output.size,)) and np.can_cast(array.dtype, output.dtype, kind)


def _arranged(shape: Shape, layout: str) -> Shape:
    return (shape[0], shape[2], shape[3], shape[1]) if layout == "NHWC" and len(shape) == 4 else shape
