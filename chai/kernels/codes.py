"""Fast forms of requantisation: what ``fixed.requantize`` defines, bit for bit, in one pass over memory.

Compiled by numba where there is one (codes_numba.py), numpy elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..fixed import Requantization, requantize
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
    compiled[0](sums, bias, m, negative, r.shift, r.low, r.high, out)


def add(a: Array, b: Array, factors: tuple[int, int], r: Requantization, out: Array) -> None:
    """out = requantised a * factors[0] + b * factors[1]; int8 arrays of one shape."""
    compiled = _compiled()
    if compiled is None:
        out[...] = requantize(a.astype(np.int64) * factors[0] + b.astype(np.int64) * factors[1], r)
    else:
        compiled[1](a, b, factors[0], factors[1], r.shift, r.low, r.high, out)


@lru_cache(maxsize=1)
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    try:
        from .codes_numba import add_codes, sums_to_codes
    except ImportError:
        return None
    return sums_to_codes, add_codes
