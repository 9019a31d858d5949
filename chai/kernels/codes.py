"""Fast forms of requantisation: what ``fixed.requantize`` defines, bit for bit, in one pass over memory.

Compiled by numba where there is one (codes_numba.py), numpy elsewhere.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..fixed import Format, Requantization, requantize
from ..lazy import np

if TYPE_CHECKING:
    from ..graph import Array


def requantize_sums(sums: Array, bias: Array, r: Requantization, out: Array) -> None:
    """out (N, M, H, W) int8 from whole float32 sums (N, M, H, W), bias (M,) int64 and multipliers (M, 1, 1)."""
    compiled = _compiled()
    if compiled is None:
        out[...] = requantize(sums.astype(np.int64) + bias.reshape(-1, 1, 1), r)
        return
    m = np.broadcast_to(r.multiplier, (len(bias), 1, 1)).reshape(-1)
    negative = m if r.negative is None else np.broadcast_to(r.negative, (len(bias), 1, 1)).reshape(-1)
    compiled.sums_to_codes(sums, bias, m, negative, r.shift, r.low, r.high, out)


def add(a: Array, b: Array, factors: tuple[int, int], r: Requantization, out: Array) -> None:
    """out = requantised a * factors[0] + b * factors[1]; int8 arrays of one shape."""
    compiled = _compiled()
    if compiled is None:
        out[...] = requantize(a.astype(np.int64) * factors[0] + b.astype(np.int64) * factors[1], r)
    else:
        compiled.add_codes(a, b, factors[0], factors[1], r.shift, r.low, r.high, out)


def pack(x: Array, format: Format) -> Array:
    """Codes of float32 values: ``format.quantize`` in one pass. Raises ModelError for NaN."""
    compiled = _compiled()
    if compiled is None or not x.flags.c_contiguous or not format.step:
        return format.quantize(x)
    out = np.empty(x.shape, np.int8)
    if not compiled.floats_to_codes(x.ravel(), format.step, *format.packed, out.ravel()):
        return format.quantize(x)  # which says what is wrong
    return out


def unpack(codes: Array, format: Format) -> Array:
    """float32 values of codes: ``format.dequantize`` in one pass."""
    compiled = _compiled()
    if compiled is None or not codes.flags.c_contiguous:
        return format.dequantize(codes)
    out = np.empty(codes.shape, np.float32)
    compiled.codes_to_floats(codes.ravel(), format.step, out.ravel())
    return out


@lru_cache(maxsize=1)
def warm_up() -> None:
    """Compile or load every loop now, so that the first image does not wait for it."""
    one = Requantization(np.ones((1, 1, 1), np.int64), 1, -128, 127)
    format = Format("DynamicFixed", 8, 0)
    codes = pack(np.zeros((2, 1, 2, 2), np.float32), format)
    unpack(codes, format)
    part = np.empty((2, 3, 2, 2), np.int8)[:, :1]  # of a concat: not contiguous, compiled apart
    for out in (np.empty_like(codes), part):
        add(codes, codes, (1, 1), one, out)
        requantize_sums(np.zeros(codes.shape, np.float32), np.zeros(1, np.int64), one, out)


@lru_cache(maxsize=1)
def _compiled() -> Any:
    """The module of compiled loops, or None without numba."""
    try:
        from . import codes_numba
    except ImportError:
        return None
    return codes_numba
