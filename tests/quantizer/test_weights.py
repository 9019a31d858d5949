"""Steps and rounding of weights against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.quantizer import weights
from chai.quantizer.weights import by_parts, descend, moments, objective, one_fraction, thresholds, together
from tests.conftest import examples


def problem(seed: int, g: int = 2, m: int = 3, k: int = 5, rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Weights in steps and rows of correlated, partly silent inputs."""
    draw = np.random.default_rng(seed)
    x = np.maximum(draw.standard_normal((g, rows, k)) @ draw.standard_normal((g, k, k)), 0).astype(np.float32)
    return draw.uniform(-8, 8, (g, m, k)), np.rint(20 * x)


def sums_error(scaled: np.ndarray, codes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Squared error of the layer's sums on its input rows, row of weights by row of weights."""
    g, m, _ = scaled.shape
    errors = np.zeros((g, m))
    for i in range(g):
        for j in range(m):
            for row in x[i]:
                errors[i, j] += float(np.dot(row, scaled[i, j] - codes[i, j])) ** 2
    return errors


def test_the_objective_is_the_error_of_the_sums() -> None:
    scaled, x = problem(0)
    np.testing.assert_allclose(objective(scaled, np.rint(scaled), moments(x)), sums_error(scaled, np.rint(scaled), x))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("high", [127, 7])
@pytest.mark.parametrize("method", weights.TOGETHER)
def test_rounding_together_is_never_worse_than_to_nearest(seed: int, high: int, method: str) -> None:
    scaled, x = problem(seed, 2, 3, 70)
    nearest = np.clip(np.rint(scaled), -high, high)
    codes = together(scaled, moments(x), high, method)
    assert np.abs(codes).max() <= high and (codes == np.rint(codes)).all()
    before, after = sums_error(scaled, nearest, x), sums_error(scaled, codes, x)
    assert (after <= before * (1 + 1e-9) + 1e-6).all()
    assert after.sum() < 0.6 * before.sum()  # 40 rows cannot tell 70 weights apart: much can be made up for


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", weights.TOGETHER)
def test_rounding_together_comes_close_to_the_best_codes_there_are(seed: int, method: str) -> None:
    scaled, x = problem(seed, 1, 2, 4)
    codes, h = together(scaled, moments(x), 31, method), moments(x)
    for j in range(2):
        low = np.floor(scaled[0, j])
        around = [low + np.array(d) for d in product(range(-4, 6), repeat=4)]
        best = min(float(objective(scaled[:, j : j + 1], c[None, None], h)[0, 0]) for c in around)
        nearest = float(objective(scaled[:, j : j + 1], np.rint(scaled[:, j : j + 1]), h)[0, 0])
        cost = float(objective(scaled[:, j : j + 1], codes[:, j : j + 1], h)[0, 0])
        assert best - 1e-6 <= cost <= min(nearest + 1e-6, 3 * best)


@pytest.mark.parametrize("seed", range(5))
def test_learned_rounding_comes_close_to_the_best_ups_and_downs(seed: int) -> None:
    """By itself, without the descent behind it: the best of all 2^6 ways, many of which are far worse."""
    scaled, x = problem(seed, 1, 2, 6, 200)
    h = moments(x)
    codes = weights.TOGETHER["learned"](scaled, h, 31)
    assert (np.abs(codes - scaled) < 1).all()
    for j in range(2):
        low = np.floor(scaled[0, j])
        every = sorted(
            float(objective(scaled[:, j : j + 1], (low + up)[None, None], h)[0, 0]) for up in product((0, 1), repeat=6)
        )
        cost = float(objective(scaled[:, j : j + 1], codes[:, j : j + 1], h)[0, 0])
        assert every[0] * (1 - 1e-6) <= cost <= every[5]


def test_descent_ends_where_no_single_code_could_be_better() -> None:
    scaled, x = problem(3, 2, 3, 6, 60)
    h = moments(x) + np.eye(6)
    codes = np.rint(scaled)
    for _ in range(30):
        codes = descend(scaled, codes, h, 31)
    here = objective(scaled, codes, h)
    for k, change in product(range(6), (-1, 1)):
        other = codes.copy()
        other[:, :, k] += change
        assert (objective(scaled, other, h) >= here - 1e-6).all()


def test_inputs_that_are_never_active_round_to_nearest() -> None:
    scaled, x = problem(1)
    x[:, :, 2] = 0
    x[1] = 0  # a whole group that sees nothing
    for codes in (together(scaled, moments(x), 31), long_rows(scaled, x, 31)):
        np.testing.assert_array_equal(codes[1], np.rint(scaled[1]))
        np.testing.assert_array_equal(codes[0, :, 2], np.rint(scaled[0, :, 2]))


def long_rows(scaled: np.ndarray, x: np.ndarray, high: int = 127) -> np.ndarray:
    """Codes of the same weights with a step for each output."""
    steps = np.random.default_rng(6).uniform(0.01, 0.3, (*scaled.shape[:2], 1))
    return by_parts((scaled * steps).astype(np.float32), steps, x, high)


@pytest.mark.parametrize("part", [7, 64, 70])
@pytest.mark.parametrize("high", [127, 7])
def test_parts_make_up_for_the_errors_before_them(part: int, high: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and their moments in the space of the input rows are only another way to the codes of all moments at once."""
    monkeypatch.setattr("chai.quantizer.weights.PART", part)
    scaled, x = problem(part, 2, 5, 70, 40)
    nearest = np.clip(np.rint(scaled), -high, high)
    codes = long_rows(scaled, x, high)
    assert codes.dtype == np.int8 and np.abs(codes).max() <= high
    whole = weights.TOGETHER["compensated"](scaled, weights._damped(moments(x)), high)
    after, before, best = (sums_error(scaled, each, x).sum() for each in (codes, nearest, whole))
    assert after < 0.4 * before and after < 1.3 * best


def test_long_rows_are_rounded_on_some_of_many_input_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled, x = problem(5, 1, 3, 11, 30)
    codes = long_rows(scaled, x[:, ::4])
    monkeypatch.setattr("chai.quantizer.weights.SAMPLES", 8)
    np.testing.assert_array_equal(long_rows(scaled, x), codes)


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 1000), size=st.floats(-30, 6), k=st.integers(1, 9), rows=st.integers(1, 12))
def test_any_inputs_give_codes(seed: int, size: float, k: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    x = (draw.standard_normal((3, rows, k)) * 10.0**size).astype(np.float32)
    scaled = draw.uniform(-300, 300, (3, 2, k))
    for codes in (together(scaled, moments(x), 127), long_rows(scaled, x)):
        assert np.isfinite(codes).all() and np.abs(codes).max() <= 127


@pytest.mark.parametrize("bits", [8, 6])
def test_the_threshold_of_each_channel_has_the_least_error(bits: int) -> None:
    w = np.random.default_rng(4).standard_t(3, (5, 7, 3, 2)).astype(np.float32)
    w[2] = 0
    high = 2 ** (bits - 1) - 1
    own_thresholds = thresholds(w, "mse", bits)
    for row, threshold in zip(w.reshape(5, -1).astype(float), own_thresholds):
        errors = []
        for share in np.arange(1.0, 0.31, -0.02):
            step = np.abs(row).max() * share / high
            codes = np.clip(np.rint(row / step), -high, high) if step else 0 * row
            errors.append((((codes * step) - row) ** 2).sum())
        step = float(threshold) / high
        own = ((np.clip(np.rint(row / step), -high, high) * step - row) ** 2).sum() if step else 0.0
        assert own <= min(errors) * (1 + 1e-4)
    np.testing.assert_array_equal(thresholds(w, "max", bits), np.abs(w.reshape(5, -1)).max(1))


@pytest.mark.parametrize("bits", [8, 6])
def test_the_fraction_of_a_layer_has_the_least_error(bits: int) -> None:
    w = (np.random.default_rng(4).standard_t(2, 900) / 5).astype(np.float32)
    choice = one_fraction(w, "mse", bits)
    high = choice.largest

    def error(fl: float) -> float:
        return float(((np.clip(np.rint(w * 2.0**fl), -high, high) * 2.0**-fl - w) ** 2).sum())

    assert error(choice.value) == min(error(fl) for fl in range(int(choice.value) - 3, int(choice.value) + 4))
    covering = one_fraction(w, "max", bits)
    assert high / 2 < np.abs(w).max() / covering.step <= high + 1


def test_more_columns_than_a_block() -> None:
    assert weights.BLOCK < 70  # the problem above has 70
