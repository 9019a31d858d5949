"""What a pass takes: arrays by name, in one dict or in order; inputs that nothing reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
layer { name: "other" type: "Input" top: "other" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "more" type: "Data" top: "more" top: "label" transform_param { crop_size: 5 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 6 } }
layer { name: "sum" type: "Eltwise" bottom: "more" bottom: "more" top: "sum" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""
RNG = np.random.default_rng(5)
DATA, MORE = (RNG.uniform(-1, 1, size).astype(np.float32) for size in ((2, 3, 5, 7), (2, 3, 5, 5)))
OTHER, LABEL = np.arange(4, dtype=np.float32).reshape(1, 4), np.array([1, 3])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path / "net.prototxt"


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_one_dict_by_position_is_the_same_as_arrays_by_name(path: Path, device: str) -> None:
    net = chai.Net(path, device=device)
    named = net.forward(data=DATA, more=MORE, label=LABEL)
    for out in (
        net.forward({"data": DATA, "more": MORE, "label": LABEL}),
        net.forward({"data": DATA}, more=MORE, label=LABEL),
    ):
        assert out.keys() == named.keys() == {"fc", "sum", "loss"}
        assert all(np.array_equal(out[name], named[name]) for name in out)
    if device == "emulator":
        before = net.formats
        net.calibrate({"data": 2 * DATA, "more": MORE})
        assert net.formats is not None
        assert before is not None
        assert net.formats["data"].step > before["data"].step
    with pytest.raises(chai.UsageError, match="'dta' is no input"):
        net.forward({"data": DATA, "more": MORE, "dta": DATA})
    with pytest.raises(chai.UsageError, match="input 'more' is missing"):
        net.forward({"data": DATA})


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_an_input_that_nothing_reads_may_be_fed(path: Path, device: str) -> None:
    net = chai.Net(path, device=device)
    assert net.inputs == ["data", "more"]
    without = net.forward(data=DATA, more=MORE)
    assert "other" not in net.blobs
    out = net.forward(data=DATA, more=MORE, other=OTHER)
    assert np.array_equal(net.blobs["other"], OTHER)
    assert out.keys() == without.keys()
    assert all(np.array_equal(out[name], without[name]) for name in out)
    streamed = [*net.stream([{"data": DATA, "more": MORE, "other": OTHER}, {"data": DATA, "more": MORE}])]
    assert all(np.array_equal(each["fc"], without["fc"]) for each in streamed)
    with pytest.raises(chai.UsageError, match="input 'other': expected numbers"):
        net.forward(data=DATA, more=MORE, other="photo.jpg")


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_it_is_a_blob_and_an_output_of_pycaffe_as_in_caffe(path: Path, device: str) -> None:
    net = caffe.Net(str(path), caffe.TEST, device=device)
    assert net.inputs == ["data", "more", "other"]
    assert net.outputs == ["sum", "other", "loss"]
    assert net.blobs["other"].shape == (1, 4)
    net.blobs["other"].data[...] = OTHER
    net.blobs["data"].reshape(3, 3, 5, 7)
    net.blobs["more"].reshape(3, 3, 5, 5)
    net.reshape()
    assert (net.blobs["label"].shape, net.blobs["other"].shape) == ((3,), (1, 4))
    assert np.array_equal(net.forward()["other"], OTHER)
    net.blobs["data"].reshape(2, 3, 5, 7)
    net.blobs["more"].reshape(2, 3, 5, 5)
    out = net.forward(data=DATA, more=MORE, other=2 * OTHER)
    assert np.array_equal(out["other"], 2 * OTHER)
    assert net.blobs["fc"].shape == (2, 6)


def test_what_only_a_loss_that_is_not_computed_reads_is_a_label(tmp_path: Path) -> None:
    path = tmp_path / "ssd.prototxt"
    path.write_text(
        'input: "data" input_shape { dim: 1 dim: 2 } input: "label" input_shape { dim: 1 }\n'
        'layer { name: "a" type: "AbsVal" bottom: "data" top: "a" }\n'
        'layer { name: "l" type: "MultiBoxLoss" bottom: "a" bottom: "a" bottom: "a" bottom: "label" top: "l" }'
    )
    net = chai.Net(path, device="float")
    assert (net.graph.unread, net.outputs) == ({}, ["a"])


@pytest.mark.parametrize("wrong", [7, None, "1x3", (1.5, 3), [2, None], np.ones((1, 3))])
def test_what_is_no_shape_is_refused(tmp_path: Path, wrong: Any) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        'input: "data" input_shape { dim: 2 dim: 3 } layer { name: "a" type: "AbsVal" bottom: "data" top: "a" }'
    )
    with pytest.raises(chai.UsageError, match="input 'data': expected a shape, found"):
        chai.Net(path, device="float", shapes={"data": wrong})
    net = chai.Net(path, device="float")
    with pytest.raises(chai.UsageError, match="input 'data': expected a shape, found"):
        net.reshape(data=wrong)
    assert net.shapes["a"] == (2, 3)
    net.reshape(data=np.array([4, 5]))
    assert net.shapes["a"] == (4, 5)
    assert all(type(size) is int for size in net.shapes["a"])
