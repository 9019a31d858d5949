"""Parts of networks: start_layer and end_layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai

NET = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "a" type: "Pooling" bottom: "c1" top: "a" pooling_param { kernel_size: 2 } }
layer { name: "b" type: "Convolution" bottom: "c1" top: "b" convolution_param { num_output: 5 kernel_size: 2 } }
layer { name: "join" type: "Concat" bottom: "a" bottom: "b" top: "join" }
layer { name: "out" type: "Normalize" bottom: "join" top: "out" }
layer { name: "side" type: "MVN" bottom: "b" top: "side" }
"""
DATA = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path / "net.prototxt"


@pytest.fixture
def whole(path: Path) -> chai.Net:
    net = chai.Net(path, device="float", keep="all")
    net.forward(DATA)
    return net


def test_the_head(path: Path, whole: chai.Net) -> None:
    head = chai.Net(path, device="float", end_layer="r1")
    assert (head.inputs, head.outputs) == (["data"], ["c1"])
    assert [layer.name for layer in head.graph.layers] == ["in", "c1", "r1"]
    assert np.array_equal(head.forward(DATA)["c1"], whole.blobs["c1"])
    before = chai.Net(path, device="float", end_layer="c1")  # before the ReLU works in place
    assert np.array_equal(before.forward(DATA)["c1"], whole.tops("c1")[0])


@pytest.mark.parametrize(("end", "power"), [("p1", 2.0), ("p2", 4.0), ("p3", 8.0)])
def test_an_end_between_two_layers_in_place(tmp_path: Path, end: str, power: float) -> None:
    """The name is the last kept writer's, not the first's and not the one's that was cut off."""
    text = NET.split("\n")[1] + "\n"
    for name in ("p1", "p2", "p3"):
        bottom = "data" if name == "p1" else "x"
        text += f'layer {{ name: "{name}" type: "Power" bottom: "{bottom}" top: "x" power_param {{ scale: 2 }} }}\n'
    (tmp_path / "net.prototxt").write_text(text)
    net = chai.Net(tmp_path / "net.prototxt", device="float", end_layer=end)
    assert np.array_equal(net.forward(DATA)["x"], np.float32(power) * DATA)


def test_the_tail_reads_what_the_head_wrote(path: Path, whole: chai.Net) -> None:
    tail = chai.Net(path, device="float", start_layer="a")
    assert tail.inputs == ["c1", "b"]  # b comes from a branch that does not depend on a
    assert tail.outputs == ["out"]
    assert tail.shapes["c1"] == whole.shapes["c1"]
    assert np.array_equal(tail.forward(c1=whole.blobs["c1"], b=whole.blobs["b"])["out"], whole.blobs["out"])


def test_the_middle(path: Path, whole: chai.Net) -> None:
    middle = chai.Net(path, device="float", start_layer="b", end_layer="side")
    assert [layer.name for layer in middle.graph.layers if not layer.source] == ["b", "side"]
    assert np.array_equal(middle.forward(whole.blobs["c1"])["side"], whole.blobs["side"])
    one = chai.Net(path, device="float", start_layer="r1", end_layer="r1")  # CHaiDNN hung here
    assert np.array_equal(one.forward(whole.tops("c1")[0])["c1"], whole.blobs["c1"])


def test_on_an_overlay(path: Path, whole: chai.Net) -> None:
    tail = chai.Net(path, device="emulator", start_layer="b", end_layer="side")
    out = tail.forward(whole.blobs["c1"])["side"]
    assert tail.schedule.engines() == ["host:Pack", "fpga:Convolution", "host:Unpack", "host:MVN"]
    assert np.abs(out - whole.blobs["side"]).max() < 0.05 * np.abs(whole.blobs["side"]).max()


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [("c11", "", "no layer 'c11'"), ("", "otu", "no layer 'otu'"), ("out", "c1", "no path leads from layer 'out'")],
)
def test_parts_that_are_not_there(path: Path, start: str, end: str, words: str) -> None:
    with pytest.raises(chai.UsageError, match=words):
        chai.Net(path, device="float", start_layer=start, end_layer=end)
