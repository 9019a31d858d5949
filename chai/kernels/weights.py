"""Codes of weights, in C where a library was compiled."""

from __future__ import annotations

import ctypes

from .. import fixed
from ..blob import Array, plain
from ..errors import ModelError
from ..fixed import Quantized
from ..util.lazy_numpy import np
from .native import library
from .native.library import pointer


def quantized(weights: Array, steps: Array, bits: int) -> Quantized:
    """Return ``fixed.quantized``; only the last bits of its errors may differ. Raises ModelError as that does."""
    used, size = library.library(), weights[:1].size
    if used is None or weights.dtype != np.float32 or not size:
        return fixed.quantized(weights, steps, bits)
    read, wide = plain(weights), np.ascontiguousarray(steps, np.float64)
    count, largest = len(weights), (1 << (bits - 1)) - 1
    codes, errors = np.empty(weights.shape, np.int8), np.empty(count)
    totals, magnitudes = np.empty(count, np.int64), np.empty(count, np.int64)
    wrong = used.calls.chai_quantize(
        used.number,
        pointer(read),
        ctypes.c_int64(count),
        ctypes.c_int64(size),
        pointer(wide),
        largest,
        pointer(codes),
        pointer(totals),
        pointer(magnitudes),
        pointer(errors),
    )
    if wrong:
        raise ModelError(fixed.NOT_FINITE)
    return Quantized(codes, totals, magnitudes, errors)
