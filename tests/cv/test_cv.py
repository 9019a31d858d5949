"""Scripts for cv2.dnn, which change one import: the calls of OpenCV's sample for edge detection, against OpenCV itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.cv as cv
from chai.artifact.save import save
from chai.parser.caffemodel import write_caffemodel
from tests.conftest import HANG
from tests.plugins.common import python

needs_opencv = pytest.mark.skipif(
    find_spec("cv2") is None, reason="needs opencv-python-headless<5: pip install -e '.[bench]'"
)
# The construct of HED's deploy.prototxt: sides of a network, each cropped to the input by a layer called crop, and fused.
CONV = "convolution_param {{ num_output: {} kernel_size: {} pad: {} }}"
NETWORK = f"""
name: "edges" input: "data" input_dim: 1 input_dim: 3 input_dim: 20 input_dim: 30
layer {{ bottom: "data" top: "conv1" name: "conv1" type: "Convolution" {CONV.format(5, 3, 6)} }}
layer {{ bottom: "conv1" top: "conv1" name: "relu1" type: "ReLU" }}
layer {{ bottom: "conv1" top: "pool1" name: "pool1" type: "Pooling" pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }} }}
layer {{ bottom: "pool1" top: "conv2" name: "conv2" type: "Convolution" {CONV.format(7, 3, 1)} }}
layer {{ bottom: "conv2" top: "conv2" name: "relu2" type: "ReLU" }}
layer {{ bottom: "conv1" top: "dsn1-up" name: "score-dsn1" type: "Convolution" {CONV.format(1, 1, 0)} }}
layer {{ bottom: "dsn1-up" bottom: "data" top: "upscore-dsn1" name: "crop" type: "Crop" }}
layer {{ bottom: "upscore-dsn1" top: "sigmoid-dsn1" name: "sigmoid-dsn1" type: "Sigmoid" }}
layer {{ bottom: "conv2" top: "dsn2" name: "score-dsn2" type: "Convolution" {CONV.format(1, 1, 0)} }}
layer {{ bottom: "dsn2" top: "dsn2-up" name: "upsample_2" type: "Deconvolution"
  convolution_param {{ kernel_size: 4 stride: 2 num_output: 1 }} }}
layer {{ bottom: "dsn2-up" bottom: "data" top: "upscore-dsn2" name: "crop" type: "Crop" }}
layer {{ bottom: "upscore-dsn2" top: "sigmoid-dsn2" name: "sigmoid-dsn2" type: "Sigmoid" }}
layer {{ bottom: "upscore-dsn1" bottom: "upscore-dsn2" top: "concat" name: "concat" type: "Concat" }}
layer {{ bottom: "concat" top: "fuse" name: "new-score-weighting" type: "Convolution" {CONV.format(1, 1, 0)} }}
layer {{ bottom: "fuse" top: "sigmoid-fuse" name: "sigmoid-fuse" type: "Sigmoid" }}
"""
SIZES = {
    "conv1": (5, 3, 3, 3),
    "conv2": (7, 5, 3, 3),
    "score-dsn1": (1, 5, 1, 1),
    "score-dsn2": (1, 7, 1, 1),
    "upsample_2": (1, 1, 4, 4),
    "new-score-weighting": (1, 2, 1, 1),
}
SCRIPT = """
import {module} as cv
import numpy as np

class CropLayer(object):
    def __init__(self, params, blobs):
        self.box = None

    def getMemoryShapes(self, inputs):
        image, target = inputs[0], inputs[1]
        y, x = (image[2] - target[2]) // 2, (image[3] - target[3]) // 2
        self.box = slice(y, y + target[2]), slice(x, x + target[3])
        return [[image[0], image[1], target[2], target[3]]]

    def forward(self, inputs):
        return [inputs[0][:, :, self.box[0], self.box[1]]]

cv.dnn_registerLayer("Crop", CropLayer)
net = cv.dnn.readNet(cv.samples.findFile("edges.prototxt"), cv.samples.findFile("edges.caffemodel"))
results = []
for frame in (np.load("a.npy"), np.load("b.npy"), np.load("a.npy")):
    blob = cv.dnn.blobFromImage(frame, scalefactor=1.0, size=(36, 24), mean=(104.00698793, 116.66876762, 122.67891434),
                                swapRB=False, crop=False)
    net.setInput(blob)
    out = net.forward()[0, 0]
    results.append(cv.resize(out, (frame.shape[1], frame.shape[0])))
both = net.forward(["sigmoid-dsn1", "sigmoid-dsn2"])
np.savez("{module}.npz", *results, *both, net.forward("dsn2"))
net.setPreferableBackend(cv.dnn.DNN_BACKEND_OPENCV)
net.setPreferableTarget(cv.dnn.DNN_TARGET_CPU)
names = net.getLayerNames()
assert {{names[i - 1] for i in net.getUnconnectedOutLayers()}} == set(net.getUnconnectedOutLayersNames())
print(",".join(net.getUnconnectedOutLayersNames()), cv.WINDOW_NORMAL, cv.dnn.DNN_TARGET_CPU)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    (tmp_path / "edges.prototxt").write_text(NETWORK)
    write_caffemodel(
        tmp_path / "edges.caffemodel",
        "edges",
        [
            (n, "", [rng.normal(0, 0.02 if n == "conv1" else 0.3, s).astype(np.float32), np.float32([0.1] * s[0])])
            for n, s in SIZES.items()
        ],
    )
    for name, size in (("a", (17, 29, 3)), ("b", (40, 33, 3))):
        np.save(tmp_path / f"{name}.npy", rng.integers(0, 256, size, np.uint8))
    return tmp_path


@needs_opencv
def test_a_script_for_opencv_with_another_import(folder: Path) -> None:
    answers, names = [], []
    for module in ("cv2", "chai.cv"):
        (folder / "script.py").write_text(SCRIPT.format(module=module))
        ran = subprocess.run(
            [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert ran.returncode == 0, ran.stderr
        answers.append(np.load(folder / f"{module}.npz"))
        names.append(ran.stdout.strip())
    assert set(names[0].split()[0].split(",")) == set(names[1].split()[0].split(","))
    assert names[0].split()[1:] == names[1].split()[1:]
    assert [*answers[0]] == [*answers[1]]
    for name, wanted in answers[0].items():
        assert answers[1][name].shape == wanted.shape
        assert np.ptp(wanted) > 0.01
        assert np.allclose(answers[1][name], wanted, rtol=1e-4, atol=1e-5), name


def test_the_layers_and_outputs_of_a_net(folder: Path) -> None:
    net = cv.dnn.readNetFromCaffe(folder / "edges.prototxt", folder / "edges.caffemodel")
    assert net.net.device.name == "float"
    assert net.getUnconnectedOutLayersNames() == ("sigmoid-dsn1", "sigmoid-dsn2", "sigmoid-fuse")
    assert "data" not in net.getLayerNames()
    net.setPreferableBackend(3)
    net.setPreferableTarget(0)
    numbers = net.getUnconnectedOutLayers()
    assert numbers.dtype == np.int32 and [net.getLayerNames()[i - 1] for i in numbers] == [
        *net.getUnconnectedOutLayersNames()
    ]
    assert net.getLayerNames()[-1] == "sigmoid-fuse"
    assert not net.empty()
    with pytest.raises(chai.UsageError, match="input 'data' has no blob yet"):
        net.forward()
    x = np.load(folder / "a.npy")[None].transpose(0, 3, 1, 2)
    net.setInput(x, "data", 0.5, (10, 20, 30))
    own = chai.Net(folder / "edges.prototxt", folder / "edges.caffemodel", device="float", keep="all")
    wanted = own.forward((x - np.float32([10, 20, 30]).reshape(1, 3, 1, 1)) * np.float32(0.5))
    assert np.array_equal(net.forward(), wanted["sigmoid-fuse"])
    assert np.array_equal(net.forward("conv1"), own.tops("conv1")[0])  # before the ReLU in place
    assert np.array_equal(net.forward("relu1"), own.blobs["conv1"])
    assert np.array_equal(net.forward("upscore-dsn2"), own.blobs["upscore-dsn2"])  # a blob that no layer is called like
    with pytest.raises(chai.UsageError, match="there is no layer 'conv3'"):
        net.forward("conv3")
    with pytest.raises(chai.UsageError, match="'image' is no input of edges"):
        net.setInput(x, "image")


def identity(folder: Path, shape: tuple[int, ...]) -> Path:
    """A network whose output is its input."""
    dims = " ".join(f"dim: {n}" for n in shape)
    path = folder / "identity.prototxt"
    path.write_text(
        f'name: "identity" input: "data" input_shape {{ {dims} }}\n'
        'layer { name: "same" type: "Power" bottom: "data" top: "same" }\n'
    )
    return path


@needs_opencv
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 3, 2), (2, 4, 3), (5,)], ids=str)
@pytest.mark.parametrize("mean", [4, (4,), (4, 5), (0, 5), (4, 5, 6), (4, 5, 6, 7), ()], ids=str)
def test_means_are_those_of_opencv(tmp_path: Path, shape: tuple[int, ...], mean: Any) -> None:
    """Channels that it has no mean for keep their numbers; a blob without channels has the first mean."""
    import cv2

    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    answers = []
    for module in (cv2, cv):
        net = module.dnn.readNetFromCaffe(str(identity(tmp_path, shape)))
        net.setInput(x, "data", 0.5, mean)
        answers.append(net.forward().reshape(shape))
    assert np.allclose(*answers, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "mean", "message"),
    [
        ((1, 3, 2, 2), (1, 2, 3, 4, 5), "setInput: mean of 5 numbers, expected one per channel, 4 at most"),
        ((1, 5, 2, 2), 1, "setInput: mean for 5 channels, expected 4 at most"),
        ((1, 3, 2, 2), "red", "setInput: mean 'red': expected a number, or one per channel"),
    ],
)
def test_means_that_opencv_does_not_take(tmp_path: Path, shape: tuple[int, ...], mean: Any, message: str) -> None:
    net = cv.dnn.readNetFromCaffe(identity(tmp_path, shape))
    with pytest.raises(chai.UsageError, match=message):
        net.setInput(np.ones(shape, np.float32), mean=mean)
    net.setInput(np.ones(shape, np.float32), mean=0)
    assert np.array_equal(net.forward(), np.ones(shape))


@needs_opencv
@pytest.mark.parametrize("option", ["scalefactor", "size", "mean", "swapRB", "crop", "ddepth"])
def test_none_is_the_default_as_in_opencv(option: str) -> None:
    import cv2

    pixels = np.random.default_rng(6).integers(0, 256, (4, 5, 3), np.uint8)
    blobs = [module.dnn.blobFromImage(pixels, **{option: None}) for module in (cv2, cv)]
    assert np.array_equal(*blobs)


def test_a_blob_is_copied_where_it_is_set(tmp_path: Path) -> None:
    x = np.ones((1, 3, 2, 4), np.float32)
    net = cv.dnn.readNetFromCaffe(identity(tmp_path, x.shape))
    net.setInput(x)
    x[...] = 7
    assert np.array_equal(net.forward(), np.ones(x.shape))


@pytest.mark.parametrize("scale", [[1.0, 2.0, 3.0], np.ones(4), "2", 1j], ids=str)
def test_factors_that_are_no_numbers(tmp_path: Path, scale: Any) -> None:
    net = cv.dnn.readNetFromCaffe(identity(tmp_path, (1, 3, 2, 4)))
    with pytest.raises(chai.UsageError, match=r"setInput: scalefactor .* expected a number"):
        net.setInput(np.ones((1, 3, 2, 4), np.float32), scalefactor=scale)
    with pytest.raises(chai.UsageError, match=r"blobFromImage: scalefactor .* expected a number"):
        cv.dnn.blobFromImage(np.ones((2, 4, 3), np.uint8), scale)


def test_either_order_another_device_and_a_compiled_network(folder: Path) -> None:
    files = folder / "edges.prototxt", folder / "edges.caffemodel"
    x = cv.dnn.blobFromImages([np.load(folder / "a.npy")], 1 / 255, (30, 20))
    nets = [
        cv.dnn.readNet(*files, device="emulator"),
        cv.dnn.readNet(*files[::-1], framework="Caffe", device="emulator"),
    ]
    nets[0].net.calibrate(x)
    save(nets[0].net, folder / "edges.chai")
    nets.append(cv.dnn.readNet(folder / "edges.chai", device="emulator"))
    for net in nets:
        net.setInput(x)
    answers = [net.forward() for net in nets]
    assert all(np.array_equal(answer, answers[0]) for answer in answers)
    assert "fpga" in {s.engine for s in nets[2].net.perf.steps}
    with pytest.raises(chai.UsageError, match="framework 'onnx': expected caffe"):
        cv.dnn.readNet(files[0], framework="onnx")
    with pytest.raises(chai.UsageError, match=r"edges\.caffemodel alone is no network"):
        cv.dnn.readNet(files[1])
    with pytest.raises(chai.UsageError, match="ddepth 6: expected CV_32F"):
        cv.dnn.blobFromImage(np.zeros((2, 3), np.uint8), ddepth=6)


def test_names_that_only_opencv_has() -> None:
    code = (
        "import sys; sys.modules['cv2'] = sys.modules['cv2.dnn'] = None\n"
        "import chai.cv as cv\n"
        "for place, name in ((cv, 'imshow'), (cv.dnn, 'NMSBoxes')):\n"
        "    try: getattr(place, name)\n"
        "    except AttributeError as error: print(error)\n"
        "print(cv.dnn.blobFromImage.__name__)"
    )
    assert python(code).splitlines() == [
        "module 'chai.cv' has no attribute 'imshow'; if it is OpenCV's own: pip install opencv-python",
        "module 'chai.cv.dnn' has no attribute 'NMSBoxes'; if it is OpenCV's own: pip install opencv-python",
        "blobFromImage",
    ]


@needs_opencv
def test_a_name_that_nobody_has() -> None:
    with pytest.raises(AttributeError, match=r"neither 'chai\.cv' nor 'cv2' has an attribute 'imshw'"):
        _ = cv.imshw
