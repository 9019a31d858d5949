"""Suppression of boxes in C and in numpy: a loop's, index by index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from chai.blob import Array
from chai.kernels import boxes
from chai.kernels.boxes import Suppression, suppress
from chai.kernels.native import library


def by_a_loop(low: Array, high: Array, area: Array, rule: Suppression) -> list[int]:
    """Each box with each kept one, in float32."""
    limit, kept = np.float32(rule.threshold), list[int]()
    for i in range(len(area)):
        exceeds = False
        for k in kept:
            sides = np.minimum(high[:, i], high[:, k]) - np.maximum(low[:, i], low[:, k])
            inside = np.float32(0)
            if (sides >= 0).all():
                inside = (sides[0] + np.float32(rule.edge)) * (sides[1] + np.float32(rule.edge))
            with np.errstate(all="ignore"):
                overlap = inside / (area[k] + area[i] - inside)
            exceeds = exceeds or bool(overlap >= limit if rule.inclusive else overlap > limit)
        if exceeds:
            continue
        kept.append(i)
        if len(kept) == rule.most:
            break
        if rule.eta < 1 and limit > 0.5:
            limit *= np.float32(rule.eta)
    return kept


def some_boxes(seed: int, count: int, grid: bool) -> tuple[Array, Array, Array]:
    """Boxes around a few places; on a grid many are equal, touch or have no area."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0, 20, (2, 6))[:, rng.integers(0, 6, count)] + rng.normal(0, 1.5, (2, count))
    half = rng.uniform(0, 4, (2, count))
    low, high = ((centre + sign * half).astype(np.float32) for sign in (-1, 1))
    if grid:
        low, high = np.rint(low / 2), np.rint(high / 2)
    return low, high, (high[0] - low[0]) * (high[1] - low[1])


rules = st.builds(
    Suppression,
    st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]),
    st.booleans(),
    st.sampled_from([0, 1]),
    st.sampled_from([1.0, 0.8]),
    st.sampled_from([None, 1, 5]),
)


@pytest.mark.parametrize("used", ["c", "numpy"])
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 150),
    st.booleans(),
    rules,
    st.sampled_from([(), (np.inf,), (np.nan, -np.inf)]),
)
def test_suppression_is_a_loops(
    used: str, seed: int, count: int, grid: bool, rule: Suppression, odd: tuple[float, ...]
) -> None:
    low, high, area = some_boxes(seed, count, grid)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        for number in odd if count else ():
            high[0, rng.integers(count)] = number
        area = (high[0] - low[0]) * (high[1] - low[1])
        if used == "c":
            if library.library() is None:
                pytest.skip("no kernels were compiled: python -m chai.kernels.native.build")
            kept = suppress(low, high, area, rule)
        else:
            kept = boxes._in_numpy(np.concatenate([high, -low]), area, rule)
        assert kept == by_a_loop(low, high, area, rule)


def test_many_boxes_take_several_calls() -> None:
    """More pairs than one call compares: 6,000 boxes apart, 18 million pairs."""
    count = 6_000
    left = np.arange(count, dtype=np.float32) * 3
    low, high = np.stack([left, left]), np.stack([left + 2, left + 1])
    area = np.full(count, 2, np.float32)
    assert suppress(low, high, area, Suppression(0.5)) == list(range(count))
    again = np.repeat(low, 2, 1), np.repeat(high, 2, 1), np.repeat(area, 2)
    assert suppress(*again, Suppression(0.5)) == list(range(0, 2 * count, 2))


def test_parts_of_arrays() -> None:
    """What detection layers pass: columns that are not contiguous, every other area."""
    low, high, area = some_boxes(3, 80, False)
    part = slice(1, None, 2)
    expected = by_a_loop(low[:, part], high[:, part], area[part], Suppression(0.3))
    assert suppress(low[:, part], high[:, part], area[part], Suppression(0.3)) == expected
    assert suppress(low[:, part].copy("F"), high[:, part].copy("F"), area[part], Suppression(0.3)) == expected
