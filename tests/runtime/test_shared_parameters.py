"""Trained parameters that layers share by name, as the branches of a Siamese network do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai import pycaffe
from chai.errors import MissingWeights, ShapeError
from chai.parser.caffemodel import write_caffemodel

Array = np.ndarray
X = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 3, 1, 1)).astype(np.float32)
B = np.random.default_rng(2).standard_normal(4).astype(np.float32)
INPUTS = "".join(
    f'layer {{ name: "{n}" type: "Input" top: "{n}" input_param {{ shape {{ dim: 2 dim: 3 dim: 5 dim: 7 }} }} }}\n'
    for n in "ab"
)
BRANCH = """layer {{ name: "conv{0}" type: "Convolution" bottom: "{1}" top: "conv{0}"
  convolution_param {{ num_output: 4 kernel_size: 1 }} param {{ name: "w" }} param {{ {2} }} }}
"""
NET = INPUTS + BRANCH.format("", "a", 'name: "b"') + BRANCH.format("_p", "b", 'name: "b"')
OLD = "".join(
    f'layers {{ name: "conv{p}" type: CONVOLUTION bottom: "{b}" top: "conv{p}" param: "w" param: "b" '
    "convolution_param { num_output: 4 kernel_size: 1 } }\n"
    for p, b in (("", "a"), ("_p", "b"))
)
SIZE = "input_dim: 2 input_dim: 3 input_dim: 5 input_dim: 7"
OLD = f'input: "a" {SIZE} input: "b" {SIZE}\n{OLD}'


def files(folder: Path, text: str, **blobs: list[Array]) -> list[Path]:
    """A prototxt, and with ``blobs`` a caffemodel that has these layers alone."""
    (folder / "net.prototxt").write_text(text)
    if blobs:
        write_caffemodel(
            folder / "net.caffemodel", "net", [(name, "Convolution", each) for name, each in blobs.items()]
        )
    return [folder / "net.prototxt", *([folder / "net.caffemodel"] if blobs else [])]


@pytest.mark.parametrize("text", [NET, OLD])
@pytest.mark.parametrize("stored", ["conv", "conv_p"])
@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_caffemodel_may_have_one_of_them(tmp_path: Path, text: str, stored: str, device: str) -> None:
    expected = np.einsum("nchw,mc->nmhw", X, W[:, :, 0, 0]) + B[:, None, None]
    with chai.Net(*files(tmp_path, text, **{stored: [W, B]}), device=device) as net:
        tops = net.forward(a=X, b=X)
    for top in ("conv", "conv_p"):
        error = np.abs(tops[top] - expected).max() / np.abs(expected).max()
        assert error < (1e-6 if device == "float" else 0.05)
    assert np.array_equal(tops["conv"], tops["conv_p"])


def test_without_a_caffemodel_they_are_the_same_ones(tmp_path: Path) -> None:
    with chai.Net(*files(tmp_path, NET), device="float") as net:
        tops = net.forward(a=X, b=X)
    assert np.array_equal(tops["conv"], tops["conv_p"]) and tops["conv"].std() > 0


def test_surgery_in_one_layer_is_surgery_in_all(tmp_path: Path) -> None:
    net = pycaffe.Net(*map(str, files(tmp_path, NET, conv=[W, B], conv_p=[W, B])), pycaffe.TEST)
    net.params["conv_p"][0].data[...] *= 2
    assert np.array_equal(net.params["conv"][0].data, 2 * W)
    net.blobs["a"].data[...] = net.blobs["b"].data[...] = X
    tops = {name: top.copy() for name, top in net.forward().items()}
    assert np.array_equal(tops["conv"], tops["conv_p"])


def test_different_ones_in_the_file_stay(tmp_path: Path) -> None:
    """A quantised network's are rounded for the inputs of each."""
    with chai.Net(*files(tmp_path, NET, conv=[W, B], conv_p=[W + 1, B]), device="float") as net:
        assert np.array_equal(net.params["conv"][0], W) and np.array_equal(net.params["conv_p"][0], W + 1)
        assert net.params["conv"][1] is net.params["conv_p"][1]


def test_what_no_layer_has_is_missing(tmp_path: Path) -> None:
    text = INPUTS + BRANCH.format("", "a", 'name: "b"') + BRANCH.format("_p", "b", "")
    with pytest.raises(MissingWeights, match="layer 'conv_p'"):
        chai.Net(*files(tmp_path, text, conv=[W, B]), device="float")


def test_other_shapes_of_the_same_numbers(tmp_path: Path) -> None:
    """Caffe's PERMISSIVE; other sizes are refused."""
    inner = 'layer {{ name: "{0}" type: "InnerProduct" bottom: "{1}" top: "{0}" {2} '
    inner += 'param {{ name: "w" share_mode: PERMISSIVE }} }}\n'
    first = inner.format("down", "a", "inner_product_param { num_output: 6 bias_term: false }")
    second = inner.format("up", "down", "inner_product_param { num_output: 105 bias_term: false }")
    wrong = inner.format("up", "down", "inner_product_param { num_output: 7 bias_term: false }")
    text = INPUTS.partition("\n")[0] + "\n"
    with chai.Net(*files(tmp_path, text + first + second), device="float") as net:
        down, up = net.params["down"][0], net.params["up"][0]
        assert np.shares_memory(down, up) and np.array_equal(down.ravel(), up.ravel()) and up.shape == (105, 6)
    with pytest.raises(ShapeError, match=r"its parameter 'w' is 7x6, in layer 'down' 6x105: they are shared"):
        chai.Net(*files(tmp_path, text + first + wrong), device="float")
