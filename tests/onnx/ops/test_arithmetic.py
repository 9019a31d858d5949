"""Arithmetic of blobs and constants, by numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, run, types

Array = np.ndarray
X = numbers(2, 3, 5, 7, low=0.5, high=3)
PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}
SHAPES = [
    (),
    (1,),
    (3, 1, 1),
    (1, 3, 1, 1),
    (7,),
    (5, 1),
    (5, 7),
    (3, 5, 7),
    (2, 3, 5, 7),
    (2, 1, 1, 1),
    (3, 1, 7),
    (1, 1, 1, 1, 1),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("operator", PAIRS)
def test_a_constant_on_either_side(operator: str, shape: tuple[int, ...]) -> None:
    c = np.asarray(numbers(*shape, seed=1, low=0.5, high=3))
    for order in ("xc", "cx"):
        file = model([node(operator, [*order], ["y"])], {"x": X.shape}, ["y"], {"c": c})
        pair = (X, c) if order == "xc" else (c, X)
        (y,) = run(file, x=X)
        expected = PAIRS[operator](*pair)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [X.shape, (2, 3, 1, 1), (1, 5, 7), (7,)])
@pytest.mark.parametrize("operator", PAIRS)
def test_two_blobs(operator: str, shape: tuple[int, ...]) -> None:
    z = numbers(*shape, seed=1, low=0.5, high=3)
    for order in ("xz", "zx"):
        file = model([node(operator, [*order], ["y"])], {"x": X.shape, "z": shape}, ["y"])
        expected = PAIRS[operator](*((X, z) if order == "xz" else (z, X)))
        np.testing.assert_allclose(run(file, x=X, z=z)[0], expected, rtol=1e-5, atol=1e-5)


def test_the_types_that_an_overlay_knows() -> None:
    """Sums of two blobs of one shape are Eltwise, factors and addends per channel Scale and Bias."""
    two = model([node("Add", ["x", "z"], ["y"])], {"x": X.shape, "z": X.shape}, ["y"])
    assert types(two) == ["Eltwise"]
    for operator, type in (("Mul", "Scale"), ("Div", "Scale"), ("Add", "Bias"), ("Sub", "Bias")):
        file = model([node(operator, ["x", "c"], ["y"])], {"x": X.shape}, ["y"], {"c": numbers(3, 1, 1, low=1)})
        assert types(file) == [type]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    ("operator", "function"),
    [("Sum", np.sum), ("Mean", np.mean), ("Max", np.max), ("Min", np.min)],
)
def test_several_blobs(operator: str, function: Callable[..., Array], count: int) -> None:
    feeds = {f"x{i}": numbers(2, 3, 5, seed=i) for i in range(count)}
    file = model([node(operator, [*feeds], ["a"]), node("Relu", ["a"], ["y"])], dict.fromkeys(feeds, (2, 3, 5)), ["y"])
    expected = np.maximum(function(np.stack([*feeds.values()]), axis=0), 0)
    np.testing.assert_allclose(run(file, **feeds)[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("operator", "function"), [("Max", np.maximum), ("Min", np.minimum)])
@pytest.mark.parametrize("bound", [0.0, 1.5])
def test_bounds_by_a_number(operator: str, function: Callable[..., Array], bound: float) -> None:
    x = numbers(2, 3, 5)
    np.testing.assert_array_equal(one(operator, x, np.float32(bound))[0], function(x, np.float32(bound)))


@pytest.mark.parametrize("exponent", [2.0, 0.5, -1.0, 3.0])
def test_powers(exponent: float) -> None:
    np.testing.assert_allclose(one("Pow", X, np.float32(exponent))[0], X.astype(np.float64) ** exponent, rtol=1e-5)


def test_what_is_refused() -> None:
    for constant, reason in ((np.float32(0), "a constant of 0"), (np.float32(np.nan), "a constant of nan")):
        with pytest.raises(UnsupportedNodes, match=reason):
            one("Div", X, constant)
    with pytest.raises(
        UnsupportedNodes, match=r"an exponent of 1 number of shape \[1, 1, 1, 1, 1\]"
    ):  # a top of 5 axes
        one("Pow", X, np.full((1, 1, 1, 1, 1), 2, np.float32))
    with pytest.raises(UnsupportedNodes, match="an exponent of 7 numbers"):
        one("Pow", X, numbers(7))
    file = model([node("Max", ["x", "z"], ["y"])], {"x": (2, 3), "z": (3,)}, ["y"])
    with pytest.raises(UnsupportedNodes, match="inputs of different shapes"):
        types(file)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("constant", [False, True])
def test_axes_before_opset_7(operator: str, constant: bool) -> None:
    """The second operand lies over the first from an axis on."""
    x, y = numbers(2, 3, 5, 7), numbers(3, 5, seed=1, low=1, high=2)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[operator]
    nodes = [node(operator, ["x", "y"], ["z"], broadcast=1, axis=1)]
    inputs = {"x": x.shape} if constant else {"x": x.shape, "y": y.shape}
    file = model(nodes, inputs, ["z"], {"y": y} if constant else {}, opset=6)
    (z,) = run(file, x=x, **({} if constant else {"y": y}))
    np.testing.assert_allclose(z, function(x, y[:, :, None]), rtol=1e-5, atol=1e-6)
