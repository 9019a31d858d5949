"""Formats, rounding and requantisation against whole numbers and fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from chai.errors import ModelError
from chai.fixed import (
    Format,
    Requantization,
    accumulator_bounds,
    largest_magnitudes,
    magnitudes,
    multipliers,
    quantize_bias,
    quantize_weights,
    requantize,
    round_half_away,
    weight_steps,
    without_lowest,
)
from chai.kernels.codes import pack
from tests.conftest import examples
from tests.reference import fixed as reference

Array = np.ndarray
EXAMPLES = settings(max_examples=examples(100))
MULTIPLIER = (1 << 17) - 1
SUM = (1 << 24) - 1

bits = st.sampled_from([8, 6])
thresholds = st.floats(2.0**-10, 2.0**12, width=32)
forms = st.one_of(
    st.builds(reference.Form, st.just("DynamicFixed"), bits, st.integers(-8, 20), st.booleans()),
    st.builds(reference.Form, st.just("Xilinx"), bits, thresholds, st.booleans()),
)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def array(*values: Any) -> Array:
    return np.array(values, np.float32)


def format_of(form: reference.Form) -> Format:
    return Format(form.scheme, form.bits, float(form.value), form.unsigned)


def fractions(values: Array) -> list[Fraction]:
    return [Fraction(v) for v in values.tolist()]


# -- formats


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize(("bits", "low", "high"), [(8, -128, 127), (6, -32, 31)])
def test_a_computation_may_use_every_code(scheme: str, bits: int, low: int, high: int) -> None:
    assert Format(scheme, bits, 3.0).range == (low, high)
    assert Format(scheme, bits, 3.0).largest == high
    assert Format(scheme, bits, 3.0).magnitude == -low


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize(
    ("bits", "zero", "range", "largest", "magnitude"), [(8, -128, (-128, 127), 255, 128), (6, 0, (0, 63), 63, 63)]
)
def test_unsigned_codes_begin_at_their_zero_point(
    scheme: str, bits: int, zero: int, range: tuple[int, int], largest: int, magnitude: int
) -> None:
    format = Format(scheme, bits, 3.0, unsigned=True)
    assert (format.zero, format.range, format.packed) == (zero, range, range)
    assert (format.largest, format.magnitude) == (largest, magnitude)
    assert format.quantize(array(0.0, -0.0, -1.0, 1e9)).tolist() == [zero, zero, zero, range[1]]


@EXAMPLES
@given(forms)
def test_the_signed_format_covers_the_same_range(form: reference.Form) -> None:
    format = format_of(form)
    signed = format.signed
    assert (signed.scheme, signed.bits, signed.unsigned) == (form.scheme, form.bits, False)
    assert signed == format or form.unsigned
    tops = [f.largest * f.step for f in (format, signed)]
    assert abs(tops[0] - tops[1]) <= signed.step * (1 if form.scheme == "DynamicFixed" else 1e-9)


@EXAMPLES
@given(forms)
def test_step(form: reference.Form) -> None:
    assert Fraction(format_of(form).step) == form.step


def test_steps_of_both_schemes_in_figures() -> None:
    assert Format("DynamicFixed", 8, 4).step == 1 / 16
    assert Format("DynamicFixed", 6, -3).step == 8
    assert Format("Xilinx", 8, 3.7).step == float(np.float32(3.7)) / 127  # the threshold is a float32, its step is not
    assert Format("Xilinx", 6, 16.0).step == 16 / 31
    assert Format("Xilinx", 8, 16.0, True).step == 16 / 255
    assert Format("Xilinx", 6, 16.0, True).step == 16 / 63
    assert Format("DynamicFixed", 8, 5, True).step == 1 / 32


def test_a_format_as_text() -> None:
    assert str(Format("Xilinx", 8, 2.5)) == "Xilinx(8, th 2.5)"
    assert str(Format("DynamicFixed", 6, 4, True)) == "DynamicFixed(u6, fl 4)"


@EXAMPLES
@given(forms, st.lists(st.floats(width=32, allow_nan=False), max_size=5), st.lists(st.integers(-300, 300), max_size=20))
def test_quantize(form: reference.Form, values: list[float], halves: list[int]) -> None:
    near = [float(np.float32(float(form.step) * h / 2)) for h in halves]  # on codes and on ties
    x = array(*values, *near, 0.0, -0.0, np.inf, -np.inf)
    with np.errstate(over="ignore"):  # what float32 cannot hold saturates
        codes = format_of(form).quantize(x)
    assert codes.dtype == np.int8
    assert codes.tolist() == [form.quantize(v) for v in x.tolist()]


@pytest.mark.parametrize(("bits", "largest"), [(8, 127), (6, 31)])
def test_ties_and_saturation_in_figures(bits: int, largest: int) -> None:
    x = array(0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49, -0.49, 1000, -1000)
    nearest = [1, -1, 2, -2, 3, -3, 0, 0, largest]
    assert Format("DynamicFixed", bits, 0).quantize(x).tolist() == [*nearest, -largest - 1]
    assert Format("Xilinx", bits, largest).quantize(x).tolist() == [*nearest, -largest]


def test_half_a_step_is_not_lost_next_to_it() -> None:
    """float32 addition of a half would carry the number below it to 1."""
    assert Format("DynamicFixed", 8, 0).quantize(array(np.nextafter(np.float32(0.5), np.float32(0)))).tolist() == [0]


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_nan_is_refused(scheme: str) -> None:
    with pytest.raises(ModelError, match="NaN"):
        Format(scheme, 8, 4.0).quantize(array(1.0, np.nan))


def test_a_threshold_of_zero_leaves_only_the_code_zero() -> None:
    """Values are clamped to the threshold; no value is at fault."""
    with np.errstate(all="ignore"):
        assert Format("Xilinx", 8, 0.0).quantize(array(0.0, 1.0, -1.0)).tolist() == [0, 0, 0]
        assert Format("Xilinx", 8, 0.0, True).quantize(array(0.0, 1.0, -1.0)).tolist() == [-128, -128, -128]


@pytest.mark.parametrize("format", [Format("Xilinx", 8, 1e-44), Format("DynamicFixed", 6, 157)])
def test_with_a_step_that_float32_has_not_every_value_is_0(format: Format) -> None:
    """As large as the values of a blob that were measured."""
    x = array(0.0, 1e-44, -1e-44)
    assert format.step == 0
    assert format.quantize(x).tolist() == [0, 0, 0]
    assert pack(x.reshape(1, 3, 1, 1), format).ravel().tolist() == [0, 0, 0]


def test_quantize_keeps_shapes_and_its_input() -> None:
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    before = x.copy()
    assert Format("Xilinx", 8, 2.0).quantize(x).shape == x.shape
    assert Format("Xilinx", 8, 2.0).quantize(x[:0]).shape == (0, 2, 3, 4)
    assert np.array_equal(x, before)


@EXAMPLES
@given(forms)
def test_dequantize(form: reference.Form) -> None:
    codes = np.arange(form.smallest, form.largest + 1).astype(np.int8)
    values = format_of(form).dequantize(codes)
    assert values.dtype == np.float32
    assert fractions(values) == [form.dequantize(c) for c in codes.tolist()]


@EXAMPLES
@given(forms)
def test_codes_survive_the_way_to_the_host_and_back(form: reference.Form) -> None:
    format = format_of(form)
    codes = np.arange(form.quantize(-np.inf), form.largest + 1).astype(np.int8)
    assert np.array_equal(format.quantize(format.dequantize(codes)), codes)


# -- rounding


@EXAMPLES
@given(st.floats(-(2.0**40), 2.0**40))
@example(2.0**40 - 0.5)
@example(1.5 - 2.0**-52)
def test_round_half_away(x: float) -> None:
    assert round_half_away(np.array([x])).tolist() == [reference.half_away(Fraction(x))]


@pytest.mark.parametrize("sign", [1, -1])
def test_what_lies_just_below_a_half_rounds_to_zero(sign: int) -> None:
    assert round_half_away(np.array([sign * np.nextafter(0.5, 0)])).tolist() == [0]


# -- requantisation


@st.composite
def requantizations(draw: st.DrawFn) -> tuple[list[int], list[int], list[int] | None, int, int, int, list[int]]:
    count = draw(st.integers(1, 6))

    def some(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    shift = draw(st.integers(0, 40))
    largest = draw(st.sampled_from([127, 31]))
    low = draw(st.sampled_from([-largest - 1, 0]))
    m = some(-MULTIPLIER, MULTIPLIER)
    negative = some(-MULTIPLIER, MULTIPLIER) if draw(st.booleans()) else None
    # sums whose result is near the range of codes, ties among them, as well as any sum
    near = (st.integers(-300, 300).map(lambda k, f=f: int(Fraction(k << shift, 2 * (f or 1)))) for f in m)
    sums = [max(-SUM, min(SUM, draw(st.one_of(n, st.integers(-SUM, SUM))))) for n in near]
    return sums, m, negative, shift, low, largest, some(-(1 << 40), 1 << 40) if draw(st.booleans()) else [0] * count


@EXAMPLES
@given(requantizations())
def test_requantize(drawn: tuple[list[int], list[int], list[int] | None, int, int, int, list[int]]) -> None:
    sums, m, negative, shift, low, high, added = drawn

    def per_channel(values: list[int]) -> Array:
        return np.array(values, np.int64).reshape(-1, 1, 1)

    r = Requantization(per_channel(m), shift, low, high, None if negative is None else per_channel(negative))
    codes = requantize(np.array(sums).reshape(1, -1, 1, 1), r, per_channel(added))
    assert codes.dtype == np.int8
    below = negative or [None] * len(m)
    assert codes.reshape(-1).tolist() == [
        reference.requantize(a, f, shift, low, high, b, g) for a, f, b, g in zip(sums, m, added, below)
    ]


@pytest.mark.parametrize("shift", range(41))
def test_requantize_on_and_around_every_tie(shift: int) -> None:
    wide = [(k << shift) // 2 + d for k in range(-261, 262) for d in (-1, 0, 1)]
    codes = requantize(np.zeros(len(wide)), Requantization(np.array(1), shift, -128, 127), np.array(wide))
    assert codes.tolist() == [reference.requantize(0, 1, shift, -128, 127, w) for w in wide]


def test_no_shift_rounds_nothing() -> None:
    assert requantize(np.array([-3, -1, 0, 2]), Requantization(np.array(5), 0, -128, 127)).tolist() == [-15, -5, 0, 10]


def test_relu_is_a_clamp_and_leaky_relu_has_multipliers_of_its_own() -> None:
    sums = np.array([-100, -6, -1, 0, 6, 100])
    assert requantize(sums, Requantization(np.array(4), 2, 0, 127)).tolist() == [0, 0, 0, 0, 6, 100]
    leaky = Requantization(np.array(4), 2, -128, 127, np.array(1))
    assert requantize(sums, leaky).tolist() == [-25, -2, 0, 0, 6, 100]


@pytest.mark.parametrize(
    ("accumulator", "m", "shift", "add", "bits", "code"),
    [
        (1234, 1, 7, -300, 8, 7),
        (-1234, 1, 7, 274, 8, -8),  # a tie
        (131071, 1, 7, 0, 8, 127),
        (-9000, 1, 8, 0, 6, -32),
        (5000, 84215, 22, 3 << 22, 8, 103),
        # CHaiDNN's 32 bits wrap here and give -128; an exact sum saturates
        (131071, 84215, 22, 0, 8, 127),
    ],
)
def test_worked_examples(accumulator: int, m: int, shift: int, add: int, bits: int, code: int) -> None:
    low, high = Format("DynamicFixed", bits, 0).range
    assert requantize(np.array([accumulator]), Requantization(np.array(m), shift, low, high), add).tolist() == [code]
    assert reference.requantize(accumulator, m, shift, low, high, add) == code


# -- multipliers


ratios = st.one_of(
    st.just(0.0),
    st.floats(2.0**-45, 2.0**19),
    st.floats(-(2.0**19), -(2.0**-45)),
    st.integers(-45, 19).map(lambda e: 2.0**e),
    st.integers(-45, 19).map(lambda e: float(np.nextafter(2.0**e, 0))),  # these carry
)


@EXAMPLES
@given(st.lists(ratios, min_size=1, max_size=5), st.sampled_from([17, 8]), st.sampled_from([40, 20, 0]))
def test_multipliers_have_the_largest_shift(values: list[float], bits: int, shift_max: int) -> None:
    chosen = multipliers(np.array(values), bits, shift_max)
    wanted = reference.multipliers(values, bits, shift_max)
    assert (chosen is None) == (wanted is None)
    if chosen is not None:
        assert chosen[0].dtype == np.int64
        assert (chosen[0].tolist(), chosen[1]) == wanted


@pytest.mark.parametrize(
    ("values", "m", "shift"),
    [
        ([1.0], [1 << 16], 16),
        ([0.75, 0.25], [98304, 32768], 17),
        ([131071.0], [131071], 0),
        ([1 - 2.0**-18], [1 << 16], 16),  # 131071.5 rounds to 2^17: one shift less
        ([-0.5, 2.0**-20], [-(1 << 16), 0], 17),
        ([2.0**-17, 2.0**-19], [1 << 16, 1 << 14], 33),
        ([2.0**-30], [1 << 10], 40),  # shift_max
        ([2.0**-41, -(2.0**-42)], [1, 0], 40),
        ([0.0, 0.0], [0, 0], 40),
        ([], [], 40),
    ],
)
def test_multipliers_in_figures(values: list[float], m: list[int], shift: int) -> None:
    chosen = multipliers(np.array(values, np.float64), 17, 40)
    assert chosen is not None
    assert (chosen[0].tolist(), chosen[1]) == (m, shift)


@pytest.mark.parametrize("value", [131072.0, 131071.5, -131071.5, 1e300, np.inf, -np.inf, np.nan])
def test_ratios_too_large_have_no_multipliers(value: float) -> None:
    assert multipliers(np.array([1.0, value]), 17, 40) is None


def test_multipliers_keep_their_shape() -> None:
    chosen = multipliers(np.full((3, 1, 1), 0.3), 17, 40)
    assert chosen is not None and chosen[0].shape == (3, 1, 1)


# -- weights and biases


@EXAMPLES
@given(st.lists(st.one_of(st.just(0.0), thresholds), min_size=1, max_size=5), bits)
def test_xilinx_weights_have_a_step_per_channel(maxima: list[float], bits: int) -> None:
    """Measured and given thresholds alike."""
    weights = np.array([[[[0.0, -t / 2]], [[t * (-1) ** i, 0.0]]] for i, t in enumerate(maxima)], np.float32)
    wanted = reference.weight_steps(maxima, bits, Fraction(0.125))
    measured = weight_steps(weights, Format("Xilinx", bits, 0.0), None, 0.125)
    own_steps = weight_steps(weights * 0, Format("Xilinx", bits, 0.0), np.array(maxima, np.float32), 0.125)
    assert measured.dtype == own_steps.dtype == np.float64
    assert fractions(measured) == fractions(own_steps) == wanted


def test_no_channel_is_finer_than_a_256th_of_the_layer() -> None:
    weights = array(256.0, 1.5, 1.0, 0.5, 0.0).reshape(5, 1, 1, 1)
    steps = weight_steps(weights, Format("Xilinx", 8, 0.0), None, 0.125)
    assert (steps * 127).tolist() == pytest.approx([256, 1.5, 1, 1, 1], rel=1e-15)
    assert quantize_weights(weights, steps, 8).reshape(-1).tolist() == [127, 127, 127, 64, 0]  # 63.5 goes away from 0
    chosen = multipliers(steps, 17, 40)
    assert chosen is not None and chosen[0].min() >= 1 << 7


def test_a_layer_of_zeros_takes_the_step_of_its_input() -> None:
    steps = weight_steps(np.zeros((3, 2, 1, 1), np.float32), Format("Xilinx", 8, 0.0), None, 0.125)
    assert steps.tolist() == [0.125] * 3
    own_steps = weight_steps(np.ones((2, 1), np.float32), Format("Xilinx", 6, 0.0), np.zeros(2, np.float32), 0.5)
    assert own_steps.tolist() == [0.5] * 2


@pytest.mark.parametrize("bits", [8, 6])
def test_dynamic_fixed_weights_have_one_step(bits: int) -> None:
    weights = array(1.0, 2.0, 0.0).reshape(3, 1, 1, 1)
    assert weight_steps(weights, Format("DynamicFixed", bits, 5), None, 0.125).tolist() == [1 / 32] * 3


@EXAMPLES
@given(st.lists(st.tuples(finite.filter(lambda w: abs(w) < 1e6), thresholds), min_size=1, max_size=8), bits)
def test_quantize_weights(pairs: list[tuple[float, float]], bits: int) -> None:
    steps = np.array([t / {8: 127, 6: 31}[bits] for _, t in pairs])
    ties = [float(np.float32(s * (k + 0.5))) for k, s in zip(range(-4, 4), steps)]
    weights = np.array([[w, t, s, -300 * s] for (w, _), t, s in zip(pairs, ties, steps)], np.float32)
    codes = quantize_weights(weights.reshape(-1, 2, 1, 2), steps, bits)
    assert codes.dtype == np.int8
    assert codes.reshape(-1, 4).tolist() == [
        [reference.weight_code(w, Fraction(s), bits) for w in row] for row, s in zip(weights.tolist(), steps.tolist())
    ]


def test_weights_next_to_a_half_are_rounded_like_all_others() -> None:
    """The sum of a float32 and of the one before a half reaches the next integer exactly where rounding half away does."""
    halves = np.arange(-127.5, 128, dtype=np.float32)
    near = np.concatenate([halves, np.nextafter(halves, np.float32(0)), np.nextafter(halves, halves * 2)])
    wanted = np.clip(round_half_away(near.astype(np.float64)), -127, 127)
    assert quantize_weights(near.reshape(1, -1), np.ones(1), 8).reshape(-1).tolist() == wanted.tolist()


@pytest.mark.slow
def test_every_weight_is_rounded_half_away_from_zero() -> None:
    """All numbers of float32 from -200 to 200, with a step of 1."""
    end = int(np.float32(200).view(np.uint32))
    for first in range(0, end, 1 << 22):
        values = np.arange(first, min(first + (1 << 22), end), dtype=np.uint32).view(np.float32)
        wanted = np.clip(round_half_away(values.astype(np.float64)), -127, 127).astype(np.int8)
        rows = np.stack([values, -values]).reshape(-1, 1)
        assert np.array_equal(quantize_weights(rows, np.ones(len(rows)), 8)[:, 0], np.concatenate([wanted, -wanted]))


@pytest.mark.parametrize(("bits", "largest"), [(8, 127), (6, 31)])
def test_weights_leave_the_smallest_code_unused(bits: int, largest: int) -> None:
    assert quantize_weights(array([-1000.0, 1000.0]), np.ones(1), bits).tolist() == [[-largest, largest]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_and_biases_that_are_no_numbers_are_refused(bad: float) -> None:
    with pytest.raises(ModelError, match="weight is not a finite number"):
        quantize_weights(array([1.0, bad]), np.ones(1), 8)
    with pytest.raises(ModelError, match="bias is not a finite number"):
        quantize_bias(np.array([1.0, bad]), np.ones(2))


@EXAMPLES
@given(st.lists(st.tuples(finite.filter(lambda b: abs(b) < 1e5), thresholds, st.integers(-99, 99)), min_size=1))
def test_quantize_bias(drawn: list[tuple[float, float, int]]) -> None:
    steps = [step / 16129 for _, step, _ in drawn]
    values = [b for b, _, _ in drawn]
    values += [s * (k + 0.5) for s, (_, _, k) in zip(steps, drawn)]
    steps += steps
    codes = quantize_bias(np.array(values), np.array(steps))
    assert codes.dtype == np.int64
    assert codes.tolist() == [reference.bias_code(b, Fraction(s)) for b, s in zip(values, steps)]


def test_a_bias_beyond_every_bound_stays_there() -> None:
    assert quantize_bias(np.array([1e30, -1e30]), np.ones(2)).tolist() == [1 << 40, -(1 << 40)]


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([128, 63, 32]))
def test_accumulator_bounds(seed: int, channels: int, largest: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-127, 128, (channels, 3, 2, 1)).astype(np.int8)
    bias = rng.integers(-(1 << 20), 1 << 20, channels)
    worst = [sum(map(abs, w)) * largest for w in weights.reshape(channels, -1).tolist()]
    assert accumulator_bounds(magnitudes(weights), bias, largest).tolist() == [
        s + abs(b) for s, b in zip(worst, bias.tolist())
    ]


def test_the_bound_is_reached_by_the_smallest_code() -> None:
    weights = np.full((1, 5, 1, 1), -127, np.int8)
    assert accumulator_bounds(magnitudes(weights), np.array([7]), 128) == int((weights.astype(int) * -128).sum()) + 7


def test_the_lowest_number_has_no_magnitude() -> None:
    """Others do not change, and NaN stays visible."""
    values = np.array([[-3.4028235e38, 2.5], [-7.5, 0]], np.float32)
    np.testing.assert_array_equal(without_lowest(values), np.array([[0, 2.5], [-7.5, 0]], np.float32))
    assert largest_magnitudes(without_lowest(values)) == 7.5
    assert np.isnan(largest_magnitudes(without_lowest(np.array([np.nan, 1], np.float32))))
    assert without_lowest(np.zeros((0, 3), np.float32)).shape == (0, 3)
