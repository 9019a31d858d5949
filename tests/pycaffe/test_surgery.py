"""Net surgery: fully connected layers made convolutions, parameters edited, saved and read again by three readers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.parser.caffemodel import Weights
from chai.parser.schema import message_class
from chai.zoo import networks
from tests.conftest import need_models

CONNECTED = """
name: "connected"
layer {{ name: "in" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 3 dim: {0} dim: {1} }} }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param {{ num_output: 4 kernel_size: 3 }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }} }}
"""
FC = """
layer { name: "fc6" type: "InnerProduct" bottom: "pool1" top: "fc6" inner_product_param { num_output: 11 } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "fc7" type: "InnerProduct" bottom: "fc6" top: "fc7" inner_product_param { num_output: 5 } }
"""
CONV = """
layer { name: "fc6-conv" type: "Convolution" bottom: "pool1" top: "fc6-conv"
  convolution_param { num_output: 11 kernel_h: 4 kernel_w: 5 } }
layer { name: "relu6" type: "ReLU" bottom: "fc6-conv" top: "fc6-conv" }
layer { name: "fc7-conv" type: "Convolution" bottom: "fc6-conv" top: "fc7-conv"
  convolution_param { num_output: 5 kernel_size: 1 } }
"""
SCRIPT = """
import chai.pycaffe as caffe

net = caffe.Net(connected, weights, caffe.TEST)
params = ["fc6", "fc7"]
fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in params}
net_full_conv = caffe.Net(convolved, weights, caffe.TEST)
params_full_conv = ["fc6-conv", "fc7-conv"]
conv_params = {pr: (net_full_conv.params[pr][0].data, net_full_conv.params[pr][1].data) for pr in params_full_conv}
for pr, pr_conv in zip(params, params_full_conv):
    conv_params[pr_conv][0].flat = fc_params[pr][0].flat
    conv_params[pr_conv][1][...] = fc_params[pr][1]
net_full_conv.save(saved)
"""


def test_a_list_of_parameters_is_not_replaced() -> None:
    net = caffe.Net("digits", caffe.TEST)
    with pytest.raises(chai.UsageError, match=r"params\['conv1/3x3'\]: the list cannot be replaced"):
        net.params["conv1/3x3"] = [np.zeros((16, 1, 3, 3)), np.zeros(16)]  # type: ignore[list-item]


def test_fully_connected_layers_become_convolutions(tmp_path: Path) -> None:
    """8 rows of the small net's 10 and 10 columns of its 12 are one pooled map of 4x5: a larger image gives a map."""
    connected, convolved = tmp_path / "connected.prototxt", tmp_path / "convolved.prototxt"
    connected.write_text(CONNECTED.format(10, 12) + FC)
    convolved.write_text(CONNECTED.format(16, 22) + CONV)
    first, saved = str(tmp_path / "first.caffemodel"), str(tmp_path / "full_conv.caffemodel")
    caffe.Net(str(connected), caffe.TEST).save(first)
    names = {"connected": str(connected), "convolved": str(convolved), "weights": first, "saved": saved}
    exec(compile(SCRIPT, "surgery", "exec"), names)
    net, full = names["net"], names["net_full_conv"]
    image = np.random.default_rng(0).standard_normal((1, 3, 16, 22)).astype(np.float32)
    scores = full.forward(data=image)["fc7-conv"]
    assert scores.shape == (1, 5, 4, 6)
    for y, x in np.ndindex(4, 6):  # pooling steps by two pixels
        part = image[:, :, 2 * y : 2 * y + 10, 2 * x : 2 * x + 12]
        assert np.allclose(net.forward(data=part)["fc7"][0], scores[0, :, y, x], atol=1e-5)
    # read again: by pycaffe and chai, by chai's reader of caffemodels, and by protobuf with Caffe's schema
    for again in (
        caffe.Net(str(convolved), saved, caffe.TEST).forward(data=image),
        chai.Net(convolved, saved, device="float").forward(image),
    ):
        assert np.array_equal(again["fc7-conv"], scores)
    stored = message_class("NetParameter").FromString(Path(saved).read_bytes())
    assert stored.name == "connected"
    assert [(v.name, v.type) for v in stored.layer] == [(v.name, v.type) for v in full.layers]
    weights = Weights(saved)
    for layer in stored.layer:
        blobs = full.layer_dict[layer.name].blobs
        read = [blob.load() for blob in weights.layers[layer.name]]
        assert len(blobs) == len(layer.blobs) == len(read)
        for ours, walked, theirs in zip(blobs, read, layer.blobs):
            assert tuple(theirs.shape.dim) == ours.shape
            assert np.array_equal(np.array(theirs.data, np.float32), ours.data.ravel())
            assert np.array_equal(walked, ours.data)


def test_a_trained_lenet_as_convolutions(tmp_path: Path) -> None:
    """Real weights: 28x28 gives real Caffe's answer, a 36x32 image one answer per position."""
    folder = need_models() / "lenet_kaggle"
    weights = str(folder / "weights.caffemodel")
    text = (folder / "deploy.prototxt").read_text()
    for name, kernel in (("ip1", 4), ("ip2", 1)):
        text = text.replace(f'name: "{name}"\n  type: "InnerProduct"', f'name: "{name}-conv"\n  type: "Convolution"')
        text = text.replace("inner_product_param {", f"convolution_param {{ kernel_size: {kernel} ", 1)
    (tmp_path / "conv.prototxt").write_text(text)
    net = caffe.Net(str(folder / "deploy.prototxt"), weights, caffe.TEST)
    full = caffe.Net(str(tmp_path / "conv.prototxt"), weights, caffe.TEST)
    for name in ("ip1", "ip2"):
        for mine, theirs in zip(full.params[f"{name}-conv"], net.params[name]):
            mine.data.flat = theirs.data.flat
    case = folder / "cases" / "digits"
    wanted = np.load(case / "ref.npz")["prob"]
    x = np.load(case / "input.npy")
    assert np.allclose(full.forward(data=x)["prob"][..., 0, 0], wanted, rtol=1e-4, atol=1e-7)
    large = np.pad(x, ((0, 0), (0, 0), (4, 4), (4, 0)))
    full.blobs["data"].reshape(*large.shape)
    scores = full.forward(data=large)["prob"]
    assert scores.shape == (1, 10, 3, 2)
    assert np.allclose(scores[..., 1, 1], wanted, rtol=1e-4, atol=1e-7)  # four pixels further: one step of the map


def test_one_filter_less_changes_one_map(tmp_path: Path) -> None:
    net = caffe.Net("digits", caffe.TEST)
    x = np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32)
    before = net.forward(data=x, end="conv1/3x3")["conv1/3x3"].copy()
    net.params["conv1/3x3"][0].data[3] = 0
    net.params["conv1/3x3"][1].data[3] = 2
    after = net.forward(data=x, end="conv1/3x3")["conv1/3x3"]
    assert (after[0, 3] == 2).all()
    assert np.array_equal(np.delete(after, 3, 1), np.delete(before, 3, 1))
    net.save(tmp_path / "w.caffemodel")
    digits = networks.prototxt("digits")
    assert digits is not None
    again = chai.Net(digits, tmp_path / "w.caffemodel", device="float", keep=["conv1/3x3"])
    again.forward(x)
    assert np.array_equal(again.blobs["conv1/3x3"], np.maximum(after, 0))


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    net = caffe.Net("digits", caffe.TEST)
    with pytest.raises(OSError):
        net.save(tmp_path / "nowhere" / "w.caffemodel")
    assert list(tmp_path.iterdir()) == []
