"""Blob: an array that can be written, reshaped and shared."""

from __future__ import annotations

from collections import OrderedDict
from typing import NoReturn

from ..blob import Array
from ..errors import UsageError
from ..plugins.python import blob


class Blob(blob.Blob):
    """Float32 numbers with a shape.

    ``data`` is the memory itself, not a copy: the next pass reads what is written into it, and arrays taken before a pass
    show its results.
    """

    def __init__(self, data: Array) -> None:
        super().__init__(data)
        self._missing: UsageError | None = None

    @property
    def data(self) -> Array:
        """Return the numbers, writable. Raises UsageError for a blob that a pass folded away; its shape stays available."""
        if self._missing is not None:
            raise self._missing
        return self._data

    @property
    def diff(self) -> NoReturn:
        """Raise UsageError: chai computes no gradients."""
        raise UsageError("chai computes no gradients: a blob has data but no diff")

    def put(self, values: Array) -> None:
        """Copy the shape and the numbers of an array."""
        self.reshape(*values.shape)
        self._data[...] = values
        self._missing = None

    def withhold(self, reason: UsageError) -> None:
        """Raise ``reason`` whenever ``data`` is read, until the next ``put``."""
        self._missing = reason

    def share(self, other: Blob) -> None:
        """Use the other blob's memory from now on, so that both change together."""
        self._data, self._memory = other._data, other._memory


class NamedBlobs(OrderedDict[str, Blob]):
    """Blobs by name. What is no blob cannot take the place of one."""

    def __setitem__(self, name: str, value: Blob) -> None:
        if not isinstance(value, Blob):
            raise UsageError(
                f"blobs[{name!r}] is a blob, not {type(value).__name__}",
                hint=f"net.blobs[{name!r}].data[...] = array; for another size net.blobs[{name!r}].reshape(...) before it",
            )
        super().__setitem__(name, value)
