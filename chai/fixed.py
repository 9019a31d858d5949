"""Fixed point: the only definition of formats, rounding and saturation.

Formats are CHaiDNN's, and unsigned ones for blobs that are never negative. A *code* is the integer (int8) that is
stored, a *zero point* the code of value 0, a *step* the float64 difference of neighbouring codes' values, so that
value = (code - zero) * step. ``round`` is half away from zero everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import frexp
from typing import ClassVar, NamedTuple

from .blob import Array
from .errors import ModelError
from .text import number_of
from .util.lazy_numpy import np

SCHEMES = ("Xilinx", "DynamicFixed")
SINGLE = "SinglePrecision"  # the type that CHaiDNN assigns to layers computed on the host in float
NOT_FINITE = "a weight is not a finite number; it has no fixed-point code"
VALUES = {"Xilinx": (0.0, 3.4e38), "DynamicFixed": (-127.0, 256.0)}  # of formats whose steps float32 has, or that are 0
# bound on the magnitude of sums, but for wide ones: 25-bit registers and float32 hold them exactly
ACCUMULATOR = 1 << 24
CACHED = 1 << 16  # numbers of a block that a processor's cache holds
BELOW_HALF = 0.5 - 2**-25  # the float32 before a half


@dataclass(frozen=True)
class Format:
    """The number format of a blob.

    ``scheme``    "DynamicFixed": ``value`` is the fraction length fl, step 2^-fl
                  "Xilinx": ``value`` is the threshold th (a float32), step th / ``largest``
    ``bits``      8 or 6; codes are int8 in either case
    ``unsigned``  False: values of both signs, code - zero from -2^(bits-1) to 2^(bits-1) - 1, zero point 0
                  True: values >= 0, code - zero from 0 to 2^bits - 1; the zero point is -128 at 8 bits, so that codes
                  are int8 too, and 0 at 6 bits
    """

    scheme: str
    bits: int
    value: float
    unsigned: bool = False
    nearest: ClassVar[bool] = True  # ``quantize`` rounds to the nearest code, as kernels do

    @cached_property
    def step(self) -> float:
        """Return the difference between the values of neighbouring codes; 0 if float32 has no number that small."""
        step = 2.0**-self.value if self.scheme == "DynamicFixed" else float(np.float32(self.value)) / self.largest
        return step if np.float32(step) else 0.0

    @property
    def zero(self) -> int:
        """Return the code of value 0."""
        return -128 if self.unsigned and self.bits == 8 else 0

    @property
    def largest(self) -> int:
        """Return the largest value in steps: 127 or 31, unsigned 255 or 63."""
        return (1 << (self.bits if self.unsigned else self.bits - 1)) - 1

    @cached_property
    def packed(self) -> tuple[int, int]:
        """Return the range of codes that a Pack writes: a signed Xilinx format clips to +-largest."""
        low, high = self.range
        if self.scheme == "Xilinx" and not self.unsigned:
            low += 1
        return low, high

    @property
    def range(self) -> tuple[int, int]:
        """Return the range of codes that a computation writes."""
        return (0 if self.unsigned else -self.largest - 1) + self.zero, self.largest + self.zero

    @property
    def magnitude(self) -> int:
        """Return the largest magnitude of a code, as the multipliers read it: 128 or 32, unsigned 128 or 63."""
        return max(map(abs, self.range))

    @property
    def signed(self) -> Format:
        """Return the signed format with the same range."""
        if not self.unsigned:
            return self
        return Format(self.scheme, self.bits, self.value - 1 if self.scheme == "DynamicFixed" else self.value)

    def quantize(self, x: Array) -> Array:
        """Return the codes (int8) of float values of any shape: nearest, saturated to ``packed``.

        Raises ModelError for NaN, which has no code.
        """
        low, high = self.packed
        if not self.step and not np.isnan(x).any():
            return np.full(x.shape, self.zero, np.int8)  # with a threshold of 0 every value is 0
        steps = np.clip(_quotient(x, self.step), low - self.zero - 1, high - self.zero + 1)
        codes: Array = round_half_away(steps) + self.zero
        if np.isnan(codes).any():
            raise ModelError("a value is not a number (NaN); it has no fixed-point code")
        return np.clip(codes, low, high).astype(np.int8)

    def dequantize(self, codes: Array) -> Array:
        """Return the float32 values of codes."""
        return (codes.astype(np.float32) - np.float32(self.zero)) * np.float32(self.step)

    def __str__(self) -> str:
        short = f"fl {self.value:g}" if self.scheme == "DynamicFixed" else f"th {self.value:.4g}"
        return f"{self.scheme}({'u' if self.unsigned else ''}{self.bits}, {short})"


def round_half_away(x: Array) -> Array:
    """Round to the nearest integer, ties away from zero; float64 in and out."""
    whole: Array = np.trunc(x)  # adding a half before truncating would round 0.5 - 2^-54 to 1
    away = (np.abs(x - whole) >= 0.5).astype(np.float64)  # 1 where the nearest integer is the next one, else 0
    rounded: Array = whole + np.copysign(away, x)
    return rounded


def _quotient(x: Array, step: Array | float) -> Array:
    """Return x / step, divided in float32 as in CHaiDNN, as float64, so that adding a half next loses nothing."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return (x.astype(np.float32) / np.asarray(step, np.float32)).astype(np.float64)


class Requantization(NamedTuple):
    """Conversion of an accumulator to a code: clamp(((acc * m + R - (acc < 0)) >> shift) + zero).

    R = 2^(shift-1), 0 for no shift. The accumulator is the true sum: its sign decides rounding and multiplier. The zero
    point is added after the shift, since before it ties would round the wrong way.

    ``multiplier``  int64, one number or one per channel (or per window), below 2^mult_bits
    ``low, high``   the clamp of codes; low is the zero point for a plain ReLU
    ``negative``    multipliers for negative accumulators (leaky ReLU), or None
    ``zero``        zero point of the output's format
    """

    multiplier: Array
    shift: int
    low: int
    high: int
    negative: Array | None = None
    zero: int = 0

    def of(self, channels: slice) -> Requantization:
        """Return the conversion of some channels, whose multipliers are one for all, or one each."""
        m, negative = (x if x is None or np.size(x) == 1 else x[channels] for x in (self.multiplier, self.negative))
        return self._replace(multiplier=np.asarray(m), negative=negative)


def requantize(accumulator: Array, r: Requantization, add: Array | int = 0) -> Array:
    """Return the codes (int8) of integer accumulators; ``add`` is added after the multiplication.

    Multipliers must broadcast over the accumulator: (M, 1, 1) for (N, M, H, W). Rounds half away from zero: as the
    arithmetic shift rounds down, 1 is subtracted from negative values before it.
    """
    wide: Array = accumulator.astype(np.int64)
    value: Array
    if r.negative is None:
        value = wide * r.multiplier + add
    else:
        value = np.where(wide < 0, wide * r.negative, wide * r.multiplier) + add
    if r.shift:
        below = (value < 0).astype(np.int64)  # 1 where it is, else 0
        value = np.right_shift(value + (1 << (r.shift - 1)) - below, r.shift)
    codes: Array = np.clip(value + r.zero, r.low, r.high).astype(np.int8)
    return codes


def multipliers(ratios: Array, bits: int, shift_max: int) -> tuple[Array, int] | None:
    """Return integers m and the one shift s with m / 2^s nearest to ``ratios`` (float64, any sign).

    s is the largest with every |m| < 2^bits, at most ``shift_max``; None if even s = 0 is too large.
    """
    largest = float(np.abs(ratios).max(initial=0.0))
    if not np.isfinite(largest):
        return None
    # largest * 2^s < 2^bits; rounding can still carry one m to 2^bits, hence the second try
    shift = min(shift_max, bits - frexp(largest)[1]) if largest else shift_max
    for s in (shift, shift - 1):
        if s >= 0:
            m = round_half_away(ratios * 2.0**s).astype(np.int64)
            if int(np.abs(m).max(initial=0)) < 1 << bits:
                return m, s
    return None


class Coarser(NamedTuple):
    """The channels of a layer that have coarser steps, and the dB that this costs its weights in SQNR."""

    channels: int
    decibels: float

    def __str__(self) -> str:
        return f"{number_of(self.channels, 'channel')}, {self.decibels:.1f} dB"


def weight_steps(weights: Array, format: Format, thresholds: Array | None, input_step: float) -> Array:
    """Return the step of each output channel's weights, float64 (M,), for weights (M, ...) float32.

    DynamicFixed: one step for all. Xilinx: threshold / largest per channel, by default the channel's own maximum,
    never below 1/256 of the layer's largest (so that multipliers keep at least 8 bits); a layer of zeros uses the
    input's step.
    """
    count = len(weights)
    if format.scheme == "DynamicFixed":
        return np.full(count, format.step)
    if thresholds is None:
        thresholds = largest_magnitudes(weights, tuple(range(1, weights.ndim)))
    steps = thresholds.astype(np.float32).astype(np.float64) / format.largest
    largest = steps.max(initial=0)
    return np.maximum(steps, largest / 256) if largest else np.full(count, input_step)


def without_lowest(values: Array) -> Array:
    """Return float32 values with 0 instead of the lowest number of float32.

    A maximum of nothing is that number, as in the padding of one that is made of shifted maps. No format has to reach it: it
    saturates, and any other number is larger.
    """
    lowest = np.finfo(np.float32).min
    return np.where(values == lowest, np.float32(0), values) if values.min(initial=0) == lowest else values


def largest_magnitudes(values: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Return the largest magnitudes along some axes, default all, without an array of all; NaN where there is one."""
    largest: Array = np.maximum(values.max(axes, initial=0), 0 - values.min(axes, initial=0))
    return largest


class Scaled(NamedTuple):
    """Weights (M, ...), the bias (M,) that is added to their sums, and the steps of their codes (M,)."""

    weights: Array
    bias: Array | None
    steps: Array


class Centred(NamedTuple):
    """Numbers per channel, float32 (C,), of y = (x - mean) * factor + addend."""

    mean: Array
    factor: Array
    addend: Array


class Quantized(NamedTuple):
    """Codes (int8) of weights (M, ...), and what bias and accumulator depend on, per output channel (M,).

    ``totals``      sum of the codes, int64
    ``magnitudes``  sum of their magnitudes, int64
    ``errors``      sum of the squared differences of code * step from the weights, float64
    """

    codes: Array
    totals: Array
    magnitudes: Array
    errors: Array


def with_sums(weights: Array, codes: Array, steps: Array) -> Quantized:
    """Return the codes (int8) of weights (M, ...) with their sums."""
    count = len(codes)
    rows = codes.reshape(count, codes[:1].size)
    totals, sizes, errors = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count)
    for part in blocks(*rows.shape, CACHED):
        totals[part] = rows[part].sum(1, dtype=np.int64)
        sizes[part] = magnitudes(rows[part])
        difference = rows[part] * steps[part, None]
        difference -= weights[part].reshape(difference.shape)
        errors[part] = np.einsum("ij,ij->i", difference, difference)
    return Quantized(codes, totals, sizes, errors)


def quantize_weights(weights: Array, steps: Array, bits: int) -> Array:
    """Return the codes (int8) of weights (M, ...) with a step per channel, within +-(2^(bits-1) - 1) in both schemes."""
    largest = (1 << (bits - 1)) - 1
    codes = np.empty(weights.shape, np.int8)
    for part in blocks(len(weights), weights[:1].size, CACHED):
        step = steps[part].reshape(-1, *(1,) * (weights.ndim - 1))
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            scaled = weights[part].astype(np.float32, copy=False) / step.astype(np.float32)
        if not np.isfinite(scaled).all():
            raise ModelError(NOT_FINITE)
        np.clip(scaled, -largest, largest, out=scaled)
        # as round_half_away does: below 2^22, such a sum reaches the next integer from its half on, and not before
        scaled += np.copysign(BELOW_HALF, scaled)
        np.copyto(codes[part], scaled, casting="unsafe")  # truncates
    return codes


def quantized(weights: Array, steps: Array, bits: int) -> Quantized:
    """Return the codes of ``quantize_weights`` with their sums."""
    return with_sums(weights, quantize_weights(weights, steps, bits), steps)


def quantize_bias(bias: Array, steps: Array) -> Array:
    """Return the bias in units of the accumulator, int64 (M,): round(b / (input step * weight step))."""
    scaled = bias / steps
    if not np.isfinite(scaled).all():
        raise ModelError("a bias is not a finite number; it has no fixed-point code")
    return round_half_away(np.clip(scaled, -(2.0**40), 2.0**40)).astype(np.int64)


def magnitudes(codes: Array) -> Array:
    """Return the sum of the magnitudes of each channel's codes (M, ...), which are within +-127; int64 (M,)."""
    sums: Array = np.abs(codes).reshape(len(codes), -1).sum(1, dtype=np.int64)
    return sums


def accumulator_bounds(magnitudes: Array, bias: Array, largest: int) -> Array:
    """Return the largest magnitude that each channel's accumulator can reach: sum of |qw| * ``largest`` + |bias|, (M,).

    ``largest`` is the input's ``Format.magnitude``; the bias includes - zero * sum of qw.
    """
    bounds: Array = magnitudes * largest + np.abs(bias)
    return bounds


def blocks(count: int, size: int, elements: int = 1 << 22) -> Iterator[slice]:
    """Yield slices of ``count`` rows of ``size`` elements, with about so many elements each, which bounds memory."""
    step = max(1, elements // max(1, size))
    return (slice(first, min(first + step, count)) for first in range(0, count, step))
