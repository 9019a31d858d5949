"""Types that ONNX files brought: Compare, Erf, GridSample, LayerNorm, MatMul, Resize, RoiAlign, ShapeOf, Where, and more.

Every rule of Resize is compared with its definition in tests/onnx/ops/test_resize.py.
"""

from __future__ import annotations

from itertools import product
from math import ceil, erf, floor

import numpy as np
import pytest

from chai.errors import ChaiError
from tests.reference.window import pooling

from .common import Run, close, numbers

X = numbers(2, 3, 5, 7, seed=1)
Array = np.ndarray


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


def test_where(run: Run) -> None:
    """One number after the other, with numbers in what is not chosen that no product would drop."""
    condition, x, z = np.sign(np.round(numbers(5, 1, seed=3))), X.copy(), numbers(3, 1, 7, seed=2)
    x[:, :, condition[:, 0] == 0], z[0, 0, 0] = np.nan, np.inf
    (y,) = run("Where", "", condition, x, z)
    assert y.shape == X.shape and 0 < np.count_nonzero(condition) < 5
    for n, c, h, w in np.ndindex(*X.shape):
        assert y[n, c, h, w] == (x[n, c, h, w] if condition[h, 0] else z[c, 0, w])


def mirrored(i: float, low: float, high: float) -> float:
    """A place, mirrored at the ends until it is between them."""
    while high > low and not low <= i <= high:
        i = 2 * low - i if i < low else 2 * high - i
    return i if high > low else 0.0


def sampled(x: Array, place: Array, mode: str, outside: str, corners: bool) -> float:
    """One number of a map of any number of axes, tap by tap."""
    size, axes = x.shape, []
    for i, at in enumerate(place[::-1].astype(np.float64)):
        low, high = (0.0, size[i] - 1.0) if corners else (-0.5, size[i] - 0.5)
        at = low + (at + 1) / 2 * (high - low)
        at = float(np.rint(at)) if mode == "NEAREST" else at
        if not low <= at <= high and outside != "ZEROS":
            at = min(max(at, 0), size[i] - 1) if outside == "BORDER" else mirrored(at, low, high)
        reach = {"NEAREST": [0], "LINEAR": [0, 1], "CUBIC": [-1, 0, 1, 2]}[mode]
        taps = []
        for tap in reach:
            pixel, d = floor(at) + tap, abs(at - floor(at) - tap)
            if mode != "CUBIC":
                weight = 1 - d
            else:  # Keys, with -0.75
                weight = 1.25 * d**3 - 2.25 * d**2 + 1 if d <= 1 else -0.75 * d**3 + 3.75 * d**2 - 6 * d + 3
            if outside == "BORDER":
                pixel = min(max(pixel, 0), size[i] - 1)
            elif outside == "REFLECTION":
                pixel = round(mirrored(pixel, low, high))
            taps.append((pixel, weight if 0 <= pixel < size[i] else 0.0))
        axes.append(taps)
    total = 0.0
    for taps in product(*axes):
        if all(weight for _, weight in taps):
            total += float(x[tuple(pixel for pixel, _ in taps)]) * np.prod([weight for _, weight in taps])
    return total


@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST", "CUBIC"])
@pytest.mark.parametrize("outside", ["ZEROS", "BORDER", "REFLECTION"])
@pytest.mark.parametrize("corners", [False, True])
def test_grid_sample(run: Run, mode: str, outside: str, corners: bool) -> None:
    """At places in the map, on its edges and far outside."""
    parameters = f"mode: {mode} outside: {outside} align_corners: {str(corners).lower()}"
    for x, places in (
        (X, numbers(2, 4, 6, 2, seed=6)),
        (numbers(1, 2, 3, 1, 4), numbers(1, 2, 3, 4, 3, seed=7)),
        (X, np.round(numbers(2, 5, 2, 2, seed=8, low=-3, high=3))),
    ):
        (y,) = run("GridSample", f"grid_sample_param {{ {parameters} }}", x, places)
        expected = np.empty((*x.shape[:2], *places.shape[1:-1]))
        for n, c, *place in np.ndindex(*expected.shape):
            expected[(n, c, *place)] = sampled(x[n, c], places[(n, *place)], mode, outside, corners)
        close(y, expected)


@pytest.mark.parametrize(("ratio", "half"), [(0, True), (0, False), (2, True), (3, False)])
def test_roi_align(run: Run, ratio: int, half: bool) -> None:
    """Sample by sample: regions inside, across the edges, outside, and of no size."""
    x, images = numbers(3, 2, 6, 8), np.array([2, 0, 1, 1, 0], np.float32)
    regions = np.array([[1, 2, 9, 7], [-4, -3, 5, 30], [40, 1, 50, 3], [3, 3, 3, 3], [2.5, 0, 16, 12]], np.float32)
    sizes = f"pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 sampling_ratio: {ratio} half_pixel: {str(half).lower()}"
    (y,) = run("RoiAlign", f"roi_align_param {{ {sizes} }}", x, regions, images)
    expected = np.zeros((5, 2, 3, 2))
    for r, c, i, j in np.ndindex(*expected.shape):
        (left, top, right, bottom), shift = regions[r].astype(float) / 2, 0.5 if half else 0
        high, wide = (e if half else max(e, 1) for e in (bottom - top, right - left))
        down, across = ratio or ceil(high / 3), ratio or ceil(wide / 2)
        for a, b in np.ndindex(down, across):
            v = top - shift + (i + (a + 0.5) / down) * high / 3
            u = left - shift + (j + (b + 0.5) / across) * wide / 2
            if -1 <= v <= 6 and -1 <= u <= 8:
                v, u = min(max(v, 0), 5), min(max(u, 0), 7)
                for p, q in product((floor(v), floor(v) + 1), (floor(u), floor(u) + 1)):
                    if abs(v - p) < 1 and abs(u - q) < 1:
                        share = (1 - abs(v - p)) * (1 - abs(u - q))
                        expected[r, c, i, j] += x[int(images[r]), c, p, q] * share / (down * across)
    assert y.shape == expected.shape
    close(y, expected)


def test_roi_align_refuses_what_would_not_end(run: Run) -> None:
    for regions, images, part in (
        ([[0, 0, 1e9, 4]], [0], "more than 65,536 samples"),
        ([[0, 0, 4, 4]], [3], "index 3 is outside 0 .. 1"),
    ):
        with pytest.raises(ChaiError, match=part):
            run("RoiAlign", "", X, np.array(regions, np.float32), np.array(images, np.float32))
    (y,) = run("RoiAlign", "", X, np.array([[0, np.nan, 2, 2]], np.float32), np.zeros(1, np.float32))
    assert np.isnan(y).all()


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
