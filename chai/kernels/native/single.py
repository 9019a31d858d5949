"""One operation of the library on arrays of the host."""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING

from ...errors import DeviceError
from ...util.lazy_numpy import np
from .library import Library
from .table import FLOATS, Extent, Form, Operation, Place, plain_strides, sizes
from .threads import threads

if TYPE_CHECKING:
    from ...blob import Array, Shape

INPUT, OUTPUT, WEIGHTS, BIAS = range(4)  # buffers
SHARED = 1 << 22  # multiply-accumulates: fewer in float32 take less time than to wake a thread


class Single:
    """An operation from one contiguous array (N, C, H, W) to another, both int8 or both float32.

    ``parameters`` are the sizes in bytes of weights and bias, if it has them; they have the type of the input. ``macs`` are its
    multiply-accumulates: an operation of many runs in several threads.
    """

    def __init__(
        self,
        library: Library,
        form: Form,
        source: Shape,
        target: Shape,
        parameters: tuple[int, ...] = (),
        macs: int = 0,
    ) -> None:
        self._type = np.dtype(np.float32 if form.kind in FLOATS else np.int8)
        size = self._type.itemsize
        values = {**form.fields(), **sizes(source, target)}
        values |= Place(INPUT, 0, *plain_strides(source, size)).fields("input")
        values |= Place(OUTPUT, 0, *plain_strides(target, size)).fields("output")
        if parameters:
            values |= {"file": WEIGHTS, "constants": BIAS, "bias": 0 if len(parameters) > 1 else -1}
        self._library, self._target, self._table = library, target, (Operation * 1)(Operation(**values))
        self._sizes = prod(source) * size, prod(target) * size, *parameters
        self._shared = macs >= SHARED
        if library.check(self._table, self._extents()) >= 0:
            raise DeviceError(f"{form.kind.name.lower()} from {source} to {target} would leave its memory")

    def _extents(self) -> ctypes.Array[Extent]:
        return (Extent * len(self._sizes))(*(Extent(n, n if i == OUTPUT else 0) for i, n in enumerate(self._sizes)))

    def run(self, x: Array, *parameters: Array) -> Array:
        """Return the result for ``x``, a new array."""
        out = np.empty(self._target, self._type)
        if self._shared:
            self._library.run(self._table, (x, out, *parameters), 1, threads())
        else:
            self._library.run_one(self._table[0], (x, out, *parameters))
        return out
