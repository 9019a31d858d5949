"""Pooling against the loop over windows, and Caffe's rule for sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

import chai
from chai.artifact.save import save
from chai.kernels import floats
from tests.passes.common import network
from tests.reference.window import pooled, pooling

from .common import GEOMETRY, Pair, Run, close, numbers

X = numbers(2, 3, 5, 7, seed=1)

# text, kernel, stride, pad
# text, kernel, stride, (top, left), (bottom, right)
SIDES = [
    ("kernel_size: 3 stride: 2 pad_t: 0 pad_b: 1 pad_l: 0 pad_r: 1", (3, 3), (2, 2), (0, 0), (1, 1)),
    ("kernel_h: 3 kernel_w: 4 stride: 2 pad_t: 2 pad_b: 1 pad_l: 1 pad_r: 3", (3, 4), (2, 2), (2, 1), (1, 3)),
    ("kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 1 pad_r: 2", (2, 3), (3, 1), (0, 0), (0, 2)),
    ("kernel_size: 2 stride: 2 pad_t: 1", (2, 2), (2, 2), (1, 0), (0, 0)),
]

FORMS = [
    ("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1", (3, 2), (2, 1), (0, 0)),
    ("kernel_size: 2 stride: 2", (2, 2), (2, 2), (0, 0)),  # rounds up: the last windows are clipped
    ("kernel_size: 3", (3, 3), (1, 1), (0, 0)),
    ("kernel_size: 3 stride: 2 pad: 1", (3, 3), (2, 2), (1, 1)),
    ("kernel_size: 2 stride: 2 pad: 1", (2, 2), (2, 2), (1, 1)),  # the last window would start behind the image
    ("kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1", (3, 2), (1, 2), (0, 1)),
    ("kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 3 pad_h: 1 pad_w: 2", (2, 3), (2, 3), (1, 2)),
    ("kernel_size: 2 stride: 3", (2, 2), (3, 3), (0, 0)),  # pixels that no window sees
    ("kernel_size: 1 stride: 4", (1, 1), (4, 4), (0, 0)),
    ("kernel_h: 5 kernel_w: 7", (5, 7), (1, 1), (0, 0)),
]


@pytest.mark.parametrize("up", [True, False], ids=["CEIL", "FLOOR"])
@pytest.mark.parametrize("kind", ["MAX", "AVE"])
@pytest.mark.parametrize(("text", "kernel", "stride", "pad"), FORMS)
def test_window(run: Run, kind: str, text: str, kernel: Pair, stride: Pair, pad: Pair, up: bool) -> None:
    mode = "" if up else "round_mode: FLOOR"
    (y,) = run("Pooling", f"pooling_param {{ pool: {kind} {text} {mode} }}", X)
    close(y, pooling(X, kind, kernel, stride, pad, up))


@pytest.mark.parametrize("up", [True, False], ids=["CEIL", "FLOOR"])
@pytest.mark.parametrize("kind", ["MAX", "AVE", "AVE_EXC_PAD"])
@pytest.mark.parametrize(("text", "kernel", "stride", "before", "after"), SIDES)
def test_a_padding_for_each_side(
    run: Run, kind: str, text: str, kernel: Pair, stride: Pair, before: Pair, after: Pair, up: bool
) -> None:
    (y,) = run("Pooling", f"pooling_param {{ pool: {kind} {text} ceil_mode: {str(up).lower()} }}", X)
    close(y, pooling(X, kind, kernel, stride, before, up, after))


@pytest.mark.parametrize("name", ["AVE_EXC_PAD", "AVE_TF"])
@pytest.mark.parametrize(("text", "kernel", "stride", "pad"), FORMS)
def test_an_average_without_the_padding(run: Run, text: str, kernel: Pair, stride: Pair, pad: Pair, name: str) -> None:
    (y,) = run("Pooling", f"pooling_param {{ pool: {name} {text} }}", X)
    close(y, pooling(X, "AVE_EXC_PAD", kernel, stride, pad))


@pytest.mark.parametrize(("text", "kernel", "stride", "pad"), [f for f in FORMS if not any(f[3])])
def test_stochastic_expects_the_mean_weighted_by_itself(
    run: Run, text: str, kernel: Pair, stride: Pair, pad: Pair
) -> None:
    x = np.maximum(X, 0)  # it stands behind a ReLU
    x[0, 0, :3, :3] = 0
    (y,) = run("Pooling", f"pooling_param {{ pool: STOCHASTIC {text} }}", x)
    close(y, pooling(x, "STOCHASTIC", kernel, stride, pad))


@pytest.mark.parametrize("up", [True, False], ids=["CEIL", "FLOOR"])
@pytest.mark.parametrize(("text", "kernel", "stride", "pad"), FORMS)
def test_the_places_of_maxima(run: Run, text: str, kernel: Pair, stride: Pair, pad: Pair, up: bool) -> None:
    x = np.round(X)  # with equal numbers, of which the first counts
    mode = "" if up else "round_mode: FLOOR"
    y, places = run("Pooling", f"pooling_param {{ {text} {mode} }}", x, tops=2)
    close(y, pooling(x, "MAX", kernel, stride, pad, up))
    assert np.array_equal(places, pooling(x, "PLACE", kernel, stride, pad, up))


def test_the_default_is_max(run: Run) -> None:
    (y,) = run("Pooling", "pooling_param { kernel_size: 3 }", X)
    close(y, pooling(X, "MAX", (3, 3), (1, 1), (0, 0)))


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
def test_global(run: Run, kind: str) -> None:
    (y,) = run("Pooling", f"pooling_param {{ pool: {kind} global_pooling: true }}", X)
    assert y.shape == (2, 3, 1, 1)
    close(y, pooling(X, kind, (5, 7), (1, 1), (0, 0)))


def test_max_never_sees_the_padding(run: Run) -> None:
    x = -1 - np.abs(X)
    (y,) = run("Pooling", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }", x)
    assert (y < 0).all()
    close(y, pooling(x, "MAX", (3, 3), (2, 2), (1, 1)))


def test_average_counts_the_padding_but_not_what_lies_behind_it(run: Run) -> None:
    x = np.ones((1, 1, 4, 5), np.float32)
    (y,) = run("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", x)
    # columns: -1..1 sees 2 of 3, 1..3 all, 3..5 two of 3; rows: -1..1 two of 3, 1..3 all, 3..4 (clipped) one of 2
    assert np.allclose(y[0, 0], np.outer([2 / 3, 1, 1 / 2], [2 / 3, 1, 2 / 3]))


LEAST = -np.finfo(np.float32).max


@pytest.mark.parametrize("kernels", ["c", "numpy"])
@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("kind", ["MAX", "AVE", "AVE_EXC_PAD"])
def test_a_window_after_the_image(
    run: Run, monkeypatch: pytest.MonkeyPatch, kind: str, size: int, kernels: str
) -> None:
    """Without padding no window is dropped: kernel 2 and stride 4 see 0, 4 and 8, and 8 is the first or second row after it.

    Caffe divides the sum, 0, by the area clipped at the image's end: of no row at 8 of 8 (NaN), of -1 row at 8 of 7.
    """
    if kernels == "numpy":
        monkeypatch.setattr(floats, "library", lambda: None)
    x = numbers(2, 3, size, size, seed=2)
    (y,) = run("Pooling", f"pooling_param {{ pool: {kind} kernel_size: 2 stride: 4 }}", x)
    assert y.shape == (2, 3, 3, 3)
    empty = np.concatenate([y[:, :, 2].ravel(), y[:, :, :, 2].ravel()])
    if kind == "MAX":
        assert (empty == LEAST).all()
    elif size == 7:
        assert (empty == 0).all()
    else:
        assert np.isnan(empty).all()
    assert np.isfinite(y[:, :, :2, :2]).all()
    close(y, pooling(x, kind, (2, 2), (4, 4), (0, 0)))


def test_an_overlay_leaves_a_window_after_the_image_to_the_host(tmp_path: Path) -> None:
    """The convolution before it runs on the overlay; from a .chai the numbers are the same, NaN included."""
    lines = """
    c Convolution data -> c : convolution_param { num_output: 16 kernel_size: 3 pad: 1 }
    p Pooling c -> p : pooling_param { pool: AVE kernel_size: 2 stride: 4 }
    """
    shape = (2, 3, 8, 9)
    x = numbers(*shape, seed=5)
    fixed, exact = network(tmp_path, lines, shape, device="emulator"), network(tmp_path, lines, shape)
    fixed.calibrate(x)
    wanted = exact.forward(x)["p"]
    assert fixed.partition.engine("c") == "fpga"
    assert fixed.partition.reasons["p"] == "its last window is outside the image"
    assert np.isnan(wanted[:, :, 2]).all() and np.isfinite(wanted[:, :, :2]).all()
    save(fixed, tmp_path / "net.chai")
    answers = [net.forward(x)["p"] for net in (fixed, chai.Net(tmp_path / "net.chai", device="emulator"))]
    for answer in answers:
        close(answer, wanted, 0.05)
    assert np.array_equal(*answers, equal_nan=True)


@pytest.mark.parametrize("kind", ["MAX", "AVE"])
def test_a_kernel_that_reaches_beyond_the_image(run: Run, kind: str) -> None:
    """Caffe rounds -1/2 up to 0 and pools what is there: 2x2 by 2 on a map 1 high gives 1 row."""
    x = numbers(2, 3, 1, 7, seed=3)
    (y,) = run("Pooling", f"pooling_param {{ pool: {kind} kernel_size: 2 stride: 2 }}", x)
    close(y, pooling(x, kind, (2, 2), (2, 2), (0, 0)))


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    return {
        "size": draw(st.tuples(st.integers(1, 9), st.integers(1, 9))),
        "kernel": kernel,
        "stride": draw(st.tuples(st.integers(1, 5), st.integers(1, 5))),
        "pad": tuple(draw(st.integers(0, k - 1)) for k in kernel),
        "kind": draw(st.sampled_from(["MAX", "AVE"])),
        "up": draw(st.booleans()),
    }


@GEOMETRY
@given(g=windows())
@example(g={"size": (6, 5), "kernel": (2, 3), "stride": (3, 2), "pad": (1, 2), "kind": "AVE", "up": True})
@example(g={"size": (6, 5), "kernel": (1, 3), "stride": (5, 4), "pad": (0, 1), "kind": "MAX", "up": True})
def test_any_geometry(run: Run, g: dict[str, Any]) -> None:
    (kh, kw), (sh, sw), (ph, pw) = g["kernel"], g["stride"], g["pad"]
    for i in range(2):
        assume(g["kernel"][i] <= g["size"][i] + 2 * g["pad"][i])  # smaller maps have a test of their own
        assume(pooled(g["size"][i], g["kernel"][i], g["stride"][i], g["pad"][i], any(g["pad"]), g["up"]) >= 1)
    x = numbers(1, 2, *g["size"], seed=4)
    text = (
        f"pool: {g['kind']} kernel_h: {kh} kernel_w: {kw} stride_h: {sh} stride_w: {sw} pad_h: {ph} pad_w: {pw} "
        f"round_mode: {'CEIL' if g['up'] else 'FLOOR'}"
    )
    (y,) = run("Pooling", f"pooling_param {{ {text} }}", x)
    close(y, pooling(x, g["kind"], g["kernel"], g["stride"], g["pad"], g["up"]))
