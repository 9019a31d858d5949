"""Thresholds of channels whose sums could overflow: the quantiser writes them coarser, so that its rounding knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai.offload.schedule import DeviceStep
from chai.parser.caffemodel import write_caffemodel
from chai.quantizer.recipe import Recipe
from chai.quantizer.report import verdict
from chai.quantizer.search import quantize
from tests.passes.common import prototxt
from tests.tasks.common import narrow

SHAPE = (2, 256, 5, 7)


@pytest.mark.parametrize("rounding", ["nearest", "compensated"])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_a_deep_layer_stays_on_the_overlay(tmp_path: Path, scheme: str, rounding: str) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt("deep Convolution data -> y : convolution_param { num_output: 5 kernel_size: 3 }", SHAPE))
    weights = rng.uniform(-1, 1, (5, 256, 3, 3)).astype(np.float32)
    weights[3, 100:] = 0  # the only channel whose sums fit
    write_caffemodel(tmp_path / "net.caffemodel", "net", [("deep", "Convolution", [weights, np.zeros(5, np.float32)])])
    data = [rng.uniform(-1, 1, SHAPE).astype(np.float32) for _ in range(2)]
    recipe = Recipe("max", "max", rounding=rounding)
    files, overlay = (path, tmp_path / "net.caffemodel"), narrow(tmp_path)
    result = quantize(*files, data, tmp_path / "q.prototxt", scheme=scheme, recipe=recipe, overlay=str(overlay))
    report = verdict(result, *files)
    assert result.built.coarser["deep"].channels == 4 and not result.built.refused
    assert any(f"deep ({result.built.coarser['deep']})" in line for line in report.sentences())
    assert report.to_json()["coarser"]["deep"]["channels"] == 4
    with chai.Net(result.prototxt, result.caffemodel, "emulator", keep="all", overlay=overlay) as net:
        y = net.forward(data[0])["y"]
        assert [type(s) for s in net.schedule.steps].count(DeviceStep) == 1
        (layer,) = (x for x in net.offload.graph.layers if x.name == "deep")
        if scheme == "Xilinx":  # the file's own thresholds are the coarser ones
            assert not net.offload.plan.coarser
            largest = np.abs(weights.reshape(5, -1)).max(1)
            assert layer.precision is not None
            ratios = 16 * np.log2(np.array(layer.precision.th_params, np.float32) / largest)
            assert np.abs(ratios - np.rint(ratios)).max() < 1e-4 and ratios[3] == 0 and np.delete(ratios, 3).min() > 0.9
    with chai.Net(*files, device="float") as reference:
        wanted = reference.forward(data[0])["y"]
    assert 10 * np.log10((wanted**2).sum() / ((y - wanted) ** 2).sum()) > (25 if scheme == "Xilinx" else 20)
