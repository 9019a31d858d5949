"""Functions of one number, by their formulas in float64."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt
from typing import Any

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, types

Array = np.ndarray
X = numbers(2, 3, 5, 7, low=-8, high=8)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x / 2 * (1 + np.vectorize(erf)(x / sqrt(2)))


FORMULAS: list[tuple[str, dict[str, Any], Callable[[Array], Array]]] = [
    ("Relu", {}, lambda x: np.maximum(x, 0)),
    ("LeakyRelu", {}, lambda x: np.where(x < 0, 0.01 * x, x)),
    ("LeakyRelu", {"alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
    ("Sigmoid", {}, sigmoid),
    ("Tanh", {}, np.tanh),
    ("Abs", {}, np.abs),
    ("Exp", {}, np.exp),
    ("Softplus", {}, lambda x: np.log1p(np.exp(x))),
    ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("Swish", {}, lambda x: x * sigmoid(x)),
    ("Swish", {"alpha": 0.5}, lambda x: x * sigmoid(0.5 * x)),
    ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("HardSigmoid", {}, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    ("Elu", {}, lambda x: np.where(x < 0, np.exp(x) - 1, x)),
    ("Elu", {"alpha": 2.0}, lambda x: np.where(x < 0, 2 * (np.exp(x) - 1), x)),
    ("Celu", {"alpha": 2.0}, lambda x: np.where(x < 0, 2 * (np.exp(x / 2) - 1), x)),
    ("Selu", {}, lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * (np.exp(x) - 1), x)),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}, lambda x: 3 * np.where(x < 0, 2 * (np.exp(x) - 1), x)),
    ("Mish", {}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    ("Erf", {}, np.vectorize(erf)),
    ("Gelu", {}, gelu),
    ("Gelu", {"approximate": "tanh"}, lambda x: x / 2 * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))),
    ("ThresholdedRelu", {}, lambda x: np.where(x > 1, x, 0)),
    ("ThresholdedRelu", {"alpha": 2.0}, lambda x: np.where(x > 2, x, 0)),
    ("Neg", {}, np.negative),
    ("Reciprocal", {}, lambda x: 1 / x),
]


@pytest.mark.parametrize(("operator", "attributes", "formula"), FORMULAS)
def test_formulas(operator: str, attributes: dict[str, Any], formula: Callable[[Array], Array]) -> None:
    np.testing.assert_allclose(one(operator, X, **attributes)[0], formula(X.astype(np.float64)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("operator", "formula"), [("Log", np.log), ("Sqrt", np.sqrt)])
def test_formulas_of_positive_numbers(operator: str, formula: Callable[[Array], Array]) -> None:
    x = np.abs(X) + np.float32(0.1)
    np.testing.assert_allclose(one(operator, x)[0], formula(x.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("bounds", "type"),
    [
        ((-1, 2), "Clip"),
        ((0, 6), "ReLU"),
        ((0, None), "ReLU"),
        ((None, 3), "Clip"),
        ((-2, None), "Clip"),
        ((3, 1), "Clip"),
    ],
)
def test_clip(bounds: tuple[float | None, float | None], type: str) -> None:
    """In inputs since opset 11, in attributes before it; a minimum above the maximum gives the maximum."""
    constants = [None if bound is None else np.float32(bound) for bound in bounds]
    expected = X
    if bounds[0] is not None:
        expected = np.maximum(expected, np.float32(bounds[0]))
    if bounds[1] is not None:
        expected = np.minimum(expected, np.float32(bounds[1]))
    np.testing.assert_array_equal(one("Clip", X, *constants)[0], expected)
    attributes = {name: float(bound) for name, bound in zip(("min", "max"), bounds) if bound is not None}
    np.testing.assert_array_equal(one("Clip", X, opset=10, **attributes)[0], expected)
    assert types(model([node("Clip", ["x"], ["y"], **attributes)], {"x": X.shape}, ["y"], opset=10)) == [type]


@pytest.mark.parametrize("shape", [(3, 1, 1), (1,), (1, 3, 1, 1), (7,), (3, 5, 7)])
def test_prelu(shape: tuple[int, ...]) -> None:
    slope = numbers(*shape, seed=2)
    np.testing.assert_allclose(one("PRelu", X, slope)[0], np.where(X < 0, slope * X, X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alpha", [-0.5, 0.0])
def test_celu_without_a_scale_is_refused(alpha: float) -> None:
    with pytest.raises(UnsupportedNodes, match=rf"alpha {alpha:g}, expected more than 0"):
        one("Celu", X, alpha=alpha)


def test_limits_of_what_overflows() -> None:
    x = np.array([[-200, 200, 0, -1e30]], np.float32)
    assert one("Sigmoid", x)[0].tolist() == [[0, 1, 0.5, 0]]
    np.testing.assert_allclose(one("Mish", x)[0], [[0, 200, 0, 0]], atol=1e-6)


def test_slopes_of_channels_before_opset_7() -> None:
    x, slope = numbers(2, 3, 5, 7), numbers(3, seed=1)
    expected = np.where(x > 0, x, x * slope[:, None, None])
    np.testing.assert_allclose(one("PRelu", x, slope, opset=6)[0], expected, rtol=1e-6)
