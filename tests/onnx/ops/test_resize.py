"""Resize and Upsample: each pixel by itself, from the definition of its place and weights."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, types

Array = np.ndarray
X = numbers(2, 3, 4, 6)


def place(i: int, new: int, old: int, scale: float, rule: str) -> float:
    if rule == "align_corners":
        return i * (old - 1) / (new - 1) if new > 1 else 0
    if rule == "asymmetric":
        return i / scale
    if rule == "pytorch_half_pixel" and new == 1:
        return -0.5
    shift = old / 2 * (1 - new / (scale * old)) if rule == "half_pixel_symmetric" else 0
    return shift + (i + 0.5) / scale - 0.5


def weight(distance: float, mode: str) -> float:
    d, a = abs(distance), -0.75
    if mode == "linear":
        return max(1 - d, 0)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0


def resized(x: Array, axis: int, new: int, scale: float, rule: str, mode: str, nearest: str, inside: bool) -> Array:
    old = x.shape[axis]
    parts = []
    for i in range(new):
        at = place(i, new, old, scale, rule)
        if mode == "nearest":
            round_ = {
                "floor": floor,
                "ceil": ceil,
                "round_prefer_floor": lambda v: ceil(v - 0.5),
                "round_prefer_ceil": lambda v: floor(v + 0.5),
            }[nearest]
            parts.append(x.take(min(max(round_(at), 0), old - 1), axis).astype(np.float64))
            continue
        taps = {tap: weight(at - tap, mode) for tap in range(floor(at) - 2, floor(at) + 4)}
        if inside:
            taps = {tap: w for tap, w in taps.items() if 0 <= tap < old}
            taps = {tap: w / sum(taps.values()) for tap, w in taps.items()}
        parts.append(sum(w * x.take(min(max(tap, 0), old - 1), axis).astype(np.float64) for tap, w in taps.items()))
    return np.stack(parts, axis)


@pytest.mark.parametrize(
    "rule", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("linear", {}),
        ("cubic", {}),
        ("cubic", {"exclude_outside": 1}),
        *(("nearest", {"nearest_mode": n}) for n in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
    ],
)
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (8, 6), (4, 1)])
def test_sizes(rule: str, mode: str, more: dict[str, Any], size: tuple[int, int]) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": rule, **more}
    (y,) = one("Resize", X, None, None, np.array([2, 3, *size]), **attributes)
    expected: Array = X
    for axis, new in zip((2, 3), size):
        scale = new / X.shape[axis]
        if scale != 1:
            inside = bool(more.get("exclude_outside"))
            expected = resized(expected, axis, new, scale, rule, mode, more.get("nearest_mode", ""), inside)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales(mode: str) -> None:
    scales = np.array([1, 1, 1.6, 0.6], np.float32)
    (y,) = one("Resize", X, None, scales, mode=mode)
    expected: Array = X
    for axis, new in ((2, 6), (3, 3)):
        expected = resized(expected, axis, new, float(scales[axis]), "half_pixel", mode, "round_prefer_floor", False)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("scale", "size"), [(0.7, 7), (0.9, 9), (0.55, 5), (1.1, 11), (0.1, 1)])
def test_scales_are_products_of_float32(scale: float, size: int) -> None:
    """As in onnxruntime, for which networks are exported: float32 has 0.7 as a little less, but 7 as 10 times that."""
    (y,) = one("Resize", numbers(1, 2, 3, 10), None, np.array([1, 1, 1, scale], np.float32), mode="nearest")
    assert y.shape == (1, 2, 3, size)


@pytest.mark.parametrize(
    ("old", "scale", "rule", "nearest", "tie"),
    [
        (6, Fraction(6, 5), "asymmetric", "floor", (6, 5)),
        (23, Fraction(6, 5), "asymmetric", "round_prefer_ceil", (9, 8)),
        (8, Fraction(12, 5), "half_pixel_symmetric", "ceil", (3, 1)),
        (22, Fraction(7, 6), "half_pixel", "round_prefer_floor", (17, 14)),
        (21, Fraction(29, 10), "half_pixel", "round_prefer_ceil", (43, 15)),
        (17, Fraction(39, 10), "pytorch_half_pixel", "round_prefer_ceil", (58, 15)),
    ],
)
def test_ties(old: int, scale: Fraction, rule: str, nearest: str, tie: tuple[int, int]) -> None:
    """Rounded scales move no pixel to another place, as in onnxruntime."""
    x = np.arange(old, dtype=np.float32).reshape(1, 1, 1, old)
    scales = np.array([1, 1, 1, scale], np.float32)
    (y,) = one("Resize", x, None, scales, mode="nearest", coordinate_transformation_mode=rule, nearest_mode=nearest)
    half = Fraction(0 if rule == "asymmetric" else 1, 2)
    shift = Fraction(old, 2) - y.size / scale / 2 if rule == "half_pixel_symmetric" else 0
    places = [shift + (i + half) / scale - half for i in range(y.size)]
    round_ = {
        "floor": floor,
        "ceil": ceil,
        "round_prefer_floor": lambda v: ceil(v - Fraction(1, 2)),
        "round_prefer_ceil": lambda v: floor(v + Fraction(1, 2)),
    }[nearest]
    expected = [min(max(round_(at), 0), old - 1) for at in places]
    assert y.reshape(-1).tolist() == expected
    assert expected[tie[0]] == tie[1]


@pytest.mark.parametrize(("opset", "operator"), [(7, "Upsample"), (9, "Upsample"), (10, "Resize")])
def test_older_forms(opset: int, operator: str) -> None:
    """Their pixels are at i / scale, rounded down."""
    scales = np.array([1, 1, 2, 3], np.float32)
    if opset == 7:
        (y,) = one(operator, X, scales=scales.tolist(), opset=opset)
    else:
        (y,) = one(operator, X, scales, opset=opset)
    np.testing.assert_array_equal(y, X.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("scale", [Fraction(3, 5), Fraction(1, 2), Fraction(7, 10)])
def test_smaller_maps_of_opset_10(scale: Fraction) -> None:
    """Their pixels are at i / scale, rounded up, as in onnxruntime."""
    x = np.arange(21, dtype=np.float32).reshape(1, 1, 1, 21)
    (y,) = one("Resize", x, np.array([1, 1, 1, scale], np.float32), opset=10)
    assert y.reshape(-1).tolist() == [min(ceil(i / scale), 20) for i in range(floor(21 * scale))]
    with pytest.raises(UnsupportedNodes, match="some are below and some above 1"):
        one("Resize", X, np.array([1, 1, 0.5, 2], np.float32), opset=10)


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(3, 2), Fraction(1, 2), Fraction(2, 5)])
def test_pixels_of_tensorflow(scale: Fraction) -> None:
    """Of opset 11, as tf2onnx writes them: the pixel at (i + 1/2) / scale, rounded down."""
    x = np.arange(20, dtype=np.float32).reshape(1, 1, 1, 20)
    rule = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    scales = np.array([1, 1, 1, scale], np.float32)
    (y,) = one("Resize", x, np.zeros(0, np.float32), scales, mode="nearest", opset=11, **rule)
    assert y.reshape(-1).tolist() == [floor((i + Fraction(1, 2)) / scale) for i in range(floor(20 * scale))]


def test_some_axes_and_one_scale_for_all() -> None:
    for policy, size in (("not_larger", (6, 9)), ("not_smaller", (8, 12)), ("stretch", (8, 9))):
        attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy}
        (y,) = one("Resize", X, None, None, np.array([8, 9]), opset=18, **attributes)
        assert y.shape[2:] == size


def test_crops() -> None:
    roi = np.array([0, 0, 0.5, 0, 1, 1, 1.0, 2], np.float32)
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    (y,) = one("Resize", X, roi, None, np.array([2, 3, 3, 3]), **attributes)
    rows = 0.5 * 3 + np.arange(3) * 0.5 * 3 / 2
    for i, at in enumerate(rows):
        low = int(at)
        row = X[:, :, low] * (1 - (at - low)) + X[:, :, min(low + 1, 3)] * (at - low)
        np.testing.assert_allclose(y[:, :, i, 0], row[..., 0], rtol=1e-5)
        np.testing.assert_allclose(y[:, :, i, 1], row[..., 5], rtol=1e-5)
        assert np.all(y[:, :, i, 2] == 9)  # beyond the last column


def test_averages_when_it_shrinks() -> None:
    """Half the size with antialias: weights of a triangle over four pixels, and their sum is 1 at the border."""
    x = numbers(1, 1, 1, 8)
    (y,) = one("Resize", x, None, None, np.array([1, 1, 1, 4]), mode="linear", antialias=1, opset=18)
    row = x[0, 0, 0].astype(np.float64)
    for i in range(4):
        at = 2 * i + 0.5
        taps = np.arange(8)
        w = np.maximum(1 - np.abs(taps - at) / 2, 0)
        if 0 < i < 3:
            np.testing.assert_allclose(y[0, 0, 0, i], (w * row).sum() / w.sum(), rtol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedNodes, match="neither its scales nor its sizes"):
        one("Resize", X)
    with pytest.raises(UnsupportedNodes, match="do not agree"):
        scales = np.array([1, 1, 0.6, 0.6], np.float32)
        one("Resize", X, None, scales, mode="linear", coordinate_transformation_mode="align_corners")
    with pytest.raises(UnsupportedNodes, match="mode: SPLINE is not implemented"):
        one("Resize", X, None, None, np.array([2, 3, 8, 8]), mode="spline")


def test_the_same_size_is_no_layer() -> None:
    file = model(
        [node("Resize", ["x", "", "", "s"], ["a"]), node("Relu", ["a"], ["y"])],
        {"x": X.shape},
        ["y"],
        {"s": np.array(X.shape)},
    )
    assert types(file) == ["ReLU"]
