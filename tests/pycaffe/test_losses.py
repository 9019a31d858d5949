"""Losses in pycaffe: layers like all others, on labels that are blobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai.pycaffe as caffe

TRAIN_VAL = """
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { crop_size: 3 } data_param { batch_size: 2 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 11 kernel_size: 2 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" std: 2.5 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
"""


@pytest.fixture
def net(tmp_path: Path) -> caffe.Net:
    (tmp_path / "net.prototxt").write_text(TRAIN_VAL)
    return caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)


def expected(scores: np.ndarray, labels: np.ndarray) -> float:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return float(-np.log(powers[np.arange(len(labels)), labels] / powers.sum(1)).mean())


def test_a_training_net_has_its_loss_as_in_caffe(net: caffe.Net) -> None:
    assert list(net.blobs) == ["data", "label", "conv", "ip", "loss", "accuracy"]
    assert (net.inputs, net.outputs) == (["data"], ["loss", "accuracy"])
    assert [v.type for v in net.layers][-2:] == ["SoftmaxWithLoss", "Accuracy"]
    assert net.blobs["label"].shape == (2,) and net.blobs["loss"].shape == ()
    net.blobs["data"].data[...] = np.random.default_rng(0).uniform(-1, 1, (2, 3, 3, 3))
    net.blobs["label"].data[...] = [1, 4]
    out = net.forward()
    assert float(out["loss"]) == pytest.approx(expected(net.blobs["ip"].data, np.array([1, 4])), rel=1e-5)
    best = net.blobs["ip"].data.argmax(1)
    net.blobs["label"].data[...] = [best[0], (best[1] + 1) % 5]
    assert float(net.forward(start="accuracy")["accuracy"]) == 0.5


def test_labels_follow_the_batch_and_may_be_given(net: caffe.Net) -> None:
    net.blobs["data"].reshape(7, 3, 3, 3)
    data = np.random.default_rng(1).uniform(-1, 1, (7, 3, 3, 3))
    out = net.forward(data=data, label=np.arange(7) % 5)
    assert float(out["loss"]) == pytest.approx(expected(net.blobs["ip"].data, np.arange(7) % 5), rel=1e-5)
    with pytest.raises(caffe.net.UsageError, match="are not the net's inputs"):
        net.forward(label=np.zeros(7))


def test_on_an_overlay(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(TRAIN_VAL)
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, device="emulator")
    net.blobs["data"].data[...] = np.random.default_rng(0).uniform(-1, 1, (2, 3, 3, 3))
    net.blobs["label"].data[...] = [3, 0]
    out = net.forward()
    assert {s.name: s.engine for s in net.perf.steps}["conv"] == "fpga"
    assert float(out["loss"]) == pytest.approx(expected(net.blobs["ip"].data, np.array([3, 0])), rel=1e-5)


def test_labels_that_are_no_classes_leave_the_loss_out(tmp_path: Path) -> None:
    text = TRAIN_VAL.replace("SoftmaxWithLoss", "EuclideanLoss").partition('layer { name: "accuracy"')[0]
    (tmp_path / "net.prototxt").write_text(text)
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)
    assert (list(net.blobs), net.outputs) == (["data", "conv", "ip"], ["ip"])
