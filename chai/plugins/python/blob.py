"""Blob: numbers with a shape that can change, as layers of Caffe see their bottoms, tops and parameters."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ...blob import Array, Shape, show
from ...errors import UsageError
from ...limits import limits
from ...util.lazy_numpy import np


def _size_of_axis(axis: int) -> property:
    def size(self: Blob) -> int:
        """Return the size of this axis, or 1 if the blob lacks it. Raises UsageError for more than 4 axes."""
        if len(self.shape) > 4:
            raise UsageError(f"num, channels, height and width belong to blobs of 4 axes, this is {show(self.shape)}")
        return self.shape[axis] if axis < len(self.shape) else 1

    return property(size)


class Blob:
    """Float32 numbers with a shape.

    ``data`` is the memory itself, not a copy. ``diff`` has its shape, and zeros at first: chai computes no gradients.
    """

    def __init__(self, data: Array) -> None:
        self._data = np.ascontiguousarray(data, np.float32).reshape(np.shape(data))  # a scalar keeps shape ()
        self._memory = self._data.reshape(-1)
        self._diff: Array | None = None

    @property
    def data(self) -> Array:
        return self._data

    @property
    def diff(self) -> Array:
        """Return an array of the blob's shape, for code that keeps gradients."""
        if self._diff is None or self._diff.shape != self.shape:
            self._diff = np.zeros(self.shape, np.float32)
        return self._diff

    @property
    def shape(self) -> Shape:
        return self._data.shape

    @property
    def count(self) -> int:
        return self._data.size

    num, channels, height, width = map(_size_of_axis, range(4))

    def reshape(self, *dims: int) -> None:
        """Change the sizes and keep the first numbers; new memory (zeros, nothing kept) only if the blob was never as large."""
        if dims == self.shape:
            return
        if not all(isinstance(d, (int, np.integer)) and d >= 0 for d in dims):
            raise UsageError(f"reshape{dims}: expected sizes", hint="blob.reshape(1, 3, 224, 224), or reshape(*shape)")
        shape = tuple(map(int, dims))
        size = prod(shape)
        if size > limits().blob_elements:
            raise UsageError(f"reshape{dims}: " + limits().exceeded("blob_elements", size))
        if size > self._memory.size:
            self._memory = np.zeros(size, np.float32)
        self._data = self._memory[:size].reshape(shape)

    def __repr__(self) -> str:
        return f"<Blob {show(self.shape)}>"


class BlobVec(list[Blob]):
    """The trained parameters of a layer."""

    def __init__(self, blobs: Iterable[Blob] = (), kind: type[Blob] = Blob) -> None:
        super().__init__(blobs)
        self._kind = kind

    def add_blob(self, *dims: int) -> None:
        """Append a parameter of these sizes, zeros."""
        blob = self._kind(np.zeros((), np.float32))
        blob.reshape(*dims)
        self.append(blob)
