"""One operation of the library on an array of the host."""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING

from ...errors import DeviceError
from ...util.lazy_numpy import np
from .library import Library
from .table import Extent, Form, Operation, Place, plain_strides, sizes

if TYPE_CHECKING:
    from ...blob import Array, Shape

INPUT, OUTPUT = 0, 1  # buffers


class Single:
    """An operation from one contiguous int8 array (N, C, H, W) to another."""

    def __init__(self, library: Library, form: Form, source: Shape, target: Shape) -> None:
        values = {**form.fields(), **sizes(source, target)}
        values |= Place(INPUT, 0, *plain_strides(source)).fields("input")
        values |= Place(OUTPUT, 0, *plain_strides(target)).fields("output")
        self._library, self._target, self._table = library, target, (Operation * 1)(Operation(**values))
        self._sizes = prod(source), prod(target)
        if library.check(self._table, self._extents()) >= 0:
            raise DeviceError(f"{form.kind.name.lower()} from {source} to {target} would leave its memory")

    def _extents(self) -> ctypes.Array[Extent]:
        read, written = self._sizes
        return (Extent * 2)(Extent(read, 0), Extent(written, written))

    def run(self, x: Array) -> Array:
        """Return the result for ``x``, a new array."""
        out = np.empty(self._target, np.int8)
        self._library.run(self._table, (x, out), 1)
        return out
