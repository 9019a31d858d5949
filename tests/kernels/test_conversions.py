"""Conversion between float32 and codes by every variant of the kernels in C, at quotients beside a half."""

from __future__ import annotations

import numpy as np
import pytest

from chai.errors import ModelError
from chai.fixed import Format, Requantization
from chai.kernels import codes as conversions
from chai.kernels.native import library
from chai.kernels.native.single import Single
from chai.kernels.native.table import Form, Kind

from .common import NAMES, VARIANTS, nearest, products, several, used

SIGNED, UNSIGNED = (-128, 127, 0), (-128, 127, -128)  # least and largest code, zero point


def pack(variant: str, count: int, step: float, clamp: tuple[int, int, int]) -> Single:
    """A Pack of so many numbers."""
    known = library.variant(variant)
    assert known is not None
    row, r = (1, 1, 1, count), Requantization(np.ones(1, np.int64), 0, *clamp[:2], zero=clamp[2])
    return Single(known, Form(Kind.PACK, requantization=r, numbers=(step,)), row, row, (1,))


def unpack(variant: str, count: int, step: float, zero: int) -> Single:
    """An Unpack of so many codes."""
    known, row = library.variant(variant), (1, 1, 1, count)
    assert known is not None
    return Single(known, Form(Kind.UNPACK, zeros=(zero,), numbers=(step,)), row, row)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("clamp", [SIGNED, (-127, 127, 0), UNSIGNED, (-128, -65, -128), (-100, 90, 7)])
@pytest.mark.parametrize("far", [False, True])
def test_quotients_beside_a_half(variant: str, clamp: tuple[int, int, int], far: bool) -> None:
    """A Pack multiplies where it can; the codes are those of a division for each of the nearest float32 numbers.

    Numbers of which one is ``far`` from all codes are divided together.
    """
    rng = np.random.default_rng(0)
    halves = np.arange(-300, 301).repeat(9) + 0.5
    around = np.tile(np.arange(-4, 5, dtype=np.int32), 601)
    beyond = np.array([0, -0.0, *([np.inf, -np.inf, 3e38, -3e38, 1e-40, -1e-40] if far else [])], np.float32)
    steps = [2.0**exponent * rng.uniform(1, 2) for exponent in (-149, -97, -60, -59, -7, -5, 0, 3, 59, 98, 118)]
    bits = [0x3F800000 + (i << 16) + beside for i, beside in ((0, 1), (37, -1), (37, 3), (99, -4), (99, 4), (99, 5))]
    for step in np.array([2.0**-6, 0.75, *steps, *np.array(bits, np.int32).view(np.float32)], np.float32):
        with np.errstate(all="ignore"):
            outside = np.float32([-30000, -16384.5, -16384, -16383.5, 16383.5, 16384, 3e4, 2e9] if far else []) * step
            beside = (halves * float(step)).astype(np.float32)
        beside = (beside.view(np.int32) + around).view(np.float32)
        x = np.concatenate([beside[np.isfinite(beside)], beyond, outside])
        x = np.append(rng.permutation(x), step)[1:]  # from no multiple of a vector on
        packing, nan = pack(variant, x.size, float(step), clamp), np.zeros(1, np.uint8)
        codes = packing.run(x, nan)
        assert np.array_equal(codes.ravel(), nearest(x, float(step), clamp))
        assert np.array_equal(
            unpack(variant, x.size, float(step), clamp[2]).run(codes), products(codes, float(step), clamp[2])
        )
        assert not nan
        x[rng.integers(x.size)] = np.nan
        packing.run(x, nan)
        assert nan


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [300, pytest.param(10000, marks=pytest.mark.slow)])
def test_quotients_so_far_from_a_half_that_products_decide(variant: str, count: int) -> None:
    """The two numbers of float32 beside each middle, and those 2^-16 to 12 * 2^-16 of a step away from it.

    Numbers of one distance follow each other: where none is near, none is divided.
    """
    rng = np.random.default_rng(count)
    middles = np.arange(-256, 256) + 0.5
    distances = np.arange(-12, 13).reshape(-1, 1) / 65536
    nan = np.zeros(1, np.uint8)
    steps = np.exp2(rng.uniform(-60, 60, count)).astype(np.float32)
    steps[::3] = np.exp2(rng.integers(-60, 59, len(steps[::3]))) * (
        2 - rng.integers(0, 1 << 10, len(steps[::3])) / 2.0**22 - 2.0**-23
    )
    for i, step in enumerate(steps.tolist()):  # every third with an inverse in the middle between two numbers
        clamp = (SIGNED, UNSIGNED)[i % 2]
        at = (middles * step).astype(np.float32)
        x = np.concatenate(
            [((middles + distances) * step).astype(np.float32).ravel(), np.nextafter(at, -at), np.nextafter(at, 2 * at)]
        )
        codes = pack(variant, x.size, step, clamp).run(x, nan)
        assert np.array_equal(codes.ravel(), nearest(x, step, clamp)), step
    assert not nan


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("step", [0.25, float(np.float32(0.37))])
def test_any_number_of_numbers_at_any_place(variant: str, step: float) -> None:
    """Vectors have fewer, and bytes beside the result stay as they are; NaN is noted in each place, infinity is not."""
    rng, zero = np.random.default_rng(0), 3
    for count in range(1, 150):
        first, out = rng.integers(0, 17, 2)
        x = (rng.integers(-150, 150, 170) * step / 2).astype(np.float32)[first : first + count]
        whole, nan = np.full(170, 99, np.int8), np.zeros(1, np.uint8)
        codes = whole[out : out + count]
        packing = pack(variant, count, step, (-100, 90, zero))
        packing.write(x, codes, nan)
        assert np.array_equal(codes, nearest(x, step, (-100, 90, zero)))
        assert (np.delete(whole, np.s_[out : out + count]) == 99).all()
        floats = np.full(170, 99, np.float32)
        unpack(variant, count, step, zero).write(codes, floats[first : first + count])
        assert np.array_equal(floats[first : first + count], products(codes, step, zero))
        assert (np.delete(floats, np.s_[first : first + count]) == 99).all()
        at = rng.integers(count)
        x[at], x[rng.integers(count)] = np.inf, -np.inf
        packing.write(x, codes, nan)
        assert np.array_equal(codes, nearest(x, step, (-100, 90, zero)))
        assert not nan
        x[at] = np.nan
        packing.write(x, codes, nan)
        assert nan


@pytest.mark.slow
@pytest.mark.parametrize("variant", [name for name in NAMES if name.startswith("avx")])  # others divide
@pytest.mark.parametrize(
    "format", [Format("DynamicFixed", 8, 4), Format("Xilinx", 8, 47.0), Format("Xilinx", 8, 0.731, True)]
)
def test_the_codes_of_all_numbers_of_float32(variant: str, format: Format) -> None:
    """Codes grow with the number, so that the first number of each, found by halving, gives all."""
    used = library.variant(variant)
    assert used is not None
    low, high = format.packed
    row, r = (1, 1, 1, 1 << 24), Requantization(np.ones(1, np.int64), 0, low, high, zero=format.zero)
    packing = Single(used, Form(Kind.PACK, requantization=r, numbers=(format.step,)), row, row, (1,))
    infinite, nan, pieces = 0x7F800000, np.zeros(1, np.uint8), np.arange(1 << 24, dtype=np.uint32)
    for sign, last in ((0, high), (1 << 31, low)):
        codes = np.arange(format.zero, last + (1 if last >= format.zero else -1), 1 if last >= format.zero else -1)
        firsts, ends = np.zeros(len(codes), np.int64), np.full(len(codes), infinite + 1)
        while (firsts < ends).any():
            middle = (firsts + ends) // 2
            middle_codes = format.quantize((middle + sign).astype(np.uint32).view(np.float32)).astype(np.int64)
            reached = np.abs(middle_codes - format.zero) >= np.abs(codes - format.zero)
            ends, firsts = np.where(reached, middle, ends), np.where(reached, firsts, middle + 1)
        for begin in range(0, infinite + 1, 1 << 24):
            x = (pieces + np.uint32(begin + sign)).view(np.float32)
            x[infinite + 1 - begin :] = 0  # NaN
            packed_codes = packing.run(x, nan).ravel()[: infinite + 1 - begin]
            edges = [0, *(firsts[1:] - begin).clip(0, len(packed_codes)), len(packed_codes)]
            for code, first, end in zip(codes, edges, edges[1:]):
                assert (packed_codes[first:end] == code).all(), (code, begin)
    assert not nan


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


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("ends", "shape"), [((-128, 127), (2, 3, 5, 7)), ((127, 127), (1, 40001)), ((-8, 7), (1,))])
def test_codes_at_an_end_are_counted(variant: str, ends: tuple[int, int], shape: tuple[int, ...]) -> None:
    """Added to the number that is there, in one piece of work or several."""
    codes = np.random.default_rng(0).integers(-128, 128, shape, np.int8)
    codes.flat[0] = ends[1]
    with used(variant):
        single = conversions.counting(shape, ends)
    count = np.array([5], np.int32)
    assert single is not None
    single.write(codes, count)
    assert count[0] == 5 + np.isin(codes, ends).sum() > 5
