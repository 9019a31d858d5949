"""Layers of training nets that chai leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

import chai
from chai import layers

NAMES = [name for name in layers.types() if layers.find(name).training_only]


def net(folder: Path, type: str, phase: str) -> chai.Net:
    path = folder / "net.prototxt"
    path.write_text(
        f"""
        layer {{ name: "in" type: "Input" top: "x" top: "label" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
        layer {{ name: "prob" type: "Softmax" bottom: "x" top: "prob" }}
        layer {{ name: "probe" type: "{type}" bottom: "prob" bottom: "label" top: "loss" }}
        """
    )
    return chai.Net(path, device="float", phase=phase)


def test_the_types() -> None:
    assert set(NAMES) == {
        "Accuracy", "ContrastiveLoss", "DetectionEvaluate", "EuclideanLoss", "HDF5Output", "HingeLoss", "InfogainLoss",
        "MultiBoxLoss", "MultinomialLogisticLoss", "SegmentationEvaluate", "SigmoidCrossEntropyLoss", "SoftmaxWithLoss",
        "Yolov3", "YoloV3Loss", "YoloSeg",
    }  # fmt: skip


SKIPPED = [name for name in NAMES if layers.find(name).skipped]


@pytest.mark.parametrize("phase", ["TEST", "TRAIN"])
@pytest.mark.parametrize("type", SKIPPED)
def test_what_is_not_computed_is_dropped(tmp_path: Path, type: str, phase: str) -> None:
    network = net(tmp_path, type, phase)
    assert [layer.name for layer in network.graph.layers] == ["in", "prob"]
    assert (network.inputs, network.outputs, network.graph.losses) == (["x"], ["prob"], None)
    assert "losses and measures dropped: probe" in network.graph.notes


def test_what_reads_a_dropped_blob_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "loss" type: "MultiBoxLoss" bottom: "x" bottom: "label" top: "loss" }
        layer { name: "abs" type: "AbsVal" bottom: "loss" top: "abs" }
        """
    )
    with pytest.raises(chai.ParseError, match="layer 'loss' would write, but losses of its type are not computed"):
        chai.Net(path)
