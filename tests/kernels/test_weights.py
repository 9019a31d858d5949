"""Codes of weights by every variant of the kernels in C, at quotients beside a half."""

from __future__ import annotations

import numpy as np
import pytest

from chai import fixed
from chai.errors import ModelError
from chai.kernels import codes
from chai.kernels.native.build import machine

from .common import VARIANTS, used

NUMPY = [] if machine() == "armv7l" else ["sgemm"]  # whose own division is approximate there
MANY = 4096 + 37  # weights of a channel that are quantised in several pieces


@pytest.mark.parametrize("variant", [*VARIANTS, *NUMPY])
@pytest.mark.parametrize("bits", [6, 8])
def test_codes_and_sums(variant: str, bits: int) -> None:
    """By half away from zero in float64, which holds every quotient of float32."""
    rng = np.random.default_rng(bits)
    largest = (1 << (bits - 1)) - 1
    steps = np.array([2.0**-9, 0.0137, 1.7e-42, 3e30, 1.0, 0.75])
    halves = (rng.integers(-140, 141, (6, MANY)) + 0.5) * steps.astype(np.float32).astype(np.float64)[:, None]
    beside = halves.astype(np.float32).view(np.int32) + rng.integers(-2, 3, (6, MANY)).astype(np.int32)
    values = beside.view(np.float32).reshape(6, MANY, 1, 1)
    values[4] = 0
    with np.errstate(under="ignore"):
        quotients = values.astype(np.float64) / steps.astype(np.float32).reshape(-1, 1, 1, 1)
        quotients = quotients.astype(np.float32).astype(np.float64)  # as a division in float32 rounds them
    wanted = np.clip(np.copysign(np.floor(np.abs(quotients) + 0.5), quotients), -largest, largest).astype(int)
    with used(variant):
        whole = codes.quantized(values, steps, bits)
        part = codes.quantized(values[1::2, 3:], steps[1::2], bits)  # which is not contiguous
    assert np.array_equal(whole.codes, wanted) and whole.codes.dtype == np.int8
    assert np.array_equal(part.codes, wanted[1::2, 3:])
    flat = wanted.reshape(6, -1)
    assert whole.totals.tolist() == flat.sum(1).tolist()
    assert whole.magnitudes.tolist() == np.abs(flat).sum(1).tolist()
    errors = ((values.reshape(6, -1).astype(np.float64) - flat * steps[:, None]) ** 2).sum(1)
    assert whole.errors == pytest.approx(errors, rel=1e-12)


@pytest.mark.parametrize("variant", [*VARIANTS, "sgemm"])
@pytest.mark.parametrize(("value", "step"), [(np.nan, 1.0), (-np.inf, 1.0), (3e38, 1e-3), (0.0, 0.0)])
@pytest.mark.parametrize("place", [0, 4100, MANY - 1])
def test_what_has_no_code(variant: str, value: float, step: float, place: int) -> None:
    values = np.zeros((3, MANY), np.float32)
    values[1, place] = value
    with used(variant):
        assert not codes.quantized(values[::2], np.ones(2), 8).codes.any()
        with pytest.raises(ModelError, match="a weight is not a finite number"):
            codes.quantized(values, np.array([1.0, step, 1.0]), 8)


def test_no_weights() -> None:
    for shape in ((0, 3, 1, 1), (3, 0, 1, 1)):
        quantization = codes.quantized(np.zeros(shape, np.float32), np.ones(shape[0]), 8)
        assert quantization.codes.shape == shape and not quantization.totals.any() and not quantization.errors.any()
        assert np.array_equal(
            quantization.codes, fixed.quantize_weights(np.zeros(shape, np.float32), np.ones(shape[0]), 8)
        )
