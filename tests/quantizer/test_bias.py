"""Bias tuning against a loop over every share and channel."""

from __future__ import annotations

import numpy as np
import pytest

from chai.fixed import Format
from chai.quantizer.weights import CORRECTIONS, TAKEN, bias_correction


@pytest.mark.parametrize("slope", [None, 0.0, 0.1])
@pytest.mark.parametrize(
    "format",
    [
        *(Format("Xilinx", 6, 3.0), Format("DynamicFixed", 8, 4)),
        *(Format("Xilinx", 8, 3.0, True), Format("Xilinx", 6, 3.0, True)),
    ],
)
def test_each_channel_takes_half_of_the_share_with_the_least_error(slope: float | None, format: Format) -> None:
    draw = np.random.default_rng(2)
    wanted = draw.standard_normal((60, 7)).astype(np.float32) * 3 - 1
    output = (wanted + draw.standard_normal((60, 7)) * 0.4 + np.linspace(-1, 1, 7)).astype(np.float32)
    assert TAKEN["tuned"] == 0.5
    moved = 2 * bias_correction(wanted, output, format, slope)
    bend = (lambda v: v) if slope is None else (lambda v: v if v >= 0 else slope * v)

    def error(channel: int, shift: float) -> float:
        total = 0.0
        for a, b in zip(wanted[:, channel].tolist(), output[:, channel].tolist()):
            value = bend(b + shift) / format.step
            low, high = (end - format.zero for end in format.range)
            code = min(max(int(np.floor(abs(value) + 0.5)) * (1 if value >= 0 else -1), low), high)
            total += (code * format.step - bend(a)) ** 2
        return total

    for channel in range(7):
        mean = float(np.mean(wanted[:, channel].astype(float) - output[:, channel].astype(float)))
        least = min(error(channel, share * mean) for share in CORRECTIONS["tuned"])
        assert error(channel, float(moved[channel])) == pytest.approx(least, rel=1e-4)
        assert error(channel, float(moved[channel])) <= error(channel, 0.0)


def test_no_error_moves_nothing() -> None:
    sums = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    assert not bias_correction(sums, sums, Format("Xilinx", 8, 3.0), 0.0).any()


def test_the_mean_error_goes_whatever_a_relu_makes_of_it() -> None:
    draw = np.random.default_rng(5)
    wanted = draw.standard_normal((60, 7)).astype(np.float32)
    output = (wanted + draw.standard_normal((60, 7))).astype(np.float32)
    moved = bias_correction(wanted, output, Format("Xilinx", 8, 3.0), 0.0, "mean")
    for channel in range(7):
        left = [b + moved[channel] - a for a, b in zip(wanted[:, channel].tolist(), output[:, channel].tolist())]
        assert sum(left) / 60 == pytest.approx(0, abs=1e-6)
