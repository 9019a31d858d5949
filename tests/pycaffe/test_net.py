"""pycaffe's Net: persistent blobs, parts of a pass, sizes, constructors, errors."""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.artifact.save import save
from chai.parser.caffemodel import Weights, write_caffemodel
from chai.pycaffe import mode
from chai.util.log import warn_once

# a = relu((2 data) + 1), all in one blob; b = -a; s = a + b * 10
STEPS = """
name: "steps"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
layer { name: "double" type: "Power" bottom: "data" top: "a" power_param { scale: 2 } }
layer { name: "plus" type: "Power" bottom: "a" top: "a" power_param { shift: 1 } }
layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }
layer { name: "minus" type: "Power" bottom: "a" top: "b" power_param { scale: -1 } }
layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "s" eltwise_param { coeff: 1 coeff: 10 } }
"""
WEIGHTED = """
name: "weighted"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 6 } }
"""
X = np.random.default_rng(3).standard_normal((2, 3, 5, 7)).astype(np.float32)


@pytest.fixture(autouse=True)
def _nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode, "_chosen", "")
    warn_once.cache_clear()


@pytest.fixture
def steps(tmp_path: Path) -> caffe.Net:
    path = tmp_path / "steps.prototxt"
    path.write_text(STEPS)
    return caffe.Net(path, caffe.TEST)


@pytest.fixture
def weighted(tmp_path: Path) -> Path:
    path = tmp_path / "weighted.prototxt"
    path.write_text(WEIGHTED)
    return path


def digits() -> caffe.Net:
    return caffe.Net("digits", caffe.TEST)


def test_what_a_net_has(steps: caffe.Net) -> None:
    assert list(steps.blobs) == ["data", "a", "b", "s"]
    assert (steps.inputs, steps.outputs) == (["data"], ["s"])
    assert steps._layer_names == ["in", "double", "plus", "relu", "minus", "sum"]
    assert [layer.type for layer in steps.layers] == ["Input", "Power", "Power", "ReLU", "Power", "Eltwise"]
    assert steps.layer_dict["relu"] is steps.layers[3]
    assert steps.bottom_names["sum"] == ["a", "b"]
    assert steps.top_names == {
        "in": ["data"],
        "double": ["a"],
        "plus": ["a"],
        "relu": ["a"],
        "minus": ["b"],
        "sum": ["s"],
    }
    assert not steps.params
    assert repr(steps).startswith("<chai.pycaffe.Net 'steps': 6 layers, data 2x3x5x7 -> s, device float>")
    blob = steps.blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 3, 5, 7, 210)
    assert blob.data.dtype == np.float32
    assert not any(b.data.any() for b in steps.blobs.values())


def test_a_pass_on_what_the_input_blob_holds(steps: caffe.Net) -> None:
    steps.blobs["data"].data[...] = X
    out = steps.forward()
    a = np.maximum(2 * X + 1, 0)
    assert list(out) == ["s"]
    assert np.allclose(out["s"], -9 * a)
    assert np.allclose(steps.blobs["a"].data, a)
    assert np.array_equal(steps.blobs["data"].data, X)
    assert [s.name for s in steps.perf.steps] == ["double", "plus", "relu", "minus", "sum"]
    assert "images/second" in str(steps.perf)


def test_arrays_are_the_blobs_own_memory(steps: caffe.Net) -> None:
    before = steps.blobs["s"].data
    out = steps.forward(data=X)["s"]
    assert out is steps.blobs["s"].data is before
    first = out.copy()
    steps.forward(data=-X)
    assert not np.array_equal(before, first)


def test_asking_for_more_blobs(steps: caffe.Net) -> None:
    assert list(steps.forward(["b"], data=X)) == ["s", "b"]
    assert list(steps.forward(blobs=["a"], end="minus")) == ["b", "a"]
    with pytest.raises(chai.UsageError, match=r"there is no blob 'bb' in .*steps.prototxt"):
        steps.forward(["bb"], data=X)


@pytest.mark.parametrize("blobs", [X, "b", 3, [X], [None], ["b", ["a"]]], ids=lambda blobs: type(blobs).__name__)
def test_what_are_no_names_of_blobs(steps: caffe.Net, blobs: Any) -> None:
    """Images by position, as chai.Net takes them, are the commonest."""
    for forward in (steps.forward, steps.forward_all):
        with pytest.raises(
            chai.UsageError, match=r"expected a list of names of blobs, found .*net\.forward\(data=array\)"
        ):
            forward(blobs, data=X)


@pytest.mark.parametrize("name", [["relu"], 3, b"relu", X], ids=lambda name: type(name).__name__)
def test_what_is_no_name_of_a_layer(steps: caffe.Net, name: Any) -> None:
    for part in ({"start": name}, {"end": name}):
        with pytest.raises(chai.UsageError, match="there is no layer"):
            steps.forward(**part)


def test_an_array_in_the_place_of_a_blob(steps: caffe.Net) -> None:
    before = steps.blobs["data"]
    with pytest.raises(chai.UsageError, match=r"is a blob, not ndarray.*net\.blobs\['data'\]\.data\[\.\.\.\] = array"):
        steps.blobs["data"] = X  # type: ignore[assignment]
    assert steps.blobs["data"] is before
    assert steps.blobs.copy() == steps.blobs


def test_what_is_no_net_to_share_with(steps: caffe.Net) -> None:
    for other in (None, "net.caffemodel", steps.net):
        with pytest.raises(chai.UsageError, match=rf"expected a caffe\.Net, found {type(other).__name__}.*copy_from"):
            steps.share_with(other)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", [None, 2, 1.0, "TEST", [1], X], ids=lambda phase: type(phase).__name__)
def test_what_is_no_phase(phase: Any) -> None:
    with pytest.raises(chai.UsageError, match=r"phase .*: expected caffe\.TEST or caffe\.TRAIN"):
        caffe.Net("digits", "prototxt/digits.caffemodel", phase) if isinstance(phase, str) else caffe.Net(
            "digits", phase
        )


@pytest.mark.parametrize("option", ["keep", "prototxt", "caffemodel", "nonsense"])
def test_options_that_the_net_has_not(option: str) -> None:
    with pytest.raises(chai.UsageError, match=f"^Net has no option '{option}'"):
        caffe.Net("digits", caffe.TEST, **{option: "all"})


def test_end_leaves_later_blobs_as_they_were(steps: caffe.Net) -> None:
    steps.forward(data=X)
    s = steps.blobs["s"].data.copy()
    out = steps.forward(end="plus", data=X)
    assert list(out) == ["a"]
    assert np.allclose(out["a"], 2 * X + 1)  # before the ReLU
    assert np.array_equal(steps.blobs["s"].data, s)


def test_start_reads_what_was_written_into_the_blob(steps: caffe.Net) -> None:
    steps.forward(data=X)
    mine = np.random.default_rng(4).standard_normal(X.shape).astype(np.float32)
    steps.blobs["a"].data[...] = mine
    assert np.allclose(steps.forward(start="relu")["s"], -9 * np.maximum(mine, 0))
    assert np.array_equal(steps.blobs["data"].data, X)
    assert np.allclose(steps.blobs["a"].data, np.maximum(mine, 0))


def test_a_layer_in_place_works_on_its_own_result_when_it_is_run_again(steps: caffe.Net) -> None:
    steps.forward(data=X, end="plus")
    for _ in range(3):
        steps.forward(start="plus", end="plus")
    assert np.allclose(steps.blobs["a"].data, 2 * X + 4)


def test_start_after_a_side_branch_reads_all_its_bottoms(steps: caffe.Net) -> None:
    steps.blobs["a"].data[...] = 3
    steps.blobs["b"].data[...] = 5
    assert (steps.forward(start="sum")["s"] == 53).all()


def test_a_pass_in_two_parts_is_the_whole_pass() -> None:
    """Cut at every layer of the digits network, two inception modules with layers in place."""
    net = digits()
    x = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    net.blobs["data"].reshape(*x.shape)
    whole = net.forward(data=x)["prob"].copy()
    names = net._layer_names[1:]
    for name, following in pairwise(names):
        for blob in list(net.blobs.values())[1:]:
            blob.data[...] = np.nan
        net.forward(end=name)
        assert np.array_equal(net.forward(start=following)["prob"], whole), name


def test_it_computes_what_chai_computes() -> None:
    x = np.random.default_rng(1).random((5, 1, 8, 8)).astype(np.float32)
    net, plain = digits(), chai.Net("digits", device="float", keep="all")
    net.blobs["data"].reshape(*x.shape)
    assert np.array_equal(net.forward(data=x)["prob"], plain.forward(x)["prob"])
    assert all(np.array_equal(net.blobs[n].data, v) for n, v in plain.blobs.items())


# -- sizes


def test_sizes_follow_the_input_blobs(steps: caffe.Net) -> None:
    steps.blobs["data"].reshape(4, 2, 3, 11)
    assert steps.blobs["s"].shape == (2, 3, 5, 7)
    steps.reshape()
    assert steps.blobs["s"].data.shape == steps.blobs["a"].shape == (4, 2, 3, 11)
    steps.blobs["data"].reshape(1, 2)
    steps.blobs["data"].data[...] = [[1, -3]]
    assert steps.forward()["s"].tolist() == [[-27, 0]]


def test_a_size_the_weights_do_not_fit_is_refused(weighted: Path) -> None:
    net = caffe.Net(weighted, caffe.TEST)
    net.blobs["data"].reshape(2, 3, 6, 7)
    with pytest.raises(chai.ShapeError, match=r"layer 'fc'.*weights \(blob 0\) would be 6x80, they are 6x60"):
        net.forward()
    net.blobs["data"].reshape(2, 3, 5, 7)
    assert net.forward()["fc"].shape == (2, 6)


def test_a_part_of_a_pass_follows_the_sizes_of_what_it_reads(steps: caffe.Net) -> None:
    steps.blobs["a"].reshape(1, 4)
    steps.blobs["a"].data[...] = [[1, -2, 3, -4]]
    assert steps.forward(start="relu")["s"].tolist() == [[-9, 0, -27, 0]]
    assert steps.forward(data=X)["s"].shape == X.shape


def test_memory_of_a_blob_grows_and_never_shrinks() -> None:
    blob = caffe.Blob(np.arange(6, dtype=np.float32).reshape(2, 3))
    view = blob.data
    blob.reshape(4)
    assert blob.data.tolist() == [0, 1, 2, 3]
    blob.data[0] = 9
    assert view[0, 0] == 9
    blob.reshape(3, 2)
    assert blob.data.tolist() == [[9, 1], [2, 3], [4, 5]]
    blob.reshape(7)
    assert blob.data.tolist() == [0] * 7
    blob.reshape()
    assert blob.data.shape == () and blob.count == 1 and blob.num == blob.width == 1


@pytest.mark.parametrize("dims", [((2, 3),), (2.5, 3), (-1, 3), (2**20, 2**20)])
def test_sizes_that_cannot_be(dims: tuple[object, ...]) -> None:
    blob = caffe.Blob(np.zeros((2, 3), np.float32))
    with pytest.raises(chai.UsageError, match="reshape"):
        blob.reshape(*dims)  # type: ignore[arg-type]
    assert blob.shape == (2, 3)


def test_old_names_of_axes_end_at_four() -> None:
    with pytest.raises(chai.UsageError, match="belong to blobs of 4 axes, this is 1x1x1x1x2"):
        _ = caffe.Blob(np.zeros((1, 1, 1, 1, 2), np.float32)).num


def test_detections_of_any_number() -> None:
    """A blob whose size only the pass itself knows: DetectionOutput's rows."""
    from tests.conftest import need_models

    folder = need_models() / "yuface_v1_ssd"
    net = caffe.Net(str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel"), caffe.TEST)
    for case in sorted((folder / "cases").iterdir()):
        x, wanted = np.load(case / "input.npy"), np.load(case / "ref.npz")["detection_out"]
        net.blobs["data"].reshape(*x.shape)
        detections = net.forward(data=x)["detection_out"]
        assert detections.shape == net.blobs["detection_out"].shape == wanted.shape
        assert np.allclose(detections, wanted, rtol=1e-4, atol=1e-4)


# -- inputs by keyword


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"dat": X}, r"the arrays given \(dat\) are not the net's inputs \(data\)"),
        ({"data": X[:1]}, "input 'data' of 1x3x5x7 for a blob of 2x3x5x7"),
        ({"data": X[..., :-1]}, r"input 'data' of 2x3x5x6 .*net.blobs\['data'\].reshape\(2, 3, 5, 6\) first"),
        ({"data": 3.0}, "input 'data' of scalar"),
    ],
)
def test_wrong_inputs(steps: caffe.Net, inputs: dict[str, object], words: str) -> None:
    with pytest.raises(chai.UsageError, match=words):
        steps.forward(**inputs)


@pytest.mark.parametrize("wrong", [None, [["a"], ["b"]], X.astype(np.complex64), [[1.0], [2.0, 3.0]]], ids=str)
def test_inputs_that_are_no_numbers(steps: caffe.Net, wrong: Any) -> None:
    for forward in (steps.forward, steps.forward_all):
        with pytest.raises(chai.UsageError, match="input 'data': expected numbers"):
            forward(data=wrong)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"start": "relo"}, r"there is no layer 'relo' .*did you mean 'relu'\?"),
        ({"end": "a"}, "there is no layer 'a'"),
        ({"start": "sum", "end": "plus"}, "layer 'sum' comes after layer 'plus'"),
    ],
)
def test_layers_that_are_not_there(steps: caffe.Net, names: dict[str, str], words: str) -> None:
    with pytest.raises(chai.UsageError, match=words):
        steps.forward(**names)


@pytest.mark.parametrize("items", [1, 2, 3, 6, 7])
def test_forward_all_runs_batches_and_fills_up_the_last(items: int) -> None:
    net = digits()
    net.blobs["data"].reshape(3, 1, 8, 8)
    x = np.random.default_rng(5).random((items, 1, 8, 8)).astype(np.float32)
    results = net.forward_all(["pool/4x4"], data=x)
    alone = chai.Net("digits", device="float", keep=["pool/4x4"])
    assert {k: v.shape for k, v in results.items()} == {"prob": (items, 10), "pool/4x4": (items, 128, 1, 1)}
    for i in range(items):
        assert np.allclose(results["prob"][i], alone.forward(x[i : i + 1])["prob"][0], atol=1e-6)
        assert np.allclose(results["pool/4x4"][i], alone.blobs["pool/4x4"][0], atol=1e-5)
    with pytest.raises(chai.UsageError, match=r"expected the same number of items for every input, found \[0\]"):
        net.forward_all(data=x[:0])
    with pytest.raises(chai.UsageError, match=r"expected the same number of items for every input, found \[0\]"):
        net.forward_all(data=3)


def test_forward_all_needs_no_input_that_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "unread.prototxt"
    path.write_text(
        'layer { name: "in" type: "Input" top: "data" top: "unread" input_param { shape { dim: 2 dim: 3 } } }\n'
        'layer { name: "plus" type: "Power" bottom: "data" top: "plus" power_param { shift: 1 } }\n'
    )
    x = np.random.default_rng(4).random((5, 3)).astype(np.float32)
    for inputs in ({"data": x}, {"data": x, "unread": 7 * x}):
        results = caffe.Net(path, caffe.TEST).forward_all(**inputs)
        assert np.array_equal(results["plus"], x + 1)
    assert np.array_equal(results["unread"], 7 * x)


@pytest.mark.parametrize("shape", [(2, 3, 1, 5, 7), (3,), ()])
def test_inputs_of_any_number_of_axes(steps: caffe.Net, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    steps.blobs["data"].reshape(*shape)
    steps.blobs["data"].data[...] = x
    assert np.allclose(steps.forward()["s"], -9 * np.maximum(2 * x + 1, 0))
    assert steps.perf.batch == (shape[0] if shape else 1)


def test_forward_all_needs_a_row_per_item(tmp_path: Path) -> None:
    path = tmp_path / "turned.prototxt"
    path.write_text(
        'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }\n'
        'layer { name: "flat" type: "Reshape" bottom: "data" top: "flat" reshape_param { shape { dim: 6 } } }\n'
    )
    with pytest.raises(chai.UsageError, match="forward_all: blob 'flat' of 6 has not one row per item"):
        caffe.Net(path, caffe.TEST).forward_all(data=np.zeros((4, 3)))


# -- constructors


def test_every_order_of_the_arguments(weighted: Path, tmp_path: Path) -> None:
    model, weights = str(weighted), str(tmp_path / "w.caffemodel")
    caffe.Net(model, caffe.TEST).save(weights)
    nets = [
        caffe.Net(model, caffe.TEST, weights=weights),
        caffe.Net(model, weights, caffe.TEST),
        caffe.Net(model, weights),
        caffe.Net(network_file=model, phase=caffe.TEST, level=0, stages=[], weights=weights),
        caffe.Net(model, 1, 0, None, weights),
        caffe.Net(weighted, tmp_path / "w.caffemodel", caffe.TEST),
    ]
    wanted = nets[0].forward(data=X)["fc"]
    assert wanted.any()
    assert all(np.array_equal(net.forward(data=X)["fc"], wanted) for net in nets[1:])
    with pytest.raises(chai.UsageError, match=r"phase 2: expected caffe\.TEST or caffe\.TRAIN"):
        caffe.Net(model, 2)
    with pytest.raises(chai.UsageError, match="there is no file 'none"):
        caffe.Net(model, "none.caffemodel", caffe.TEST)


def test_phase_level_and_stages_reach_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.prototxt"
    power = 'layer {{ name: "{0}" type: "Power" bottom: "data" top: "{0}" include {{ {1} }} }}\n'
    path.write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 } } }\n'
        + power.format("train", "phase: TRAIN")
        + power.format("test", "phase: TEST")
        + power.format("deep", "min_level: 3")
        + power.format("staged", 'stage: "late"')
    )
    assert caffe.Net(path, caffe.TRAIN).outputs == ["train"]
    assert caffe.Net(path, caffe.TEST, 3).outputs == ["test", "deep"]
    assert caffe.Net(path, caffe.TEST, stages=["late"]).outputs == ["test", "staged"]


def test_a_file_without_sizes_takes_them_as_an_option(tmp_path: Path) -> None:
    path = tmp_path / "data.prototxt"
    path.write_text(
        'layer { name: "data" type: "ImageData" top: "data" top: "label" image_data_param { source: "x" } }\n'
        'layer { name: "abs" type: "AbsVal" bottom: "data" top: "abs" }\n'
    )
    with pytest.raises(chai.ModelError, match="does not say the size of input 'data'"):
        caffe.Net(path, caffe.TEST)
    net = caffe.Net(path, caffe.TEST, shapes={"data": (2, 3, 5, 7)})
    assert list(net.blobs) == ["data", "label", "abs"]
    assert np.array_equal(net.forward(data=X)["abs"], np.abs(X))


# -- trained parameters


def test_parameters_are_written_in_place(weighted: Path) -> None:
    net = caffe.Net(weighted, caffe.TEST)
    assert {k: [b.shape for b in v] for k, v in net.params.items()} == {
        "conv": [(4, 3, 3, 3), (4,)],
        "fc": [(6, 60), (6,)],
    }
    assert net.layers[1].blobs is net.params["conv"]
    net.params["fc"][0].data[...] = 0
    net.params["fc"][1].data[...] = np.arange(6)
    assert np.array_equal(net.forward(data=X)["fc"], [np.arange(6)] * 2)
    net.params["fc"][1].data.flat[3] += 0.5
    assert net.forward()["fc"][1, 3] == 3.5


def test_a_parameter_of_another_size_is_refused_by_name(weighted: Path) -> None:
    net = caffe.Net(weighted, caffe.TEST)
    net.forward(data=X)
    net.params["conv"][0].reshape(4, 3, 5, 5)
    with pytest.raises(chai.ShapeError, match=r"layer 'conv'.*\(blob 0\) would be 4x3x3x3, they are 4x3x5x5"):
        net.forward()


def test_copy_from_takes_layers_by_name_and_leaves_the_others(weighted: Path, tmp_path: Path) -> None:
    net, fresh = caffe.Net(weighted, caffe.TEST), caffe.Net(weighted, caffe.TEST)
    conv = np.random.default_rng(6).standard_normal((4, 3, 3, 3)).astype(np.float32)
    bias = np.arange(4, dtype=np.float32)
    some = tmp_path / "some.caffemodel"
    write_caffemodel(
        some, "some", [("conv", "Convolution", [conv, bias.reshape(1, 1, 1, 4)]), ("elsewhere", "ReLU", [bias])]
    )
    held = net.params["conv"][1].data
    net.copy_from(str(some))
    assert np.array_equal(net.params["conv"][0].data, conv)
    assert np.array_equal(held, bias)  # the same memory as before
    assert np.array_equal(net.params["fc"][0].data, fresh.params["fc"][0].data)
    write_caffemodel(some, "some", [("conv", "Convolution", [conv, conv])])
    with pytest.raises(chai.ModelError, match=r"layer 'conv'.*\(blob 1\) are 4x3x3x3 in .*some.caffemodel, expected 4"):
        net.copy_from(some)


def test_layers_without_weights_keep_their_fillers_and_are_named(
    weighted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    some = tmp_path / "some.caffemodel"
    write_caffemodel(some, "some", [("fc", "InnerProduct", [np.zeros((6, 60)), np.ones(6)])])
    with caplog.at_level(logging.WARNING, "chai"):
        net = caffe.Net(weighted, some, caffe.TEST)
    assert [r.message for r in caplog.records] == [f"{some} has no weights for conv: their fillers' values stay"]
    assert (net.forward(data=X)["fc"] == 1).all()
    with pytest.raises(chai.MissingWeights, match="layer 'conv'"):
        chai.Net(weighted, some)


def test_shared_parameters_are_one_memory(weighted: Path, tmp_path: Path) -> None:
    net, other = caffe.Net(weighted, caffe.TEST), caffe.Net(weighted, caffe.TEST)
    other.params["conv"][0].data[...] = 0
    assert not np.array_equal(net.forward(data=X)["fc"], other.forward(data=X)["fc"])
    net.share_with(other)
    other.params["fc"][1].data[...] = np.arange(6)
    assert np.array_equal(net.forward()["fc"], other.forward()["fc"])
    wider = tmp_path / "wider.prototxt"
    wider.write_text(WEIGHTED.replace("num_output: 6", "num_output: 5"))
    with pytest.raises(chai.UsageError, match=r"layer 'fc' has parameters .*'6x60'.* in the other net .*'5x60'"):
        net.share_with(caffe.Net(wider, caffe.TEST))


def test_a_custom_layers_parameters_are_saved_too(tmp_path: Path) -> None:
    net = digits()
    net.params["classifier"][1].data[...] = 7
    net.save(tmp_path / "w.caffemodel")
    assert (Weights(tmp_path / "w.caffemodel").layers["classifier"][1].load() == 7).all()
    again = digits()
    again.copy_from(tmp_path / "w.caffemodel")
    assert (again.params["classifier"][1].data == 7).all()


# -- where it runs


def test_the_device_is_float_unless_something_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from chai.env import env

    assert digits().net.device.name == "float"
    monkeypatch.setenv("CHAI_DEVICE", "emulator")
    env.cache_clear()
    assert digits().net.device.name == "emulator"
    caffe.set_device_name("null")
    assert digits().net.device.name == "null"
    assert caffe.Net("digits", caffe.TEST, device="float").net.device.name == "float"
    with pytest.raises(chai.DeviceError, match="there is no device 'gpu'"):
        caffe.set_device_name("gpu")
    caffe.set_device_name("")
    assert digits().net.device.name == "emulator"


def test_modes_of_caffe_say_what_they_do_here(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "chai"):
        caffe.set_mode_cpu()
        caffe.set_random_seed(1)
        caffe.init_log()
        caffe.init_log(0, True)
        assert not caplog.records
        caffe.log("Using device 0 of 100%")
        for _ in range(3):  # as programs do before each image
            caffe.set_device(2)
            caffe.set_mode_gpu()
    assert [r.levelname for r in caplog.records] == ["INFO", "WARNING", "WARNING"]
    assert [r.message for r in caplog.records] == [
        "Using device 0 of 100%",
        "chai has no GPU 2: networks run on device float",
        "chai has no GPU mode: networks run on device float",
    ]


def test_on_an_overlay() -> None:
    x = np.random.default_rng(2).random((4, 1, 8, 8)).astype(np.float32)
    net = caffe.Net("digits", caffe.TEST, device="emulator", bits=6)
    plain = chai.Net("digits", device="emulator", bits=6, keep="all")
    net.blobs["data"].reshape(*x.shape)
    assert np.array_equal(net.forward(data=x)["prob"], plain.forward(x)["prob"])
    assert np.array_equal(net.blobs["pool/2x2_s2"].data, plain.blobs["pool/2x2_s2"])
    assert not np.array_equal(net.blobs["prob"].data, chai.Net("digits", device="float").forward(x)["prob"])
    assert {s.engine for s in net.perf.steps} == {"host", "fpga", "custom"}
    for read in (
        lambda: net.params["conv1/3x3"],
        lambda: net.layer_dict["conv1/3x3"].blobs,
        lambda: next(v for v in net.layers if v.name == "conv1/3x3").blobs,
    ):
        for factor in (1, 0):  # each of them after a pass
            for blob in read():
                blob.data[...] = factor
            net.forward()
            assert net.blobs["conv1/3x3"].data.any() == bool(factor)
    with pytest.raises(chai.UsageError, match=r"on device emulator: only whole passes.*device=\"float\""):
        net.forward(start="prob")


def test_nets_that_share_on_an_overlay() -> None:
    """What one of them changes after a pass, the next pass of each reads."""
    nets = [caffe.Net("digits", caffe.TEST, device="emulator") for _ in range(3)]
    nets[1].share_with(nets[0])
    nets[2].share_with(nets[1])
    for net in nets:
        net.forward(data=np.ones((1, 1, 8, 8)))
    for factor, changed in enumerate(nets):
        for blob in changed.params["conv1/3x3"]:
            blob.data[...] = factor
        for net in nets:
            net.forward()
            assert net.blobs["conv1/3x3"].data.any() == bool(factor)
            assert np.array_equal(net.blobs["conv1/3x3"].data, nets[0].blobs["conv1/3x3"].data)


def test_a_compiled_network(tmp_path: Path) -> None:
    """It has its layers; parameters that were asked for in vain do not end its passes."""
    x = np.random.default_rng(3).random((2, 1, 8, 8)).astype(np.float32)
    plain = chai.Net("digits", device="emulator", batch=2, calibrate=x)
    save(plain, tmp_path / "digits.chai")
    net = caffe.Net(tmp_path / "digits.chai")
    assert "conv1/3x3" in net.layer_dict and net.layers[0].name == "data"
    with pytest.raises(chai.UsageError, match="its parameters cannot be changed"):
        _ = net.params
    assert np.array_equal(net.forward(data=x)["prob"], plain.forward(x)["prob"])


# -- what chai does not do


def test_training_is_refused_in_words(steps: caffe.Net) -> None:
    for call in (steps.backward, steps.forward_backward_all, steps.clear_param_diffs):
        with pytest.raises(chai.UsageError, match="there is no backward"):
            call(s=X)
    with pytest.raises(chai.UsageError, match="a blob has data but no diff"):
        _ = steps.blobs["s"].diff
    with pytest.raises(chai.UsageError, match=r"data layers are inputs here.*net\.forward\(data=array"):
        steps.set_input_arrays(X, X)
    for name in ("SGDSolver", "get_solver", "AdamSolver", "NCCL", "set_multiprocess", "solver_count"):
        with pytest.raises(chai.UsageError, match=f"{name}: chai runs networks, it does not train them"):
            getattr(caffe, name)("solver.prototxt")


def test_names_of_before_2015_say_what_took_their_place(steps: caffe.Net) -> None:
    for owner, name, hint in (
        (steps, "set_phase_test", r"caffe\.Net\(network, weights, caffe\.TEST\)"),
        (caffe, "set_phase_train", r"caffe\.Net\(network, weights, caffe\.TRAIN\)"),
        (steps, "set_mode_gpu", r"caffe\.set_mode_gpu\(\)"),
        (steps, "set_channel_swap", r"net\.transformer"),
        (steps, "preprocess", r"caffe\.io\.Transformer"),
    ):
        assert not hasattr(owner, name)
        with pytest.raises(chai.UsageError, match=f"has no {name} since 2015 .hint: .*{hint}"):
            getattr(owner, name)("data", 255)
    for option, hint in (("gpu", "caffe.set_mode_gpu"), ("mean_file", "mean=numpy.load")):
        with pytest.raises(chai.UsageError, match=f"Net has no option '{option}' .hint: {hint}"):
            caffe.Classifier("digits", None, **{option: True})
    with pytest.raises(AttributeError, match="has no attribute 'no_name'"):
        _ = steps.no_name


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="'nonsense'"):
        caffe.nonsense  # noqa: B018


def test_names_by_which_scripts_look_around(steps: caffe.Net) -> None:
    assert list(steps._blob_names) == ["data", "a", "b", "s"]
    assert list(steps._layer_names) == ["in", "double", "plus", "relu", "minus", "sum"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", caffe.__version__)


def test_layers_and_blobs_by_number(steps: caffe.Net) -> None:
    """As scripts that count operations or write every blob walk over a net."""
    assert [steps._bottom_ids(i) for i in range(6)] == [[], [0], [1], [1], [1], [1, 2]]
    assert [steps._top_ids(i) for i in range(6)] == [[0], [1], [1], [1], [2], [3]]
    assert (steps._inputs, steps._outputs) == ([0], [3])
    assert [blob is steps.blobs[name] for blob, name in zip(steps._blobs, ["data", "a", "b", "s"])] == [True] * 4
    steps.blobs["data"].data[...] = 3
    values = []
    for i in range(6):
        steps._forward(i, i)
        values.append(steps._blobs[steps._top_ids(i)[0]].data.max())
    assert values == [3, 6, 7, 7, -7, -63]
    for start, end in ((1, 0), (-1, 2), (0, 6)):
        with pytest.raises(chai.UsageError, match=r"_forward\(.*expected the numbers of two layers, 0 to 5"):
            steps._forward(start, end)


def test_names_of_caffes_own_modules(weighted: Path) -> None:
    """MobileNet-SSD's merge_bn.py asks whether an item of params is a caffe._caffe.BlobVec."""
    from chai.pycaffe._caffe import layer_type_list
    from chai.pycaffe.pycaffe import Net

    net = Net(weighted, caffe.TEST)
    assert type(net) is caffe.Net
    assert {type(blobs) for blobs in (*net.params.values(), *(layer.blobs for layer in net.layers))} == {
        caffe._caffe.BlobVec
    }
    assert {type(blob) for blob in net.params["conv"]} == {caffe._caffe.Blob}
    assert layer_type_list() == caffe.layer_type_list()
    net.layer_dict["relu"].blobs.add_blob(5, 7)
    assert (net.params["relu"][0].shape, type(net.params["relu"][0])) == ((5, 7), caffe._caffe.Blob)
    for module in (caffe, caffe._caffe, caffe.pycaffe):
        with pytest.raises(chai.UsageError, match="SGDSolver: chai runs networks, it does not train them"):
            module.SGDSolver("solver.prototxt")


def test_the_list_of_layer_types() -> None:
    types = caffe.layer_type_list()
    assert {"Data", "Input", "Convolution", "Python", "SoftmaxWithLoss", "ReLU"} <= set(types)
    assert types == sorted(types, key=str.lower) and len(set(types)) == len(types)


LEVELS = """
layer { name: "in" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }
layer { name: "NoLevel" type: "InnerProduct" bottom: "data" top: "NoLevel" inner_product_param { num_output: 1 } }
layer { name: "Level0Only" type: "InnerProduct" bottom: "data" top: "Level0Only"
  include { min_level: 0 max_level: 0 } inner_product_param { num_output: 1 } }
layer { name: "Level1Only" type: "InnerProduct" bottom: "data" top: "Level1Only"
  include { min_level: 1 max_level: 1 } inner_product_param { num_output: 1 } }
layer { name: "Level>=1" type: "InnerProduct" bottom: "data" top: "Level>=1"
  include { min_level: 1 } inner_product_param { num_output: 1 } }
layer { name: "B" type: "InnerProduct" bottom: "data" top: "B" include { stage: "B" } inner_product_param { num_output: 1 } }
layer { name: "AorB" type: "InnerProduct" bottom: "data" top: "AorB" include { stage: "A" } include { stage: "B" }
  inner_product_param { num_output: 1 } }
layer { name: "AandB" type: "InnerProduct" bottom: "data" top: "AandB" include { stage: "A" stage: "B" }
  inner_product_param { num_output: 1 } }
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["NoLevel", "Level0Only"]),
        ({"level": 0}, ["NoLevel", "Level0Only"]),
        ({"level": 1}, ["NoLevel", "Level1Only", "Level>=1"]),
        ({"level": 2, "stages": ["A"]}, ["NoLevel", "Level>=1", "AorB"]),
        ({"stages": ["B"]}, ["NoLevel", "Level0Only", "B", "AorB"]),
        ({"stages": ["A", "B"]}, ["NoLevel", "Level0Only", "B", "AorB", "AandB"]),
    ],
)
def test_levels_and_stages(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    (tmp_path / "net.prototxt").write_text(LEVELS)
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, **options)
    assert list(net.layer_dict)[1:] == expected
    assert list(net.blobs)[1:] == expected
