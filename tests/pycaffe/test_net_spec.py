"""Networks written in Python: what they become as messages, and that they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.pycaffe import layers as L, params as P, to_proto  # noqa: N812


def lenet(batch: int) -> Any:
    n = caffe.NetSpec()
    n.data, n.label = L.DummyData(shape=[{"dim": [batch, 1, 28, 28]}, {"dim": [batch, 1, 1, 1]}], ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler={"type": "xavier"})
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool1, num_output=50, weight_filler={"type": "xavier"})
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=10, weight_filler={"type": "xavier"})
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n


def facts(net: Any) -> list[tuple[str, str, list[str], list[str]]]:
    return [(x.name, x.type, list(x.bottom), list(x.top)) for x in net.layer]


def test_lenet_by_names() -> None:
    net = lenet(50).to_proto()
    assert isinstance(net, caffe.proto.caffe_pb2.NetParameter)
    assert facts(net) == [
        ("data", "DummyData", [], ["data", "label"]),
        ("conv1", "Convolution", ["data"], ["conv1"]),
        ("pool1", "Pooling", ["conv1"], ["pool1"]),
        ("ip1", "InnerProduct", ["pool1"], ["ip1"]),
        ("relu1", "ReLU", ["ip1"], ["ip1"]),
        ("ip2", "InnerProduct", ["ip1"], ["ip2"]),
        ("loss", "SoftmaxWithLoss", ["ip2", "label"], ["loss"]),
    ]
    conv, pool = net.layer[1].convolution_param, net.layer[2].pooling_param
    assert (list(conv.kernel_size), conv.num_output, conv.weight_filler.type) == ([5], 20, "xavier")
    assert (pool.pool, pool.stride) == (pool.MAX, 2)
    assert [list(s.dim) for s in net.layer[0].dummy_data_param.shape] == [[50, 1, 28, 28], [50, 1, 1, 1]]


def test_a_field_that_changes_nothing_at_test_is_written() -> None:
    dropout = to_proto(L.Dropout(L.Input(shape={"dim": [1, 2]}), dropout_ratio=0.375)).layer[1]
    assert (dropout.type, dropout.dropout_param.dropout_ratio) == ("Dropout", 0.375)


def test_lenet_without_names_is_the_same_network() -> None:
    data, label = L.DummyData(shape=[{"dim": [50, 1, 28, 28]}, {"dim": [50, 1, 1, 1]}], ntop=2)
    conv = L.Convolution(data, kernel_size=5, num_output=20, weight_filler={"type": "xavier"})
    pool = L.Pooling(conv, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    ip1 = L.InnerProduct(pool, num_output=50, weight_filler={"type": "xavier"})
    ip2 = L.InnerProduct(L.ReLU(ip1, in_place=True), num_output=10, weight_filler={"type": "xavier"})
    net = to_proto(L.SoftmaxWithLoss(ip2, label))
    named = lenet(50).to_proto()
    assert [x.type for x in net.layer] == [x.type for x in named.layer]
    assert [x.name for x in net.layer] == [
        "DummyData1", "Convolution1", "Pooling1", "InnerProduct1", "ReLU1", "InnerProduct2", "SoftmaxWithLoss1",
    ]  # fmt: skip
    assert list(net.layer[0].top) == ["DummyData1", "DummyData2"]
    assert list(net.layer[-1].bottom) == ["InnerProduct2", "DummyData2"]
    for layer, other in zip(net.layer, named.layer):
        for field in ("name", "bottom", "top"):
            layer.ClearField(field)
            other.ClearField(field)
    assert net == named


def test_its_text_is_a_prototxt_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "lenet.prototxt"
    path.write_text(str(lenet(3).to_proto()))
    net = caffe.Net(str(path), caffe.TEST)
    net.blobs["data"].data[...] = np.random.default_rng(0).uniform(-1, 1, (3, 1, 28, 28))
    net.blobs["label"].data[...] = np.arange(3).reshape(3, 1, 1, 1)
    scores = net.forward(end="ip2")["ip2"].astype(np.float64)
    powers = np.exp(scores)
    expected = -np.log(powers[range(3), range(3)] / powers.sum(1)).mean()
    assert float(net.forward(start="loss")["loss"]) == pytest.approx(expected, rel=1e-5)


def test_a_layer_without_tops() -> None:
    n = caffe.NetSpec()
    n.data, n.other = L.DummyData(shape={"dim": [3]}, ntop=2)
    n.quiet = L.Silence(n.data, ntop=0)
    n.twice = L.Power(n.other, scale=2)
    assert facts(n.to_proto())[1:] == [("quiet", "Silence", ["data"], []), ("twice", "Power", ["other"], ["twice"])]
    assert facts(to_proto(L.Silence(n.data, ntop=0)))[-1] == ("Silence1", "Silence", ["DummyData1"], [])


def test_a_net_in_which_nothing_is_left_over(tmp_path: Path) -> None:
    """The construct of Caffe's own test of layers without tops."""
    n = caffe.NetSpec()
    n.data, n.data2 = L.DummyData(shape={"dim": 3}, ntop=2)
    n.silence_data = L.Silence(n.data, ntop=0)
    n.silence_data2 = L.Silence(n.data2, ntop=0)
    path = tmp_path / "silent.prototxt"
    path.write_text(str(n.to_proto()))
    net = caffe.Net(str(path), caffe.TEST)
    assert (net.forward(), net.outputs, list(net.blobs)) == ({}, [], ["data", "data2"])
    for device in ("float", "emulator"):
        own = chai.Net(path, device=device)
        assert own.forward(data=np.ones(3), data2=np.ones(3)) == {}
        assert [s.name for s in own.perf.steps if s.type == "Silence"] == ["silence_data", "silence_data2"]


def test_one_layer_is_written_once_and_after_its_bottoms() -> None:
    n = caffe.NetSpec()
    late = L.Input(shape={"dim": [1, 2]})
    n.sum = L.Eltwise(late, L.AbsVal(late), operation=P.Eltwise.SUM)
    n.input = late
    assert facts(n.to_proto()) == [
        ("input", "Input", [], ["input"]),
        ("AbsVal1", "AbsVal", ["input"], ["AbsVal1"]),
        ("sum", "Eltwise", ["input", "AbsVal1"], ["sum"]),
    ]


def test_fields_of_the_layer_and_whole_messages() -> None:
    n = caffe.NetSpec()
    n.data = L.Data(batch_size=4, backend=P.Data.LMDB, source="a b", include={"phase": caffe.TEST})
    n.up = L.Deconvolution(
        n.data, convolution_param={"num_output": 2, "kernel_size": [3, 5]}, param=[{"lr_mult": 0}, {"lr_mult": 2.5}]
    )
    n.py = L.Python(n.up, module="m", layer="Layer", loss_weight=1, propagate_down=[True], name="other")
    data, up, py = n.to_proto().layer
    assert (data.data_param.backend, data.data_param.source, data.include[0].phase) == (P.Data.LMDB, "a b", caffe.TEST)
    assert (list(up.convolution_param.kernel_size), [p.lr_mult for p in up.param]) == ([3, 5], [0, 2.5])
    assert (py.name, py.python_param.layer, list(py.loss_weight), list(py.top)) == ("other", "Layer", [1], ["py"])


def test_items_names_with_slashes_and_deletion() -> None:
    n = caffe.NetSpec()
    n["a/b"] = L.Input(shape={"dim": [1]})
    n.c = L.AbsVal(n["a/b"])
    n.gone = L.AbsVal(n.c)
    del n.gone
    other = caffe.NetSpec()
    other.update(n)
    assert other.keys() == ["a/b", "c"] and other.vals() == [n["a/b"], n.c]
    assert facts(other.to_proto())[1] == ("c", "AbsVal", ["a/b"], ["c"])
    with pytest.raises(AttributeError, match="no top 'gone'"):
        _ = n.gone


def test_a_layer_gets_further_parameters_by_the_name_of_its_top() -> None:
    """As SSD's model_libs.py: net.update(conv_name, {"dilation": dilation})."""
    n = caffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, 9, 11]})
    n.conv = L.Convolution(n.data, num_output=4, kernel_size=3, dilation=1)
    n.rest = L.Silence(n.conv, ntop=0)
    n.update("conv", {"dilation": 2, "pad": 5})
    n.update("rest", {"include": {"phase": caffe.TRAIN}})
    _, conv, rest = n.to_proto().layer
    convolution = conv.convolution_param
    assert (convolution.num_output, list(convolution.kernel_size)) == (4, [3])
    assert (list(convolution.dilation), list(convolution.pad)) == ([2], [5])
    assert rest.include[0].phase == caffe.TRAIN


def test_blobs_may_be_named_beside_the_tops_of_other_layers(tmp_path: Path) -> None:
    n = caffe.NetSpec()
    n.data, n.shift = L.Input(shape=[{"dim": [1, 2]}, {"dim": [1, 2]}], ntop=2)
    n.total = L.Eltwise(n.data, bottom="shift")
    n.twice = L.Eltwise(bottom=["total", "total"])
    n.halves = L.Slice(n.twice, top=["right"])
    net = n.to_proto()
    assert facts(net)[1:] == [
        ("total", "Eltwise", ["data", "shift"], ["total"]),
        ("twice", "Eltwise", ["total", "total"], ["twice"]),
        ("halves", "Slice", ["twice"], ["halves", "right"]),
    ]
    (tmp_path / "net.prototxt").write_text(str(net))
    results = caffe.Net(tmp_path / "net.prototxt", caffe.TEST).forward(data=[[1, 20]], shift=[[300, 4000]])
    assert (results["halves"].tolist(), results["right"].tolist()) == ([[602]], [[8040]])
    with pytest.raises(chai.UsageError, match="bottom: expected a text, found 3"):
        to_proto(L.Eltwise(bottom=3))


def test_a_network_of_thousands_of_layers_is_written() -> None:
    top = L.Input(shape={"dim": [1]})
    for _ in range(3000):
        top = L.AbsVal(top)
    assert len(top.to_proto().layer) == 3001


@pytest.mark.parametrize("value", ["not a top", 3, None])
def test_a_bottom_that_is_no_top_is_a_type_error(value: Any) -> None:
    data = L.DummyData(ntop=2)
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):  # Caffe's words
        L.Silence(data, ntop=0)
    L.Silence(*data, ntop=0)
    with pytest.raises(TypeError, match=r"Convolution input 0 is not a Top \(type is "):
        L.Convolution(value)
    n = caffe.NetSpec()
    n.wrong = value
    for wrong in (None, "data", [L.Input()]):
        with pytest.raises(TypeError, match=r"to_proto: .* is not a Top \(type is "):
            caffe.to_proto(wrong)  # type: ignore[arg-type]
    with pytest.raises(
        chai.UsageError, match=r"num_output is no field of a layer; type 'Convolutoin' .*did you mean 'Convolution'"
    ):
        L.Convolutoin(num_output=3).to_proto()
    with pytest.raises(TypeError, match=r"n\.wrong is not a Top"):
        n.to_proto()


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"kernel_sise": 3}, "kernel_sise is no field of convolution_param"),
        ({"kernel_size": "3"}, "kernel_size: expected an integer, found '3'"),
        ({"num_output": -1}, "num_output: expected an integer, found -1"),
        ({"weight_filler": "xavier"}, "weight_filler: expected a message, found 'xavier'"),
        ({"weight_filler": {"typ": "xavier"}}, "typ is no field of FillerParameter"),
        ({"bias_term": "no"}, "bias_term: expected True or False, found 'no'"),
        ({"engine": "GPU"}, "engine: expected one of DEFAULT, CAFFE, CUDNN, found 'GPU'"),
    ],
)
def test_wrong_parameters_are_named(params: dict[str, Any], expected: str) -> None:
    with pytest.raises(chai.UsageError, match=expected):
        to_proto(L.Convolution(L.Input(shape={"dim": [1]}), **params))


def test_in_place_needs_as_many_tops_as_bottoms() -> None:
    data = L.Input(shape={"dim": [1]})
    with pytest.raises(chai.UsageError, match="in_place with 2 inputs and 1 top"):
        L.Eltwise(data, data, in_place=True)


def test_numbers_of_numpy_are_taken() -> None:
    top = L.InnerProduct(L.Input(shape={"dim": np.array([1, 2])}), num_output=np.int64(3))
    net = top.to_proto()
    assert (list(net.layer[0].input_param.shape[0].dim), net.layer[1].inner_product_param.num_output) == ([1, 2], 3)
