"""Saturated codes at the overlay's borders, counted in each pass whose formats were measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from tests.passes.common import network

SHAPE = (2, 3, 5, 7)
X = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
CONV = "convolution_param { num_output: 16 kernel_size: 3 pad: 1 }"
LINES = f"a Convolution data -> a : {CONV}\np Power a -> p : power_param {{ shift: 1 }}"
RECTIFIED = f"a Convolution data -> a : {CONV}\nr ReLU a -> a\np Power a -> p : power_param {{ shift: 1 }}"
CEILING = f"a Convolution data -> a : {CONV}\nr ReLU6 a -> a\np Power a -> p : power_param {{ shift: 1 }}"
OWN = 'precision_param { quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 th_layer_in: 0.1 th_layer_out: 0.1 }'


def by_hand(net: chai.Net, x: np.ndarray) -> tuple[int, int]:
    """The codes of the input and of the convolution, and how many are at an end: +-127 packed, -128 and 127 computed."""
    assert net.formats is not None
    a = net.graph.latest["a"]
    into, out = net.formats["data"], net.formats[a]
    packed = np.clip(np.round(x / into.step), -127, 127)
    computed = np.round(net.values[a] / out.step)
    low, high = (0, 255) if out.unsigned else (-128, 127)
    ends = (np.abs(packed) == 127).sum() + (computed == high).sum() + (0 if out.unsigned else (computed == low).sum())
    return packed.size + computed.size, int(ends)


@pytest.mark.parametrize("factor", [1, 2, 5])
@pytest.mark.parametrize("lines", [LINES, RECTIFIED], ids=["signed", "unsigned"])
def test_each_pass_counts_its_own(tmp_path: Path, lines: str, factor: int) -> None:
    """With formats of two images, times 1.5, the images themselves saturate nothing."""
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all")
    net.forward(X)
    assert net.perf.saturated == 0 < net.perf.converted and net.perf.saturation == 0
    assert "0 % of codes saturated" in str(net.perf)
    net.forward(factor * X)
    assert net.partition.engine("a") == "fpga"
    wanted = by_hand(net, factor * X)
    assert (net.perf.converted, net.perf.saturated) == wanted
    assert (net.perf.saturated > 0) == (factor > 1)
    assert net.perf.to_json()["saturated"] == net.perf.saturated
    counts = [(net.perf.converted, net.perf.saturated) for _ in net.stream([factor * X, X])]
    assert counts == [wanted, (wanted[0], 0)]


def test_what_a_layer_cuts_off_itself_is_no_saturation(tmp_path: Path) -> None:
    net = network(tmp_path, CEILING, SHAPE, device="emulator")
    net.forward(X)
    net.forward(0.9 * X)
    assert net.partition.engine("a") == "fpga"
    assert (net.perf.converted, net.perf.saturated) == (X.size, 0)


def test_formats_of_the_network_are_not_counted(tmp_path: Path) -> None:
    """The user, or chai quantize, weighed what they cut off; a compiled file is final, too."""
    net = network(tmp_path, f"a Convolution data -> a : {CONV} {OWN}", SHAPE, device="emulator")
    net.forward(X)
    assert net.basis is None and net.perf.converted == 0 and net.perf.saturation is None
    assert "saturated" not in str(net.perf)
    net = network(tmp_path, LINES, SHAPE, device="emulator", calibrate=X)
    save(net, tmp_path / "net.chai")
    compiled = chai.Net(tmp_path / "net.chai", device="emulator")
    compiled.forward(9 * X)
    assert compiled.basis is None and compiled.perf.saturation is None
    float32 = network(tmp_path, LINES, SHAPE)
    float32.forward(X)
    assert float32.perf.saturation is None
