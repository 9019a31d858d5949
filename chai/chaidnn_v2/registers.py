"""Registers of CHaiDNN-v2: sums that wrap around or saturate, and the float formats of its converters."""

from __future__ import annotations

from ..blob import Array
from ..errors import ModelError
from ..fixed import Format, Requantization
from ..util.lazy_numpy import np

SUM = 18  # bits of a buffered sum
LARGEST, SMALLEST = (1 << SUM - 1) - 1, -(1 << SUM - 1)


def wrapped(values: Array, bits: int) -> Array:
    """Return integers as a register of so many bits holds them: two's complement, the bits above are lost."""
    shift = values.dtype.type(8 * values.itemsize - bits)
    result: Array = values << shift >> shift
    return result


def saturated(values: Array) -> Array:
    """Return integers within the range of a buffered sum."""
    return np.clip(values, SMALLEST, LARGEST)


def accumulated(total: Array, chunk: Array) -> Array:
    """Return the saturated sum of two buffered sums; one that is at an end of the range stays there."""
    result = saturated(total + chunk)
    result[(total == SMALLEST) | (chunk == SMALLEST)] = SMALLEST
    result[(total == LARGEST) | (chunk == LARGEST)] = LARGEST
    return result


def requantized(sums: Array, bias: Array | int, r: Requantization) -> Array:
    """Return the codes (int8) of buffered sums (int64).

    The product has 32 bits and wraps, as int32 does; ``bias`` is in its units. It is rounded half away from zero, the
    result wraps to 18 bits and is clamped: to the codes' width, and at 0 for a ReLU.
    """
    value = (sums * r.multiplier + bias).astype(np.int32)
    size = (np.abs(value) + np.int32(1 << r.shift - 1)) >> np.int32(r.shift)
    result = wrapped(np.where(value < 0, -size, size), SUM)
    return np.clip(result, r.low, r.high).astype(np.int8)


class Converted(Format):
    """A format as a Pack between layers converts to it: DynamicFixed truncates and wraps, Xilinx multiplies by 1 / step."""

    nearest = False

    def quantize(self, x: Array) -> Array:
        if np.isnan(x).any():
            raise ModelError("a value is not a number (NaN); it has no fixed-point code")
        values = x.astype(np.float32)
        if self.scheme == "DynamicFixed":
            with np.errstate(over="ignore"):
                steps = np.trunc(values * np.float32(2.0**self.value)).astype(np.float64)
            codes: Array = np.clip(steps, -(2.0**31), 2.0**31 - 1).astype(np.int64).astype(np.int8)
            return codes
        if not self.step:
            return np.zeros(x.shape, np.int8)
        threshold, inverse = np.float32(self.value), np.float32(1) / np.float32(self.step)
        nearest: Array = np.floor(np.clip(values, -threshold, threshold) * inverse + np.float32(0.5)).astype(np.int8)
        return nearest
