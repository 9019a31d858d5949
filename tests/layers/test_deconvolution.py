"""Deconvolution against the loop that spreads every pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given

import chai.kernels.convolution as kernel
from tests.reference.window import deconvolution, trimmed

from .common import GEOMETRY, Pair, Run, Shape, close, numbers
from .test_convolution import body, text, windows

X = numbers(2, 6, 5, 7, seed=1)

# text, weights' shape, outputs, stride, pad, dilation, group
FORMS = [
    ("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0", (6, 4, 3, 2), 4, (2, 1), (1, 0), (1, 1), 1),
    ("kernel_size: 4 stride: 2 pad: 1", (6, 4, 4, 4), 4, (2, 2), (1, 1), (1, 1), 1),
    ("kernel_size: 2 stride: 3", (6, 4, 2, 2), 4, (3, 3), (0, 0), (1, 1), 1),  # gaps that no pixel reaches
    ("kernel_h: 3 kernel_w: 2 dilation: 2 dilation: 3", (6, 4, 3, 2), 4, (1, 1), (0, 0), (2, 3), 1),
    ("kernel_size: 1", (6, 4, 1, 1), 4, (1, 1), (0, 0), (1, 1), 1),
    ("kernel_h: 3 kernel_w: 2 group: 2 stride: 2", (6, 2, 3, 2), 4, (2, 2), (0, 0), (1, 1), 2),
    ("kernel_size: 4 stride: 2 pad: 1 group: 6", (6, 1, 4, 4), 6, (2, 2), (1, 1), (1, 1), 6),  # bilinear upsampling
    ("kernel_h: 3 kernel_w: 2 group: 6 pad: 1", (6, 2, 3, 2), 12, (1, 1), (1, 1), (1, 1), 6),
]


@pytest.mark.parametrize(("more", "shape", "m", "stride", "pad", "dilation", "group"), FORMS)
def test_window(run: Run, more: str, shape: Shape, m: int, stride: Pair, pad: Pair, dilation: Pair, group: int) -> None:
    w, b = numbers(*shape, seed=2), numbers(m, seed=3)
    (y,) = run("Deconvolution", body(m, more), X, weights=(w, b))
    close(y, deconvolution(X, w, b, stride, pad, dilation, group))


def test_without_bias(run: Run) -> None:
    w = numbers(6, 4, 3, 2, seed=2)
    (y,) = run("Deconvolution", body(4, "kernel_h: 3 kernel_w: 2 pad: 1 bias_term: false"), X, weights=(w,))
    close(y, deconvolution(X, w, None, (1, 1), (1, 1)))
    assert y.flags.c_contiguous


def test_several_bottoms_share_the_weights(run: Run) -> None:
    w, b = numbers(6, 4, 3, 2, seed=2), numbers(4, seed=3)
    other = numbers(2, 6, 5, 7, seed=9)
    first, second = run("Deconvolution", body(4, "kernel_h: 3 kernel_w: 2"), X, other, weights=(w, b), tops=2)
    close(first, deconvolution(X, w, b, (1, 1), (0, 0)))
    close(second, deconvolution(other, w, b, (1, 1), (0, 0)))


# output maps per band: the taps of one map take 4 * 3 * 2 * 5 * 7 = 840 bytes; there are 5 maps
@pytest.mark.parametrize(("columns", "bands"), [(1, 5), (840, 5), (2 * 840, 3), (4 * 840, 2), (5 * 840, 1)])
def test_bands_of_maps(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int, bands: int) -> None:
    monkeypatch.setattr(kernel, "COLUMNS", columns)
    products = []
    matmul = np.matmul
    monkeypatch.setattr(kernel.np, "matmul", lambda a, b: (products.append(a.shape), matmul(a, b))[1])
    w, b = numbers(6, 5, 3, 2, seed=2), numbers(5, seed=3)
    x = X[:1]
    (y,) = run("Deconvolution", body(5, "kernel_h: 3 kernel_w: 2 stride: 2"), x, weights=(w, b))
    close(y, deconvolution(x, w, b, (2, 2), (0, 0)))
    assert len(products) == 2 * bands  # two passes


@GEOMETRY
@given(g=windows())
def test_any_geometry(run: Run, g: dict[str, Any]) -> None:
    _, c, *size = g["x"]
    for i in range(2):
        extent = g["dilation"][i] * (g["kernel"][i] - 1) + 1
        assume(g["stride"][i] * (size[i] - 1) + extent - 2 * g["pad"][i] >= 1)
    x = numbers(*g["x"], seed=4)
    weights = [numbers(c, g["m"] // g["group"], *g["kernel"], seed=5)]
    if g["bias"]:
        weights.append(numbers(g["m"], seed=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COLUMNS", g["columns"])
        (y,) = run("Deconvolution", text(g), x, weights=weights)
    bias = weights[1] if g["bias"] else None
    close(y, deconvolution(x, weights[0], bias, g["stride"], g["pad"], g["dilation"], g["group"]))


@pytest.mark.parametrize(("groups", "m"), [(1, 4), (2, 4), (6, 6)])
@pytest.mark.parametrize(
    ("more", "kernel", "stride", "dilation", "before", "after"),
    [
        ("kernel_size: 3 stride: 2 pad_b: 1 pad_r: 1", (3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
        ("kernel_h: 4 kernel_w: 2 stride: 2 pad_t: 2 pad_b: 1 pad_r: 3", (4, 2), (2, 2), (1, 1), (2, 0), (1, 3)),
        ("kernel_size: 2 dilation: 2 dilation: 3 pad_t: 2 pad_l: 3", (2, 2), (1, 1), (2, 3), (2, 3), (0, 0)),
    ],
)
def test_a_padding_for_each_side(
    run: Run, more: str, kernel: Pair, stride: Pair, dilation: Pair, before: Pair, after: Pair, groups: int, m: int
) -> None:
    w, b = numbers(6, m // groups, *kernel, seed=2), numbers(m, seed=3)
    (y,) = run("Deconvolution", body(m, f"{more} group: {groups}"), X, weights=(w, b))
    close(y, trimmed(deconvolution(X, w, b, stride, (0, 0), dilation, groups), before, after))
