"""Conv and ConvTranspose, against sums over every pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chai.errors import UnsupportedNodes

from ..common import model, node, numbers, one, types

Array = np.ndarray
X = numbers(2, 6, 9, 7, seed=1)


def convolved(
    x: Array, w: Array, pads: list[int], stride: tuple[int, int], dilation: tuple[int, int], group: int
) -> Array:
    """The sum over each window, in float64."""
    t, le, b, r = pads
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (t, b), (le, r)))
    m, c, kh, kw = w.shape
    oh = (x.shape[2] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (x.shape[3] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    y = np.zeros((len(x), m, oh, ow))
    for o in range(m):
        first = o // (m // group) * c
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dilation[0], i * dilation[0] + (oh - 1) * stride[0] + 1, stride[0])
                columns = slice(j * dilation[1], j * dilation[1] + (ow - 1) * stride[1] + 1, stride[1])
                y[:, o] += np.einsum("nchw,c->nhw", x[:, first : first + c, rows, columns], w[o, :, i, j])
    return y


CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 0, 0, 0]),
    ({"strides": [2, 1], "pads": [1, 0, 1, 0]}, [1, 0, 1, 0]),
    ({"dilations": [2, 1], "pads": [0, 2, 1, 1]}, [0, 2, 1, 1]),
    ({"group": 3, "pads": [0, 0, 2, 1]}, [0, 0, 2, 1]),
    ({"strides": [2, 3], "auto_pad": "SAME_UPPER"}, [1, 0, 1, 0]),
    ({"strides": [3, 2], "auto_pad": "SAME_LOWER"}, [0, 1, 0, 0]),
    ({"auto_pad": "VALID", "pads": [0, 0, 0, 0]}, [0, 0, 0, 0]),
    ({"pads": [0, 0, 30, 0]}, [0, 0, 30, 0]),  # too uneven for a kernel with zeros: padded by a layer of its own
]


@pytest.mark.parametrize(("attributes", "pads"), CASES)
@pytest.mark.parametrize("bias", [False, True])
def test_conv(attributes: dict[str, Any], pads: list[int], bias: bool) -> None:
    group = attributes.get("group", 1)
    w, b = numbers(9, 6 // group, 3, 2), numbers(9, seed=3)
    if attributes.get("auto_pad") == "SAME_UPPER":  # 9 rows in 5 steps of 2, 7 columns in 3 steps of 3
        pads = [1, 0, 1, 1]
    elif attributes.get("auto_pad") == "SAME_LOWER":  # 9 rows in 3 steps of 3, 7 columns in 4 steps of 2
        pads = [0, 1, 0, 0]
    (y,) = one("Conv", X, w, *([b] if bias else []), **attributes)
    steps = tuple(attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    expected = convolved(X, w, pads, steps[0], steps[1], group) + (b[:, None, None] if bias else 0)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_conv_of_one_axis() -> None:
    x, w = numbers(2, 3, 11), numbers(5, 3, 4)
    (y,) = one("Conv", x, w, strides=[2], pads=[1, 2], dilations=[2])
    expected = convolved(x[:, :, None], w[:, :, None], [0, 1, 0, 2], (1, 2), (1, 2), 1)[:, :, 0]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "attributes", "reason"),
    [
        ((2, 3, 5, 5, 5), {}, "a kernel of 3 axes"),
        ((2, 3, 5, 5), {"pads": [-1, 0, 0, 0]}, "a negative padding"),
        ((2, 3, 5, 5), {"strides": [1]}, "do not fit a kernel of 2 axes"),
        ((2, 3, 5, 5), {"auto_pad": "OTHER"}, "auto_pad 'OTHER'"),
        ((2, 4, 5, 5), {}, "its weights are"),
    ],
)
def test_conv_that_is_refused(shape: tuple[int, ...], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedNodes, match=reason):
        one("Conv", numbers(*shape), numbers(4, 3, *(2 for _ in shape[2:])), **attributes)


def test_weights_from_a_layer_are_refused() -> None:
    file = model([node("Conv", ["x", "x"], ["y"])], {"x": (3, 3, 3, 3)}, ["y"])
    with pytest.raises(UnsupportedNodes, match="its weights is computed by other nodes"):
        types(file)


def transposed(x: Array, w: Array, attributes: dict[str, Any], size: tuple[int, int], first: tuple[int, int]) -> Array:
    """Every pixel adds its multiple of the kernel; then a map of ``size`` from ``first`` on."""
    stride, dilation = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    group = attributes.get("group", 1)
    n, c, h, width = x.shape
    m = w.shape[1]
    full = np.zeros((n, m * group, 64, 64))
    for channel in range(c):
        out = channel // (c // group) * m
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                rows = slice(i * dilation[0], i * dilation[0] + (h - 1) * stride[0] + 1, stride[0])
                columns = slice(j * dilation[1], j * dilation[1] + (width - 1) * stride[1] + 1, stride[1])
                full[:, out : out + m, rows, columns] += np.einsum("nhw,m->nmhw", x[:, channel], w[channel, :, i, j])
    return full[:, :, first[0] : first[0] + size[0], first[1] : first[1] + size[1]]


@pytest.mark.parametrize(
    ("attributes", "size", "first"),
    [
        ({}, (6, 8), (0, 0)),
        ({"strides": [2, 3], "pads": [1, 0, 1, 0]}, (7, 18), (1, 0)),
        ({"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, (8, 12), (1, 1)),
        ({"strides": [3, 2], "output_padding": [2, 1]}, (14, 14), (0, 0)),
        ({"dilations": [2, 2], "group": 3}, (8, 10), (0, 0)),
        ({"strides": [2, 2], "auto_pad": "SAME_UPPER"}, (8, 12), (0, 0)),
        ({"strides": [2, 2], "output_shape": [8, 13]}, (8, 13), (1, 0)),
    ],
)
def test_conv_transpose(attributes: dict[str, Any], size: tuple[int, int], first: tuple[int, int]) -> None:
    x, w, b = numbers(2, 6, 4, 6), numbers(6, 5, 3, 3), numbers(5 * attributes.get("group", 1), seed=4)
    (y,) = one("ConvTranspose", x, w, b, **attributes)
    expected = transposed(x, w, attributes, size, first) + b[:, None, None]
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
