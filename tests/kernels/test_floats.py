"""Layers in float32 by every variant of the kernels in C, against loops over pixels, at sizes around vectors and panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.errors import DeviceError
from chai.kernels import convolution as convolutions, pooling
from chai.kernels.native import library, single as singles
from chai.kernels.native.build import machine
from chai.kernels.native.single import Single
from chai.kernels.native.table import Form, Kind
from chai.layers.norms import LRN
from chai.tasks.window import Filtering, Window
from tests.conftest import examples
from tests.tasks.common import covering

from .common import LIBRARY, NAMES, VARIANTS, computed_in_c, numbers, several, used

EXAMPLES = settings(max_examples=examples(20))
Array = np.ndarray
FUSED = [name for name in NAMES if name != "plain"]  # they multiply and add with one rounding, but for ARMv7's


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


def convolved(
    variant: str, x: Array, weights: Array, bias: Array | None, window: Window, group: int, rectified: bool
) -> Array:
    """Return a convolution of two images in C that equals the loops; the second image alone has the same numbers."""
    with used(variant), pytest.MonkeyPatch.context() as patch:
        count = computed_in_c(patch)
        y = convolutions.conv2d(x, weights, bias, Filtering(window, group, rectified))
        assert count() == 1
        assert np.array_equal(convolutions.conv2d(x[1:], weights, bias, Filtering(window, group, rectified)), y[1:])
    wanted, scale = sums(x, weights, bias, window, group)
    if rectified:
        wanted = np.maximum(wanted, 0)
    assert y.shape == wanted.shape
    assert (np.abs(y - wanted) <= 2e-6 * scale + 1e-6).all()
    return y


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
    rectified=st.booleans(),
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
    rectified: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    window = Window(kernel, stride, pad, dilation)
    h, w = covering(window, size)
    x, weights = numbers(rng, 2, group * inputs, h, w), numbers(rng, group * outputs, inputs, *kernel)
    bias = numbers(rng, group * outputs) if biased else None
    y = convolved(variant, x, weights, bias, window, group, rectified)
    kernels = library.variant(variant)
    assert kernels is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(singles, "threads", lambda: 3)
        patch.setattr(singles, "SHARED", 0)
        together = Single(
            kernels,
            Form(Kind.PRODUCT, window=window, group=group, rectified=rectified),
            x.shape,
            y.shape,
            (weights.nbytes, *((bias.nbytes,) if bias is not None else ())),
        ).run(x, weights, *((bias,) if bias is not None else ()))
    assert np.array_equal(y, together)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    channels=st.sampled_from([2, 3, 7]),
    kernel=st.sampled_from([(3, 3), (3, 3), (1, 1), (2, 5), (5, 2), (30, 31)]),
    stride=st.sampled_from([(1, 1), (2, 2), (1, 2), (3, 3)]),
    pad=st.sampled_from([(0, 0), (1, 1), (2, 0), (0, 3)]),
    dilation=st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3)]),
    size=st.tuples(st.integers(1, 40), st.sampled_from([1, 3, 7, 16, 37, 70, 150])),
    biased=st.booleans(),
    rectified=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_depthwise_convolution(
    variant: str,
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    biased: bool,
    rectified: bool,
    seed: int,
) -> None:
    rng, window = np.random.default_rng(seed), Window(kernel, stride, pad, dilation)
    h, w = covering(window, size)
    x, weights = numbers(rng, 2, channels, h, w), numbers(rng, channels, 1, *kernel)
    bias = numbers(rng, channels) if biased else None
    convolved(variant, x, weights, bias, window, channels, rectified)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "width"),
    [
        ((3, 3), 1, 1, 9001),  # more columns than are stored at a time
        ((3, 3), 2, 1, 9001),
        ((2, 7), 3, 1, 6007),
        ((2, 3), 400, 1, 2003),  # columns of a few windows cannot be stored: one tap at a time, as other convolutions
        ((3, 3), 1, 6000, 12007),
        ((200, 3), 1, 1, 301),
    ],
)
def test_depthwise_convolution_of_large_images(
    variant: str, kernel: tuple[int, int], stride: int, dilation: int, width: int
) -> None:
    rng, window = np.random.default_rng(width), Window(kernel, (1, stride), (1, 2), (1, dilation))
    x, weights = numbers(rng, 1, 2, kernel[0] + 2, width), numbers(rng, 2, 1, *kernel)
    with used(variant):
        y = convolutions.conv2d(x, weights, None, Filtering(window, 2))
    wanted, scale = sums(x, weights, None, window, 2)
    assert (np.abs(y - wanted) <= 2e-6 * scale + 1e-6).all()


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
        y = convolutions.conv2d(x, weights, bias, Filtering(window, group))
        assert np.array_equal(convolutions.conv2d(x[:1], weights, bias, Filtering(window, group)), y[:1])
    wanted, scale = sums(x, weights, bias, window, group)
    assert (np.abs(y - wanted) <= 2e-6 * scale + 1e-6).all()


@pytest.mark.parametrize("variant", [*NAMES, "numpy"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("outputs", [1, 3, 37])
def test_inner_products_of_both_orders(variant: str, transposed: bool, outputs: int) -> None:
    """Weights may be stored as (inputs, outputs), too."""
    rng = np.random.default_rng(outputs)
    x, weights, bias = numbers(rng, 5, 300), numbers(rng, outputs, 300), numbers(rng, outputs)
    stored = np.ascontiguousarray(weights.T).T if transposed else weights
    with used(variant), pytest.MonkeyPatch.context() as patch:
        count = computed_in_c(patch)
        y = convolutions.inner_product(x, stored, bias)
        assert count() == (variant != "numpy")
        assert np.array_equal(convolutions.inner_product(x, stored, bias, rectified=True), np.maximum(y, 0))
        if variant != "numpy":
            assert np.array_equal(convolutions.inner_product(x[3:4], stored, bias), y[3:4])
    wanted = x.astype(np.float64) @ weights.T + bias
    assert (np.abs(y - wanted) <= 2e-6 * (np.abs(x) @ np.abs(weights.T)) + 1e-6).all()


@pytest.mark.parametrize("variant", [*NAMES, "numpy"])
def test_a_relu_shows_that_a_sum_is_nan(variant: str) -> None:
    x = np.array([[np.nan, 1], [-3, 2], [4, -1]], np.float32)
    with used(variant):
        for y in (
            convolutions.inner_product(x, np.ones((1, 2), np.float32), None, rectified=True),
            convolutions.conv2d(
                x.T.reshape(1, 2, 1, 3), np.ones((1, 2, 1, 1), np.float32), None, Filtering(convolutions.POINT, 1, True)
            ),
        ):
            assert np.array_equal(y.reshape(-1), [np.nan, 0, 3], equal_nan=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_bias_that_is_too_short_is_refused(variant: str) -> None:
    """Also after one of the right length: nothing beyond its end is read."""
    x, weights, bias = np.ones((2, 3, 5, 7), np.float32), np.ones((4, 3, 1, 1), np.float32), np.ones(4, np.float32)
    with used(variant):
        assert (convolutions.conv2d(x, weights, bias, Filtering(convolutions.POINT)) == 4).all()
        with pytest.raises(DeviceError, match="would leave its memory"):
            convolutions.conv2d(x, weights, bias[:3], Filtering(convolutions.POINT))


@pytest.mark.skipif(len(FUSED) < 2, reason="this processor runs one variant with fused products")
def test_variants_have_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    x, weights, taps = numbers(rng, 1, 40, 9, 13), numbers(rng, 27, 40, 3, 3), numbers(rng, 40, 1, 3, 3)
    whole, rows = Window((9, 13), (1, 1), (0, 0)), numbers(rng, 5, 40, 9, 13)
    deep, points = numbers(rng, 1, 300, 5, 10), numbers(rng, 11, 300, 1, 1)  # two pixels are more than whole vectors
    results = []
    for name in FUSED:
        with used(name):
            results.append(convolutions.conv2d(x, weights, None, Filtering(Window((3, 3), (1, 1), (1, 1)))))
            results.append(convolutions.conv2d(x, rows, None, Filtering(whole)))
            results.append(convolutions.conv2d(x, taps, None, Filtering(Window((3, 3), (2, 2), (1, 1)), 40)))
            results.append(convolutions.conv2d(deep, points, None, Filtering(convolutions.POINT)))
    for i, result in enumerate(results[4:]):
        assert np.array_equal(result, results[i % 4])


@pytest.mark.parametrize("variant", VARIANTS)
def test_long_sums_are_as_exact_as_short_ones(variant: str) -> None:
    """In one chain 4,608 products would be four times as far off as 256 are."""
    errors, rng = [], np.random.default_rng(0)
    for channels in (28, 512):
        x = np.maximum(numbers(rng, 1, channels, 7, 9), 0)
        weights = numbers(rng, 16, channels, 3, 3) / np.float32(np.sqrt(9 * channels))
        window = Window((3, 3), (1, 1), (1, 1))
        with used(variant):
            y = convolutions.conv2d(x, weights, None, Filtering(window, 1, False))
        errors.append(float(np.sqrt(np.mean((y - sums(x, weights, None, window, 1)[0]) ** 2))))
    assert errors[1] < 2 * errors[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_weights_that_are_whole_pages_apart(variant: str) -> None:
    """They are copied: the sums are those of loops, and have the bits of rows that a channel of zeros makes longer."""
    rng = np.random.default_rng(0)
    x, weights = numbers(rng, 2, 1024, 5, 7), numbers(rng, 21, 1024, 1, 1)
    y = convolved(variant, x, weights, None, convolutions.POINT, 1, False)
    longer = (np.pad(array, ((0, 0), (0, 1), (0, 0), (0, 0))) for array in (x, weights))
    with used(variant):
        assert np.array_equal(convolutions.conv2d(*longer, None, Filtering(convolutions.POINT)), y)


@pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
def test_infinite_numbers_meet_no_padding() -> None:
    """What lies beyond a panel or a plane is 0 in no product: 0 times infinity would be NaN."""
    x = np.full((1, 1, 5, 3), np.inf, np.float32)
    y = convolutions.conv2d(x, np.ones((2, 1, 1, 1), np.float32), None, Filtering(Window((1, 1), (1, 1), (0, 0))))
    assert np.isposinf(y).all()


# -- pools


def pooled(x: Array, window: Window, out: tuple[int, int], largest: bool) -> Array:
    """The columns of each window first, then the row of their results: the order of the sums."""
    wanted = np.full((*x.shape[:2], *out), np.finfo(np.float32).min if largest else 0, np.float32)
    for y, column in np.ndindex(out):
        (top, left), (bottom, right) = (
            [min(max(at, 0), size) for at, size in zip(corner, x.shape[2:])]
            for corner in zip(
                *(
                    (i * s - p, i * s - p + k)
                    for i, s, p, k in zip((y, column), window.stride, window.pad, window.kernel)
                )
            )
        )
        if top >= bottom or left >= right:
            continue
        if largest:
            wanted[:, :, y, column] = x[:, :, top:bottom, left:right].max((2, 3))
            continue
        total = np.zeros(x.shape[:2], np.float32)
        for j in range(left, right):
            rows = x[:, :, top, j].copy()
            for i in range(top + 1, bottom):
                rows += x[:, :, i, j]
            total += rows
        wanted[:, :, y, column] = total
    return wanted


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    channels=st.integers(1, 3),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    pad=st.tuples(st.integers(0, 3), st.integers(0, 4)),
    size=st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 5, 16, 19, 40])),
    more=st.integers(0, 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_pools(
    variant: str,
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    size: tuple[int, int],
    more: int,
    seed: int,
) -> None:
    """``more`` windows begin behind the image."""
    window, out = Window(kernel, stride, pad), tuple((size[i] + pad[i]) // stride[i] + 1 + more for i in range(2))
    x = numbers(np.random.default_rng(seed), 2, channels, *size)
    for largest, pool in ((True, pooling.max_pool), (False, pooling.sum_pool)):
        wanted = pooled(x, window, (out[0], out[1]), largest)
        with used(variant), pytest.MonkeyPatch.context() as patch:
            count = computed_in_c(patch)
            y = pool(x, window, out)
            assert count() == 1
        assert np.array_equal(y, wanted)
        with used("numpy"):
            assert np.array_equal(pool(x, window, out), wanted)
    areas = numbers(np.random.default_rng(seed), *out)
    with used(variant), pytest.MonkeyPatch.context() as patch:
        count = computed_in_c(patch)
        y = pooling.mean_pool(x, window, out, areas)
        assert count() == 1
    with used("numpy"):
        assert np.array_equal(pooling.mean_pool(x, window, out, areas), wanted / areas)
    assert np.array_equal(y, wanted / areas)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("kernel", "width", "stride", "stored"),
    [(2048, 4099, 1, True), (2048, 9999, 128, True), (3, 9000, 2, True), (2049, 4100, 1, False), (3, 900, 129, False)],
)
def test_pools_of_wide_images(variant: str, kernel: int, width: int, stride: int, stored: bool) -> None:
    """More columns than are stored at a time. Those that see too many are in numpy, which takes each column once."""
    x = numbers(np.random.default_rng(width), 1, 2, 3, width)
    window, out = Window((2, kernel), (1, stride), (0, 1)), (2, (width + 1 - kernel) // stride + 1)
    for pool in (pooling.max_pool, pooling.sum_pool):
        with used("numpy"):
            wanted = pool(x, window, out)
        with used(variant), pytest.MonkeyPatch.context() as patch:
            count = computed_in_c(patch)
            assert np.array_equal(pool(x, window, out), wanted)
            assert count() == stored
    if not stored:
        functions = library.variant(variant)
        assert functions is not None
        with pytest.raises(DeviceError, match="would leave its memory"):
            Single(functions, Form(Kind.TOTAL, window=window), x.shape, (1, 2, *out))


@pytest.mark.skipif(not NAMES, reason=LIBRARY.reason)
def test_a_divisor_for_each_window() -> None:
    window = Window((2, 3), (1, 1), (0, 0))
    target = (1, 2, *window.sizes((5, 7)))
    areas = 4 * target[2] * target[3]
    Single(LIBRARY.variants[0], Form(Kind.MEAN, window=window), (1, 2, 5, 7), target, (areas,))
    with pytest.raises(DeviceError, match="would leave its memory"):
        Single(LIBRARY.variants[0], Form(Kind.MEAN, window=window), (1, 2, 5, 7), target, (areas - 4,))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_maximum_shows_that_a_window_has_nan(variant: str) -> None:
    x = numbers(np.random.default_rng(0), 1, 1, 7, 23)
    x[0, 0, 3, [0, 11, 22]] = np.nan
    x[0, 0, 5, 5] = np.inf
    window = Window((3, 3), (1, 1), (1, 1))
    with used("numpy"):
        wanted = pooling.max_pool(x, window, (7, 23))
    assert np.isnan(wanted).sum() == 3 * (2 + 3 + 2)
    with used(variant):
        assert np.array_equal(pooling.max_pool(x, window, (7, 23)), wanted, equal_nan=True)


@pytest.mark.parametrize("variant", [*NAMES, "numpy"])
@pytest.mark.parametrize("pad", [0, 1])
def test_pools_begin_as_caffe_does(variant: str, pad: int) -> None:
    """A maximum at -FLT_MAX, which is more than -inf, and a sum at 0, which is not -0."""
    window = Window((2, 3), (1, 1), (pad, pad))
    out, shape = window.sizes((5, 23)), (1, 2, 5, 23)
    with used(variant):
        largest = pooling.max_pool(np.full(shape, -np.inf, np.float32), window, out)
        total = pooling.sum_pool(np.full(shape, -0.0, np.float32), window, out)
    assert (largest == np.finfo(np.float32).min).all()
    assert not total.any()
    assert not np.signbit(total).any()


# -- LRN


def lrn(x: np.ndarray, size: int, alpha: float, k: float) -> np.ndarray:
    """LRN with beta 0.75, each operation in float64 and rounded to float32: its bits, since float64 has twice as many.

    numpy's own float32 will not do on ARMv7, where its division and square root are approximate.
    """

    def rounded(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float32).astype(np.float64)

    wide = x.astype(np.float64)
    square = rounded(wide * wide)
    total = square.copy()
    for shift in range(1, min(size // 2, x.shape[1] - 1) + 1):
        total[:, shift:] = rounded(total[:, shift:] + square[:, :-shift])
        total[:, :-shift] = rounded(total[:, :-shift] + square[:, shift:])
    total = rounded(rounded(total * np.float64(np.float32(alpha / size))) + k)
    root = rounded(np.sqrt(total))
    inverse = rounded(1 / rounded(root * rounded(np.sqrt(root))))
    return rounded(wide * inverse).astype(np.float32)


@pytest.mark.parametrize("variant", [*VARIANTS, *([] if machine() == "armv7l" else ["numpy"])])
@pytest.mark.parametrize(
    ("shape", "size"), [((2, 7, 5, 13), 5), ((1, 3, 1, 1), 7), ((1, 70, 9, 16), 3), ((2, 50, 19, 23), 5)]
)
def test_lrn_has_the_bits_of_single_operations(
    variant: str, shape: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 40
    x.flat[:3] = 0, 3e38, -1e-30
    x[0, 1].flat[-3:] = 1e-20, -2e-39, 7e-43  # a square that is subnormal, and numbers that are
    layer = LRN("lrn", ("x",), ("y",), type="LRN", params=LRN.Params(local_size=size, alpha=1e-4, k=2.0))
    with np.errstate(all="ignore"):
        wanted = lrn(x, size, 1e-4, 2.0)
        with used(variant):
            alone = layer.forward(x)[0]
            threads = several(monkeypatch, 3)
            together = layer.forward(x)[0]
    assert alone.tobytes() == together.tobytes() == wanted.tobytes()
    if variant != "numpy":
        assert threads == [3]
        assert library.variant(variant) is not None


# -- networks


@pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
def test_a_network_has_the_same_numbers_for_every_number_of_threads_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    images = numbers(np.random.default_rng(0), 3, 1, 28, 28)
    net, ranges = chai.Net("lenet", device="float", keep="all"), chai.Net("lenet", device="emulator")
    shared: list[int] = []
    run = library.Library.run_one

    def counted(self: library.Library, *arguments: Any) -> None:
        shared.append(arguments[1])
        run(self, *arguments)

    monkeypatch.setattr(library.Library, "run_one", counted)
    results, formats = [], []
    for threads in (1, 3):
        monkeypatch.setattr(singles, "threads", lambda threads=threads: threads)
        monkeypatch.setattr(singles, "SHARED", 0)
        net.forward(images)
        together = {name: net.blobs[name] for name in net.blobs}
        for i in range(len(images)):
            net.forward(images[i : i + 1])
            assert all(np.array_equal(net.blobs[name][0], together[name][i]) for name in together)
        results.append(together)
        for batches in ([images], [*images[:, np.newaxis]]):
            ranges.calibrate(iter(batches))
            formats.append(dict(ranges.offload.formats))
    assert set(shared) == {1, 3}
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])
    assert len(formats[0]) > 5
    assert all(each == formats[0] for each in formats)
