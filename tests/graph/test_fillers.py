"""Parameters that no caffemodel has."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.graph.fillers import bilinear
from chai.parser.caffemodel import write_caffemodel


def test_random_weights_are_the_same_on_every_run_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 28, 28))
    with caplog.at_level(logging.WARNING, "chai"):
        first = chai.Net("lenet", device="float").forward(x)["prob"]
    assert [r.message for r in caplog.records] == ["LeNet: no caffemodel: random weights of 4 layers"]
    assert np.array_equal(first, chai.Net("lenet", device="float").forward(x)["prob"])
    assert first.std() > 0


def test_an_upsampling_kernel_that_is_not_stored_is_its_filler(tmp_path: Path) -> None:
    (tmp_path / "up.prototxt").write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 5 dim: 7 } } }\n'
        'layer { name: "up" type: "Deconvolution" bottom: "data" top: "up" convolution_param { num_output: 2 '
        'group: 2 kernel_size: 4 stride: 2 pad: 1 bias_term: false weight_filler { type: "bilinear" } } }\n'
    )
    write_caffemodel(tmp_path / "w.caffemodel", "up", [("other", "ReLU", [])])
    net = chai.Net(tmp_path / "up.prototxt", tmp_path / "w.caffemodel", device="float")
    up = net.forward(np.full((1, 2, 5, 7), 3.0))["up"]
    assert up.shape == (1, 2, 10, 14)
    assert np.allclose(up[:, :, 1:-1, 1:-1], 3)  # a constant stays constant away from the border
    assert np.allclose(bilinear((1, 1, 4, 4))[0, 0, 0], np.array([0.25, 0.75, 0.75, 0.25]) * 0.25)


def test_constant_weights_are_the_files(tmp_path: Path) -> None:
    """A mean of 3 x 3 pixels, which needs no training, and zeros; where none are stated they are random, but for a bias."""
    conv = 'layer {{ name: "{0}" type: "Convolution" bottom: "data" top: "{0}" '
    conv += "convolution_param {{ num_output: 2 kernel_size: 3 {1} }} }}\n"
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 5 dim: 7 } } }\n'
        + conv.format("mean", 'weight_filler { type: "constant" value: 0.11111111 } bias_filler { value: 2 }')
        + conv.format("zeros", 'weight_filler { type: "constant" } bias_filler { value: 5 }')
        + conv.format("any", "")
        + 'layer { name: "scale" type: "Scale" bottom: "data" top: "scale" '
        + "scale_param { num_axes: -1 filler { value: 3 } bias_term: true } }\n"
        + 'layer { name: "same" type: "Scale" bottom: "data" top: "same" scale_param { num_axes: 2 bias_term: true } }\n'
        + 'layer { name: "bias" type: "Bias" bottom: "data" top: "bias" bias_param { num_axes: 2 } }\n'
    )
    x = np.random.default_rng(3).standard_normal((1, 1, 5, 7)).astype(np.float32)
    tops = chai.Net(tmp_path / "net.prototxt", device="float").forward(x)
    means = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3)).mean((4, 5)) + 2
    np.testing.assert_allclose(tops["mean"], np.repeat(means, 2, 1), rtol=1e-5)
    np.testing.assert_allclose(tops["scale"], 3 * x, rtol=1e-6)
    np.testing.assert_array_equal(tops["same"], x)
    np.testing.assert_array_equal(tops["bias"], x)
    assert (tops["zeros"] == 5).all() and tops["any"].std() > 0
