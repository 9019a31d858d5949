"""Coarser weight steps: the smallest factor at which a channel's sums fit, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.fixed import ACCUMULATOR, Format, Quantized, Scaled, quantize_weights, quantized, weight_steps
from chai.kernels import codes as kernels
from chai.offload.schedule import DeviceStep
from chai.tasks.coarser import FACTORS, fitted
from tests.conftest import examples
from tests.passes.common import network

from .common import narrow

Array = np.ndarray
SIZE = 2304  # 256 channels of 3x3: 57 is the mean code that fits without a bias


def bound(weights: Array, bias: float, step: float, source: Format, largest: int) -> tuple[int, list[int], int]:
    """The largest sum of one channel, its codes and its bias, in Python's integers."""
    quotients = [float(np.float32(w) / np.float32(step)) for w in weights.tolist()]
    codes = [max(-largest, min(largest, int(abs(q) + 0.5) * (1 if q >= 0 else -1))) for q in quotients]
    scaled = bias / (step * source.step)
    added = int(abs(scaled) + 0.5) * (1 if scaled >= 0 else -1) - source.zero * sum(codes)
    return sum(map(abs, codes)) * source.magnitude + abs(added), codes, added


@settings(max_examples=examples(12))
@given(
    scheme=st.sampled_from(["Xilinx", "DynamicFixed"]),
    unsigned=st.booleans(),
    spread=st.sampled_from([0.2, 0.5, 0.9]),
    addend=st.sampled_from([0.0, 300.0]),
    quantize=st.sampled_from([quantized, kernels.quantized]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_smallest_factor_that_fits(
    scheme: str, unsigned: bool, spread: float, addend: float, quantize: Callable[..., Quantized], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(-1, 1, (5, SIZE, 1, 1)).astype(np.float32) ** 3
    weights[::2] = rng.uniform(-1, 1, (3, SIZE, 1, 1))
    weights[1] *= spread
    bias = (addend * rng.uniform(-1, 1, 5)).astype(np.float32)
    format = Format(scheme, 8, 6 if scheme == "DynamicFixed" else 0.0)
    source = Format("Xilinx", 8, 2.0, unsigned)
    steps = weight_steps(weights, format, None, source.step)
    choice = fitted(Scaled(weights, bias, steps), source, FACTORS[scheme], ACCUMULATOR, 8, quantize)
    changed = 0
    for i, (w, b) in enumerate(zip(weights.reshape(5, -1), bias.tolist())):
        for factor in (1.0, *FACTORS[scheme]):
            most, codes, added = bound(w, b, steps[i] * factor, source, 127)
            if most < ACCUMULATOR:
                break
        assert choice.steps[i] == steps[i] * factor
        assert choice.codes[i].ravel().tolist() == codes
        assert choice.bias[i] == added
        assert most <= choice.bound
        changed += factor > 1
    assert (choice.coarser.channels if choice.coarser else 0) == changed
    if choice.coarser:
        plain = quantize_weights(weights, steps, 8) * steps.reshape(-1, 1, 1, 1)
        coarse = choice.codes * choice.steps.reshape(-1, 1, 1, 1)
        ratio = ((weights - coarse) ** 2).sum() / ((weights - plain) ** 2).sum()
        assert choice.coarser.decibels == pytest.approx(10 * np.log10(ratio))


DEEP = "convolution_param { num_output: 5 kernel_size: 3 }"


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_a_layer_stays_on_the_overlay(tmp_path: Path, scheme: str) -> None:
    """By its float outputs: with coarser steps it is as good as weights of 6 or 7 bits are."""
    net = network(
        tmp_path,
        f"probe Convolution data -> y : {DEEP}",
        (2, 256, 5, 7),
        scheme=scheme,
        device="emulator",
        overlay=narrow(tmp_path),
    )
    rng = np.random.default_rng(0)
    net.graph.layer("probe").blobs[0][...] = rng.uniform(-1, 1, (5, 256, 3, 3))
    x = rng.uniform(-1, 1, (2, 256, 5, 7)).astype(np.float32)
    y = net.forward(x)["y"]
    assert [type(step) for step in net.schedule.steps].count(DeviceStep) == 1 and not net.offload.partition.reasons
    assert net.offload.plan.coarser["probe"].channels == 5
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    weights, bias = net.graph.layer("probe").blobs
    wanted = np.einsum("nchwij,mcij->nmhw", windows, weights) + bias.reshape(-1, 1, 1)
    noise = 10 * np.log10((wanted**2).sum() / ((y - wanted) ** 2).sum())
    assert noise > (25 if scheme == "Xilinx" else 20)


def test_beyond_eight_times_the_steps_it_runs_on_the_host(tmp_path: Path) -> None:
    net = network(
        tmp_path,
        f"probe Convolution data -> y : {DEEP.replace('3 }', '11 }')}",
        (1, 256, 12, 13),
        device="emulator",
        overlay=narrow(tmp_path),
    )
    net.graph.layer("probe").blobs[0][...] = np.random.default_rng(0).choice([-1, 1], (5, 256, 11, 11))
    net.forward(np.ones((1, 256, 12, 13)))
    reason = net.offload.partition.reasons["probe"]
    assert reason.startswith("a sum could reach ") and reason.endswith("even with weights in steps 8 times as coarse")
