"""Each method's threshold against brute force over the values themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.fixed import Format
from chai.quantizer.ranges import BINS, METHODS, Histogram, candidates, divergence, fit, squared_error
from tests.conftest import examples, thinned

SCHEMES = ["Xilinx", "DynamicFixed"]


def counted(*batches: np.ndarray) -> Histogram:
    seen = Histogram()
    for batch in batches:
        seen.add(batch)
    return seen


def error(values: np.ndarray, step: float, low: int, high: int) -> float:
    """Sum of squared errors of nearest rounding, one value after the other."""
    total = 0.0
    for v in values.reshape(-1).tolist():
        code = min(max(int(np.floor(abs(v) / step + 0.5)) * (1 if v >= 0 else -1), low), high)
        total += (code * step - v) ** 2
    return total


def values(kind: str, seed: int = 0, size: int = 3000) -> np.ndarray:
    draw = np.random.default_rng(seed)
    draws = {
        "normal": draw.standard_normal(size),
        "relu": np.maximum(draw.standard_normal(size), 0),
        "tails": draw.standard_t(2, size),
        "outlier": np.append(draw.standard_normal(size), 400.0),
        "tiny": draw.standard_normal(size) * 1e-6,
        "skew": np.append(np.maximum(draw.standard_normal(size), 0), -3.0),
    }[kind]
    return draws.astype(np.float32)


KINDS = ["normal", "relu", "tails", "outlier", "tiny", "skew"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [8, 6])
def test_the_error_of_a_step_is_that_of_the_values(kind: str, bits: int) -> None:
    x = values(kind)
    formats = candidates(float(np.abs(x).max()), bits, "Xilinx")[:40:6]
    errors = squared_error(counted(x), np.array([f.step for f in formats]), *formats[0].range)
    wanted = [error(x, f.step, *f.range) for f in formats]
    np.testing.assert_allclose(errors, wanted, rtol=0.05)


@pytest.mark.parametrize(("kind", "scheme", "bits"), thinned(3, KINDS, SCHEMES, (8, 6)))
def test_least_error_is_the_least_there_is(kind: str, scheme: str, bits: int) -> None:
    """No threshold of a fine grid, no fraction, does better by more than what a histogram cannot see."""
    x = values(kind)
    largest = float(np.abs(x).max())
    choice = fit(counted(x), "mse", bits, scheme)
    if scheme == "Xilinx":
        others = [Format(scheme, bits, largest * i / 100) for i in range(5, 101)]
    else:
        others = [Format(scheme, bits, fl) for fl in range(-20, 40)]
    least = min(error(x, f.step, *f.range) for f in others)
    assert error(x, choice.step, *choice.range) <= 1.03 * least


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "kl"])
@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_unsigned_codes_have_half_the_step(method: str, bits: int, scheme: str) -> None:
    """Where no value is negative, an unsigned format does at least about as well as a signed one with one bit more."""
    x = values("relu")
    choice, plain = (fit(counted(x), method, bits, scheme, unsigned) for unsigned in (True, False))
    assert (choice.unsigned, plain.unsigned, choice.bits) == (True, False, bits)
    errors = [error(x, f.step, *(code - f.zero for code in f.range)) for f in (choice, plain)]
    assert errors[0] < 0.5 * errors[1]
    if method == "mse":
        thresholds = [Format("Xilinx", bits, float(x.max()) * i / 100, True) for i in range(5, 101)]
        fractions = [Format("DynamicFixed", bits, fl, True) for fl in range(-20, 40)]
        others = thresholds if scheme == "Xilinx" else fractions
        assert errors[0] <= 1.03 * min(error(x, f.step, 0, f.largest) for f in others)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [8, 6])
def test_percentile_covers_that_share(kind: str, bits: int) -> None:
    x = values(kind, size=60_000)
    threshold = fit(counted(x), "percentile", bits, "Xilinx").value
    above = int((np.abs(x) > threshold).sum())
    assert abs(above - 1e-4 * x.size) <= 3
    assert threshold <= np.abs(x).max()


@pytest.mark.parametrize("kind", ["relu", "tails", "outlier"])
@pytest.mark.parametrize("bits", [8, 6])
def test_least_divergence_is_the_least_of_all_cuts(kind: str, bits: int) -> None:
    """The histogram and every cut of it again, in plain loops."""
    x = np.abs(values(kind, size=20_000).astype(np.float64))
    x = x[x > 0]
    levels = 2 ** (bits - 1)
    whole = np.histogram(x, 2048, (0, x.max() * (1 + 1e-7)))[0].astype(float)

    def slow(cut: int) -> float:
        p = list(whole[:cut])
        p[-1] += sum(whole[cut:])
        q = [0.0] * cut
        for level in range(levels):
            bins = [i for i in range(cut) if i * levels // cut == level]
            filled = [i for i in bins if whole[i] > 0]
            for i in filled:
                q[i] = sum(whole[j] for j in bins) / len(filled)
        total_p, total_q = sum(p), sum(q)
        return sum(a / total_p * np.log(a / total_p / max(b / total_q, 1e-12)) for a, b in zip(p, q) if a > 0)

    cuts = [*range(levels, 2048, 16), 2048]
    for cut in cuts[:: len(cuts) // 5]:
        assert divergence(whole, cut, levels) == pytest.approx(slow(cut), rel=1e-9)
    threshold = fit(counted(x.astype(np.float32)), "kl", bits, "Xilinx").value
    exact = {cut: divergence(whole, cut, levels) for cut in cuts}
    assert exact[min(cuts, key=lambda c: abs(c / 2048 * x.max() - threshold))] <= 1.02 * min(exact.values()) + 1e-6


def test_maximum_covers_everything() -> None:
    seen = counted(np.array([0.5, -3.25], np.float32))
    assert fit(seen, "max", 8, "Xilinx") == Format("Xilinx", 8, 3.25)
    assert fit(seen, "max", 8, "DynamicFixed") == Format("DynamicFixed", 8, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_in_any_order_and_merged_are_the_same_histogram(kind: str) -> None:
    parts = np.array_split(values(kind), 7)
    forward, backward = counted(*parts), counted(*parts[::-1])
    merged = counted(*parts[:3])
    merged.merge(counted(*parts[3:]))
    for other in (backward, merged):
        assert (other.low, other.high, other.span, other.zeros) == (
            forward.low,
            forward.high,
            forward.span,
            forward.zeros,
        )
        # doubling merges neighbours, so that a value's bin depends on its magnitude and the span alone
        np.testing.assert_array_equal(other.counts, forward.counts)
    assert forward.counts.sum() + forward.zeros == values(kind).size


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    seen = Histogram()
    for i in range(50):
        seen.add(values("tails", i))
    assert seen.counts.shape == (2, BINS)


EXTREMES = {
    "nothing": np.zeros((0, 3), np.float32),
    "zeros": np.zeros(17, np.float32),
    "constant": np.full(17, 0.7, np.float32),
    "one": np.array([-2.5], np.float32),
    "denormal": np.array([1e-45, -3e-40, 0], np.float32),
    "huge": np.array([3e38, -1.0, 1e-30], np.float32),
    "outlier": np.append(np.ones(1000), 1e9).astype(np.float32),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", EXTREMES)
def test_every_method_gives_a_format_a_file_can_say(method: str, scheme: str, name: str) -> None:
    for bits in (8, 6):
        choice = fit(counted(EXTREMES[name]), method, bits, scheme)
        assert np.isfinite(choice.step) and choice.step > 0
        assert 1e-31 <= choice.value <= 1e30 if scheme == "Xilinx" else -32 <= choice.value <= 64
        assert choice.value == (np.float32(choice.value) if scheme == "Xilinx" else int(choice.value))


@settings(max_examples=examples(40))
@given(
    batches=st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20), max_size=4),
    method=st.sampled_from(sorted(METHODS)),
    scheme=st.sampled_from(SCHEMES),
    bits=st.sampled_from([8, 6]),
)
def test_no_values_break_a_method(batches: list[list[float]], method: str, scheme: str, bits: int) -> None:
    seen = counted(*(np.array(b, np.float32) for b in batches))
    choice = fit(seen, method, bits, scheme)
    assert np.isfinite(choice.step) and choice.step > 0
    if method == "max" and seen.largest <= 2.0**99 and scheme == "Xilinx":
        assert choice.value >= np.float32(seen.largest)
