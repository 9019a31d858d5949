"""Layers that CHaiDNN-v2 computes on the host in its own way: Softmax by a table of exp(x), and Normalize on codes."""

from __future__ import annotations

from functools import lru_cache

from ..blob import Array
from ..fixed import Format
from ..util.lazy_numpy import np
from .registers import wrapped

ENTRIES = 1000  # of the table of exp(x), in steps of 0.01: exp(-10) to exp(-0.01)
REACH = 10  # numbers so far below the maximum are 0
LOWEST = -255  # a Softmax's maximum begins there
FRACTION = 30  # bits of a reciprocal norm
EMPTY = 1e-10  # reciprocal norm of a pixel whose squares are all 0


def softmax(x: Array, axis: int) -> Array:
    """Return the softmax along an axis, float32: distances to the maximum in whole hundredths, sums number by number.

    CHaiDNN reads beyond its table for a distance below 0.01 that is not 0; here this is 1, the exp of no distance.
    """
    distance = x.max(axis, keepdims=True, initial=LOWEST) - x
    near = distance < REACH
    steps = (np.where(near, distance, 0) * np.float32(100)).astype(np.intp)
    powers = np.where(near, table()[ENTRIES - steps], np.float32(0))
    total = powers.cumsum(axis, dtype=np.float32).take([-1], axis)  # in order, where a sum would go by pairs
    return powers * (np.float32(1) / total)


@lru_cache(maxsize=1)
def table() -> Array:
    """Return exp of a float32 argument that starts at -10 and grows by 0.01, float32, to 6 decimals, and 1 for 0: (1001,).

    The sum is rounded from float64 to float32 at each step. All 1000 entries are those of CHaiDNN's source.
    """
    arguments = [float(-REACH)]
    while len(arguments) < ENTRIES:
        arguments.append(float(np.float32(arguments[-1] + 0.01)))
    powers = np.exp(np.array(arguments)).astype(np.float32)
    return np.array([*(float(f"{power:.6f}") for power in powers), 1], np.float32)


def normalize(codes: Array, scale: Array, source: Format, target: Format) -> Array:
    """Return codes (N, C, ...) int8 divided by their norm over channels, times ``scale`` (C,) or (1,) float32.

    DynamicFixed: each square loses its bits below the input's step, the scale has the output's fraction and 8 bits that wrap,
    and the product is rounded down and wraps to 8 bits. Xilinx: in float32, without its fraction, saturated.
    """
    factors = scale.reshape(-1, *(1,) * (codes.ndim - 2))
    if source.scheme == "Xilinx":
        values = codes.astype(np.float32) * np.float32(source.step)
        inverse = _inverse((values * values).cumsum(1, dtype=np.float32).take([-1], 1))
        steps = np.trunc(values * factors * inverse / np.float32(target.step))
        saturated: Array = np.clip(steps, -target.largest, target.largest).astype(np.int8)
        return saturated
    x, fraction = codes.astype(np.int64), int(source.value)
    squares = np.floor(x * x * 2.0**-fraction).sum(1, keepdims=True)
    inverse = np.trunc(_inverse(squares.astype(np.float32) * np.float32(2.0**-fraction)) * np.float32(1 << FRACTION))
    cut = wrapped(np.trunc(factors.astype(np.float64) * 2.0**target.value).astype(np.int64), 8)
    return wrapped(x * cut * inverse.astype(np.int64) >> FRACTION + fraction, 8).astype(np.int8)


def _inverse(squares: Array) -> Array:
    """Return 1 / sqrt of sums of squares, float32."""
    empty = squares == 0
    inverse: Array = np.where(
        empty, np.float32(EMPTY), np.float32(1) / np.sqrt(np.where(empty, np.float32(1), squares))
    )
    return inverse
