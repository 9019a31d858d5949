"""The accumulator's bound: sums that could reach it get coarser steps, or run on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai.offload.schedule import HostStep
from chai.tasks.conv import Conv
from chai.tasks.window import Window
from tests.layers.common import numbers
from tests.reference.fixed import Form

from .common import narrow
from .test_lowering import FORMATS, Network, conv_text, convolved, layer, precision, quantized


def wide(folder: Path, bits: int, extra: int, overlay: str | None = None) -> Network:
    """On an overlay without wide sums, one output whose sum|qw| * 2^(bits-1) + |qb| is 2^24 - 1 + ``extra``.

    Weights and bias are codes as they stand.
    """
    side, most = {8: (128, 127), 6: (32, 31)}[bits]
    total = (1 << 24) // side - 1
    kernel = {8: 1, 6: 3}[bits]  # 6-bit weights need more taps than there are channels
    channels = -(-total // most // kernel**2)
    codes = np.full(channels * kernel**2, most)
    surplus = int(codes.sum()) - total
    for i in range(len(codes)):
        taken = min(most, surplus)
        codes[i] -= taken
        surplus -= taken
    assert codes.sum() == total
    form = Form("DynamicFixed", bits, 0)
    window = Window((kernel, kernel), (1, 1), (0, 0))
    text = layer("Convolution", ["x0"], "y", conv_text(window, 1, 1, True) + precision(form, form, "fl_params: 0"))
    w = (-codes).astype(np.float32).reshape(1, channels, kernel, kernel)
    x = np.full((1, channels, kernel, kernel), -side, np.float32)
    return Network(
        folder, text, [x], {"y": [w, np.array([side - 1 + extra], np.float32)]}, overlay or str(narrow(folder))
    )


@pytest.mark.parametrize("bits", [8, 6])
def test_a_sum_just_below_the_bound_runs_on_the_overlay(tmp_path: Path, bits: int) -> None:
    case = wide(tmp_path, bits, 0)
    assert case.all_on_the_overlay()
    (task,) = case.tasks
    assert case.output["y"].ravel().tolist() == [Form("DynamicFixed", bits, 0).largest]
    assert int(np.abs(task.weights.astype(int)).sum()) * (1 << (bits - 1)) + int(task.bias[0]) == (1 << 24) - 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("bits", [8, 6])
def test_a_sum_that_reaches_the_bound_gets_steps_twice_as_coarse(tmp_path: Path, bits: int) -> None:
    case = wide(tmp_path, bits, 1)
    assert case.all_on_the_overlay()
    (task,) = case.tasks
    stored = case.net.params["y"][0].astype(int)
    assert np.array_equal(np.asarray(task.weights), np.sign(stored) * (np.abs(stored) + 1 >> 1))  # type: ignore[attr-defined]
    assert case.net.offload.plan.coarser["y"].channels == 1


@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("extra", [0, 1, 1 << 27])
def test_a_sum_that_reaches_the_bound_is_wide_where_the_overlay_has_such(tmp_path: Path, bits: int, extra: int) -> None:
    case = wide(tmp_path, bits, extra, "pynq-z2")
    assert case.all_on_the_overlay() and not case.net.offload.plan.coarser
    (task,) = case.tasks
    assert isinstance(task, Conv) and task.wide == (extra > 0)
    assert np.array_equal(np.asarray(task.weights), case.net.params["y"][0])
    assert case.output["y"].ravel().tolist() == [Form("DynamicFixed", bits, 0).largest]


@pytest.mark.parametrize("bits", [8, 6])
def test_a_sum_beyond_eight_times_the_bound_runs_on_the_host_and_says_so(tmp_path: Path, bits: int) -> None:
    case = wide(tmp_path, bits, 1 << 27)
    (step,) = (s for s in case.net.schedule.steps if isinstance(s, HostStep))
    assert step.layer.name == "y"
    weights, bias = (int(np.floor(np.abs(b.astype(float)) / 8 + 0.5).sum()) for b in case.net.params["y"])
    assert (
        f"a sum could reach {weights * (1 << (bits - 1)) + bias:,}, beyond the accumulator's 16,777,216" in step.reason
    )
    assert case.net.offload.partition.reasons["y"] == step.reason
    assert not case.tasks
    assert case.output["y"].ravel().tolist() == [float(9 << 24)]  # in float32


def test_steps_too_fine_for_the_multipliers_run_on_the_host(tmp_path: Path) -> None:
    forms = Form("DynamicFixed", 8, -8), Form("DynamicFixed", 8, 16)
    window = Window((1, 1), (1, 1), (0, 0))
    text = layer("Convolution", ["x0"], "y", conv_text(window, 1, 2, False) + precision(*forms, "fl_params: 7"))
    case = Network(tmp_path, text, [numbers(1, 3, 2, 2)], {"y": [numbers(2, 3, 1, 1)]})
    (step,) = (s for s in case.net.schedule.steps if isinstance(s, HostStep))
    assert "17-bit multipliers" in step.reason


@pytest.mark.parametrize("bits", [4, 16])
def test_widths_of_weights_that_no_code_has_are_refused(tmp_path: Path, bits: int) -> None:
    """16-bit weights would wrap in int8."""
    form = FORMATS[0][0]
    body = precision(form, form, "fl_params: 7").replace("bw_params: 8", f"bw_params: {bits}")
    text = layer("Convolution", ["x0"], "y", conv_text(Window((1, 1), (1, 1), (0, 0)), 1, 2, False) + body)
    with pytest.raises(chai.errors.ModelError, match=rf"{bits} bits"):
        Network(tmp_path, text, [numbers(1, 3, 2, 2)], {"y": [numbers(2, 3, 1, 1)]})


def test_weights_written_after_a_pass_count_in_the_next(tmp_path: Path) -> None:
    """Writing into net.params changes the network, on every device."""
    forms = FORMATS[3]
    x, w, b = numbers(1, 3, 4, 5, seed=1), numbers(4, 3, 1, 1, seed=2), numbers(4, seed=3)
    window = Window((1, 1), (1, 1), (0, 0))
    text = layer("Convolution", ["x0"], "y", conv_text(window, 1, 4, True) + precision(*forms))
    case = Network(tmp_path, text, [x], {"y": [w, b]})
    case.net.params["y"][0][...] = w[::-1]
    case.output = case.net.forward(x)
    case.equals(forms[1], convolved(quantized(forms[0], x), w[::-1], b, window, 1, forms, None))
