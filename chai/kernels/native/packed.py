"""Weights in the order in which a kernel in C reads them, which layers of all sizes of input share."""

from __future__ import annotations

from weakref import WeakValueDictionary

from ...blob import Array
from ...util.lazy_numpy import np
from .library import Library
from .single import Single, plain
from .table import Form, Kind

TERMS = 16  # of a tile, see tiles.h
_RATE = 1  # weights that a thread transforms in a nanosecond, roughly


class PackedFilters:
    """``array`` is to be written before a pass, and again when numbers of ``weights`` may have changed."""

    __slots__ = ("__weakref__", "_transform", "array", "weights")

    def __init__(self, library: Library, weights: Array) -> None:
        outputs, channels = weights.shape[:2]
        source, target = (1, outputs * channels, 3, 3), (1, TERMS, outputs, channels)
        self._transform = Single(library, Form(Kind.TRANSFORM), source, target, (), weights.size / _RATE)
        self.weights, self.array = weights, np.empty(target, np.float32)

    def write(self) -> None:
        """Write the array."""
        self._transform.write(plain(self.weights), self.array)


_packed: WeakValueDictionary[tuple[int, int], PackedFilters] = (
    WeakValueDictionary()
)  # the weights exist as long as they do


def packed(library: Library, weights: Array) -> PackedFilters:
    """Return the weights of a convolution in tiles, (M, C/group, 3, 3), as its kernel reads them; not written yet."""
    key = library.number, id(weights)
    known = _packed.get(key)
    if known is None:
        known = _packed[key] = PackedFilters(library, weights)
    return known
