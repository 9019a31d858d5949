"""Fixed point in whole numbers and fractions, one number at a time.

A Fraction here is exact; where the definition takes a float32 or float64, ``float32`` and ``float64`` round to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import floor, isinf
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Pair = tuple[int, int]
Number = Fraction | float | int


def half_away(value: Fraction) -> int:
    """The nearest whole number, of two the one further from zero."""
    whole = floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def float64(value: Fraction) -> Fraction:
    """The nearest float64, ties to even: Python divides whole numbers so."""
    return Fraction(value.numerator / value.denominator)


@cache
def power(exponent: int) -> Fraction:
    """2 to the power of a whole number."""
    return Fraction(2) ** exponent


def float32(value: Fraction) -> Fraction:
    """The nearest float32, ties to even, subnormals included; a number too large stays as large as it is."""
    if not value:
        return value
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if power(exponent) > abs(value):
        exponent -= 1
    unit = power(max(exponent, -126) - 23)
    return round(value / unit) * unit


class Form(NamedTuple):
    """A format: ``value`` is the fraction length or the threshold."""

    scheme: str
    bits: int
    value: float
    unsigned: bool = False

    @property
    def zero(self) -> int:
        return -128 if self.unsigned and self.bits == 8 else 0

    @property
    def largest(self) -> int:
        return {(8, False): 127, (6, False): 31, (8, True): 127, (6, True): 63}[self.bits, self.unsigned]

    @property
    def smallest(self) -> int:
        return {(8, False): -128, (6, False): -32, (8, True): -128, (6, True): 0}[self.bits, self.unsigned]

    @property
    def step(self) -> Fraction:
        return step(self)

    def quantize(self, x: float) -> int:
        low = -self.largest if self.scheme == "Xilinx" and not self.unsigned else self.smallest
        if isinf(x):
            return self.largest if x > 0 else low
        return clamp(half_away(float32(float32(Fraction(x)) / single(self))) + self.zero, low, self.largest)

    def dequantize(self, code: int) -> Fraction:
        return float32((code - self.zero) * single(self))


@cache
def step(form: Form) -> Fraction:
    if form.scheme == "DynamicFixed":
        return power(-int(form.value))
    return float64(float32(Fraction(form.value)) / (form.largest - form.zero))


@cache
def single(form: Form) -> Fraction:
    """The step as a float32."""
    return float32(step(form))


def requantize(
    accumulator: int, m: int, shift: int, low: int, high: int, add: int = 0, negative: int | None = None, zero: int = 0
) -> int:
    """(accumulator * m + add) / 2^shift, rounded, plus ``zero``, clamped; ``negative`` is m below zero."""
    factor = negative if negative is not None and accumulator < 0 else m
    return clamp(half_away(Fraction(accumulator * factor + add, 1 << shift)) + zero, low, high)


def multipliers(ratios: Sequence[Number], bits: int, shift_max: int) -> tuple[list[int], int] | None:
    """Every shift is tried, from the largest on."""
    exact = [Fraction(r) for r in ratios]
    for shift in range(shift_max, -1, -1):
        factors = [half_away(r * (1 << shift)) for r in exact]
        if all(abs(m) < 1 << bits for m in factors):
            return factors, shift
    return None


def weight_steps(thresholds: Sequence[float], bits: int, input_step: Fraction) -> list[Fraction]:
    """The Xilinx scheme's: one per output channel."""
    steps = [float64(float32(Fraction(t)) / {8: 127, 6: 31}[bits]) for t in thresholds]
    largest = max(steps)
    return [max(s, largest / 256) if largest else input_step for s in steps]


def weight_code(weight: float, step: Fraction, bits: int) -> int:
    largest = {8: 127, 6: 31}[bits]
    return clamp(half_away(float32(Fraction(weight) / float32(step))), -largest, largest)


def bias_code(bias: float, step: Fraction) -> int:
    return half_away(float64(Fraction(bias) / step))


def convolution(
    x: Array, w: Array, b: Sequence[int], stride: Pair, pad: Pair, dilation: Pair = (1, 1), group: int = 1
) -> Array:
    """Sums of codes x (N, C, H, W) times codes w (M, C/group, kh, kw), plus b: int64 (N, M, OH, OW)."""
    n, _, height, width = x.shape
    m, per_group, kh, kw = w.shape
    oh = (height + 2 * pad[0] - (dilation[0] * (kh - 1) + 1)) // stride[0] + 1
    ow = (width + 2 * pad[1] - (dilation[1] * (kw - 1) + 1)) // stride[1] + 1
    y = np.zeros((n, m, oh, ow), np.int64)
    codes, weights = x.tolist(), w.tolist()
    for image, out, row, column in np.ndindex(y.shape):
        first = out // (m // group) * per_group  # first channel of this output's group
        total = int(b[out])
        for i, j in product(range(kh), range(kw)):
            h, v = row * stride[0] - pad[0] + i * dilation[0], column * stride[1] - pad[1] + j * dilation[1]
            if 0 <= h < height and 0 <= v < width:
                for c in range(per_group):
                    total += weights[out][c][i][j] * codes[image][first + c][h][v]
        y[image, out, row, column] = total
    return y


def pooled(x: Array, kernel: Pair, stride: Pair, pad: Pair, out: Pair, maximum: bool) -> Array:
    """Largest code or sum of every window, clipped to the image: int64 (N, C, *out)."""
    n, channels, height, width = x.shape
    y = np.zeros((n, channels, *out), np.int64)
    codes = x.tolist()
    for image, c, row, column in np.ndindex(y.shape):
        top, left = row * stride[0] - pad[0], column * stride[1] - pad[1]
        inside = [
            codes[image][c][h][v]
            for h in range(max(top, 0), min(top + kernel[0], height))
            for v in range(max(left, 0), min(left + kernel[1], width))
        ]
        y[image, c, row, column] = max(inside, default=-128) if maximum else sum(inside)
    return y


def area(kernel: Pair, stride: Pair, pad: Pair, size: Pair, at: Pair) -> int:
    """Pixels that Caffe's average of window ``at`` divides by: cut at size + pad, padding inside counted."""
    sides = []
    for i in range(2):
        start = at[i] * stride[i] - pad[i]
        sides.append(min(start + kernel[i], size[i] + pad[i]) - start)
    return sides[0] * sides[1]
