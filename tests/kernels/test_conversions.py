"""Conversion between float32 and codes by every variant of the kernels in C, at quotients beside a half."""

from __future__ import annotations

import numpy as np
import pytest

from chai.errors import ModelError
from chai.fixed import Format, Requantization
from chai.kernels import codes as conversions
from chai.kernels.native import library
from chai.kernels.native.build import machine
from chai.kernels.native.single import Single
from chai.kernels.native.table import Form, Kind

from .common import VARIANTS, several, used


@pytest.mark.skipif(machine() == "armv7l", reason="there numpy's own division is approximate")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("clamp", [(-128, 127, 0), (-127, 127, 0), (-128, 127, -128), (-128, -65, -128)])
@pytest.mark.parametrize("far", [False, True])
def test_quotients_beside_a_half(variant: str, clamp: tuple[int, int, int], far: bool) -> None:
    """A Pack multiplies where it can; the codes are those of a division for each of the nearest float32 numbers.

    Numbers of which one is ``far`` from all codes are divided together.
    """
    used = library.variant(variant)
    assert used is not None
    low, high, zero = clamp
    rng = np.random.default_rng(0)
    halves = np.arange(-300, 301).repeat(9) + 0.5
    around = np.tile(np.arange(-4, 5, dtype=np.int32), 601)
    beyond = np.array([0, -0.0, *([np.inf, -np.inf, 3e38, -3e38, 1e-40, -1e-40] if far else [])], np.float32)
    for exponent in (-149, -97, -7, -6, -5, -1, 0, 3, 98, 118):
        step = np.float32(2.0**exponent * (1 if exponent == -6 else rng.uniform(1, 2)))
        with np.errstate(all="ignore"):
            outside = np.float32([-30000, -16384.5, -16384, -16383.5, 16383.5, 16384, 3e4, 2e9] if far else []) * step
            beside = (halves * float(step)).astype(np.float32)
        beside = (beside.view(np.int32) + around).view(np.float32)
        x = np.concatenate([beside[np.isfinite(beside)], beyond, outside])
        x = np.append(rng.permutation(x), step)[1:]  # from no multiple of a vector on
        with np.errstate(all="ignore"):
            steps = np.clip((x / step).astype(np.float64), -1000, 1000)
        wanted = np.clip(np.copysign(np.floor(np.abs(steps) + 0.5), steps) + zero, low, high)
        row, r = (1, 1, 1, x.size), Requantization(np.ones(1, np.int64), 0, low, high, zero=zero)
        packing = Single(used, Form(Kind.PACK, requantization=r, numbers=(float(step),)), row, row, (1,))
        unpacking = Single(used, Form(Kind.UNPACK, zeros=(zero,), numbers=(float(step),)), row, row)
        nan = np.zeros(1, np.uint8)
        found = packing.run(x, nan)
        assert np.array_equal(found.ravel(), wanted)
        assert np.array_equal(unpacking.run(found), (found.astype(np.float32) - zero) * step)
        assert not nan
        x[rng.integers(x.size)] = np.nan
        packing.run(x, nan)
        assert nan


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("zero", [-128, 127])
def test_a_quotient_near_the_end_of_16_bits_is_clamped(variant: str, zero: int) -> None:
    """With the zero point it would leave them."""
    used = library.variant(variant)
    assert used is not None
    steps = np.arange(32600, 32768) * np.sign(zero)
    row, r = (1, 1, 1, steps.size), Requantization(np.ones(1, np.int64), 0, -128, 127, zero=zero)
    packing = Single(used, Form(Kind.PACK, requantization=r, numbers=(0.37,)), row, row, (1,))
    codes = packing.run((steps * 0.37).astype(np.float32), np.zeros(1, np.uint8))
    assert np.array_equal(codes.ravel(), np.clip(steps + zero, -128, 127))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [1, 3])
def test_conversions_in_pieces_have_the_codes_of_whole_ones(
    variant: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a last piece that is not whole, in which NaN is found, too."""
    x = np.random.default_rng(0).normal(0, 60, (3, 5, 61, 47)).astype(np.float32)
    format, threads = Format("Xilinx", 8, 100.0), several(monkeypatch, count)
    wanted = format.quantize(x)
    with used(variant):
        assert np.array_equal(conversions.pack(x, format), wanted)
        assert np.array_equal(conversions.unpack(wanted, format), format.dequantize(wanted))
        x.flat[-1] = np.nan
        with pytest.raises(ModelError, match="NaN"):
            conversions.pack(x, format)
        x.flat[-1] = 0
        assert np.array_equal(conversions.pack(x, format), format.quantize(x))
    assert threads == [count] * 4
