"""The same numbers in other shapes, and chains of shapes that fold away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, run, types

X = numbers(2, 6, 5, 7)


@pytest.mark.parametrize(
    "target", [[2, 210], [0, -1], [2, 3, 2, 35], [-1, 7], [4, 105], [0, 0, 35], [2, 2, 3, 5, 7, 1]]
)
def test_reshape(target: list[int]) -> None:
    shape = [X.shape[i] if size == 0 else size for i, size in enumerate(target)]
    np.testing.assert_array_equal(one("Reshape", X, np.array(target))[0], X.reshape(shape))


@pytest.mark.parametrize("target", [[2, 210], [2, 3, 2, 5, 7], [4, 105], [0, -1]])
def test_the_batch_of_a_reshape_is_free(target: list[int]) -> None:
    """The file was written for two images; three are shaped alike, each by itself."""
    file = model([node("Reshape", ["x", "s"], ["y"])], {"x": X.shape}, ["y"], {"s": np.array(target)})
    more = numbers(3, 6, 5, 7, seed=1)
    with chai.Net(file, device="float") as net:
        y = net.forward(x=more)["y"]
        for i in range(3):
            each = net.forward(x=np.stack([more[i], more[i]]))["y"]
            np.testing.assert_array_equal(y.reshape(3, -1)[i], each.reshape(2, -1)[0])


@pytest.mark.parametrize(
    ("operator", "constants", "attributes", "function"),
    [
        ("Unsqueeze", [[0]], {}, lambda x: x[None]),
        ("Unsqueeze", [[0, 2]], {}, lambda x: x[None, :, None]),
        ("Flatten", [], {"axis": 0}, lambda x: x.reshape(1, -1)),
        ("Gather", [0], {"axis": 0}, lambda x: x[0]),
        ("Gather", [[0]], {"axis": 0}, lambda x: x[:1]),
    ],
)
def test_images_that_are_no_longer_the_first_axis(
    operator: str, constants: list[Any], attributes: dict[str, Any], function: Callable[[np.ndarray], np.ndarray]
) -> None:
    """The file was written for one image: of three, too, they are the axis and the numbers that ONNX says."""
    names = [f"c{i}" for i in range(len(constants))]
    nodes = [node(operator, ["x", *names], ["y"], **attributes)]
    file = model(nodes, {"x": ("N", 5, 7)}, ["y"], dict(zip(names, map(np.array, constants))))
    x = numbers(3, 5, 7)
    np.testing.assert_array_equal(run(file, x=x)[0], function(x))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4, -1, -4])
def test_flatten(axis: int) -> None:
    lead = int(np.prod(X.shape[:axis])) if axis else 1
    np.testing.assert_array_equal(one("Flatten", X, axis=axis)[0], X.reshape(lead, -1))


@pytest.mark.parametrize("axis", [-5, 5, 9])
def test_flatten_at_no_axis_is_refused(axis: int) -> None:
    with pytest.raises(UnsupportedNodes, match=f"axis {axis} is outside a blob of 4 axes"):
        one("Flatten", X, axis=axis)
    nodes = [node("Flatten", ["c"], ["f"], axis=axis), node("Add", ["x", "f"], ["y"])]
    with pytest.raises(UnsupportedNodes, match=f"axis {axis} is outside a blob of 4 axes"):
        types(model(nodes, {"x": (2, 3)}, ["y"], {"c": X}))


@pytest.mark.parametrize("axes", [None, [1], [-1, 1], [3]])
def test_squeeze(axes: list[int] | None) -> None:
    x = numbers(2, 1, 5, 1)
    expected = np.squeeze(x, None if axes is None else tuple(axes))
    if axes is None:
        np.testing.assert_array_equal(one("Squeeze", x)[0], expected)
        return
    np.testing.assert_array_equal(one("Squeeze", x, np.array(axes))[0], expected)
    np.testing.assert_array_equal(one("Squeeze", x, axes=axes, opset=11)[0], expected)


@pytest.mark.parametrize("axes", [[0], [2, 4], [-1], [1, 2]])
def test_unsqueeze(axes: list[int]) -> None:
    x = numbers(2, 3, 5)
    np.testing.assert_array_equal(one("Unsqueeze", x, np.array(axes))[0], np.expand_dims(x, tuple(axes)))
    np.testing.assert_array_equal(one("Unsqueeze", x, axes=axes, opset=11)[0], np.expand_dims(x, tuple(axes)))


@pytest.mark.parametrize("perm", [None, [0, 2, 3, 1], [3, 0, 1, 2], [0, 1, 2, 3]])
def test_transpose(perm: list[int] | None) -> None:
    attributes = {} if perm is None else {"perm": perm}
    np.testing.assert_array_equal(one("Transpose", X, **attributes)[0], X.transpose(perm))


def test_depth_and_space() -> None:
    x, b = numbers(2, 12, 3, 5), 2
    blocks = x.reshape(2, b, b, 3, 3, 5).transpose(0, 3, 4, 1, 5, 2).reshape(2, 3, 6, 10)
    np.testing.assert_array_equal(one("DepthToSpace", x, blocksize=b)[0], blocks)
    shuffled = x.reshape(2, 3, b, b, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 6, 10)
    np.testing.assert_array_equal(one("DepthToSpace", x, blocksize=b, mode="CRD")[0], shuffled)
    np.testing.assert_array_equal(one("SpaceToDepth", blocks, blocksize=b)[0], x)


@pytest.mark.parametrize("operator", ["Identity", "Dropout"])
def test_what_changes_nothing_is_no_layer(operator: str) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node(operator, ["a"], ["b"]), node("Abs", ["b"], ["y"])]
    assert types(model(nodes, {"x": X.shape}, ["y"])) == ["ReLU", "AbsVal"]
    np.testing.assert_array_equal(one(operator, X)[0], X)  # an output is a blob of its own


@pytest.mark.parametrize("number", [1, 10, 11])
def test_casts_between_floats_change_nothing(number: int) -> None:
    np.testing.assert_array_equal(one("Cast", X, to=number)[0], X)


def test_casts_to_whole_numbers_are_refused() -> None:
    with pytest.raises(UnsupportedNodes, match="a cast to int64"):
        one("Cast", X, to=7)


CHAIN = [
    node("Shape", ["x"], ["s"]),
    node("Gather", ["s", "zero"], ["n"]),
    node("Unsqueeze", ["n", "axis"], ["n1"]),
    node("Slice", ["s", "one", "two"], ["c"]),
    node("Div", ["c", "two"], ["half"]),
    node("Mul", ["half", "minus"], ["less"]),
    node("Add", ["less", "half"], ["none"]),
    node("Sub", ["minus", "none"], ["rest"]),
    node("Cast", ["n1"], ["f"], to=1),
    node("Floor", ["f"], ["g"]),
    node("Cast", ["g"], ["n2"], to=7),
    node("Concat", ["n2", "half", "rest"], ["t"], axis=0),
    node("Reshape", ["x", "t"], ["y"]),
]
NUMBERS = {
    "zero": np.array(0),
    "axis": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "minus": np.array([-1]),
}


def test_chains_of_shapes_fold_away() -> None:
    """x.view(x.size(0), x.size(1) // 2, -1), as exporters write it."""
    file = model(CHAIN, {"x": ("batch", 6, 5, 7)}, ["y"], NUMBERS)
    assert types(file) == ["Reshape"]
    np.testing.assert_array_equal(run(file, x=X)[0], X.reshape(2, 3, 70))


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "expected"),
    [
        ("ConstantOfShape", [np.array([2, 3])], {"value": np.array([4.0], np.float32)}, np.full((2, 3), 4)),
        ("Range", [np.float32(1), np.float32(7), np.float32(2)], {}, [1, 3, 5]),
        ("Range", [np.float32(5), np.float32(0), np.float32(-2)], {}, [5, 3, 1]),
        ("Expand", [np.float32([[1], [2]]), np.array([2, 3])], {}, [[1, 1, 1], [2, 2, 2]]),
        ("Where", [np.array([True, False]), np.float32([1, 2]), np.float32([3, 4])], {}, [1, 4]),
        ("Tile", [np.float32([1, 2]), np.array([2])], {}, [1, 2, 1, 2]),
        ("ReduceProd", [np.float32([[1, 2], [3, 4]])], {"axes": [1], "keepdims": 0}, [2, 12]),
        ("Mod", [np.float32([5, -5]), np.float32([3, 3])], {"fmod": 1}, [2, -2]),
        ("Clip", [np.float32([1, 4, 9]), np.float32(5), np.float32(3)], {}, [3, 3, 3]),
        ("Max", [np.float32([1, 5]), np.float32([3])], {}, [3, 5]),
        ("Transpose", [np.float32([[1, 2], [3, 4]])], {}, [[1, 3], [2, 4]]),
        ("Slice", [np.float32([10, 20]), *map(np.array, ([-5], [-3], [0], [-1]))], {}, [10]),
        ("Slice", [np.float32([10, 20, 30]), *map(np.array, ([5], [-3], [0], [-1]))], {}, [30, 20]),
        ("Neg", [np.float32([1, -2])], {}, [-1, 2]),
    ],
)
def test_constants_are_computed(operator: str, inputs: list[Any], attributes: dict[str, Any], expected: Any) -> None:
    names = [f"c{i}" for i in range(len(inputs))]
    nodes = [node(operator, names, ["k"], **attributes), node("Add", ["x", "k"], ["y"])]
    expected = np.asarray(expected, np.float32)
    x = numbers(3, *expected.shape)
    file = model(nodes, {"x": x.shape}, ["y"], dict(zip(names, inputs)), opset=12)
    np.testing.assert_allclose(run(file, x=x)[0], x + expected, rtol=1e-6)


def test_whole_numbers_divide_towards_zero() -> None:
    nodes = [node("Div", ["a", "b"], ["q"]), node("Cast", ["q"], ["f"], to=1), node("Add", ["x", "f"], ["y"])]
    constants = {"a": np.array([7, -7, 7]), "b": np.array([2, 2, -2])}
    zeros = np.zeros((2, 3), np.float32)
    assert run(model(nodes, {"x": (2, 3)}, ["y"], constants), x=zeros)[0][0].tolist() == [3, -3, -3]


@pytest.mark.parametrize(("fmod", "expected"), [(0, [1, -1, 0]), (1, [-1, 1, 0])])
def test_remainders_of_whole_numbers(fmod: int, expected: list[int]) -> None:
    """With the sign of the divisor, or with fmod of the dividend."""
    nodes = [
        node("Mod", ["a", "b"], ["q"], fmod=fmod),
        node("Cast", ["q"], ["f"], to=1),
        node("Add", ["x", "f"], ["y"]),
    ]
    constants = {"a": np.array([-3, 3, 4]), "b": np.array([2, -2, 2])}
    zeros = np.zeros((2, 3), np.float32)
    assert run(model(nodes, {"x": (2, 3)}, ["y"], constants), x=zeros)[0][0].tolist() == expected


def test_a_scalar_stays_one() -> None:
    """An index that is a scalar takes an axis away."""
    nodes = [node("Transpose", ["c"], ["t"]), node("Gather", ["x", "t"], ["y"], axis=0)]
    np.testing.assert_array_equal(run(model(nodes, {"x": X.shape}, ["y"], {"c": np.array(1)}), x=X)[0], X[1])


def test_too_large_constants_are_refused() -> None:
    """Before memory is spent; a shape alone takes none."""
    nodes = [node("ConstantOfShape", ["s"], ["a"]), node("Exp", ["a"], ["b"]), node("Add", ["x", "b"], ["y"])]
    file = model(nodes, {"x": (2, 3)}, ["y"], {"s": np.array([40000, 40000])})
    with pytest.raises(UnsupportedNodes, match="folded_numbers"):
        types(file)


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_sizes_times_the_images_of_the_pass(images: int, last: bool) -> None:
    """B * heads, -1, size of attention, and B, rows, columns, -1 of windows: the images of the pass, not those of the file."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Transpose", ["x"], ["turned"], perm=[0, 2, 1, 3]),
        node("Mul", ["batch", "four"], ["rows"]),
        node("Concat", ["rows", "minus", "five"], ["first"], axis=0),
        node("Reshape", ["turned", "first"], ["parts"]),
        node("Concat", ["batch", "four", "minus"], ["second"], axis=0),
        node("Reshape", ["parts", "second"], ["together"]),
    ]
    sizes = {name: np.array([v]) for name, v in {"zero": 0, "four": 4, "minus": -1, "five": 5}.items()}
    x = numbers(3, 7, 4, 5)
    top = "together" if last else "parts"
    file = model(nodes, {"x": ("n", 7, 4, 5)}, [top], sizes)
    with chai.Net(file, device="float", shapes={"x": (images, 7, 4, 5)}) as net:
        y = net.forward(x=x)[top]
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1, 3).reshape((3, 4, -1) if last else (12, -1, 5)))
