"""Python layers of Caffe without bottoms, which load data: alone as the source of a network, with other sizes in each pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.artifact.save import save
from tests.passes.common import prototxt

# The form of FCN's data layers: setup takes two tops and no bottom, reshape loads a pair and sizes the tops, forward goes on.
CODE = """
import caffe
import numpy as np

class Pairs(caffe.Layer):
    def setup(self, bottom, top):
        assert len(bottom) == 0 and len(top) == 2
        self.files = self.param_str.split()
        self.idx, self.loaded = 0, []

    def reshape(self, bottom, top):
        self.loaded.append(self.files[self.idx])
        self.data = np.load(self.files[self.idx])
        self.label = self.data.sum(0)
        top[0].reshape(1, *self.data.shape)
        top[1].reshape(1, 1, *self.label.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.data
        top[1].data[...] = self.label
        self.idx = (self.idx + 1) % len(self.files)

class Phase(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = self.phase
"""
SIZES = (3, 11, 8), (3, 7, 13), (3, 7, 13), (3, 9, 5)
CONV = 'convolution_param { num_output: 5 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 1 } }'


class Case:
    """A network whose source is the layer ``pairs``, and the pairs that it loads."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(9)
        self.items = [rng.uniform(-1, 1, size).astype(np.float32) for size in SIZES]
        self.files = [str(folder / f"{i}.npy") for i in range(len(SIZES))]
        for file, item in zip(self.files, self.items):
            np.save(file, item)
        self.code, self.path, self.plain = folder / "voc.py", folder / "net.prototxt", folder / "plain.prototxt"
        self.code.write_text(CODE)
        python = f'python_param {{ module: "voc" layer: "Pairs" param_str: "{" ".join(self.files)}" }}'
        layers = f"c Convolution data -> c : {CONV}\nr ReLU c -> r\ns Eltwise label label -> s\n"
        _, text = prototxt(f"pairs Python  -> data label : {python}\n{layers}").split("\n", 1)  # without an Input
        self.path.write_text(text)
        self.plain.write_text(prototxt(f"c Convolution data -> c : {CONV}\nr ReLU c -> r", (1, *SIZES[0])))

    def net(self, device: str, **options: Any) -> chai.Net:
        return chai.Net(self.path, device=device, custom=self.code, **options)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def loaded(net: Any) -> list[str]:
    """The files that the data layer has loaded, by their numbers."""
    layers = net.graph.layers if isinstance(net, chai.Net) else net._graph.layers
    return [Path(file).stem for file in layers[0]._data["caffe"].layer.loaded]


def test_each_pass_has_the_size_that_reshape_gives(case: Case) -> None:
    net, plain = case.net("float"), chai.Net(case.plain, device="float")
    assert net.inputs == []
    for item in (*case.items, case.items[0]):
        out = net.forward()
        assert out["r"].shape == (1, 5, *item.shape[1:])
        assert np.array_equal(out["r"], plain.forward(item[None])["r"])
        assert np.allclose(out["s"][0, 0], 2 * item.sum(0), atol=1e-5)
        assert net.shapes["data"] == (1, *item.shape)
    assert loaded(net) == list("001230")  # reshape once when it is loaded, and once per pass: as in Caffe


def test_the_overlay_is_planned_for_each_size(case: Case) -> None:
    net, plain = case.net("emulator"), chai.Net(case.plain, device="emulator")
    net.calibrate(iter([{}] * len(SIZES)))
    plain.calibrate(
        np.stack([np.pad(item, ((0, 0), (0, 11 - item.shape[1]), (0, 13 - item.shape[2]))) for item in case.items])
    )
    assert net.formats is not None
    assert plain.formats is not None
    assert {blob: net.formats[blob] for blob in ("data", "r")} == {blob: plain.formats[blob] for blob in ("data", "r")}
    for item in (*case.items, case.items[0]):
        out = net.forward()["r"]
        assert {s.name: s.engine for s in net.perf.steps}["c"] == "fpga"
        assert np.array_equal(out, plain.forward(item[None])["r"])
    assert loaded(net) == list("0012301230")


def test_a_first_pass_without_formats(case: Case) -> None:
    """It measures them; which items it takes for that is not said here."""
    net = case.net("emulator")
    assert net.forward()["r"].shape in [(1, 5, *size[1:]) for size in SIZES]
    assert net.calibrated


def test_a_stream_and_parts_of_it(case: Case) -> None:
    for device in ("float", "emulator"):
        net = case.net(device)
        if device == "emulator":
            net.calibrate(iter([{}] * len(SIZES)))
        shapes = [out["r"].shape[2:] for out in net.stream([{}] * 5)]
        assert shapes == [size[1:] for size in (*SIZES, SIZES[0])]


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_pycaffe_has_blobs_of_the_sizes_of_each_pass(case: Case, device: str) -> None:
    net, plain = caffe.Net(case.path, caffe.TEST, device=device, custom=case.code), chai.Net(case.plain, device="float")
    assert net.blobs["data"].shape == (1, *SIZES[0])
    if device == "emulator":
        net.net.calibrate(iter([{}] * len(SIZES)))
    for item in (*case.items, case.items[0]):
        out = net.forward()["r"]
        assert np.allclose(net.blobs["data"].data[0], item, atol=0 if device == "float" else 0.01)
        assert np.allclose(out, plain.forward(item[None])["r"], atol=1e-5 if device == "float" else 0.1)
        assert net.blobs["label"].shape == (1, 1, *item.shape[1:])
    if device == "float":
        assert loaded(net) == list("001230")


def test_a_compiled_network_has_one_size(case: Case, tmp_path: Path) -> None:
    net = case.net("emulator")
    net.calibrate()
    save(net, tmp_path / "net.chai")
    with chai.Net(tmp_path / "net.chai", custom=case.code) as compiled:
        assert compiled.forward()["r"].shape == (1, 5, 11, 8)
        with pytest.raises(
            chai.ShapeError, match=r"layer 'pairs' \(Python\): its tops are 1x3x7x13, 1x1x7x13 in this pass"
        ):
            compiled.forward()


@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_a_network_of_one_layer(tmp_path: Path, device: str, phase: str) -> None:
    (tmp_path / "voc.py").write_text(CODE)
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "p" type: "Python" top: "phase" python_param { module: "voc" layer: "Phase" } }')
    net = chai.Net(path, device=device, phase=phase, custom=tmp_path / "voc.py")
    wanted = ("TRAIN", "TEST").index(phase)
    assert (net.inputs, net.forward()) == ([], {"phase": wanted})
    same = caffe.Net(str(path), wanted, device=device, custom=tmp_path / "voc.py")
    assert same.forward()["phase"] == wanted
    assert same.net.batch == 1
    same.reshape()
    assert same.blobs["phase"].shape == ()
