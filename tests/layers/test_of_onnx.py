"""Types that ONNX files brought: Compare, Erf, LayerNorm, MatMul, Resize, ShapeOf, and further operations of others.

Every rule of Resize is compared with its definition in tests/onnx/ops/test_resize.py.
"""

from __future__ import annotations

from math import erf

import numpy as np
import pytest

from tests.reference.window import pooling

from .common import Run, close, numbers

X = numbers(2, 3, 5, 7, seed=1)


def test_erf(run: Run) -> None:
    x = numbers(2, 3, 50, low=-6, high=6)
    (y,) = run("Erf", "", x)
    assert np.abs(y - np.vectorize(erf)(x.astype(np.float64))).max() < 2e-7
    assert run("Erf", "", np.array([[-np.inf, 0, np.inf]], np.float32))[0].tolist() == [[-1, 0, 1]]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("centered", [True, False])
def test_layer_norm(run: Run, axis: int, centered: bool) -> None:
    (y,) = run("LayerNorm", f"layer_norm_param {{ axis: {axis} eps: 0.5 centered: {str(centered).lower()} }}", X)
    axes = tuple(range(axis % 4, 4))
    x = X.astype(np.float64)
    x -= x.mean(axes, keepdims=True) if centered else 0
    close(y, x / np.sqrt((x**2).mean(axes, keepdims=True) + 0.5))


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((4, 1, 3, 5), (2, 5, 7)), ((5,), (5, 7)), ((3, 5), (5,))],
)
def test_mat_mul(run: Run, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, z = numbers(*left), numbers(*right, seed=2)
    (y,) = run("MatMul", "", x, z)
    rows = x if x.ndim > 1 else x[None]
    columns = z if z.ndim > 1 else z[:, None]
    expected = (rows[..., :, :, None].astype(np.float64) * columns[..., None, :, :]).sum(-2)
    close(y, expected.reshape(y.shape))
    assert y.shape == (x @ z).shape


@pytest.mark.parametrize(("operation", "function"), [("MAX", np.max), ("MIN", np.min), ("PROD", np.prod)])
@pytest.mark.parametrize("axis", [0, 2, -1])
def test_reduction(run: Run, operation: str, function: np.ufunc, axis: int) -> None:
    (y,) = run("Reduction", f"reduction_param {{ operation: {operation} axis: {axis} coeff: 2 }}", X)
    close(y, 2 * function(X.astype(np.float64).reshape(*X.shape[: axis % 4], -1), -1))


def test_resize_from_a_prototxt(run: Run) -> None:
    sizes = "size: 0 size: 0 size: 10 size: 14"
    (y,) = run("Resize", f"resize_param {{ {sizes} coordinates: ASYMMETRIC nearest: FLOOR }}", X)
    close(y, X.repeat(2, 2).repeat(2, 3))
    (y,) = run("Resize", f"resize_param {{ {sizes} mode: LINEAR }}", X)
    close(y[:, :, 1:-1:2, 0], 0.75 * X[:, :, :-1, 0] + 0.25 * X[:, :, 1:, 0])


def test_a_last_window_begins_inside(run: Run) -> None:
    """Of a stride larger than the kernel; Caffe lets it begin after the image."""
    sizes = "kernel_size: 1 stride: 3 pool: MAX"
    assert run("Pooling", f"pooling_param {{ {sizes} }}", X)[0].shape == (2, 3, 3, 3)
    (y,) = run("Pooling", f"pooling_param {{ {sizes} chai_begin_inside: true }}", X)
    close(y, pooling(X[:, :, :4], "MAX", (1, 1), (3, 3), (0, 0)))
    assert y.shape == (2, 3, 2, 3)


@pytest.mark.parametrize(
    ("operation", "symbol"),
    [("GREATER", ">"), ("GREATER_EQUAL", ">="), ("LESS", "<"), ("LESS_EQUAL", "<="), ("EQUAL", "==")],
)
def test_compare(run: Run, operation: str, symbol: str) -> None:
    x, z = np.round(X), np.round(numbers(5, 1, seed=2))
    (y,) = run("Compare", f"compare_param {{ operation: {operation} }}", x, z)
    np.testing.assert_array_equal(y, eval(f"x {symbol} z", {"x": x, "z": z}).astype(np.float32))
    assert 0 < y.mean() < 1


def test_shape_of(run: Run) -> None:
    assert run("ShapeOf", "", X)[0].tolist() == [2, 3, 5, 7]


def test_the_first_of_equal_values(run: Run) -> None:
    x = np.array([[1, 3, 3, 2, 3]], np.float32)
    assert run("ArgMax", "argmax_param { axis: 1 top_k: 4 chai_first: true }", x)[0].tolist() == [[1, 2, 4, 3]]
    assert run("ArgMax", "argmax_param { axis: 1 top_k: 4 }", x)[0].tolist() == [[4, 2, 1, 3]]


@pytest.mark.parametrize(("mode", "expected"), [("REFLECT", [3, 2, 1, 2, 3, 2]), ("EDGE", [1, 1, 1, 2, 3, 3])])
def test_pad_with_the_blob_itself(run: Run, mode: str, expected: list[int]) -> None:
    paddings = "paddings: 0 paddings: 0 paddings: 2 paddings: 1"
    x = np.array([[1, 2, 3]], np.float32)
    assert run("Pad", f"pad_param {{ {paddings} chai_mode: {mode} }}", x)[0].tolist() == [expected]
