"""Networks with shipped custom layers: GoogLeNet with the custom LRN, and YOLOv2."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.util.paths import resource
from tests.conftest import need_models, report
from tests.layers.common import close
from tests.reference import arrangement, elementwise, normalization, window, yolo

Array = np.ndarray


def test_googlenet_with_the_custom_lrn_says_what_it_says_with_its_own(tmp_path: Path) -> None:
    text = resource("prototxt", "googlenet.prototxt").read_text()
    text, count = re.subn(r'(type: "LRN"\n)', r"\1  user_defined_layer: true\n", text)
    assert count == 2
    (tmp_path / "net.prototxt").write_text(text)
    folder = need_models() / "googlenet"
    data = np.load(folder / "cases" / "camel" / "input.npy")
    wanted = chai.Net("googlenet", folder / "weights.caffemodel", device="float").forward(data)["prob"]
    net = chai.Net(tmp_path / "net.prototxt", folder / "weights.caffemodel", device="float")
    scores = net.forward(data)["prob"]
    assert [s.name for s in net.perf.custom] == ["pool1/norm1", "conv2/norm2"]
    assert scores.argmax() == 354
    assert np.abs(scores - wanted).max() < 1e-5


ANCHORS = [0.4, 0.5, 0.8, 1.2, 1.5, 0.9, 1.4, 2.2, 2.6, 2.4]
SHAPE = (2, 3, 64, 96)  # cells 2x3


@pytest.fixture(scope="module")
def data() -> Array:
    return np.random.default_rng(0).random(SHAPE).astype(np.float32)


def yolov2(**options: object) -> chai.Net:
    """The shipped network with parameters as training leaves them: no mean 0, no variance 1, every bias something."""
    net = chai.Net("yolov2_small", shapes={"data": SHAPE}, keep="all", **options)
    random = np.random.default_rng(1)
    for name, blobs in net.params.items():
        if name.startswith("bn"):
            blobs[0][:], blobs[1][:], blobs[2][:] = random.normal(0, 0.6, blobs[0].shape), random.uniform(1, 3), 2
        elif name.startswith("scale"):
            blobs[1][:] = random.normal(0, 0.3, blobs[1].shape)
    net.params["conv12"][1][:] = random.normal(0, 0.5, 40)
    return net


def oracle(x: Array, p: dict[str, list[Array]]) -> dict[str, Array]:
    """The network as its prototxt and the paper describe it, layer by layer."""

    def convolved(i: int, x: Array) -> Array:
        w = p[f"conv{i}"][0]
        x = window.convolution(x, w, None, (1, 1), (w.shape[2] // 2,) * 2)
        mean, variance, divisor = p[f"bn{i}"]
        x = normalization.batch_norm(x, mean, variance, divisor[0], 1e-5)
        return elementwise.relu(elementwise.scale(x, p[f"scale{i}"][0], 1, p[f"scale{i}"][1]), 0.1)

    def halved(x: Array) -> Array:
        return window.pooling(x, "MAX", (2, 2), (2, 2), (0, 0))

    blobs = {}
    x = halved(convolved(2, halved(convolved(1, x))))
    x = halved(convolved(5, convolved(4, convolved(3, x))))
    fine = convolved(7, halved(convolved(6, x)))
    coarse = convolved(9, convolved(8, halved(fine)))
    blobs["reorg1"] = yolo.reorg(convolved(10, fine), 2)
    x = convolved(11, arrangement.concat([blobs["reorg1"], coarse], 1))
    x = window.convolution(x, *p["conv12"], (1, 1), (0, 0))
    blobs["region1"] = yolo.region(x, 3, 4, 5, True)
    return blobs


def same_boxes(boxes: Array, region: Array) -> None:
    for image, rows in zip(boxes[:, 0], yolo.detections(region, 0.24, 0.45, 50, ANCHORS)):
        assert 1 < len(rows) < 50
        close(image[: len(rows)], np.array(rows))
        assert (image[len(rows) :] == -1).all()


def test_yolov2_in_float_equals_its_definition(data: Array) -> None:
    net, data = yolov2(device="float"), data[:1, :, :32]  # cells 1x3
    boxes = net.forward(data)["detection_out"]
    wanted = oracle(data, net.params)
    close(net.blobs["reorg1"], wanted["reorg1"])
    close(net.blobs["region1"], wanted["region1"])
    same_boxes(boxes, net.blobs["region1"])


def test_yolov2_on_the_emulator(data: Array) -> None:
    """Its custom layers compute what they are defined to from what the overlay gave them."""
    net, exact = yolov2(device="emulator"), yolov2(device="float")
    net.calibrate(data)  # else the first pass has what custom layers wrote while formats were measured, in float
    boxes, _ = net.forward(data)["detection_out"], exact.forward(data)
    assert np.array_equal(net.blobs["reorg1"], yolo.reorg(net.blobs["scale10"], 2))
    close(net.blobs["region1"], yolo.region(net.blobs["conv12"], 3, 4, 5, True))
    same_boxes(boxes, net.blobs["region1"])
    host = [layer.name for layer in net.graph.layers if layer.name in net.offload.partition.reasons]
    assert host == ["reorg1", "region1", "detection_out"]
    assert [s.name for s in net.perf.custom] == host
    for blob in ("conv12", "region1"):
        wanted = exact.blobs[blob].astype(np.float64)
        ratio = 10 * np.log10((wanted**2).sum() / ((net.blobs[blob] - wanted) ** 2).sum())
        report(f"yolov2_small: {blob} has {ratio:.1f} dB in 8 bits on the emulator")
        assert ratio > 20
