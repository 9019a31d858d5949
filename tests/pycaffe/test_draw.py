"""Pictures of networks: SVG and DOT of chai's own, everything else by Graphviz."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import chai
import chai.pycaffe as caffe
from chai.parser.schema import message_class
from chai.util.paths import resource

ROOT = resource("prototxt")
NETS = sorted(ROOT.glob("*.prototxt"))
TEXT = """
layer { name: "data" type: "Input" top: "x" input_param { shape { dim: 1 dim: 3 dim: 9 dim: 9 } } }
layer { name: "conv <&\\"1" type: "Convolution" bottom: "x" top: "y" param { lr_mult: 0.5 }
  convolution_param { num_output: 7 kernel_h: 3 kernel_w: 5 stride: 2 } }
layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
layer { name: "train" type: "Pooling" bottom: "y" top: "p" include { phase: TRAIN } pooling_param { pool: AVE kernel_size: 2 } }
layer { name: "test" type: "InnerProduct" bottom: "y" top: "p" exclude { phase: TRAIN } inner_product_param { num_output: 4 } }
layer { name: "sum" type: "Eltwise" bottom: "p" bottom: "y" top: "sum" }
"""


def message(text: str) -> Any:
    from google.protobuf import text_format

    return text_format.Merge(text, message_class("NetParameter")())


def dot(net: Any, **options: Any) -> str:
    return caffe.draw.draw_net(net, ext="dot", **options).decode()


@pytest.mark.parametrize("path", NETS, ids=lambda p: p.stem)
def test_every_shipped_network(path: Path) -> None:
    net = message(path.read_text())
    text = dot(net)
    layers = len(net.layer) + len(net.layers)
    assert len(re.findall(r"^  n\d+ \[label=", text, re.M)) == layers
    image = ElementTree.fromstring(caffe.draw.draw_net(net, "LR", "svg"))
    assert len(image.findall(".//{http://www.w3.org/2000/svg}title")) == layers
    assert len(image.findall(".//{http://www.w3.org/2000/svg}path")) >= text.count("->")


def test_what_stands_in_a_box() -> None:
    lines = dot(message(TEXT), rankdir="RL").splitlines()
    assert lines[1].startswith("  rankdir=RL;")
    labels = [line.partition("label=")[2] for line in lines if "label=" in line]
    assert labels[1] == r'"conv <&amp;\"1\nConvolution 3x5 stride 2x2 7 outputs\ny"];'
    assert labels[3] == r'"train\nPooling AVE 2x2\np"];'
    assert labels[4] == r'"test\nInnerProduct 4 outputs\np"];'
    assert r"lr_mult 0.5" in dot(message(TEXT), display_lrm=True)
    layer = message(TEXT).layer[1]
    assert caffe.draw.get_edge_label(layer) == "7"
    assert caffe.draw.get_layer_label(layer, "LR").split("\n")[1] == "Convolution"
    assert caffe.draw.get_pooling_types_dict()[1] == "AVE"


def test_edges_follow_layers_in_place() -> None:
    edges = re.findall(r"n(\d) -> n(\d)", dot(message(TEXT)))
    assert edges == [("0", "1"), ("1", "2"), ("2", "3"), ("2", "4"), ("4", "5"), ("2", "5")]


def test_a_phase_leaves_layers_out() -> None:
    train, test = (dot(message(TEXT), phase=p) for p in (caffe.TRAIN, caffe.TEST))
    assert ("train" in train, "test" in train) == (True, False)
    assert ("train" in test, "test" in test) == (False, True)


def test_old_forms_are_drawn_by_their_new_types() -> None:
    net = message('layers { name: "a" type: CONVOLUTION top: "a" convolution_param { num_output: 3 kernel_size: 5 } }')
    assert "Convolution 5x5 3 outputs" in dot(net)


def test_files_by_their_suffix(tmp_path: Path) -> None:
    for name, begin in (("a.svg", b"<svg xmlns="), ("a.dot", b"digraph {")):
        caffe.draw.draw_net_to_file(message(TEXT), str(tmp_path / name), "TB")
        assert (tmp_path / name).read_bytes().startswith(begin)


def test_graphviz_draws_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name takes the place of Graphviz: what it is called with, and what it says when it fails."""
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nif [ "$1" = -Tbad ]; then echo "no such format" >&2; exit 1; fi\necho "$1"; cat\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    caffe.draw.draw_net_to_file(message(TEXT), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_text() == "-Tpng\n" + dot(message(TEXT))
    with pytest.raises(chai.UsageError, match="dot -Tbad failed: no such format"):
        caffe.draw.draw_net(message(TEXT), "LR", "bad")
    with pytest.raises(chai.UsageError, match=r"'p/\.\./x' is no format"):
        caffe.draw.draw_net(message(TEXT), "LR", "p/../x")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(chai.UsageError, match="needs Graphviz's program dot") as caught:
        caffe.draw.draw_net(message(TEXT), "LR")
    assert "svg" in str(caught.value.hint)


def test_a_direction_that_is_none() -> None:
    with pytest.raises(chai.UsageError, match="rankdir 'XY': expected one of LR, RL, TB, BT"):
        dot(message(TEXT), rankdir="XY")


@pytest.mark.parametrize("net", [None, "net.prototxt"])
def test_what_is_no_message_of_a_network(net: Any) -> None:
    with pytest.raises(chai.UsageError, match=r"expected a caffe_pb2\.NetParameter, found"):
        caffe.draw.draw_net(net)


def test_formats_as_suffixes_are_written() -> None:
    assert caffe.draw.draw_net(message(TEXT), ext=".SVG") == caffe.draw.draw_net(message(TEXT), ext="svg")
