"""Pools against loops over every window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, types

Array = np.ndarray


def pooled(
    x: Array,
    kind: str,
    kernel: list[int],
    stride: list[int],
    pads: list[int],
    ceil: bool = False,
    counted: bool = False,
) -> Array:
    """Each window by itself: those that begin beyond the image and the padding before it do not exist."""
    n, c, h, w = x.shape
    sizes = []
    for i, size in enumerate((h, w)):
        span = size + pads[i] + pads[i + 2] - kernel[i]
        count = (-(-span // stride[i]) if ceil else span // stride[i]) + 1
        while (count - 1) * stride[i] >= size + pads[i]:
            count -= 1
        sizes.append(count)
    y = np.zeros((n, c, *sizes))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            top, left = i * stride[0] - pads[0], j * stride[1] - pads[1]
            bottom, right = top + kernel[0], left + kernel[1]
            cut = x[:, :, max(top, 0) : min(bottom, h), max(left, 0) : min(right, w)].astype(np.float64)
            if kind == "MaxPool":
                y[:, :, i, j] = cut.max((2, 3))
            else:
                area = (min(bottom, h + pads[2]) - top) * (min(right, w + pads[3]) - left)
                y[:, :, i, j] = cut.sum((2, 3)) / (area if counted else cut.shape[2] * cut.shape[3])
    return y


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "pads"),
    [
        ([3, 2], [1, 1], [0, 0, 0, 0]),
        ([3, 3], [2, 2], [1, 1, 1, 1]),
        ([2, 3], [2, 2], [1, 0, 0, 2]),
        ([1, 2], [3, 4], [0, 0, 0, 0]),  # rounded up, a last window would begin after the image
        ([2, 2], [3, 3], [0, 1, 0, 1]),
    ],
)
def test_pools(kind: str, kernel: list[int], stride: list[int], pads: list[int], ceil: bool, counted: bool) -> None:
    x = numbers(2, 3, 6, 9)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": pads, "ceil_mode": ceil}
    if kind == "AveragePool":
        attributes["count_include_pad"] = counted
    (y,) = one(kind, x, **attributes)
    expected = pooled(x, kind, kernel, stride, pads, ceil, counted)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("auto", "pads"), [("SAME_UPPER", [0, 0, 1, 1]), ("SAME_LOWER", [1, 1, 0, 0])])
def test_padding_that_keeps_sizes(auto: str, pads: list[int]) -> None:
    x = numbers(2, 3, 6, 9)
    (y,) = one("MaxPool", x, kernel_shape=[2, 2], auto_pad=auto)
    np.testing.assert_array_equal(y, pooled(x, "MaxPool", [2, 2], [1, 1], pads).astype(np.float32))


def test_one_axis() -> None:
    x = numbers(2, 3, 11)
    for kind in ("MaxPool", "AveragePool"):
        (y,) = one(kind, x, kernel_shape=[3], strides=[2], pads=[1, 0])
        expected = pooled(x[:, :, None], kind, [1, 3], [1, 2], [0, 1, 0, 0])[:, :, 0]
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 3, 7), (2, 3, 2, 5, 4)])
def test_whole_maps(shape: tuple[int, ...]) -> None:
    x, axes = numbers(*shape), tuple(range(2, len(shape)))
    np.testing.assert_allclose(one("GlobalAveragePool", x)[0], x.mean(axes, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(one("GlobalMaxPool", x)[0], x.max(axes, keepdims=True))


def by_window(
    x: Array,
    kind: str,
    kernel: list[int],
    stride: list[int],
    pads: list[int],
    dilation: list[int],
    ceil: bool = False,
    counted: bool = True,
) -> Array:
    """Any number of axes, each window tap by tap; a mean is of the taps in the image, and if ``counted`` in the padding."""
    rank, size = len(kernel), x.shape[2:]
    counts = []
    for i in range(rank):
        room = size[i] + pads[i] + pads[i + rank] - dilation[i] * (kernel[i] - 1) - 1
        count = (-(-room // stride[i]) if ceil else room // stride[i]) + 1
        while (count - 1) * stride[i] >= size[i] + pads[i]:
            count -= 1
        counts.append(count)
    y = np.zeros((*x.shape[:2], *counts))
    for place in np.ndindex(*counts):
        values, area = [], 0
        for tap in np.ndindex(*kernel):
            at = [p * s - b + t * d for p, s, b, t, d in zip(place, stride, pads, tap, dilation)]
            inside = all(0 <= i < n for i, n in zip(at, size))
            area += inside or (counted and all(-b <= i < n + a for i, n, b, a in zip(at, size, pads, pads[rank:])))
            if inside:
                values.append(x[(slice(None), slice(None), *at)].astype(np.float64))
        y[(slice(None), slice(None), *place)] = np.max(values, 0) if kind == "MaxPool" else np.sum(values, 0) / area
    return y


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "pads", "dilation"),
    [
        ((2, 3, 9, 11), [3, 2], [1, 1], [0, 0, 0, 0], [2, 3]),
        ((2, 3, 9, 11), [2, 3], [2, 3], [1, 2, 0, 1], [3, 2]),
        ((2, 3, 12), [3], [2], [1, 2], [4]),
        ((2, 3, 8, 6), [1, 2], [3, 1], [0, 0, 0, 0], [2, 5]),
        ((2, 3, 10, 8), [2, 3], [4, 3], [1, 1, 2, 0], [3, 2]),  # rounded up, more windows than rounded down
        ((1, 2, 6, 7, 8), [2, 3, 2], [2, 1, 3], [1, 0, 1, 0, 2, 1], [2, 1, 3]),
    ],
)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_dilations(
    kind: str, shape: Any, kernel: Any, stride: Any, pads: Any, dilation: Any, ceil: bool, counted: bool
) -> None:
    x = numbers(*shape)
    window = {"kernel_shape": kernel, "strides": stride, "pads": pads, "dilations": dilation, "ceil_mode": ceil}
    (y,) = one(kind, x, opset=19, **window, **({"count_include_pad": counted} if kind == "AveragePool" else {}))
    expected = by_window(x, kind, kernel, stride, pads, dilation, ceil, counted)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("stride", [[1, 1, 1], [2, 1, 3]])
@pytest.mark.parametrize("pads", [[0] * 6, [1, 0, 2, 0, 1, 1]])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_three_axes(kind: str, stride: list[int], pads: list[int], ceil: bool, counted: bool) -> None:
    x, kernel = numbers(2, 3, 5, 6, 7), [2, 3, 4]
    more = {"count_include_pad": counted} if kind == "AveragePool" else {}
    (y,) = one(kind, x, kernel_shape=kernel, strides=stride, pads=pads, ceil_mode=ceil, **more)
    expected = by_window(x, kind, kernel, stride, pads, [1, 1, 1], ceil, counted)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_three_axes_that_keep_sizes() -> None:
    x = numbers(2, 3, 5, 6, 7)
    (y,) = one("MaxPool", x, kernel_shape=[2, 3, 2], strides=[2, 1, 3], auto_pad="SAME_UPPER")
    expected = by_window(x, "MaxPool", [2, 3, 2], [2, 1, 3], [0, 1, 0, 1, 1, 1], [1, 1, 1])
    np.testing.assert_array_equal(y, expected.astype(np.float32))


def test_what_is_refused() -> None:
    x = numbers(2, 3, 5, 7)
    with pytest.raises(UnsupportedNodes, match="a mean of no numbers"):
        one("AveragePool", x, kernel_shape=[2, 2], dilations=[9, 1], pads=[8, 0, 8, 0], opset=19)
    with pytest.raises(UnsupportedNodes, match="strides, dilations and pads do not fit a kernel of 2 axes"):
        one("MaxPool", x, kernel_shape=[2, 2], strides=[1])
    with pytest.raises(UnsupportedNodes, match="a window of 7 over an axis of 5"):
        one("MaxPool", x, kernel_shape=[3, 2], dilations=[3, 2])
    with pytest.raises(UnsupportedNodes, match="its kernel_shape is missing"):
        one("MaxPool", x)
    file = model([node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])], {"x": x.shape}, ["y", "i"])
    with pytest.raises(UnsupportedNodes, match="its output 'i' is used"):
        types(file)
