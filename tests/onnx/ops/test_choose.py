"""Indices and truth values: whole numbers, returned as float32, also where the file says int64 or bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import ChaiError, UnsupportedNodes

from ..common import blob, model, node, numbers, run, value

X = np.round(numbers(2, 5, 3, 7), 0)  # with many equal numbers
Array = np.ndarray


def outputs(
    operator: str, dtypes: list[str], *constants: Any, opset: int = 17, x: Array = X, **attributes: Any
) -> list:
    """The outputs of a node whose outputs have these types."""
    names = [f"c{i}" for i in range(len(constants))]
    tops = [f"y{i}" for i in range(len(dtypes))]
    more = b"".join(blob(12, value(top, dtype=dtype)) for top, dtype in zip(tops, dtypes))
    nodes = [node(operator, ["x", *names], tops, "probe", **attributes)]
    return run(model(nodes, {"x": x.shape}, [], dict(zip(names, constants)), opset, more), x=x)


def chosen(x: Array, axis: int, last: bool, smallest: bool) -> Array:
    """The index of the extreme, one row after the other."""
    moved = np.moveaxis(-x if smallest else x, axis, -1)
    y = np.zeros(moved.shape[:-1])
    for place in np.ndindex(y.shape):
        row = moved[place].tolist()
        y[place] = max(i for i, v in enumerate(row) if v == max(row)) if last else row.index(max(row))
    return np.expand_dims(y, axis)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("last", [0, 1])
def test_arg_max(operator: str, axis: int, last: int) -> None:
    expected = chosen(X, axis, bool(last), operator == "ArgMin")
    np.testing.assert_array_equal(outputs(operator, ["int64"], axis=axis, select_last_index=last)[0], expected)
    (y,) = outputs(operator, ["int64"], axis=axis, select_last_index=last, keepdims=0)
    np.testing.assert_array_equal(y, expected.squeeze(axis))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [1, -1])
def test_top_k(largest: int, axis: int) -> None:
    values, indices = outputs("TopK", ["float32", "int64"], np.array([3]), axis=axis, largest=largest)
    rows = np.moveaxis(X, axis, -1)
    for place in np.ndindex(rows.shape[:-1]):
        row = rows[place].tolist()
        order = sorted(range(len(row)), key=lambda i: (-row[i] if largest else row[i], i))[:3]
        assert np.moveaxis(indices, axis, -1)[place].tolist() == order
        assert np.moveaxis(values, axis, -1)[place].tolist() == [row[i] for i in order]


def test_top_k_of_older_opsets() -> None:
    values, _ = outputs("TopK", ["float32", "int64"], opset=9, k=2)
    np.testing.assert_array_equal(values, -np.sort(-X, -1)[..., :2])


RELATIONS = {"Greater": ">", "GreaterOrEqual": ">=", "Less": "<", "LessOrEqual": "<=", "Equal": "=="}


@pytest.mark.parametrize("operator", RELATIONS)
def test_relations(operator: str) -> None:
    """With a blob that is repeated, whose numbers often are the same."""
    other = np.round(numbers(3, 1, seed=3), 0)
    expected = eval(f"x {RELATIONS[operator]} y", {"x": X, "y": other})
    (y,) = outputs(operator, ["bool"], other)
    np.testing.assert_array_equal(y, expected)
    assert 0 < y.mean() < 1


def test_truth_values_are_combined() -> None:
    """Their Cast to a float, or to whole numbers, changes nothing."""
    nodes = [
        node("Greater", ["x", "one"], ["a"]),
        node("Less", ["x", "zero"], ["b"]),
        node("Or", ["a", "b"], ["c"]),
        node("Not", ["c"], ["d"]),
        node("And", ["d", "b"], ["e"]),
        node("Cast", ["c"], ["i"], to=7),
        node("Cast", ["i"], ["f"], to=1),
        node("Mul", ["f", "x"], ["y"]),
        node("Cast", ["e"], ["z"], to=1),
        node("Cast", ["d"], ["w"], to=1),
    ]
    known = {"one": np.float32(1), "zero": np.float32(0)}
    y, z, w = run(model(nodes, {"x": X.shape}, ["y", "z", "w"], known), x=X)
    outside = (X > 1) | (X < 0)
    np.testing.assert_array_equal(y, X * outside)
    np.testing.assert_array_equal(w, ~outside)
    assert not z.any() and w.any()


def test_special_numbers() -> None:
    x = np.array([[1, np.inf, -np.inf, np.nan, 0]], np.float32)
    assert outputs("IsNaN", ["bool"], x=x)[0].tolist() == [[0, 0, 0, 1, 0]]
    for signs, expected in (
        ({}, [0, 1, 1, 0, 0]),
        ({"detect_negative": 0}, [0, 1, 0, 0, 0]),
        ({"detect_positive": 0}, [0, 0, 1, 0, 0]),
    ):
        assert outputs("IsInf", ["bool"], x=x, **signs)[0].tolist() == [expected]


@pytest.mark.parametrize(("start", "end", "expected"), [(0, 9, [3, 5, 3, 7]), (1, -1, [5, 3]), (-2, 9, [3, 7])])
def test_shapes_are_those_of_the_pass(start: int, end: int, expected: list[int]) -> None:
    """The file was written for two images; three are fed."""
    three = np.concatenate([X, X[:1]])
    nodes = [node("Shape", ["x"], ["y"], start=start, end=end), node("Size", ["x"], ["z"])]
    more = blob(12, value("y", dtype="int64")) + blob(12, value("z", dtype="int64"))
    with chai.Net(model(nodes, {"x": X.shape}, [], more=more), device="float") as net:
        result = net.forward(x=three)
    assert result["y"].tolist() == expected and result["z"] == three.size


@pytest.mark.parametrize(
    ("operator", "constants", "attributes", "moved"),
    [
        ("Squeeze", [[1]], {}, lambda a: a[:, 0]),
        ("Unsqueeze", [[0]], {}, lambda a: a[None]),
        ("Reshape", [[2, 21]], {}, lambda a: a.reshape(2, 21)),
        ("Flatten", [], {"axis": 2}, lambda a: a.reshape(2, 21)),
        ("Transpose", [], {"perm": [0, 3, 2, 1]}, lambda a: a.transpose(0, 3, 2, 1)),
        ("Slice", [[1], [3], [2]], {}, lambda a: a[:, :, 1:3]),
        ("Gather", [2], {"axis": 3}, lambda a: a[..., 2]),
        ("Identity", [], {}, lambda a: a),
    ],
)
def test_moved_indices_may_be_returned(
    operator: str, constants: list[Any], attributes: dict[str, Any], moved: Callable[[Array], Array]
) -> None:
    names = [f"c{i}" for i in range(len(constants))]
    nodes = [node("ArgMax", ["x"], ["a"], axis=1), node(operator, ["a", *names], ["y"], **attributes)]
    more = blob(12, value("y", dtype="int64"))
    file = model(nodes, {"x": X.shape}, [], dict(zip(names, map(np.array, constants))), more=more)
    np.testing.assert_array_equal(run(file, x=X)[0], moved(chosen(X, 1, False, False)))


@pytest.mark.parametrize(
    ("operator", "inputs", "computed"),
    [
        ("Sub", ["a", "b"], np.subtract),
        ("Where", ["g", "a", "b"], np.maximum),
        ("ReduceSum", ["a"], lambda a, b: a.sum(keepdims=True)),
        ("Pow", ["a", "two"], lambda a, b: a * a),
    ],
)
def test_whole_numbers_of_whole_numbers(
    operator: str, inputs: list[str], computed: Callable[[Array, Array], Array]
) -> None:
    nodes = [node("ArgMax", ["x"], ["a"], axis=1), node("ArgMin", ["x"], ["b"], axis=1)]
    nodes += [node("Greater", ["a", "b"], ["g"]), node(operator, inputs, ["y"])]
    more = blob(12, value("y", dtype="int64"))
    file = model(nodes, {"x": X.shape}, [], {"two": np.array(2)}, more=more)
    expected = computed(chosen(X, 1, False, False), chosen(X, 1, False, True))
    np.testing.assert_array_equal(run(file, x=X)[0], expected)


@pytest.mark.parametrize(
    ("operator", "inputs", "reason"),
    [
        ("Div", ["a", "a"], "a fraction of whole numbers"),
        ("ReduceMean", ["a"], "a fraction of whole numbers"),
        ("Pow", ["a", "half"], "whole numbers to the power of 0.5"),
    ],
)
def test_fractions_of_whole_numbers_are_refused(operator: str, inputs: list[str], reason: str) -> None:
    """ONNX cuts them, which a cast to float32 after them would not show."""
    nodes = [node("ArgMax", ["x"], ["a"], axis=1), node(operator, inputs, ["f"]), node("Cast", ["f"], ["y"], to=1)]
    with pytest.raises(UnsupportedNodes, match=reason):
        run(model(nodes, {"x": X.shape}, ["y"], {"half": np.float32(0.5)}), x=X)


def test_a_fraction_of_indices_that_are_floats() -> None:
    """Cast before the Div, they are no integers any more, nor is what is computed of them."""
    nodes = [node("ArgMax", ["x"], ["a"], axis=1), node("Cast", ["a"], ["f"], to=1), node("Sub", ["f", "x"], ["d"])]
    halves = [node("Div", ["f", "two"], ["h"]), node("Identity", ["h"], ["y"])]
    y = run(model(nodes[:2] + halves, {"x": X.shape}, ["y"], {"two": np.float32(2)}), x=X)[0]
    np.testing.assert_array_equal(y, chosen(X, 1, False, False) / 2)
    with pytest.raises(UnsupportedNodes, match="a cast to int64"):
        run(model([*nodes, node("Cast", ["d"], ["y"], to=7)], {"x": X.shape}, ["y"]), x=X)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedNodes, match="the 8 largest of 7"):
        outputs("TopK", ["float32", "int64"], np.array([8]))
    with pytest.raises(UnsupportedNodes, match="a cast to int64"):
        outputs("Cast", ["int64"], to=7)
    with pytest.raises(ChaiError, match="it has int64 numbers"):
        outputs("Relu", ["int64"])
    with pytest.raises(UnsupportedNodes, match="neither sign"):
        outputs("IsInf", ["bool"], detect_negative=0, detect_positive=0)


@pytest.mark.parametrize("known", [False, True])
def test_where(known: bool) -> None:
    """By a relation of the pass, and by a constant of the file."""
    low = numbers(5, 1, 7, seed=4)
    nodes = [node("Greater", ["x", "z"], ["c"], "relation"), node("Where", ["c", "x", "low"], ["y"], "choice")]
    constants = {"z": np.float32(0), "low": low}
    condition = X > 0
    if known:
        condition = numbers(3, 7, seed=5) > 0
        nodes, constants = nodes[1:], {"c": condition, "low": low}
    (y,) = run(model(nodes, {"x": X.shape}, ["y"], constants), x=X)
    np.testing.assert_array_equal(y, np.where(condition, X, low))
