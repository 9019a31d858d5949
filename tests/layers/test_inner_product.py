"""InnerProduct against the loop over rows."""

from __future__ import annotations

import pytest

from tests.reference.elementwise import inner_product

from .common import Run, close, numbers

X = numbers(2, 3, 5, 7, seed=1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("axis", "first", "k"), [(1, 1, 105), (2, 2, 35), (-1, 3, 7), (0, 0, 210), (-3, 1, 105)])
def test_axis_transpose_bias(run: Run, axis: int, first: int, k: int, transpose: bool, bias: bool) -> None:
    w = numbers(*((k, 4) if transpose else (4, k)), seed=2)
    b = numbers(4, seed=3) if bias else None
    text = f"num_output: 4 axis: {axis} transpose: {str(transpose).lower()} bias_term: {str(bias).lower()}"
    weights = (w,) if b is None else (w, b)
    (y,) = run("InnerProduct", f"inner_product_param {{ {text} }}", X, weights=weights)
    assert y.shape == (*X.shape[:first], 4)
    close(y, inner_product(X, w, b, first, transpose))


def test_defaults(run: Run) -> None:
    w, b = numbers(4, 105, seed=2), numbers(4, seed=3)
    (y,) = run("InnerProduct", "inner_product_param { num_output: 4 }", X, weights=(w, b))
    close(y, inner_product(X, w, b, 1))
