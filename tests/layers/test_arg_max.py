"""ArgMax: indices, values, ties."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.arrangement import arg_max

from .common import Run, numbers

X = numbers(2, 3, 5, 7, seed=1)


def text(axis: int | None, top_k: int, out_max_val: bool) -> str:
    where = "" if axis is None else f"axis: {axis}"
    return f"argmax_param {{ {where} top_k: {top_k} out_max_val: {str(out_max_val).lower()} }}"


@pytest.mark.parametrize("out_max_val", [False, True])
@pytest.mark.parametrize(
    ("axis", "top_k"), [(None, 1), (None, 4), (0, 2), (1, 1), (1, 3), (2, 4), (3, 7), (-1, 2), (-4, 1)]
)
def test_indices_and_values(run: Run, axis: int | None, top_k: int, out_max_val: bool) -> None:
    (y,) = run("ArgMax", text(axis, top_k, out_max_val), X)
    wanted = arg_max(X, None if axis is None else axis % 4, top_k, out_max_val)
    assert y.shape == wanted.shape
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize("axis", [None, 1, 2])
@pytest.mark.parametrize("out_max_val", [False, True])
def test_of_equal_values_the_last_comes_first(run: Run, axis: int | None, out_max_val: bool) -> None:
    x = np.random.default_rng(2).integers(0, 3, (2, 5, 7)).astype(np.float32)
    (y,) = run("ArgMax", text(axis, 4, out_max_val), x)
    assert np.array_equal(y, arg_max(x, axis, 4, out_max_val))
    (flat,) = run("ArgMax", text(None, 3, False), np.zeros((2, 5), np.float32))
    assert flat.tolist() == [[[4, 3, 2]]] * 2


@pytest.mark.parametrize(
    ("shape", "top"), [((2, 5), (2, 1, 1)), ((2, 3, 4), (2, 1, 1)), ((2, 3, 4, 5, 2), (2, 1, 1, 1, 1))]
)
def test_the_top_has_three_axes_or_more(run: Run, shape: tuple[int, ...], top: tuple[int, ...]) -> None:
    (y,) = run("ArgMax", "", numbers(*shape, seed=3))
    assert y.shape == top
