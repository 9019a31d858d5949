"""YOLOv3 and YOLOv4-tiny against OpenCV's reader of Darknet's files: the same weights as .cfg and .weights, and as prototxt."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZE = 64, 96
CLASSES = 3
ANCHORS = [(10, 14), (23, 27), (37, 58), (81, 82)]
MASKS = {16: (0, 1), 8: (2, 3)}  # by stride: of the coarse map, then of the fine one
SCORE, OVERLAP = 0.25, 0.4


class Network:
    """A small network in both languages; each convolution draws the next weights."""

    def __init__(self, scale: float) -> None:
        self.random = np.random.default_rng(11)
        self.cfg = f"[net]\nbatch=1\nwidth={SIZE[1]}\nheight={SIZE[0]}\nchannels=3\n"
        self.prototxt = f'name: "eye" input: "data" input_shape {{ dim: [1, 3, {SIZE[0]}, {SIZE[1]}] }}\n'
        self.values: list[Any] = []
        self.blobs: dict[str, list[Any]] = {}
        self.scale, self.count = scale, 0

    def convolution(
        self, bottom: str, top: str, inputs: int, outputs: int, size: int, stride: int, leaky: bool
    ) -> None:
        activation = "leaky" if leaky else "linear"
        self.cfg += (
            f"[convolutional]\nfilters={outputs}\nsize={size}\nstride={stride}\npad=1\nactivation={activation}\n"
        )
        weights = self.random.normal(0, 2 / np.sqrt(inputs * size * size), (outputs, inputs, size, size)).astype(
            np.float32
        )
        bias = self.random.normal(0, 1, outputs).astype(np.float32)
        self.values += [bias, weights]
        self.blobs[top] = [weights, bias]
        param = f"num_output: {outputs} kernel_size: {size} stride: {stride} pad: {size // 2}"
        wires = f'bottom: "{bottom}" top: "{top}" convolution_param {{ {param} }}'
        self.prototxt += f'layer {{ name: "{top}" type: "Convolution" {wires} }}\n'
        if leaky:
            param = "relu_param { negative_slope: 0.1 }"
            self.prototxt += f'layer {{ name: "{top}_relu" type: "ReLU" bottom: "{top}" top: "{top}" {param} }}\n'

    def yolo(self, stride: int) -> None:
        anchors = ", ".join(f"{w},{h}" for w, h in ANCHORS)
        mask = ",".join(map(str, MASKS[stride]))
        self.cfg += (
            f"[yolo]\nmask={mask}\nanchors={anchors}\nclasses={CLASSES}\nnum={len(ANCHORS)}\nscale_x_y={self.scale}\n"
        )

    def written(self, folder: Path) -> tuple[Path, Path]:
        cfg, weights = folder / "eye.cfg", folder / "eye.weights"
        cfg.write_text(self.cfg)
        head = struct.pack("<iiiQ", 0, 2, 0, 0)
        weights.write_bytes(head + b"".join(values.astype("<f4").tobytes() for values in self.values))
        (folder / "eye.prototxt").write_text(self.prototxt)
        return cfg, weights


def network(scale: float) -> Network:
    """Two scales: a coarse map, and a fine one of features that are upsampled and joined, as both networks have them."""
    net = Network(scale)
    outputs = 2 * (5 + CLASSES)
    net.convolution("data", "c1", 3, 8, 3, 2, True)
    net.convolution("c1", "c2", 8, 12, 3, 2, True)
    net.convolution("c2", "c3", 12, 16, 3, 2, True)  # layer 2
    net.convolution("c3", "c4", 16, 20, 3, 2, True)  # layer 3
    net.convolution("c4", "coarse", 20, outputs, 1, 1, False)
    net.yolo(16)
    net.cfg += "[route]\nlayers=3\n"
    net.convolution("c4", "c5", 20, 10, 1, 1, True)
    net.cfg += "[upsample]\nstride=2\n[route]\nlayers=-1,2\n"
    net.prototxt += (
        'layer { name: "up" type: "UpsampleDarknet" bottom: "c5" top: "up" upsample_darknet_param { stride: 2 } }\n'
    )
    net.prototxt += 'layer { name: "joined" type: "Concat" bottom: "up" bottom: "c3" top: "joined" }\n'
    net.convolution("joined", "fine", 26, outputs, 1, 1, False)
    net.yolo(8)
    return net


def of_opencv(cfg: Path, weights: Path, picture: Any) -> list[tuple[int, float, list[float]]]:
    """Class, score and corners of OpenCV's boxes after its own suppression, as shares of the input."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    if not hasattr(cv2.dnn, "readNetFromDarknet"):
        pytest.skip("this OpenCV reads no Darknet files: opencv-python-headless<5")
    net = cv2.dnn.readNetFromDarknet(str(cfg), str(weights))
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.setInput(picture)
    rows = np.concatenate(net.forward(net.getUnconnectedOutLayersNames()))
    best = rows[:, 5:].argmax(1)
    scores = rows[np.arange(len(rows)), 5 + best]
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], 1).astype(np.float64)
    detections = []
    for label in range(CLASSES):
        own = np.flatnonzero((best == label) & (scores > SCORE))
        pixels = boxes[own] * np.tile(SIZE[::-1], 2) * 1000  # OpenCV compares whole numbers of some versions
        kept = cv2.dnn.NMSBoxes(pixels.tolist(), scores[own].tolist(), SCORE, OVERLAP)
        for i in own[np.array(kept, int).reshape(-1)]:
            x, y, w, h = boxes[i]
            detections.append((label, float(scores[i]), [x, y, x + w, y + h]))
    return sorted(detections, key=lambda box: -box[1])


@pytest.mark.parametrize(("name", "scale"), [("yolov3", 1.0), ("yolov4-tiny", 1.05)])
def test_boxes_of_opencv(tmp_path: Path, name: str, scale: float) -> None:
    net = network(scale)
    picture = np.random.default_rng(1).random((1, 3, *SIZE), np.float32)
    expected = of_opencv(*net.written(tmp_path), picture)
    assert len(expected) > 10 and len({label for label, _, _ in expected}) == CLASSES
    anchors = [[x for i in MASKS[stride] for x in ANCHORS[i]] for stride in (8, 16)]
    head = {"head": name, "anchors": anchors, "threshold": SCORE, "iou": OVERLAP}
    with chai.Net(tmp_path / "eye.prototxt", device="float", detect=head) as eye:
        for layer, blobs in net.blobs.items():
            for own, values in zip(eye.params[layer], blobs):
                own[...] = values.reshape(own.shape)
        rows = eye.forward(picture)["detections"].reshape(-1, 7)
    assert [int(row[1]) for row in rows] == [label for label, _, _ in expected]
    assert np.allclose(rows[:, 2], [score for _, score, _ in expected], atol=1e-4)
    assert np.allclose(rows[:, 3:], [corners for _, _, corners in expected], atol=1e-4)
