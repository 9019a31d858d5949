"""Class scores that are averages: in float32 on the host, because the file says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UsageError
from chai.offload.formats import from_precision
from chai.quantizer import PLAIN, Recipe, quantize
from chai.quantizer.groups import scores
from tests.passes.common import AVE, CONV, DEEP, MAX, network
from tests.quantizer.test_writeback import SHAPE, batches, save

NET = f"""
    a Convolution data -> a : {DEEP}
    p Pooling a -> p : {AVE}
    b Convolution p -> b : {DEEP}
    g Pooling b -> g : pooling_param {{ pool: AVE global_pooling: true }}
    prob Softmax g -> prob
    """
SINGLE = 'precision_param { quant_type: "SinglePrecision" }'


def quantised(folder: Path, **options: Any) -> tuple[Path, Any]:
    save(network(folder, NET, SHAPE), folder / "net.caffemodel")
    out = folder / "q.prototxt"
    return out, quantize(folder / "net.prototxt", folder / "net.caffemodel", batches(), out, **options)


@pytest.mark.parametrize("recipe", [PLAIN, Recipe("mse", "mse", 0.5, "compensated", "tuned")])
def test_scores_that_are_averages_stay_in_float(tmp_path: Path, recipe: Recipe) -> None:
    out, result = quantised(tmp_path, recipe=recipe)
    assert out.read_text().count("SinglePrecision") == 1
    with chai.Net(out, result.caffemodel, "emulator", keep="all") as net:
        prob = net.forward(batches()[0])["prob"]
        reasons = net.offload.partition.reasons
        assert reasons["g"] == "its format is SinglePrecision" and sorted(reasons) == ["g", "prob"]
        scores = net.blobs["b"].astype(np.float64).mean((2, 3))  # codes times their step, averaged without a rounding
        np.testing.assert_allclose(net.blobs["g"].reshape(scores.shape), scores, rtol=1e-5)
    wide = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(prob.reshape(scores.shape), wide / wide.sum(1, keepdims=True), rtol=1e-4)


def test_the_scheme_is_that_of_the_overlay(tmp_path: Path) -> None:
    out, result = quantised(tmp_path, overlay="vta-z7020", recipe=PLAIN)
    assert result.how["scheme"] == "DynamicFixed" and 'quant_type: "Xilinx"' not in out.read_text()
    assert out.read_text().count('quant_type: "DynamicFixed"') >= 2
    with pytest.raises(UsageError, match="scheme Xilinx: overlay vta-z7020 has DynamicFixed"):
        quantised(tmp_path, overlay="vta-z7020", scheme="Xilinx", recipe=PLAIN)


def test_a_file_for_chaidnn_keeps_them_on_the_overlay(tmp_path: Path) -> None:
    out, result = quantised(tmp_path, chaidnn=True, recipe=PLAIN)
    assert "SinglePrecision" not in out.read_text()
    with chai.Net(out, result.caffemodel, "emulator") as net:
        net.forward(batches()[0])
        assert list(net.offload.partition.reasons) == ["prob"]


def test_which_layers_make_scores(tmp_path: Path) -> None:
    net = network(tmp_path, NET + f"m Pooling a -> m : {MAX}\nq Pooling a -> q : {AVE}", SHAPE)
    every = {layer.name for layer in net.graph.layers}
    assert scores(net.graph, every) == {"g", "q"}  # p is read by a convolution, m is no average
    assert scores(net.graph, every - {"g"}) == {"q"}


def test_any_layer_may_ask_for_float(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fixed = 'precision_param { quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 th_layer_in: 4 th_layer_out: 3 }'
    lines = f"a Convolution data -> a : {CONV} {fixed}\nb Convolution a -> b : {CONV} {SINGLE}"
    net = network(tmp_path, lines, SHAPE, device="emulator")
    net.forward(batches()[0])
    assert net.offload.partition.reasons == {"b": "its format is SinglePrecision"}
    assert "no complete precision_param" not in caplog.text  # nothing is missing
    assert from_precision(net.graph)["b"].scheme == "Xilinx"
    with pytest.raises(UsageError, match="layer 'b' cannot run on the overlay: its format is"):
        _ = network(tmp_path, lines, SHAPE, device="emulator", engine={"b": "fpga"}).offload
