"""A detector judged by its boxes: the cost is what a loop over the boxes of both networks gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UsageError
from chai.images import files as images
from chai.quantizer import quantize
from chai.quantizer.boxes import counted, disagreement
from chai.quantizer.recipe import Recipe
from chai.util.data.dataclass_io import plain
from chai.util.paths import resource
from tests.detect.shipped import NETWORK, overlap
from tests.onnx import common as onnx

PICTURES = 18
A, B, C = [0.1, 0.1, 0.5, 0.3], [0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9]


def rows(*boxes: tuple[int, int, float, list[float]]) -> Any:
    """Rows of boxes (image, class, score, corners), as a layer writes them."""
    each = [[image, label, score, *corners] for image, label, score, corners in boxes]
    return np.array(each or [[0, *[-1] * 6]], np.float32).reshape(1, 1, -1, 7)


@pytest.mark.parametrize(
    ("exact", "fixed", "costs", "counts"),
    [
        ([(0, 3, 0.8, A)], [(0, 3, 0.8, A)], [0, 0], (1, 1, 1)),
        ([(0, 3, 0.8, A)], [(0, 4, 0.8, A)], [1, 0], (1, 1, 0)),  # another class
        ([(0, 3, 0.8, A)], [], [1, 0], (1, 0, 0)),
        ([], [], [0, 0], (0, 0, 0)),
        ([(0, 3, 0.8, A)], [(0, 3, 0.8, B)], [0.5, 0], (1, 1, 1)),  # half of it
        ([(1, 3, 0.8, A)], [(1, 3, 0.4, A)], [0, 1 - 2 * 0.4 / 1.2], (1, 1, 1)),  # another score
        ([(0, 3, 0.9, A), (0, 3, 0.3, C)], [(0, 3, 0.9, A)], [0.3 / 2.1, 0], (2, 1, 1)),  # a weak one is not found
        ([(0, 3, 0.9, A)], [(0, 3, 0.9, A), (0, 3, 0.6, A)], [0.6 / 2.4, 0], (1, 2, 1)),  # one too many
    ],
)
def test_cost_of_boxes(exact: Any, fixed: Any, costs: list[float], counts: tuple[int, int, int]) -> None:
    np.testing.assert_allclose(disagreement(rows(*exact), rows(*fixed), 2), costs, atol=1e-6)
    np.testing.assert_allclose(disagreement(rows(*fixed), rows(*exact), 2), costs, atol=1e-6)
    assert counted([(rows(*exact), rows(*fixed), 2)]) == counts


def by_a_loop(exact: Any, fixed: Any) -> float:
    """The cost of a batch of one."""
    common, free = 0.0, [row for row in exact.reshape(-1, 7).tolist() if row[1] >= 0]
    others = sorted((row for row in fixed.reshape(-1, 7).tolist() if row[1] >= 0), key=lambda row: -row[2])
    weight = sum(row[2] for row in (*free, *others))
    for _, label, score, *corners in others:
        partners = [(overlap(corners, row[3:]), i) for i, row in enumerate(free) if row[1] == label]
        if partners and max(partners)[0] >= 0.5:
            share, i = max(partners)
            common += share * min(score, free.pop(i)[2])
    return 1 - 2 * common / weight if weight else 0.0


@pytest.fixture(scope="module")
def pictures() -> Any:
    with chai.Net(NETWORK, device="float") as net:
        return net.preprocess(images.find([resource("prototxt", "digits_scenes")])[:PICTURES])


def test_the_shipped_detector(tmp_path: Path, pictures: Any) -> None:
    """In 6 bits, where formats matter: the recipe whose boxes are nearest to float's is chosen, and the cost is theirs."""
    prototxt = resource("prototxt", f"{NETWORK}.prototxt")
    batches = [pictures[i : i + 5] for i in range(0, PICTURES, 5)]  # the last is smaller
    options: dict[str, Any] = {"bits": 6, "effort": "fast"}
    result = quantize(
        prototxt, prototxt.with_suffix(".caffemodel"), batches, tmp_path / "q.prototxt", judge="boxes", **options
    )
    boxes = result.built.boxes
    assert boxes is not None and boxes.in_float > PICTURES
    assert result.how["judge"] == "boxes"
    assert result.cost < result.plain
    with (
        chai.Net(prototxt, prototxt.with_suffix(".caffemodel"), "float") as exact,
        chai.Net(result.prototxt, result.caffemodel, detect=plain(exact.card.detect)) as fixed,
    ):
        pairs = [
            (exact.forward(one[None])["detections"].copy(), fixed.forward(one[None])["detections"]) for one in pictures
        ]
        costs = [by_a_loop(*pair) for pair in pairs]
        engines = {name: step.engine for step in fixed.perf.steps for name in step.layers}
    assert engines == {name: "host" if name == "detections" else "fpga" for name in engines}
    assert result.cost == pytest.approx(np.mean(costs), abs=1e-6)
    assert 0 < result.cost < 0.5
    in_codes = quantize(prototxt, prototxt.with_suffix(".caffemodel"), batches, tmp_path / "c.prototxt", **options)
    assert in_codes.built.boxes is None and in_codes.plain != result.plain


def test_networks_without_boxes_are_refused(tmp_path: Path, pictures: Any) -> None:
    digits = resource("prototxt", "digits.prototxt")
    ones = [np.ones((2, 1, 8, 8), np.float32)]
    with pytest.raises(UsageError, match="judge boxes: digits-inception has no output of boxes"):
        quantize(digits, digits.with_suffix(".caffemodel"), ones, tmp_path / "q.prototxt", judge="boxes")
    detector = resource("prototxt", f"{NETWORK}.prototxt")
    with pytest.raises(UsageError, match="finds no box in float on the calibration images"):
        quantize(
            detector, detector.with_suffix(".caffemodel"), [np.zeros_like(pictures[:2])], tmp_path / "q.prototxt",
            judge="boxes", recipe=Recipe(),
        )  # fmt: skip
    with pytest.raises(UsageError, match="judge 'mAP': expected one of outputs, boxes"):
        quantize(digits, digits.with_suffix(".caffemodel"), ones, tmp_path / "q.prototxt", judge="mAP")
    assert list(tmp_path.iterdir()) == []


def test_a_detector_as_onnx(tmp_path: Path) -> None:
    """Halves of channels, which no Task writes, and a head that the model does not have: as in YOLOv8's files."""
    random = np.random.default_rng(2)
    weights = {
        "w0": random.normal(0, 0.3, (32, 3, 3, 3)), "w1": random.normal(0, 0.1, (16, 16, 3, 3)),
        "w2": random.normal(0, 0.2, (4 + 5, 32, 1, 1)), "b2": np.array([1.5] * 4 + [-1.0] * 5),
    }  # fmt: skip
    nodes = [
        onnx.node("Conv", ["x", "w0"], ["a"], "first", kernel_shape=[3, 3], strides=[8, 8], pads=[1, 1, 1, 1]),
        onnx.node("Split", ["a"], ["left", "right"], "halves", axis=1),
        onnx.node("Conv", ["right", "w1"], ["deep"], "second", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        onnx.node("Concat", ["left", "deep"], ["both"], "both", axis=1),
        onnx.node("Conv", ["both", "w2", "b2"], ["maps"], "maps", kernel_shape=[1, 1]),
    ]
    floats = {name: value.astype(np.float32) for name, value in weights.items()}
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx.model(nodes, {"x": (1, 3, 32, 48)}, ["maps"], floats))
    path.with_suffix(".toml").write_text('[detect]\nhead = "yolov8"\nreg_max = 1\n')
    data = random.normal(size=(6, 3, 32, 48)).astype(np.float32)
    result = quantize(path, None, [data[:4], data[4:]], tmp_path / "q.formats.json", judge="boxes", effort="fast")
    with chai.Net(path, None, "float") as exact, chai.Net(path, tmp_path / "q.formats.json") as fixed:
        pairs = [
            (exact.forward(one[None])["detections"].copy(), fixed.forward(one[None])["detections"]) for one in data
        ]
        engines = {name: step.engine for step in fixed.perf.steps for name in step.layers}
    assert engines["second"] == engines["maps"] == "fpga"
    assert result.cost == pytest.approx(np.mean([by_a_loop(*pair) for pair in pairs]), abs=1e-6)
    assert result.built.boxes is not None and result.built.boxes.same > 20
