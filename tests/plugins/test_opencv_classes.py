"""Classes written for cv2.dnn, unmodified, against what OpenCV does with them."""

from __future__ import annotations

import json
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import cv
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.registry import REGISTRY, Registry
from tests.conftest import HANG
from tests.kernels.common import in_child
from tests.passes.common import CONV, prototxt

from .common import DATA, SHAPE, python

CLASSES = '''
seen = []


class CropLayer(object):
    """Crop the first input to the size of the second, as scripts for edge detection do."""

    def __init__(self, params, blobs):
        seen.append(params)
        self.box = None

    def getMemoryShapes(self, inputs):
        image, target = inputs[0], inputs[1]
        y, x = (image[2] - target[2]) // 2, (image[3] - target[3]) // 2
        self.box = slice(y, y + target[2]), slice(x, x + target[3])
        return [[image[0], image[1], target[2], target[3]]]

    def forward(self, inputs):
        return [inputs[0][:, :, self.box[0], self.box[1]]]


class Weighted(object):
    def __init__(self, params, blobs):
        seen.append(params)
        self.add = float(params["add"])
        self.scale = blobs[0]

    def getMemoryShapes(self, inputs):
        n, c, h, w = inputs[0]
        return [[n, c, h, w], [n, self.scale.size, 1, 1]]

    def forward(self, inputs):
        whole = inputs[0] * self.scale.reshape(1, -1, 1, 1) + self.add
        return [whole, whole.mean(axis=(2, 3), keepdims=True)]
'''
NETWORK = prototxt(
    """
    pool Pooling data -> pool : pooling_param { pool: AVE kernel_size: 3 stride: 2 }
    crop Crop data pool -> crop : crop_param { axis: 2 offset: 3 offset: 4 }
    w Weighted crop -> whole mean : weighted_param { add: 1.5 mode: MAX flag: true }
    scaled Power whole -> y : power_param { scale: 2 }
    shifted Power mean -> z : power_param { shift: 1 }
    """,
    (2, 3, 9, 12),
)
SIZES = ((2, 3, 9, 12), (1, 3, 14, 7), (2, 3, 9, 12))
WEIGHTS = np.float32([2, -1, 0.5])
ABSENT = {
    "group_size": 0,
    "output_dim": 0,
    "spatial_scale": 0.0,
}  # of another message, which OpenCV adds to unknown ones


def images() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(size).astype(np.float32) for size in SIZES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "classes.py").write_text(CLASSES)
    (tmp_path / "net.prototxt").write_text(NETWORK)
    write_caffemodel(tmp_path / "net.caffemodel", "net", [("w", "Weighted", [WEIGHTS])])
    np.savez(tmp_path / "in.npz", *images())
    return tmp_path


@pytest.fixture
def classes(registry: Registry) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "classes_of_a_script"}
    exec(compile(CLASSES, "classes.py", "exec"), space)
    return space


@pytest.mark.skipif(find_spec("cv2") is None, reason="needs opencv-python-headless<5: pip install -e '.[bench]'")
def test_the_same_numbers_shapes_and_parameters_as_opencv(folder: Path, classes: dict[str, Any]) -> None:
    code = (
        "import cv2, json, numpy as np, classes\n"
        "cv2.dnn_registerLayer('Crop', classes.CropLayer)\n"
        "cv2.dnn_registerLayer('Weighted', classes.Weighted)\n"
        f"net = cv2.dnn.readNetFromCaffe({str(folder / 'net.prototxt')!r}, {str(folder / 'net.caffemodel')!r})\n"
        "found = {}\n"
        f"for i, image in enumerate(np.load({str(folder / 'in.npz')!r}).values()):\n"
        "    net.setInput(image)\n"
        "    found.update({f'{n}{i}': v for n, v in zip(('scaled', 'shifted'), net.forward(['scaled', 'shifted']))})\n"
        f"np.savez({str(folder / 'out.npz')!r}, **found)\n"
        "print(json.dumps(classes.seen))\n"
    )
    crop, weighted = json.loads(python(code, folder))
    cv.dnn_registerLayer("Crop", classes["CropLayer"])
    cv.dnn_registerLayer("Weighted", classes["Weighted"])
    net = chai.Net(folder / "net.prototxt", folder / "net.caffemodel", device="float")
    wanted = np.load(folder / "out.npz")
    for i, image in enumerate(images()):
        outputs = net.forward(image)
        assert np.array_equal(outputs["y"], wanted[f"scaled{i}"])
        assert np.allclose(outputs["z"], wanted[f"shifted{i}"], rtol=1e-6, atol=1e-6)
    assert [s.name for s in net.perf.custom] == ["crop", "w"]
    assert [{**ABSENT, **p, "offset": 0} for p in classes["seen"]] == [
        {**ABSENT, **p, "offset": 0} for p in (crop, weighted)
    ]
    assert classes["seen"][0]["offset"] == tuple(crop["offset"]) == (3, 4)


def test_what_the_class_should_compute_by_hand(folder: Path, classes: dict[str, Any]) -> None:
    """Without OpenCV; with the decorator, in the network's own file."""
    text = CLASSES.replace("class CropLayer", '@chai.custom.cvlayer("Crop")\nclass CropLayer')
    text = "import chai\n" + text.replace(
        "class Weighted", '@chai.custom.cvlayer("Weighted", version="2")\nclass Weighted'
    )
    (folder / "layers.py").write_text(text)
    net = chai.Net(folder / "net.prototxt", folder / "net.caffemodel", device="float", custom=folder / "layers.py")
    for image in images():
        h, w = (-(-(s - 3) // 2) + 1 for s in image.shape[2:])  # of a Caffe pool
        y, x = (image.shape[2] - h) // 2, (image.shape[3] - w) // 2
        whole = image[:, :, y : y + h, x : x + w] * WEIGHTS.reshape(1, 3, 1, 1) + np.float32(1.5)
        outputs = net.forward(image)
        assert np.allclose(outputs["y"], 2 * whole, rtol=1e-6) and np.allclose(
            outputs["z"], whole.mean((2, 3), keepdims=True) + 1
        )
    assert net.graph.layer("w").custom.version == "2"
    assert REGISTRY.find("Weighted") is None  # this network's alone


def test_one_object_while_the_parameters_stay_and_another_after_surgery(folder: Path, classes: dict[str, Any]) -> None:
    cv.dnn_registerLayer("Crop", classes["CropLayer"])
    cv.dnn_registerLayer("Weighted", classes["Weighted"])
    net = chai.Net(folder / "net.prototxt", folder / "net.caffemodel", device="float")
    image = images()[0]
    before = net.forward(image)["y"]
    net.forward(images()[1])
    assert len(classes["seen"]) == 2
    net.params["w"][0][...] *= 2
    assert not np.allclose(net.forward(image)["y"], before)
    assert np.allclose(net.forward(image)["y"] - 3, 2 * (before - 3), rtol=1e-5)


def test_sizes_of_another_thread_wait_for_a_forward(folder: Path, classes: dict[str, Any]) -> None:
    """What getMemoryShapes keeps on self belongs to the forward that follows."""
    inside, asked = threading.Event(), threading.Event()

    class Slow(classes["CropLayer"]):
        def getMemoryShapes(self, inputs: Any) -> Any:  # noqa: N802
            if inside.is_set():
                asked.set()
            return super().getMemoryShapes(inputs)

        def forward(self, inputs: Any) -> Any:
            if not inside.is_set():
                inside.set()
                asked.wait(0.2)  # in vain, if the other thread's sizes wait
            return super().forward(inputs)

    cv.dnn_registerLayer("Crop", classes["CropLayer"])
    cv.dnn_registerLayer("Weighted", classes["Weighted"])
    files = folder / "net.prototxt", folder / "net.caffemodel"
    first, second = images()[:2]
    net = chai.Net(*files, device="float")
    wanted = [net.forward(image)["y"] for image in (first, second)]
    cv.dnn_registerLayer("Crop", Slow)
    net = chai.Net(*files, device="float")
    tops: list[Any] = []
    thread = threading.Thread(target=lambda: tops.append(net.forward(first)["y"]), daemon=True)
    thread.start()
    assert inside.wait(HANG)
    tops.append(net.forward(second)["y"])
    thread.join(HANG)
    assert sorted(f.shape for f in tops) == sorted(w.shape for w in wanted)
    assert all(any(np.array_equal(f, w) for w in wanted if w.shape == f.shape) for f in tops)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_during_a_forward_runs_the_class(folder: Path, classes: dict[str, Any]) -> None:
    """The thread of that forward is not there, and would never end it."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(classes["CropLayer"]):
        def forward(self, inputs: Any) -> Any:
            inside.set()
            go_on.wait(HANG)
            return super().forward(inputs)

    cv.dnn_registerLayer("Crop", Slow)
    cv.dnn_registerLayer("Weighted", classes["Weighted"])
    net = chai.Net(folder / "net.prototxt", folder / "net.caffemodel", device="float")
    thread = threading.Thread(target=net.forward, args=(images()[0],))
    thread.start()
    assert inside.wait(HANG)

    def again() -> bool:
        go_on.set()
        net.forward(images()[0])
        return True

    ended = in_child(again)
    go_on.set()
    thread.join(HANG)
    assert ended == 0


def test_on_an_overlay_and_compiled(tmp_path: Path, classes: dict[str, Any]) -> None:
    from chai.artifact.save import save

    cv.dnn_registerLayer("Crop", classes["CropLayer"])
    path = tmp_path / "net.prototxt"
    small = "pooling_param { pool: AVE kernel_size: 3 stride: 2 }"
    path.write_text(
        prototxt(
            f"c Convolution data -> c : {CONV}\np Pooling c -> p : {small}\nx Crop c p -> y : crop_param {{ offset: 2 }}"
        )
    )
    net = chai.Net(path, device="emulator", calibrate=DATA)
    top = net.forward(DATA)["y"]
    assert {s.name: s.engine for s in net.perf.steps if s.engine != "host"} == {"c": "fpga", "p": "fpga", "x": "custom"}
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator")
    assert np.array_equal(again.forward(DATA)["y"], top)
    assert classes["seen"][-1] == {"offset": 2}


def test_a_registered_class_replaces_a_built_in_until_it_is_unregistered(
    tmp_path: Path, classes: dict[str, Any]
) -> None:
    class Seven:
        def __init__(self, params: Any, blobs: Any) -> None:
            assert params == {"negative_slope": 0.5} and blobs == []

        def getMemoryShapes(self, inputs: Any) -> Any:  # noqa: N802
            return inputs

        def forward(self, inputs: Any) -> Any:
            return [np.full_like(inputs[0], 7)]

    path = tmp_path / "net.prototxt"
    path.write_text(prototxt("r ReLU data -> y : relu_param { negative_slope: 0.5 }"))
    cv.dnn_registerLayer("ReLU", type("Six", (Seven,), {}))
    cv.dnn_registerLayer("ReLU", Seven)
    assert (chai.Net(path, device="float").forward(DATA)["y"] == 7).all()
    cv.dnn_unregisterLayer("ReLU")
    assert np.array_equal(
        chai.Net(path, device="float").forward(DATA)["y"], np.where(DATA < 0, np.float32(0.5) * DATA, DATA)
    )
    with pytest.raises(chai.PluginError, match="there is no custom type 'ReLU'"):
        cv.dnn_unregisterLayer("ReLU")


@pytest.mark.parametrize(
    ("shapes", "result", "reason"),
    [
        ("[inputs[0]]", "[inputs[0], inputs[0]]", r"it returned 2x3x5x7 of float32, 2x3x5x7 of float32; expected"),
        ("[inputs[0]]", "[inputs[0][:, :1]]", "it returned 2x1x5x7 of float32; expected"),
        ("[inputs[0]]", "1 / 0", "ZeroDivisionError: division by zero"),
        ("[inputs[0], inputs[0]]", "inputs", "its shape rule returned 2 shapes for 1 top"),
        ("nothing", "inputs", "NameError: name 'nothing' is not defined"),
        ("3", "inputs", "its shape rule returned 3, expected one shape per top"),
    ],
)
def test_mistakes_are_errors_with_the_layers_name(tmp_path: Path, shapes: str, result: str, reason: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import chai\n@chai.custom.cvlayer('Mine')\nclass Mine:\n    def __init__(self, params, blobs): pass\n"
        f"    def getMemoryShapes(self, inputs):\n        return {shapes}\n"
        f"    def forward(self, inputs):\n        return {result}\n"
    )
    (tmp_path / "net.prototxt").write_text(prototxt("m Mine data -> y", SHAPE))
    with pytest.raises(chai.ChaiError, match=rf"layer 'm' .*{reason}"):
        chai.Net(tmp_path / "net.prototxt", device="float", custom=file).forward(DATA)


def test_a_class_that_is_none_for_opencv() -> None:
    with pytest.raises(chai.PluginError, match="custom type 'X': class object has no method getMemoryShapes"):
        chai.custom.cvlayer("X")(object)
    with pytest.raises(AttributeError, match=r"chai\.custom has no form 'cvlayers'"):
        _ = chai.custom.cvlayers
