"""The compiled loops of codes.py; their machine code is cached in numba's cache folder."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def sums_to_codes(sums, bias, m, negative, shift, low, high, zero, out):  # type: ignore[no-untyped-def]
    """Compute out[n, c] = clamp(((sums[n, c] + bias[c]) * multiplier >> shift) + zero), rounding half away from zero."""
    half = (np.int64(1) << shift) >> 1
    carry = np.int64(1) if shift > 0 else np.int64(0)
    for n in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            positive, below, added = m[c], negative[c], bias[c]
            for h in range(sums.shape[2]):
                for w in range(sums.shape[3]):
                    wide = np.int64(sums[n, c, h, w]) + added
                    value = wide * (below if wide < 0 else positive)
                    code = ((value + half - (carry if value < 0 else 0)) >> shift) + zero
                    out[n, c, h, w] = min(max(code, low), high)


@numba.njit(nogil=True, cache=True)
def add_codes(a, b, first, second, addend, shift, low, high, zero, out):  # type: ignore[no-untyped-def]
    """Compute out = clamp(((a * first + b * second + addend) >> shift) + zero), rounding half away from zero."""
    half = (np.int64(1) << shift) >> 1
    carry = np.int64(1) if shift > 0 else np.int64(0)
    for n in range(a.shape[0]):
        for c in range(a.shape[1]):
            for h in range(a.shape[2]):
                for w in range(a.shape[3]):
                    value = np.int64(a[n, c, h, w]) * first + np.int64(b[n, c, h, w]) * second + addend
                    code = ((value + half - (carry if value < 0 else 0)) >> shift) + zero
                    out[n, c, h, w] = min(max(code, low), high)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def floats_to_codes(x, step, low, high, zero, out):  # type: ignore[no-untyped-def]
    """Compute out[i] = saturated nearest code of x[i] / step + zero in float32, for flat arrays; return whether no x was NaN.

    One pass without a branch, which compilers vectorise. The clamp comes first, where it cannot change a code. Adding the
    largest float32 below 0.5 and truncating rounds half away from zero (adding 0.5 would round that number itself to 1).
    A step of 0 divides as in IEEE 754.
    """
    numbers = True
    divisor = np.float32(step)
    least, most = np.float32(low - zero - 0.4), np.float32(high - zero + 0.4)
    half = np.float32(0.5 - 2.0**-25)
    for i in range(x.size):
        quotient = x[i] / divisor
        numbers &= quotient == quotient
        near = min(max(quotient, least), most)
        out[i] = np.int32(near + np.copysign(half, near)) + zero
    return numbers


@numba.njit(nogil=True, cache=True)
def codes_to_floats(codes, step, zero, out):  # type: ignore[no-untyped-def]
    """Compute out[i] = (codes[i] - zero) * step in float32, for flat arrays."""
    factor, origin = np.float32(step), np.float32(zero)
    for i in range(codes.size):
        out[i] = (np.float32(codes[i]) - origin) * factor
