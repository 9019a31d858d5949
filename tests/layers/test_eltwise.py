"""Eltwise of two bottoms and more."""

from __future__ import annotations

import pytest

from tests.reference.elementwise import eltwise

from .common import Run, close, numbers

BOTTOMS = [numbers(2, 3, 5, 7, seed=i) for i in range(3)]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("operation", ["PROD", "SUM", "MAX"])
def test_operations(run: Run, operation: str, count: int) -> None:
    (y,) = run("Eltwise", f"eltwise_param {{ operation: {operation} }}", *BOTTOMS[:count])
    close(y, eltwise(BOTTOMS[:count], operation))


@pytest.mark.parametrize("coeff", [(1, -1), (0.5, -2, 3)])
def test_weighted_sum(run: Run, coeff: tuple[float, ...]) -> None:
    bottoms = BOTTOMS[: len(coeff)]
    (y,) = run("Eltwise", f"eltwise_param {{ operation: SUM {' '.join(f'coeff: {c}' for c in coeff)} }}", *bottoms)
    close(y, eltwise(bottoms, "SUM", coeff))


def test_the_default_is_sum(run: Run) -> None:
    (y,) = run("Eltwise", "", *BOTTOMS)
    close(y, eltwise(BOTTOMS, "SUM"))
