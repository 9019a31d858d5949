"""Keeping blobs never changes a bit of the outputs; blobs that a pass folds away still get their value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.artifact.save import save
from chai.evaluate.compare import compare
from chai.plugins.definition import CustomOptions, CustomType
from tests.passes.common import AFFINE, CONV, DEEP, GLOBAL, MAX, network, prototxt

Array = np.ndarray
LEAKY = "relu_param { negative_slope: 0.1 }"
NETS = {
    "a ReLU after a sum": f"""a Convolution data -> a : {CONV}
        b Convolution data -> b : {CONV}
        sum Eltwise a b -> s
        relu ReLU s -> r : {LEAKY}""",
    "a BatchNorm, Scale and ReLU": f"""conv Convolution data -> c : {CONV}
        bn BatchNorm c -> b : {GLOBAL}
        sc Scale b -> s : {AFFINE}
        relu ReLU s -> r
        pool Pooling r -> p : {MAX}""",
    "partly in place": f"""conv Convolution data -> c : {CONV}
        bn BatchNorm c -> b : {GLOBAL}
        sc Scale b -> b : {AFFINE}
        relu ReLU b -> r
        last Convolution r -> y : {CONV}
        act ReLU y -> y""",
    "an affine pair": f"""bn BatchNorm data -> b : {GLOBAL}
        sc Scale b -> s : {AFFINE}
        relu ReLU s -> r : {LEAKY}
        conv Convolution r -> y : {CONV}""",
    "a host layer that takes a ReLU": f"""a Convolution data -> a : {CONV}
        b Convolution data -> b : {CONV}
        most Eltwise a b -> m : eltwise_param {{ operation: MAX }}
        relu ReLU m -> r : {LEAKY}
        conv Convolution r -> y : {CONV}""",
    "a split and a dropout in between": f"""abs AbsVal data -> h
        split Split h -> h0 h1
        conv Convolution h0 -> c : {CONV}
        drop Dropout c -> d
        relu ReLU d -> r
        other Convolution h1 -> o : {CONV}""",
    "branches of a concat": f"""a Convolution data -> a : {DEEP}
        b Convolution data -> b : {DEEP}
        ra ReLU a -> ra
        rb ReLU b -> rb : {LEAKY}
        cat Concat ra rb -> cc
        bn BatchNorm cc -> n : {GLOBAL}""",
    "a custom layer": f"""conv Convolution data -> c : {CONV}
        mine mirror c -> m : user_defined_layer: true
        relu ReLU m -> r
        last Convolution r -> y : {CONV}""",
}


def mirror(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0][:, ::-1]


def options(**more: object) -> dict[str, object]:
    custom = CustomType("mirror", mirror, False, CustomOptions())
    custom.shape(lambda x: [tuple(x.input_dims[0])])
    return {"custom": {"mirror": custom}, **more}


def images(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((2, 3, 5, 7)).astype(np.float32)


def fixed(folder: Path, lines: str, **more: object) -> chai.Net:
    net = network(folder, lines, device="emulator", **options(**more))
    net.calibrate(images(0))
    return net


@pytest.mark.parametrize("lines", NETS.values(), ids=NETS)
def test_what_is_kept_changes_no_bit(tmp_path: Path, lines: str) -> None:
    plain = fixed(tmp_path, lines)
    wanted = plain.forward(images(1))
    names = list(plain.graph.latest)
    for keep in ("all", *([name] for name in names)):
        net = fixed(tmp_path, lines, keep=keep)
        outputs = net.forward(images(1))
        assert net.schedule.engines() == plain.schedule.engines()
        assert list(outputs) == list(wanted)
        assert all(np.array_equal(outputs[name], wanted[name]) for name in wanted)
        assert set(net.blobs) == {*net.outputs, *(names if keep == "all" else keep)}
        assert list(net.blobs) == [name for name in names if name in net.blobs]
        for name, value in net.blobs.items():
            assert value.shape == net.shapes[name] and value.dtype == np.float32
        (streamed,) = net.stream([images(1)])
        assert all(np.array_equal(streamed[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("lines", NETS.values(), ids=NETS)
def test_every_blob_is_near_its_float(tmp_path: Path, lines: str) -> None:
    """A wrong layer or a wrong bottom would be far from it."""
    exact = network(tmp_path, lines, **options(keep="all"))
    net = fixed(tmp_path, lines, keep="all")
    exact.forward(images(0))
    net.forward(images(0))
    for name, value in net.blobs.items():
        error = np.abs(value - exact.blobs[name]).max()
        assert error < 0.1 * np.abs(exact.blobs[name]).max(), name


def dequantized(net: chai.Net, blob: str, values: Array) -> Array:
    assert net.formats is not None
    return net.formats[blob].dequantize(net.formats[blob].quantize(values))


def convolved(x: Array, weights: Array, bias: Array) -> Array:
    """Caffe's convolution of kernel 3 and pad 1, tap by tap, in float64."""
    n, _, h, w = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((n, len(weights), h, w))
    for i in range(3):
        for j in range(3):
            y += np.einsum("nchw,mc->nmhw", padded[:, :, i : i + h, j : j + w], weights[:, :, i, j])
    return y + bias[:, None, None]


def test_a_folded_blob_is_what_float_makes_of_the_codes_read(tmp_path: Path) -> None:
    """The convolution's blob and its BatchNorm's, by their formulas from the dequantised input."""
    net = fixed(tmp_path, NETS["a BatchNorm, Scale and ReLU"], keep="all")
    net.forward(images(1))
    weights, bias = (b.astype(np.float64) for b in net.graph.layer("conv").blobs)
    c = convolved(dequantized(net, "data", images(1)), weights, bias)
    np.testing.assert_allclose(net.blobs["c"], c, rtol=1e-5, atol=1e-5)
    mean, variance, divisor = (b.astype(np.float64) for b in net.graph.layer("bn").blobs)
    b = (c - (mean / divisor)[:, None, None]) / np.sqrt((variance / divisor)[:, None, None] + 1e-5)
    np.testing.assert_allclose(net.blobs["b"], b, rtol=1e-4, atol=1e-5)
    factor, addend = (b.astype(np.float64) for b in net.graph.layer("sc").blobs)
    np.testing.assert_allclose(net.blobs["s"], b * factor[:, None, None] + addend[:, None, None], rtol=1e-4, atol=1e-5)


def test_a_packed_blob_is_read_as_codes_behind_a_split(tmp_path: Path) -> None:
    """The host has ``h`` in float, the overlay's convolution its codes: the codes count."""
    net = fixed(tmp_path, NETS["a split and a dropout in between"], keep="all")
    net.forward(images(1))
    weights, bias = net.graph.layer("conv").blobs
    codes = dequantized(net, "h", np.abs(images(1)))
    assert np.abs(codes - np.abs(images(1))).max() > 1e-3  # else this would show nothing
    for name in "cd":
        np.testing.assert_allclose(net.blobs[name], convolved(codes, weights, bias), rtol=1e-5, atol=1e-5)
    for name in ("h", "h0", "h1"):
        assert np.array_equal(net.blobs[name], np.abs(images(1)))


def test_a_host_layer_is_seen_before_its_relu(tmp_path: Path) -> None:
    net = fixed(tmp_path, NETS["a host layer that takes a ReLU"], keep="all")
    net.forward(images(1))
    m = np.maximum(net.blobs["a"], net.blobs["b"])
    assert np.array_equal(net.blobs["m"], m) and m.min() < 0
    np.testing.assert_allclose(net.blobs["r"], np.where(m < 0, np.float32(0.1) * m, m), atol=0.02 * np.abs(m).max())


@pytest.mark.parametrize("lines", [v for k, v in NETS.items() if k != "a custom layer"], ids=lambda v: v[:20])
def test_pycaffe_has_every_blob_and_the_same_outputs(tmp_path: Path, lines: str) -> None:
    plain = fixed(tmp_path, lines)
    path = tmp_path / "net.prototxt"
    assert path.read_text() == prototxt(lines)
    for device in ("emulator", "float"):
        net = caffe.Net(str(path), caffe.TEST, device=device)
        assert list(net.blobs) == list(plain.graph.latest)
    net = caffe.Net(str(path), caffe.TEST, device="emulator", calibrate=images(0))
    twin = chai.Net(path, device="emulator", calibrate=images(0))
    outputs, wanted = net.forward(data=images(1)), twin.forward(images(1))
    for name in wanted:
        assert np.array_equal(outputs[name], wanted[name])
    whole = chai.Net(path, device="emulator", calibrate=images(0), keep="all")
    whole.forward(images(1))
    for name, blob in net.blobs.items():
        assert np.array_equal(blob.data, whole.blobs[name]), name


def test_check_measures_the_same_network_whatever_is_kept(tmp_path: Path) -> None:
    lines = NETS["a BatchNorm, Scale and ReLU"]
    reports = []
    for keep in ("outputs", "all"):
        exact = network(tmp_path, lines, keep="all")
        reports.append(compare(exact, fixed(tmp_path, lines, keep=keep), [images(1)]).to_json())
    assert reports[0] == reports[1]
    rows = {row["name"]: row["inside"] for row in reports[0]["layers"]}
    assert rows == {"data": None, "conv": None, "bn": "conv", "sc": "conv", "relu": "conv", "pool": None}


def test_a_dump_has_the_folded_blobs_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As float32, under the layers that write them in the prototxt; and no bit of the outputs changes."""
    from chai.env import env

    lines = NETS["a BatchNorm, Scale and ReLU"]
    wanted = fixed(tmp_path, lines).forward(images(1))
    monkeypatch.setenv("CHAI_DUMP", str(tmp_path / "dump"))
    env.cache_clear()
    net = fixed(tmp_path, lines, keep="all")
    outputs = net.forward(images(1))
    assert np.array_equal(outputs["p"], wanted["p"])
    for name, layer in (("c", "conv"), ("b", "bn"), ("s", "sc")):
        assert np.array_equal(np.load(tmp_path / "dump" / f"{name}.{layer}.npy"), net.blobs[name])
    assert np.load(tmp_path / "dump" / "r.conv.npy").dtype == np.int8
    monkeypatch.delenv("CHAI_DUMP")
    env.cache_clear()


def test_pycaffe_says_what_is_missing_where_data_is_read(tmp_path: Path) -> None:
    """On a compiled network: every blob has its key and shape."""
    lines = NETS["a BatchNorm, Scale and ReLU"]
    save(fixed(tmp_path, lines), tmp_path / "net.chai")
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, device="emulator")
    keys = list(net.blobs)
    net.net = chai.Net(tmp_path / "net.chai", keep="all")  # type: ignore[assignment]
    wanted = net.net.forward(images(1))
    assert np.array_equal(net.forward(data=images(1))["p"], wanted["p"])
    assert list(net.blobs) == keys == ["data", "c", "b", "s", "r", "p"]
    for name in "cbs":
        assert net.blobs[name].shape == (2, 4, 5, 7)
        with pytest.raises(chai.UsageError, match=f"blob '{name}' was folded into layer 'conv'"):
            _ = net.blobs[name].data
    assert np.array_equal(net.blobs["r"].data, net.net.blobs["r"])
    net.blobs["c"].put(np.ones((2, 4, 5, 7), np.float32))
    assert net.blobs["c"].data.min() == 1
