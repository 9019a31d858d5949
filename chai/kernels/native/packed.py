"""Weights in the order in which a kernel in C reads them, which layers of all sizes of input share."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from ...blob import Array, plain
from ...util.lazy_numpy import np
from .library import Library
from .single import Single
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
        self._transform.write(plain(self.weights), self.array)


class ChannelTable:
    """Five numbers for each output of a convolution, which follow its sum: bias; mean and factor of a BatchNorm; factor, addend.

    ``norm`` are mean, variance and divisor of a BatchNorm, and its eps; ``scale`` the factors of a Scale, and its addends.
    """

    __slots__ = ("_bias", "_norm", "_scale", "array")

    def __init__(
        self, outputs: int, bias: Array | None, norm: tuple[Array, Array, Array, float] | None, scale: Sequence[Array]
    ) -> None:
        self._bias, self._norm, self._scale = bias, norm, scale
        self.array = np.empty((5, outputs), np.float32)

    def write(self) -> None:
        """Write the array. Numbers of float64, which are rounded once, are those that the layers compute in float32."""
        table, none = self.array, np.float32(-0.0)
        table[:] = np.array([[none], [0], [1], [1], [none]])  # which change no sum
        if self._bias is not None:
            table[0] = self._bias
        if self._norm is not None:
            mean, variance, divisor, eps = self._norm
            share = np.float32(1 / np.float64(divisor.item())) if divisor.item() else np.float32(0)
            with np.errstate(all="ignore"):
                squared = (variance.reshape(-1) * share + np.float32(eps)).astype(np.float64)
                deviation = np.sqrt(squared).astype(np.float32)
                table[1], table[2] = mean.reshape(-1) * share, 1 / deviation.astype(np.float64)
        for row, array in enumerate(self._scale, 3):
            table[row] = array.reshape(-1)


# by variant and by the identity of the weights, which exist as long as their packed copy does
_packed: WeakValueDictionary[tuple[int, int], PackedFilters] = WeakValueDictionary()


def packed(library: Library, weights: Array) -> PackedFilters:
    """Return the weights of a convolution in tiles, (M, C/group, 3, 3), as its kernel reads them; not written yet."""
    key = library.number, id(weights)
    known = _packed.get(key)
    if known is None:
        known = _packed[key] = PackedFilters(library, weights)
    return known
