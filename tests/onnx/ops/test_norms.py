"""Normalisations by their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, types

Array = np.ndarray
X = numbers(2, 6, 5, 7, seed=1)
S, B = numbers(6, seed=2), numbers(6, seed=3)


def over(c: Array) -> Array:
    return c[:, None, None].astype(np.float64)


def test_batch_normalization() -> None:
    mean, variance = numbers(6, seed=4), numbers(6, seed=5, low=0.5, high=2)
    (y,) = one("BatchNormalization", X, S, B, mean, variance, epsilon=0.01)
    np.testing.assert_allclose(
        y, (X - over(mean)) / np.sqrt(over(variance) + 0.01) * over(S) + over(B), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(UnsupportedNodes, match="training mode"):
        one("BatchNormalization", X, S, B, mean, variance, training_mode=1)


def test_lrn() -> None:
    (y,) = one("LRN", X, size=3, alpha=0.5, beta=0.6, bias=1.5)
    squares = np.pad(X.astype(np.float64) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    np.testing.assert_allclose(y, X / (1.5 + 0.5 / 3 * total) ** 0.6, rtol=1e-4, atol=1e-5)


def normal(x: Array, axes: tuple[int, ...], eps: float, centered: bool = True) -> Array:
    x = x.astype(np.float64)
    x = x - x.mean(axes, keepdims=True) if centered else x
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + eps)


@pytest.mark.parametrize("axis", [-1, -2, 1, 0])
def test_layer_normalization(axis: int) -> None:
    shape = X.shape[axis:]
    s, b, axes = numbers(*shape, seed=6), numbers(*shape, seed=7), tuple(range(axis % 4, 4))
    (y,) = one("LayerNormalization", X, s, b, axis=axis, epsilon=0.01)
    np.testing.assert_allclose(y, normal(X, axes, 0.01) * s + b, rtol=1e-4, atol=1e-4)
    (y,) = one("RMSNormalization", X, s, axis=axis, epsilon=0.01, opset=23)
    np.testing.assert_allclose(y, normal(X, axes, 0.01, False) * s, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("operator", "constants"),
    [
        ("LayerNormalization", {"s": numbers(7, seed=8)}),
        ("BatchNormalization", {"s": S, "b": B, "m": B, "v": S * S}),
        ("Dropout", {}),
        ("MaxPool", {}),
    ],
)
def test_a_second_output_is_not_the_first(operator: str, constants: dict[str, Array]) -> None:
    """The first has no name, which leaves it out."""
    kernel = {"kernel_shape": [2, 2]} if operator == "MaxPool" else {}
    file = model([node(operator, ["x", *constants], ["", "y"], **kernel)], {"x": X.shape}, ["y"], constants)
    with pytest.raises(UnsupportedNodes, match="its output 'y' is used, which no layer computes"):
        types(file)


def test_a_scale_that_is_repeated() -> None:
    s, b = numbers(7, seed=6), numbers(5, 1, seed=7)
    (y,) = one("LayerNormalization", X, s, b, axis=-2)
    np.testing.assert_allclose(y, normal(X, (2, 3), 1e-5) * s + b, rtol=1e-4, atol=1e-4)


def test_instances_and_groups() -> None:
    (y,) = one("InstanceNormalization", X, S, B, epsilon=0.01)
    np.testing.assert_allclose(y, normal(X, (2, 3), 0.01) * over(S) + over(B), rtol=1e-4, atol=1e-4)
    grouped = normal(X.reshape(2, 3, 2, 5, 7), (2, 3, 4), 1e-5).reshape(X.shape)
    (y,) = one("GroupNormalization", X, S, B, num_groups=3, opset=21)
    np.testing.assert_allclose(y, grouped * over(S) + over(B), rtol=1e-4, atol=1e-4)
    (y,) = one("GroupNormalization", X, S[:3], B[:3], num_groups=3, opset=18)  # a factor per group
    np.testing.assert_allclose(y, grouped * over(S[:3].repeat(2)) + over(B[:3].repeat(2)), rtol=1e-4, atol=1e-4)


def test_mean_and_variance() -> None:
    np.testing.assert_allclose(one("MeanVarianceNormalization", X)[0], normal(X, (0, 2, 3), 1e-9), rtol=1e-4, atol=1e-4)
    (y,) = one("MeanVarianceNormalization", X, axes=[1, 3])
    np.testing.assert_allclose(y, normal(X, (1, 3), 1e-9), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp(p: int, axis: int) -> None:
    x = X.copy()
    x[:, 0] = 0  # its norm along axis -1 is 0, and it stays 0
    norm = (np.abs(x.astype(np.float64)) ** p).sum(axis, keepdims=True) ** (1 / p)
    expected = np.divide(x, norm, out=np.zeros_like(x, np.float64), where=norm > 0)
    np.testing.assert_allclose(one("LpNormalization", x, p=p, axis=axis)[0], expected, rtol=1e-4, atol=1e-5)


def test_batch_normalization_is_folded_into_a_convolution() -> None:
    """So a network of both is one Task for each pair."""
    constants = {"w": numbers(6, 3, 1, 1), "s": S, "b": B, "m": numbers(6), "v": numbers(6, low=1)}
    nodes = [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"])]
    file = model(nodes, {"x": (2, 3, 5, 7)}, ["y"], constants)
    assert types(file) == ["Convolution", "BatchNorm", "Scale"]
