"""Convolutions of 3 x 3 pixels in tiles, by every variant: sizes around tiles, vectors and the channels of a turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.errors import DeviceError
from chai.kernels import convolution as convolutions, floats
from chai.kernels.native import library, single as singles
from chai.kernels.native.packed import ChannelTable, packed
from chai.kernels.native.single import Single
from chai.kernels.native.table import Form, Kind
from chai.tasks.window import Filtering, Window
from tests.conftest import examples

from .common import LIBRARY, NAMES, VARIANTS, numbers, used
from .test_floats import FUSED, convolved, sums

WINDOW = Window((3, 3), (1, 1), (1, 1))


def kind(x: tuple[int, ...], weights: tuple[int, ...], window: Window = WINDOW, group: int = 1) -> int:
    """The kind of the operation that computes a convolution."""
    with used(LIBRARY.variants[0].name):
        layer = floats.convolution(x, np.zeros(weights, np.float32), None, Filtering(window, group))
    assert layer is not None and layer.single is not None
    return int(layer.single.operation.kind)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=examples(12))
@given(
    group=st.sampled_from([1, 1, 2]),
    inputs=st.sampled_from([16, 23, 97]),
    outputs=st.integers(16, 21),
    pad=st.sampled_from([(0, 0), (1, 1), (0, 3), (2, 1)]),
    size=st.sampled_from([(14, 14), (13, 15), (11, 35), (3, 98), (19, 13)]),
    biased=st.booleans(),
    rectified=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_tiles(
    variant: str,
    group: int,
    inputs: int,
    outputs: int,
    pad: tuple[int, int],
    size: tuple[int, int],
    biased: bool,
    rectified: bool,
    seed: int,
) -> None:
    rng, window = np.random.default_rng(seed), WINDOW._replace(pad=pad)
    x, weights = numbers(rng, 2, group * inputs, *size), numbers(rng, group * outputs, inputs, 3, 3)
    bias = numbers(rng, group * outputs) if biased else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(floats, "FEWEST_TILES", 1)
        assert kind(x.shape, weights.shape, window, group) == Kind.TILED
        top = convolved(variant, x, weights, bias, window, group, rectified)
        patch.setattr(singles, "threads", lambda: 3)
        patch.setattr(singles, "SHARED", 0)
        with used(variant):
            together = convolutions.conv2d(x, weights, bias, Filtering(window, group, rectified))
    assert np.array_equal(top, together)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("x", "weights", "group"),
    [
        ((2, 17, 14, 13), (18, 17, 3, 3), 1),
        ((2, 7, 5, 13), (10, 7, 3, 3), 1),
        ((2, 6, 9, 21), (6, 1, 3, 3), 6),
        ((3, 21, 1, 1), (7, 21, 1, 1), 1),
    ],
)
def test_a_table_does_what_layers_do_one_by_one(
    variant: str, x: tuple[int, ...], weights: tuple[int, ...], group: int
) -> None:
    rng, outputs = np.random.default_rng(0), weights[0]
    image, filters, bias, mean, factors, addends = (numbers(rng, *shape) for shape in (x, weights, *[(outputs,)] * 4))
    window = WINDOW if weights[2] == 3 else Window((1, 1), (1, 1), (0, 0))
    variance, divisor, lead = np.abs(numbers(rng, outputs)), np.array([3], np.float32), (-1, 1, 1)
    with used(variant):
        layer = floats.convolution(x, filters, bias, Filtering(window, group))
        before = convolutions.conv2d(image, filters, bias, Filtering(window, group))
        assert layer is not None
        assert layer.scaled is not None
        for norm, scale in (
            ((mean, variance, divisor, 1e-5), (factors, addends)),
            (None, (factors,)),
            ((mean, variance, np.zeros(1, np.float32), 1e-3), ()),
        ):
            for rectified in (False, True):
                joined = layer.scaled(ChannelTable(outputs, bias, norm, scale), rectified)
                assert joined.single is not None
                for each in joined.packed:
                    each.write()
                top = joined.single.run(image, *joined.parameters)
                wanted = before
                if norm is not None:
                    share = np.float32(1) / norm[2] if norm[2] else np.float32(0)
                    factor = 1 / np.sqrt((variance * share + np.float32(norm[3])).astype(float)).astype(
                        np.float32
                    ).astype(float)
                    wanted = (wanted - (mean * share).reshape(lead)) * factor.astype(np.float32).reshape(lead)
                if scale:
                    wanted = wanted * factors.reshape(lead)
                if len(scale) > 1:
                    wanted = wanted + addends.reshape(lead)
                assert np.array_equal(top, np.maximum(wanted, 0) if rectified else wanted)


@pytest.mark.skipif(len(FUSED) < 2, reason="this processor runs one variant with fused products")
def test_variants_have_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    x, weights = numbers(rng, 1, 131, 17, 21), numbers(rng, 27, 131, 3, 3)
    results = []
    for name in FUSED:
        with used(name):
            results.append(convolutions.conv2d(x, weights, None, Filtering(WINDOW)))
    assert kind(x.shape, weights.shape) == Kind.TILED
    assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize("variant", VARIANTS)
def test_beforeare_nearly_as_exact_as_those_of_all_products(variant: str) -> None:
    rng = np.random.default_rng(0)
    x, weights = np.maximum(numbers(rng, 1, 200, 14, 14), 0), numbers(rng, 16, 200, 3, 3)
    with used(variant), pytest.MonkeyPatch.context() as patch:
        tiled = convolutions.conv2d(x, weights, None, Filtering(WINDOW))
        patch.setattr(floats, "FEWEST_TILES", 50)
        assert kind(x.shape, weights.shape) == Kind.PRODUCT
        direct = convolutions.conv2d(x, weights, None, Filtering(WINDOW))
    wanted, _ = sums(x, weights, None, WINDOW, 1)
    assert not np.array_equal(tiled, direct)
    assert np.square(tiled - wanted).mean() < 1.5**2 * np.square(direct - wanted).mean()


@pytest.mark.skipif(not NAMES, reason=LIBRARY.reason)
def test_what_is_computed_in_tiles() -> None:
    """Neither few channels nor few tiles; the batch does not matter, on which no number may depend."""
    assert kind((1, 64, 14, 14), (48, 64, 3, 3)) == kind((8, 64, 14, 14), (48, 64, 3, 3)) == Kind.TILED
    assert kind((8, 64, 7, 7), (48, 64, 3, 3)) == kind((1, 3, 224, 224), (64, 3, 3, 3)) == Kind.PRODUCT
    for window in (
        Window((3, 3), (2, 2), (1, 1)),
        Window((3, 3), (1, 1), (2, 2), (2, 2)),
        Window((3, 5), (1, 1), (1, 1)),
    ):
        assert kind((1, 64, 28, 28), (48, 64, *window.kernel), window) == Kind.PRODUCT
    assert kind((1, 64, 28, 28), (64, 1, 3, 3), WINDOW, 64) == Kind.PRODUCT


@pytest.mark.skipif(not NAMES, reason=LIBRARY.reason)
def test_weights_are_packed_once_for_all_sizes_and_freed_with_their_users() -> None:
    used_library, weights = LIBRARY.variants[0], numbers(np.random.default_rng(0), 20, 17, 3, 3)
    one = packed(used_library, weights)
    assert packed(used_library, weights) is one
    one.write()
    u = np.einsum("ij,mcjk,lk->ilmc", G, weights.astype(np.float64), G).reshape(one.array.shape)
    assert np.allclose(one.array, u, rtol=0, atol=1e-6)
    del one
    from chai.kernels.native import packed as module

    assert (used_library.number, id(weights)) not in module._packed


G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


@pytest.mark.skipif(not NAMES, reason=LIBRARY.reason)
def test_weights_that_are_too_short_are_refused() -> None:
    form, shape, target = Form(Kind.TILED, window=WINDOW), (1, 17, 14, 14), (1, 20, 14, 14)
    Single(LIBRARY.variants[0], form, shape, target, (4 * 16 * 20 * 17,))
    for wrong, size in (
        (form, 4 * 16 * 20 * 17 - 4),
        (Form(Kind.TILED, window=Window((3, 3), (2, 2), (1, 1))), 1 << 20),
    ):
        with pytest.raises(DeviceError, match="would leave its memory"):
            Single(LIBRARY.variants[0], wrong, shape, target, (size,))
    with pytest.raises(DeviceError, match="would leave its memory"):
        Single(LIBRARY.variants[0], Form(Kind.TRANSFORM), (1, 341, 3, 3), (1, 16, 20, 17))
    assert library.library() is not None
