"""Normalize in CHaiDNN-v2: its software reads and writes codes, on the host."""

from __future__ import annotations

from ..blob import Array
from ..fixed import Format
from ..util.lazy_numpy import np
from .registers import wrapped

FRACTION = 30  # bits of a reciprocal norm
EMPTY = 1e-10  # reciprocal norm of a pixel whose squares are all 0


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
    result: Array = wrapped(x * cut * inverse.astype(np.int64) >> FRACTION + fraction, 8).astype(np.int8)
    return result


def _inverse(squares: Array) -> Array:
    """Return 1 / sqrt of sums of squares, float32."""
    empty = squares == 0
    inverse: Array = np.where(
        empty, np.float32(EMPTY), np.float32(1) / np.sqrt(np.where(empty, np.float32(1), squares))
    )
    return inverse
