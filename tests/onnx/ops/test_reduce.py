"""Reductions and Softmax, in float64 by numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ..common import model, node, numbers, one, run, types

Array = np.ndarray
X = numbers(2, 3, 5, 7)
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "ReduceMean": np.mean,
    "ReduceSum": np.sum,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **how: np.abs(x).sum(**how),
    "ReduceL2": lambda x, **how: np.sqrt((x * x).sum(**how)),
    "ReduceSumSquare": lambda x, **how: (x * x).sum(**how),
    "ReduceLogSumExp": lambda x, **how: np.log(np.exp(x).sum(**how)),
}


@pytest.mark.parametrize("axes", [None, [1], [2, 3], [-1], [0, 2]])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("operator", FUNCTIONS)
def test_reductions(operator: str, axes: list[int] | None, keep: int) -> None:
    along = tuple(axes) if axes else None
    expected = FUNCTIONS[operator](X.astype(np.float64), axis=along, keepdims=bool(keep))
    for y in (
        one(operator, X, *([] if axes is None else [np.array(axes)]), keepdims=keep, opset=18)[0],
        one(operator, X, keepdims=keep, opset=11, **({} if axes is None else {"axes": axes}))[0],
    ):
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_log_sum() -> None:
    x = np.abs(X) + np.float32(0.1)
    np.testing.assert_allclose(
        one("ReduceLogSum", x, np.array([1]), opset=18)[0], np.log(x.sum(1, keepdims=True)), rtol=1e-4
    )


@pytest.mark.parametrize(
    ("operator", "expected"), [("ReduceSum", X), ("ReduceL2", np.abs(X)), ("ReduceSumSquare", X * X)]
)
def test_no_axes(operator: str, expected: Array) -> None:
    np.testing.assert_allclose(one(operator, X, noop_with_empty_axes=1, opset=18)[0], expected, rtol=1e-6)


def test_a_mean_over_the_map_is_a_pool() -> None:
    """Which an overlay runs."""
    for keep, kinds in ((1, ["Pooling"]), (0, ["Pooling", "Reshape"])):
        file = model([node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=keep)], {"x": X.shape}, ["y"], opset=13)
        assert types(file) == kinds


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_softmax(operator: str, axis: int, opset: int) -> None:
    """Before opset 13 the axes from ``axis`` on are one."""
    x = X.astype(np.float64) * 40
    along = tuple(range(axis % 4, 4)) if opset < 13 else (axis,)
    shifted = x - x.max(along, keepdims=True)
    total = np.exp(shifted).sum(along, keepdims=True)
    expected = np.exp(shifted) / total if operator == "Softmax" else shifted - np.log(total)
    scaled = (X * 40).astype(np.float32)
    open_batch = model([node(operator, ["x"], ["y"], axis=axis)], {"x": ("batch", *X.shape[1:])}, ["y"], opset=opset)
    for y in (*one(operator, scaled, axis=axis, opset=opset), *run(open_batch, x=scaled)):
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-4)
