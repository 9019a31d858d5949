"""Bias and Scale: a small blob laid over a large one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from tests.reference.elementwise import scale

from .common import Run, blob_shape, build, close, numbers

X = numbers(2, 3, 5, 7, seed=1)
ONES = np.ones(())

# axis, num_axes, first axis, operand's shape
LAID = [
    (1, 1, 1, (3,)),
    (0, 1, 0, (2,)),
    (0, 2, 0, (2, 3)),
    (1, 2, 1, (3, 5)),
    (1, -1, 1, (3, 5, 7)),
    (0, -1, 0, (2, 3, 5, 7)),
    (-1, 1, 3, (7,)),
    (-2, -1, 2, (5, 7)),
    (1, 0, 1, ()),
]


@pytest.mark.parametrize(("axis", "num_axes", "first", "shape"), LAID)
def test_bias(run: Run, axis: int, num_axes: int, first: int, shape: tuple[int, ...]) -> None:
    b = numbers(*shape, seed=2)
    (y,) = run("Bias", f"bias_param {{ axis: {axis} num_axes: {num_axes} }}", X, weights=(b,))
    close(y, scale(X, ONES, 0, b) if not shape else scale(X, np.ones(shape), first, b))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("axis", "num_axes", "first", "shape"), LAID)
def test_scale(run: Run, axis: int, num_axes: int, first: int, shape: tuple[int, ...], bias: bool) -> None:
    s, b = numbers(*shape, seed=2), numbers(*shape, seed=3)
    text = f"axis: {axis} num_axes: {num_axes} bias_term: {str(bias).lower()}"
    (y,) = run("Scale", f"scale_param {{ {text} }}", X, weights=(s, b) if bias else (s,))
    close(y, scale(X, s, first, b if bias else None))


TWO = [(1, 1, (3,)), (0, 0, (2, 3)), (-2, 2, (5, 7)), (0, 0, (2, 3, 5, 7))]


@pytest.mark.parametrize(("axis", "first", "shape"), TWO)
def test_bias_of_two_bottoms(run: Run, axis: int, first: int, shape: tuple[int, ...]) -> None:
    b = numbers(*shape, seed=2)
    (y,) = run("Bias", f"bias_param {{ axis: {axis} }}", X, b)
    close(y, scale(X, np.ones(shape), first, b))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("axis", "first", "shape"), TWO)
def test_scale_of_two_bottoms(run: Run, axis: int, first: int, shape: tuple[int, ...], bias: bool) -> None:
    """num_axes says nothing here; a bias is as large as the second bottom."""
    s, b = numbers(*shape, seed=2), numbers(*shape, seed=3)
    text = f"axis: {axis} num_axes: 1 bias_term: {str(bias).lower()}"
    (y,) = run("Scale", f"scale_param {{ {text} }}", X, s, weights=(b,) if bias else ())
    close(y, scale(X, s, first, b if bias else None))


@pytest.mark.parametrize("type", ["Scale", "Bias"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4,)])
def test_a_scalar_lies_over_any_blob(tmp_path: Path, type: str, shape: tuple[int, ...]) -> None:
    """Caffe takes axis 0 for a scalar second bottom, so the default axis 1 may be one that does not exist."""
    path = tmp_path / "net.prototxt"
    path.write_text(
        f"""
        layer {{ name: "in" type: "Input" top: "x" top: "one" input_param {{ {blob_shape(shape)} shape {{ dim: 1 }} }} }}
        layer {{ name: "scalar" type: "Reshape" bottom: "one" top: "scalar" reshape_param {{ shape {{ }} }} }}
        layer {{ name: "probe" type: "{type}" bottom: "x" bottom: "scalar" top: "y" }}
        """
    )
    net = chai.Net(path, device="float", keep="all")
    x = numbers(*shape, seed=5)
    y = net.forward(x=x, one=np.float32([2.5]))["y"]
    assert net.shapes["scalar"] == net.blobs["scalar"].shape == ()
    assert np.array_equal(y, x * 2.5 if type == "Scale" else x + 2.5)


def test_without_weights_scale_and_bias_do_nothing(tmp_path: Path) -> None:
    net = build(tmp_path, "Scale", "scale_param { bias_term: true }", [X.shape])
    assert [p.tolist() for p in net.params["probe"]] == [[1.0] * 3, [0.0] * 3]
    assert np.array_equal(net.forward(X)["y0"], X)
    assert np.array_equal(build(tmp_path, "Bias", "", [X.shape]).forward(X)["y0"], X)


def test_fillers(tmp_path: Path) -> None:
    text = "scale_param { filler { value: 2 } bias_term: true bias_filler { value: -1 } }"
    assert np.array_equal(build(tmp_path, "Scale", text, [X.shape]).forward(X)["y0"], 2 * X - 1)
    two = "scale_param { bias_term: true bias_filler { value: -1 } }"
    factor = np.array([1, 2, 3], np.float32)
    y = build(tmp_path, "Scale", two, [X.shape, (3,)]).forward(X, factor)["y0"]
    assert np.array_equal(y, X * factor.reshape(3, 1, 1) - 1)
