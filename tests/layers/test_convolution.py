"""Convolution, DepthwiseConvolution, ConvolutionDepthwise, Im2col and Local against the loop over pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import chai.kernels.convolution as kernel
from tests.kernels.common import NAMES, used
from tests.reference.window import bordered, columns, convolution, local

from .common import GEOMETRY, Pair, Run, Shape, close, numbers

X = numbers(2, 3, 5, 7, seed=1)
KERNELS = [*NAMES[:1], "numpy"]


def body(m: int, more: str) -> str:
    return f"convolution_param {{ num_output: {m} {more} }}"


# text, weights' shape, stride, pad, dilation, group
FORMS = [
    ("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0", (4, 3, 3, 2), (2, 1), (1, 0), (1, 1), 1),
    ("kernel_size: 3 kernel_size: 2 stride: 1 stride: 3 pad: 0 pad: 2", (4, 3, 3, 2), (1, 3), (0, 2), (1, 1), 1),
    ("kernel_size: 3", (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ("kernel_size: 2 stride: 2 pad: 1", (4, 3, 2, 2), (2, 2), (1, 1), (1, 1), 1),
    ("kernel_h: 3 kernel_w: 2 dilation: 2 dilation: 3 pad: 2", (4, 3, 3, 2), (1, 1), (2, 2), (2, 3), 1),
    ("kernel_size: 3 pad_w: 1", (4, 3, 3, 3), (1, 1), (0, 1), (1, 1), 1),
    ("kernel_size: 3 stride_h: 2 stride_w: 3", (4, 3, 3, 3), (2, 3), (0, 0), (1, 1), 1),
    ("kernel_size: 1", (4, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ("kernel_size: 1 stride: 2", (4, 3, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ("kernel_size: 1 pad: 1", (4, 3, 1, 1), (1, 1), (1, 1), (1, 1), 1),
    ("kernel_size: 1 axis: -3", (4, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ("kernel_h: 3 kernel_w: 2 group: 3", (6, 1, 3, 2), (1, 1), (0, 0), (1, 1), 3),
    ("kernel_size: 1 group: 3", (6, 1, 1, 1), (1, 1), (0, 0), (1, 1), 3),
    ("kernel_h: 3 kernel_w: 2 group: 3 stride: 2 pad: 1", (3, 1, 3, 2), (2, 2), (1, 1), (1, 1), 3),
    ("kernel_size: 2 group: 3 dilation: 3 dilation: 2 pad_h: 2 pad_w: 1", (3, 1, 2, 2), (1, 1), (2, 1), (3, 2), 3),
    ("kernel_size: 1 group: 3", (3, 1, 1, 1), (1, 1), (0, 0), (1, 1), 3),
    ("kernel_size: 1 stride: 2 group: 3", (3, 1, 1, 1), (2, 2), (0, 0), (1, 1), 3),
]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("type", ["Convolution", "DepthwiseConvolution"])
@pytest.mark.parametrize(("text", "shape", "stride", "pad", "dilation", "group"), FORMS)
def test_window(
    run: Run, kernels: str, type: str, text: str, shape: Shape, stride: Pair, pad: Pair, dilation: Pair, group: int
) -> None:
    w, b = numbers(*shape, seed=2), numbers(shape[0], seed=3)
    with used(kernels):
        (y,) = run(type, body(shape[0], text), X, weights=(w, b))
    close(y, convolution(X, w, b, stride, pad, dilation, group))


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("group", ["", "group: 1", "group: 3"])
def test_a_group_per_channel_whatever_group_is_set(run: Run, kernels: str, group: str) -> None:
    w, b = numbers(3, 1, 3, 2, seed=2), numbers(3, seed=3)
    with used(kernels):
        (y,) = run(
            "ConvolutionDepthwise", body(3, f"kernel_h: 3 kernel_w: 2 stride: 2 pad: 1 {group}"), X, weights=(w, b)
        )
    close(y, convolution(X, w, b, (2, 2), (1, 1), (1, 1), 3))


def test_without_bias(run: Run) -> None:
    w = numbers(4, 3, 3, 2, seed=2)
    (y,) = run("Convolution", body(4, "kernel_h: 3 kernel_w: 2 bias_term: false"), X, weights=(w,))
    close(y, convolution(X, w, None, (1, 1), (0, 0)))


@pytest.mark.parametrize("type", ["Convolution", "DepthwiseConvolution"])
def test_several_bottoms_share_the_weights(run: Run, type: str) -> None:
    w, b = numbers(4, 3, 3, 2, seed=2), numbers(4, seed=3)
    other = numbers(2, 3, 5, 7, seed=9)
    first, second = run(type, body(4, "kernel_h: 3 kernel_w: 2"), X, other, weights=(w, b), tops=2)
    close(first, convolution(X, w, b, (1, 1), (0, 0)))
    close(second, convolution(other, w, b, (1, 1), (0, 0)))


# output rows per band: the columns of one row take 4 * 3 * 3 * 2 * 6 = 432 bytes; there are 5 rows
@pytest.mark.parametrize(("columns", "bands"), [(1, 5), (432, 5), (864, 3), (4 * 432, 2), (5 * 432, 1)])
def test_bands_of_rows(run: Run, monkeypatch: pytest.MonkeyPatch, columns: int, bands: int) -> None:
    monkeypatch.setattr(kernel, "COLUMNS", columns)
    written = []
    bands_of = kernel._columns

    def counted(*arguments: Any) -> Iterator[tuple[slice, np.ndarray]]:
        for rows, band in bands_of(*arguments):
            written.append(rows.stop - rows.start)
            yield rows, band

    monkeypatch.setattr(kernel, "_columns", counted)
    w, b = numbers(4, 3, 3, 2, seed=2), numbers(4, seed=3)
    x = X[:1]
    with used("numpy"):
        (y,) = run("Convolution", body(4, "kernel_h: 3 kernel_w: 2 pad_h: 1"), x, weights=(w, b))
    close(y, convolution(x, w, b, (1, 1), (1, 0)))
    assert len(written) == 2 * bands  # two passes
    assert sum(written) == 2 * y.shape[2]


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """A geometry on a small map."""
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    group = draw(st.integers(1, 3))
    return {
        "x": (
            draw(st.integers(1, 2)),
            group * draw(st.integers(1, 2)),
            draw(st.integers(1, 7)),
            draw(st.integers(1, 7)),
        ),
        "m": group * draw(st.integers(1, 2)),
        "kernel": draw(pair),
        "stride": draw(pair),
        "pad": draw(st.tuples(st.integers(0, 2), st.integers(0, 2))),
        "dilation": draw(pair),
        "group": group,
        "bias": draw(st.booleans()),
        "columns": draw(st.sampled_from([1, 200, 1000, 1 << 20])),
        "kernels": draw(st.sampled_from(KERNELS)),
    }


def text(g: dict[str, Any]) -> str:
    """The geometry as a prototxt writes it."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = g["kernel"], g["stride"], g["pad"], g["dilation"]
    return body(
        g["m"],
        f"kernel_h: {kh} kernel_w: {kw} stride_h: {sh} stride_w: {sw} pad_h: {ph} pad_w: {pw} dilation: {dh} "
        f"dilation: {dw} group: {g['group']} bias_term: {'true' if g['bias'] else 'false'}",
    )


@GEOMETRY
@given(g=windows())
def test_any_geometry(run: Run, g: dict[str, Any]) -> None:
    _, c, *size = g["x"]
    for i in range(2):
        assume(g["dilation"][i] * (g["kernel"][i] - 1) + 1 <= size[i] + 2 * g["pad"][i])
    x = numbers(*g["x"], seed=4)
    weights = [numbers(g["m"], c // g["group"], *g["kernel"], seed=5)]
    if g["bias"]:
        weights.append(numbers(g["m"], seed=6))
    with pytest.MonkeyPatch.context() as patch, used(g["kernels"]):
        patch.setattr(kernel, "COLUMNS", g["columns"])
        (y,) = run("Convolution", text(g), x, weights=weights)
    close(
        y,
        convolution(x, weights[0], weights[1] if g["bias"] else None, g["stride"], g["pad"], g["dilation"], g["group"]),
    )


# text, kernel, stride, dilation, (top, left), (bottom, right)
SIDES = [
    ("kernel_size: 3 stride: 2 pad_t: 0 pad_b: 1 pad_l: 0 pad_r: 1", (3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
    ("kernel_h: 3 kernel_w: 2 stride: 2 pad_t: 2 pad_b: 1 pad_r: 3", (3, 2), (2, 2), (1, 1), (2, 0), (1, 3)),
    ("kernel_size: 2 dilation: 2 dilation: 3 pad_t: 4 pad_l: 3", (2, 2), (1, 1), (2, 3), (4, 3), (0, 0)),
    ("kernel_size: 1 pad_t: 1 pad_b: 1 pad_l: 2 pad_r: 2", (1, 1), (1, 1), (1, 1), (1, 2), (1, 2)),
    ("kernel_h: 5 kernel_w: 7 pad_b: 1", (5, 7), (1, 1), (1, 1), (0, 0), (1, 0)),
]


@pytest.mark.parametrize(("groups", "m"), [(1, 4), (3, 6), (3, 3)])
@pytest.mark.parametrize(("text", "kernel", "stride", "dilation", "before", "after"), SIDES)
def test_a_padding_for_each_side(
    run: Run, text: str, kernel: Pair, stride: Pair, dilation: Pair, before: Pair, after: Pair, groups: int, m: int
) -> None:
    w, b = numbers(m, 3 // groups, *kernel, seed=2), numbers(m, seed=3)
    (y,) = run("Convolution", body(m, f"{text} group: {groups}"), X, weights=(w, b))
    close(y, convolution(bordered(X, before, after), w, b, stride, (0, 0), dilation, groups))


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(3, 1, 0), (2, 2, 1), (5, 3, 2), (1, 2, 0)])
@pytest.mark.parametrize("bias", [True, False])
def test_local(run: Run, kernel: int, stride: int, pad: int, bias: bool) -> None:
    places = ((5 + 2 * pad - kernel) // stride + 1) * ((7 + 2 * pad - kernel) // stride + 1)
    w, b = numbers(4, 1, 3 * kernel * kernel, places, seed=2), numbers(1, 1, 4, places, seed=3)
    text = f"num_output: 4 kernel_size: {kernel} stride: {stride} pad: {pad} bias_term: {str(bias).lower()}"
    (y,) = run("Local", f"local_param {{ {text} }}", X, weights=(w, b) if bias else (w,))
    close(y, local(X, w, b if bias else None, kernel, stride, pad))


@pytest.mark.parametrize(
    ("text", "kernel", "stride", "before", "after", "dilation"),
    [
        ("kernel_size: 1", (1, 1), (1, 1), (0, 0), (0, 0), (1, 1)),
        ("kernel_h: 3 kernel_w: 2", (3, 2), (1, 1), (0, 0), (0, 0), (1, 1)),
        ("kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 2 pad_h: 1 pad_w: 2", (2, 3), (3, 2), (1, 2), (1, 2), (1, 1)),
        ("kernel_size: 2 kernel_size: 3 dilation: 3 dilation: 2 pad: 1", (2, 3), (1, 1), (1, 1), (1, 1), (3, 2)),
        ("kernel_size: 3 dilation: 2 pad_t: 1 pad_b: 4 pad_r: 20", (3, 3), (1, 1), (1, 0), (4, 20), (2, 2)),
        ("kernel_size: 5 num_output: 9 group: 2 bias_term: true", (5, 5), (1, 1), (0, 0), (0, 0), (1, 1)),
    ],
)
def test_im2col(run: Run, text: str, kernel: Pair, stride: Pair, before: Pair, after: Pair, dilation: Pair) -> None:
    (y,) = run("Im2col", f"convolution_param {{ {text} }}", X)
    assert np.array_equal(y, columns(X, kernel, stride, before, after, dilation))


def test_im2col_is_what_a_convolution_multiplies(run: Run) -> None:
    text = "kernel_h: 3 kernel_w: 2 stride: 2 pad: 1 dilation: 2 dilation: 1"
    w = numbers(4, 3, 3, 2, seed=2)
    (columns_,) = run("Im2col", f"convolution_param {{ {text} }}", X)
    (y,) = run("Convolution", body(4, text + " bias_term: false"), X, weights=(w,))
    close(np.einsum("mk,nkhw->nmhw", w.reshape(4, -1), columns_), y)
