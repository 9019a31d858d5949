"""What input and data layers say of the shapes of their tops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai import layers
from chai.graph.source import SourceLayer

from .common import Shape

READ = """
layer { name: "keep" type: "Silence" %s }
layer { name: "abs" type: "AbsVal" bottom: "%s" top: "abs" }
"""


def declared(folder: Path, type: str, body: str, tops: int = 1) -> dict[str, Shape | None]:
    """The inputs of a net whose only source is this layer; a layer reads every top, or labels would vanish."""
    names = [f"x{i}" for i in range(tops)]
    text = f'layer {{ name: "probe" type: "{type}" {" ".join(f"top: {n!r}" for n in names)}\n {body} }}'
    path = folder / "net.prototxt"
    path.write_text(text + READ % (" ".join(f"bottom: {n!r}" for n in names), names[0]))
    return chai.Net(path, device="float").graph.inputs


@pytest.mark.parametrize(
    ("type", "body", "wanted"),
    [
        ("Input", "input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } }", [(2, 3, 5, 7)]),
        ("Input", "input_param { shape { dim: 2 dim: 3 } }", [(2, 3), (2, 3)]),  # one for all tops
        ("Input", "input_param { shape { dim: 2 dim: 3 } shape { dim: 5 } }", [(2, 3), (5,)]),
        ("Input", "input_param { shape { } }", [()]),
        ("Input", "", [None]),
        ("DummyData", "dummy_data_param { shape { dim: 2 dim: 3 } }", [(2, 3)]),
        ("DummyData", "dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 5 } }", [(2, 3), (5,)]),
        ("DummyData", "dummy_data_param { num: 2 channels: 3 height: 5 width: 7 }", [(2, 3, 5, 7)]),
        ("DummyData", "dummy_data_param { num: 2 channels: 3 height: 5 width: 7 }", [(2, 3, 5, 7)] * 2),
        (
            "DummyData",
            "dummy_data_param { num: 2 num: 4 channels: 3 channels: 6 height: 5 height: 8 width: 7 width: 9 }",
            [(2, 3, 5, 7), (4, 6, 8, 9)],
        ),
        # Caffe: each of the four once, or once per top
        (
            "DummyData",
            "dummy_data_param { num: 2 channels: 3 channels: 6 height: 5 width: 7 width: 9 }",
            [(2, 3, 5, 7), (2, 6, 5, 9)],
        ),
        ("MemoryData", "memory_data_param { batch_size: 2 channels: 3 height: 5 width: 7 }", [(2, 3, 5, 7), (2,)]),
        ("ImageData", "image_data_param { batch_size: 2 new_height: 5 new_width: 7 }", [(2, 3, 5, 7), None]),
        ("ImageData", "image_data_param { batch_size: 2 new_height: 5 new_width: 7 is_color: false }", [(2, 1, 5, 7)]),
        (
            "ImageData",
            "image_data_param { new_height: 5 new_width: 7 } transform_param { crop_size: 4 }",
            [(1, 3, 4, 4)],
        ),
        ("ImageData", "image_data_param { batch_size: 2 }", [None, None]),
        ("ImageData", "image_data_param { crop_size: 4 }", [(1, 3, 4, 4)]),  # where crop_size stood first
        ("Data", "data_param { batch_size: 2 } transform_param { crop_size: 5 }", [(2, 3, 5, 5), None]),
        ("Data", "data_param { batch_size: 2 } transform_param { crop_size: 5 force_gray: true }", [(2, 1, 5, 5)]),
        ("Data", "data_param { batch_size: 2 }", [None]),
        ("WindowData", "window_data_param { batch_size: 2 crop_size: 5 }", [(2, 3, 5, 5), None]),
        ("HDF5Data", "hdf5_data_param { batch_size: 2 }", [None, None]),
        ("AnnotatedData", "data_param { batch_size: 2 } transform_param { crop_size: 5 }", [(2, 3, 5, 5), None]),
        # SSD resizes first; its nets say the size nowhere else
        (
            "AnnotatedData",
            "data_param { batch_size: 2 } transform_param { resize_param { height: 5 width: 7 } }",
            [(2, 3, 5, 7), None],
        ),
        # MobileNet-YOLO trains at several sizes, of which none is the size
        (
            "AnnotatedData",
            "transform_param { resize_param { height: 5 width: 7 } resize_param { height: 6 width: 7 } }",
            [None],
        ),
        (
            "AnnotatedData",
            "transform_param { resize_param { height: 5 width: 7 prob: 0 } resize_param { height: 5 width: 7 } }",
            [(1, 3, 5, 7)],
        ),
        ("DenseImageData", "dense_image_data_param { batch_size: 2 new_height: 5 new_width: 7 }", [(2, 3, 5, 7), None]),
        (
            "DenseImageData",
            "dense_image_data_param { new_height: 5 new_width: 7 crop_height: 4 crop_width: 6 is_color: false }",
            [(1, 1, 4, 6)],
        ),
        ("DenseImageData", "dense_image_data_param { batch_size: 2 new_height: 5 }", [None]),
        ("AnnotatedData", "data_param { batch_size: 2 } transform_param { crop_h: 5 crop_w: 7 }", [(2, 3, 5, 7), None]),
    ],
)
def test_declared_shapes(tmp_path: Path, type: str, body: str, wanted: list[Shape | None]) -> None:
    assert declared(tmp_path, type, body, len(wanted)) == {f"x{i}": shape for i, shape in enumerate(wanted)}


def test_the_legacy_form_of_inputs(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    text = 'input: "a" input_dim: 2 input_dim: 3 input_dim: 5 input_dim: 7 input: "b" '
    text += "input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 4"
    path.write_text(text + READ % ('bottom: "a" bottom: "b"', "a"))
    assert chai.Net(path).graph.inputs == {"a": (2, 3, 5, 7), "b": (1, 1, 1, 4)}


def test_a_scalar_input_can_be_fed(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "in" type: "Input" top: "x" input_param { shape { } } }
        layer { name: "double" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } }
        """
    )
    net = chai.Net(path, device="float")
    assert net.shapes == {"x": (), "y": ()}
    y = net.forward(np.float32(3))["y"]
    assert y.shape == ()
    assert y == 6


def test_an_assumed_number_of_channels_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    text = 'layer { name: "d" type: "Data" top: "x" transform_param { crop_size: 5 } }'
    path.write_text(text + READ % ('bottom: "x"', "x"))
    assert any("3 channels assumed" in note for note in chai.Net(path).graph.notes)


def test_labels_vanish_with_their_losses(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "d" type: "ImageData" top: "x" top: "label" image_data_param { new_height: 5 new_width: 7 } }
        layer { name: "abs" type: "AbsVal" bottom: "x" top: "abs" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "abs" bottom: "label" top: "loss" }
        """
    )
    net = chai.Net(path)
    assert (net.graph.inputs, net.outputs) == ({"x": (1, 3, 5, 7)}, ["abs"])


def test_every_source_is_tested_here() -> None:
    sources = {name for name in layers.types() if issubclass(layers.find(name), SourceLayer)}
    marks = test_declared_shapes.pytestmark[0].args[1]
    assert sources == {type for type, _, _ in marks}
