"""Softmax by every variant of the kernels in C, against exponentials in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chai.kernels.native.build import machine
from chai.layers.softmax import Softmax

from .common import LIBRARY, NAMES, computed_in_c, numbers, used

SHAPES = [((1, 1000), 1), ((3, 21, 5, 7), 1), ((2, 93, 21), 2), ((2, 3, 4, 37), 1), ((1, 2, 9, 10), -3), ((7, 1), 1)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    x = numbers(np.random.default_rng(0), *shape) * np.float32(20)
    shifted = (x - x.max(axis, keepdims=True)).astype(np.float64)
    wanted = np.exp(shifted) / np.exp(shifted).sum(axis, keepdims=True)
    layer, results = Softmax("prob", ("x",), ("y",), Softmax.Params(axis)), []
    for name in [*NAMES, "numpy"]:
        with used(name), pytest.MonkeyPatch.context() as patch:
            count = computed_in_c(patch)
            (y,) = layer.forward(x)
            assert count() == (name != "numpy")
            if axis == 1 and name != "numpy":  # no image changes another one's bits
                assert np.array_equal(layer.forward(x[-1:])[0], y[-1:])
        assert y.shape == shape
        assert (np.abs(y - wanted) <= 1e-6 * wanted).all()
        results.append(y)
    assert all(np.array_equal(y, results[0]) for y in results[:-1])  # all variants have the same bits


@pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
def test_exponentials_of_softmax() -> None:
    """Of x and 0, where 0 is the maximum: e^x / (e^x + 1), from 0 to below the least normal number."""
    x = np.linspace(0, -110, 30001, dtype=np.float32)
    (y,) = Softmax("prob", ("x",), ("y",)).forward(np.stack([x, np.zeros_like(x)], 1))
    wanted = [math.exp(value) / (math.exp(value) + 1) for value in x.tolist()]
    unit = np.spacing(np.maximum(np.float32(wanted), np.finfo(np.float32).tiny)).astype(np.float64)
    normal = np.array(wanted) > np.finfo(np.float32).tiny
    assert np.abs(y[:, 0] - wanted)[normal].max(initial=0) > 0
    counted = normal | (machine() != "armv7l")  # there NEON has 0 for what is below the least normal number
    assert (np.abs(y[:, 0] - wanted) <= 3 * unit)[counted].all()
    assert not y[x < -104, 0].any()


@pytest.mark.parametrize("variant", [*NAMES, "numpy"])
def test_softmax_of_what_is_no_number(variant: str) -> None:
    rows = [[1, np.nan, 2], [np.inf, 0, 1], [-np.inf, 0, 0], [-np.inf] * 3]
    wanted = [[np.nan] * 3, [np.nan] * 3, [0, 0.5, 0.5], [np.nan] * 3]
    x, wide = np.array(rows, np.float32), np.array(rows, np.float32).T.reshape(1, 3, 4, 1)
    with used(variant), np.errstate(all="ignore"):
        layer = Softmax("prob", ("x",), ("y",))
        assert np.array_equal(layer.forward(x)[0], wanted, equal_nan=True)
        assert np.array_equal(layer.forward(wide)[0].reshape(3, 4).T, wanted, equal_nan=True)
