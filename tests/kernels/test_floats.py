"""Layers in float32 by every variant of the kernels in C, against loops over pixels, at sizes around vectors and panels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from chai.kernels import convolution as convolutions
from chai.kernels.native import library, single as singles
from chai.kernels.native.single import Single
from chai.kernels.native.table import Form, Kind
from chai.tasks.window import Window
from tests.conftest import examples

from .common import LIBRARY, NAMES, VARIANTS, used

EXAMPLES = settings(max_examples=examples(20), deadline=None, derandomize=True, database=None)
Array = np.ndarray
FUSED = [name for name in NAMES if name != "plain"]  # they multiply and add with one rounding, but for ARMv7's


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.uniform(-2, 2, shape).astype(np.float32)


def sums(x: Array, weights: Array, bias: Array | None, window: Window, group: int) -> tuple[Array, Array]:
    """A convolution in float64, and the same of all numbers' sizes, which bounds its rounding."""
    (kh, kw), stride, pad, (dh, dw) = window
    oh, ow = window.sizes(x.shape[2:])
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((p, p) for p in pad)))
    m, cg = weights.shape[:2]
    wanted, size = np.zeros((2, len(x), m, oh, ow))
    for o in range(m):
        first = o // (m // group) * cg
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dh, i * dh + stride[0] * (oh - 1) + 1, stride[0])
                taps = padded[:, first : first + cg, rows, j * dw : j * dw + stride[1] * (ow - 1) + 1 : stride[1]]
                wanted[:, o] += np.tensordot(taps, weights[o, :, i, j], (1, 0))
                size[:, o] += np.tensordot(np.abs(taps), np.abs(weights[o, :, i, j]), (1, 0))
    return (wanted if bias is None else wanted + bias.reshape(-1, 1, 1)), size


def computed_in_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many operations the library has run."""
    kinds: list[int] = []
    run = Single.run

    def counted(self: Single, *arrays: Array) -> Array:
        kinds.append(self._table[0].kind)
        return run(self, *arrays)

    monkeypatch.setattr(Single, "run", counted)
    return lambda: len(kinds)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    group=st.sampled_from([1, 1, 1, 2, 3]),
    inputs=st.sampled_from([1, 2, 3, 17, 30]),
    outputs=st.integers(1, 21),
    kernel=st.sampled_from([(1, 1), (1, 1), (3, 3), (2, 3), (5, 4)]),  # of 30 channels: more taps than a panel has
    stride=st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (2, 3)]),
    pad=st.sampled_from([(0, 0), (1, 1), (0, 2), (4, 0)]),
    dilation=st.sampled_from([(1, 1), (1, 1), (2, 3)]),
    size=st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 5, 7, 16, 19, 60])),
    biased=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_convolution(
    variant: str,
    group: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    biased: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    window = Window(kernel, stride, pad, dilation)
    assume(inputs > 1 or outputs > 1 or kernel == (1, 1))  # one by one is depthwise
    h, w = (max(size[i], window.extent(i) - 2 * pad[i]) for i in range(2))
    x, weights = numbers(rng, 2, group * inputs, h, w), numbers(rng, group * outputs, inputs, *kernel)
    bias = numbers(rng, group * outputs) if biased else None
    with used(variant), pytest.MonkeyPatch.context() as patch:
        count = computed_in_c(patch)
        found = convolutions.conv2d(x, weights, bias, window, group)
        assert count() == 1
        alone = convolutions.conv2d(x[1:], weights, bias, window, group)
        patch.setattr(singles, "threads", lambda: 3)
        patch.setattr(singles, "SHARED", 0)
        together = Single(
            library.state().variants[NAMES.index(variant)],
            Form(Kind.PRODUCT, window=window, group=group),
            x.shape,
            found.shape,
            (weights.nbytes, *((bias.nbytes,) if bias is not None else ())),
        ).run(x, weights, *((bias,) if bias is not None else ()))
    wanted, scale = sums(x, weights, bias, window, group)
    assert found.shape == wanted.shape
    assert (np.abs(found - wanted) <= 2e-6 * scale + 1e-6).all()
    assert np.array_equal(found[1:], alone)
    assert np.array_equal(found, together)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    images=st.integers(1, 3),
    inputs=st.sampled_from([1, 7, 16, 33, 300]),
    size=st.sampled_from([(1, 1), (2, 3)]),
    outputs=st.integers(1, 11),
    group=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_one_pixel_that_sees_all(
    variant: str, images: int, inputs: int, size: tuple[int, int], outputs: int, group: int, seed: int
) -> None:
    """Inner products: vectors lie along the taps. A second image changes none of the first one's numbers."""
    rng = np.random.default_rng(seed)
    x, weights = numbers(rng, images, group * inputs, *size), numbers(rng, group * outputs, inputs, *size)
    bias, window = numbers(rng, group * outputs), Window(size, (1, 1), (0, 0))
    with used(variant):
        found = convolutions.conv2d(x, weights, bias, window, group)
        assert np.array_equal(convolutions.conv2d(x[:1], weights, bias, window, group), found[:1])
    wanted, scale = sums(x, weights, bias, window, group)
    assert (np.abs(found - wanted) <= 2e-6 * scale + 1e-6).all()


@pytest.mark.skipif(len(FUSED) < 2, reason="this processor runs one variant with fused products")
def test_variants_have_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    x, weights = numbers(rng, 1, 40, 9, 13), numbers(rng, 27, 40, 3, 3)
    whole, rows = Window((9, 13), (1, 1), (0, 0)), numbers(rng, 5, 40, 9, 13)
    results = []
    for name in FUSED:
        with used(name):
            results.append(convolutions.conv2d(x, weights, None, Window((3, 3), (1, 1), (1, 1)), 1))
            results.append(convolutions.conv2d(x, rows, None, whole, 1))
    for i, result in enumerate(results[2:]):
        assert np.array_equal(result, results[i % 2])


@pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
def test_infinite_numbers_meet_no_padding() -> None:
    """What lies beyond a panel or a plane is 0 in no product: 0 times infinity would be NaN."""
    x = np.full((1, 1, 5, 3), np.inf, np.float32)
    found = convolutions.conv2d(x, np.ones((2, 1, 1, 1), np.float32), None, Window((1, 1), (1, 1), (0, 0)), 1)
    assert np.isposinf(found).all()
