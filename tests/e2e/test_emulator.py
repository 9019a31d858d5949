"""Every real network on the emulator: how far eight bits are from float."""

from __future__ import annotations

import numpy as np
import pytest

import chai
from tests.conftest import need_models, report

from .test_caffe_models import NAMES, cases


@pytest.mark.parametrize("name", NAMES)
def test_eight_bits_stay_close_to_float(name: str) -> None:
    folder = need_models() / name
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    data = np.load(cases(name)[0] / "input.npy")
    exact = chai.Net(*files, device="float", custom=folder).forward(data)
    net = chai.Net(*files, device="emulator", custom=folder)  # one has Python layers
    fixed = net.forward(data)
    assert "fpga:Convolution" in net.schedule.engines()
    reasons = net.offload.partition.reasons
    on_host = [
        reasons[layer.name] for layer in net.graph.layers if layer.type == "Convolution" and layer.name in reasons
    ]
    assert on_host == (["pad 20 is more than the overlay's 10"] if name == "synth_fcn8ish" else [])
    for blob, wanted in exact.items():
        if blob == "detection_out":  # boxes: how many there are may differ
            continue
        error = float(((fixed[blob] - wanted) ** 2).sum())
        ratio = 10 * np.log10(float((wanted**2).sum()) / error) if error else np.inf
        report(f"{name}: {blob} has {ratio:.1f} dB in 8 bits on the emulator")
        assert ratio > 15
