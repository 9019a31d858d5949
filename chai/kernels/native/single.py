"""One operation of the library on arrays of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ...blob import Array, Shape
from ...util.lazy_numpy import np
from .library import Library
from .table import FLOATS, PACKS, PIXELS, SIZE, Extent, Form, Kind, Operation, pixel_strides, plain_strides
from .threads import threads

INPUT, OUTPUT, SECOND = range(3)  # buffers; the last and those after it are ``parameters``
OTHERS = ("second_buffer", "constants", "file")  # fields of the buffers besides input and output
KEPT = 1024  # operations: more than the layers of a large network
SHARED = 20_000.0  # nanoseconds: a shorter operation takes less time than to wake a thread


class Prepared:
    """A checked operation on arrays of the host.

    ``sizes`` are the bytes of its buffers: what it reads, what it writes, and its ``parameters``. ``ns`` are the nanoseconds
    that one thread needs, roughly: a long operation runs in several.
    """

    def __init__(self, library: Library, operation: Operation, sizes: Sequence[int], ns: float = 0.0) -> None:
        set_others(operation, range(SECOND, len(sizes)))
        self._library, self._table, self.sizes, self.ns = library, (Operation * 1)(operation), sizes, ns
        library.verify(self._table, self._extents())
        self.operation = self._table[0]  # whose arrays begin at byte 0 of a buffer each

    def _extents(self) -> ctypes.Array[Extent]:
        written = (OUTPUT, SECOND) if self._table[0].kind in PACKS else (OUTPUT,)
        return (Extent * len(self.sizes))(*(Extent(n, n if i in written else 0) for i, n in enumerate(self.sizes)))

    def write(self, x: Array, out: Array, *parameters: Array) -> None:
        self._library.run_one(self.operation, threads() if self.ns >= SHARED else 0, x, out, *parameters)


class Single(Prepared):
    """An operation from one contiguous array (N, C, H, W) to another, both int8 or float32, as its kind has them.

    Those of pictures are uint8 (N, H, W, C). ``parameters`` are the sizes in bytes of its other arrays: weights and bias in the
    type of the input, its second input, the codes of a TABLE, or the byte in which a PACK notes NaN.
    """

    def __init__(
        self,
        library: Library,
        form: Form,
        source: Shape,
        target: Shape,
        parameters: tuple[int, ...] = (),
        ns: float = 0.0,
    ) -> None:
        input_type = np.dtype(np.float32 if form.kind in (*FLOATS, Kind.PACK) else np.int8)
        output_type = np.dtype(np.float32 if form.kind in (*FLOATS, Kind.UNPACK) else np.int8)
        inputs = [(INPUT, 0, *plain_strides(source, input_type.itemsize))]
        output = (OUTPUT, 0, *plain_strides(target, output_type.itemsize))
        if form.kind in FLOATS:
            inputs.append((0, 0, *plain_strides(source, 4)))
        elif form.kind in PIXELS:
            inputs = [(INPUT, *pixel_strides(source, form.backwards))]
            output = (OUTPUT, *pixel_strides(target)) if form.kind == Kind.RESIZE else output
        operation = form.operation(source, target, inputs, output)
        operation.bias = 0 if len(parameters) > 1 else -1
        sizes = prod(source) * input_type.itemsize, prod(target) * output_type.itemsize, *parameters
        super().__init__(library, operation, sizes, ns)
        self._target, self._type = target, output_type

    def run(self, x: Array, *parameters: Array) -> Array:
        """Return the result for ``x``, a new array."""
        out = np.empty(self._target, self._type)
        self.write(x, out, *parameters)
        return out


@lru_cache(maxsize=KEPT)
def single(
    used: Library | None, form: Form, source: Shape, target: Shape, parameters: tuple[int, ...] = (), ns: float = 0.0
) -> Single | None:
    """Return an operation, kept for its sizes; None without a library, or for a size beyond it."""
    if used is None or not all(0 < size <= SIZE for size in (*source, *target)):
        return None
    return Single(used, form, source, target, parameters, ns)


def set_others(operation: Operation, buffers: Sequence[int]) -> None:
    """Set each field of ``OTHERS`` to one of the buffers besides input and output, to 0 if there are none."""
    for i, name in enumerate(OTHERS):
        setattr(operation, name, buffers[i] if i < len(buffers) else buffers[0] if buffers else 0)
