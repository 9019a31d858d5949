"""Losses and measures: dropped in phase TEST, refused in phase TRAIN."""

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


@pytest.mark.parametrize("type", NAMES)
def test_dropped_at_test(tmp_path: Path, type: str) -> None:
    found = net(tmp_path, type, "TEST")
    assert [layer.name for layer in found.graph.layers] == ["in", "prob"]
    assert (found.inputs, found.outputs) == (["x"], ["prob"])
    assert any("probe" in note for note in found.graph.notes)


@pytest.mark.parametrize("type", NAMES)
def test_refused_in_training(tmp_path: Path, type: str) -> None:
    with pytest.raises(chai.ShapeError, match=rf"'probe' \({type}\).*training") as error:
        net(tmp_path, type, "TRAIN")
    assert error.value.layer == "probe"
    assert "TEST" in str(error.value.hint)


def test_what_reads_a_dropped_blob_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "loss" type: "EuclideanLoss" bottom: "x" bottom: "label" top: "loss" }
        layer { name: "abs" type: "AbsVal" bottom: "loss" top: "abs" }
        """
    )
    with pytest.raises(chai.ParseError, match="layer 'loss' would write, but losses and measures are dropped"):
        chai.Net(path)
