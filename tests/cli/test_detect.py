"""A detector from its file and a card of few lines, or options, to boxes: run, --draw, --json, evaluate, show and compile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import cli
from chai.evaluate.workers import processes
from chai.evaluate.workers.job import release
from chai.images.boxes import detections
from chai.images.preprocess import Preprocess
from tests.cli.conforms import checked
from tests.cli.test_evaluate_kinds import Here
from tests.detect.common import ANCHORS, CLASSES, SIZE, maps, written

LABELS = ["cat", "dog", "owl"]
CARD = """labels = ["cat", "dog", "owl"]
[preprocess]
resize = "letterbox"
channels = "RGB"
scale = 0.05
[detect]
head = "yolov8"
"""
WAY = Preprocess(resize="letterbox", channels="RGB", scale=0.05)
PICTURE = 75, 110  # width and height


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    pixels = np.random.default_rng(8).integers(0, 255, (PICTURE[1], PICTURE[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def detector(folder: Path, card: str = CARD, channels: int = 64 + CLASSES) -> Path:
    """A prototxt with seeded weights in the file beside it."""
    from chai.parser.caffemodel import write_caffemodel

    path = written(folder, maps(channels))
    with chai.Net(path, device="float") as net:
        for _, bias in net.params.values():
            bias[64:] -= 3  # of classes, if distances are before them: few scores are high
        layers = [(name, net.graph.layer(name).type, [*blobs]) for name, blobs in net.params.items()]
        write_caffemodel(path.with_suffix(".caffemodel"), "eye", layers)
    path.with_suffix(".toml").write_text(card)
    return path


def expected(path: Path, photo: Path, detect: Any = None) -> Any:
    """Boxes in pixels of the photo, from Python."""
    with (
        chai.Net(path, path.with_suffix(".caffemodel"), device="float", detect=detect) as net,
        Image.open(photo) as image,
    ):
        data = WAY(image, (1, 3, *SIZE))[None]
        return detections(net.forward(data)["detections"], {0: WAY.window(image.size, (1, 3, *SIZE))})


def ran(capsys: Any, *args: Any, code: int = 0) -> str:
    assert cli.main([*map(str, args), "-q"]) == code, capsys.readouterr().err
    out: str = capsys.readouterr().out
    return out


def test_a_card_is_all_that_run_needs(tmp_path: Path, photo: Path, capsys: Any) -> None:
    """Boxes are in pixels of the photo and inside it; each is drawn where it is listed."""
    path = detector(tmp_path)
    wanted = expected(path, photo)
    out = tmp_path / "out.png"
    content = json.loads(ran(capsys, "run", path, "-i", photo, "--device", "float", "--json", "--draw", out))
    checked(content, "chai.run/3")
    assert "letterbox" in content["preprocess"]
    boxes = content["images"][0]["outputs"]["detections"]["boxes"]
    assert len(boxes) == len(wanted) > 5
    for box, row in zip(boxes, wanted.tolist()):
        assert (box["index"], box["label"]) == (row[1], LABELS[int(row[1])])
        assert [box["score"], *box["pixels"]] == pytest.approx(row[2:], abs=1e-3)
        assert 0 <= box["pixels"][0] < box["pixels"][2] <= PICTURE[0] and box["pixels"][3] <= PICTURE[1]
    with Image.open(out) as drawn, Image.open(photo) as plain:
        framed, pixels = (np.asarray(picture.convert("RGB")) for picture in (drawn, plain))
    assert framed.shape == pixels.shape
    edges = [
        (round((box["pixels"][1] + box["pixels"][3]) / 2), round(box["pixels"][0]))
        for box in boxes
        if box["score"] > 0.5
    ]
    assert edges and all((framed[y, x] != pixels[y, x]).any() for y, x in edges)


@pytest.mark.parametrize("source", ["photo.png", "photos"])
def test_formats_from_arrays_of_another_size(
    tmp_path: Path, photo: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Pictures have the network's own size all the same: alone, as frames of a video, and in evaluate."""
    monkeypatch.setattr("chai.cli.evaluate.Processes", Here)
    monkeypatch.chdir(tmp_path)
    path, array = detector(tmp_path), np.random.default_rng(3).normal(size=(3, 32, 64)).astype(np.float32) * 5
    np.save("sample.npy", array)
    Path("photos").mkdir()
    if source == "photos":
        photo.rename("photos/photo.png")
    with chai.Net(path, path.with_suffix(".caffemodel")) as net, Image.open(next(Path().rglob("photo.png"))) as image:
        net.calibrate(array[None])
        rows = net.forward(WAY(image, (1, 3, *SIZE))[None])["detections"]
        wanted = detections(rows, {0: WAY.window(image.size, (1, 3, *SIZE))})
    live = ["--live", "-o", "out.mjpeg"] if source == "photos" else []
    content = json.loads(ran(capsys, "run", path, "-i", source, "--calibration", "sample.npy", "--json", *live))
    (shown,) = content["frames" if live else "images"]
    boxes = shown["outputs"]["detections"]["boxes"]
    assert [box["score"] for box in boxes] == pytest.approx(wanted[:, 2].tolist(), abs=1e-4) and len(boxes) > 5
    report = json.loads(
        ran(capsys, "evaluate", path, "--images", source, "--calibration", "sample.npy", "--json", "--threshold", 0)
    )
    assert report["devices"]["emulator"]["boxes"] >= len(boxes)


def test_pictures_after_an_array_of_another_size(
    tmp_path: Path, photo: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chai.cli.evaluate.Processes", Here)
    path, array = detector(tmp_path), tmp_path / "a.npy"
    np.save(array, np.random.default_rng(3).normal(size=(3, 32, 64)).astype(np.float32))
    options = [photo, "--calibration", photo, "--json"]
    alone = json.loads(ran(capsys, "run", path, "-i", *options))["images"]
    after = json.loads(ran(capsys, "run", path, "-i", array, *options))["images"]
    assert after[1] == alone[0] and len(after) == 2
    alone = json.loads(ran(capsys, "evaluate", path, "--batch", 1, "--images", *options))
    after = json.loads(ran(capsys, "evaluate", path, "--batch", 1, "--images", array, *options))
    assert after["images"] == 2 and after["devices"]["emulator"]["boxes"] >= alone["devices"]["emulator"]["boxes"]


@pytest.mark.parametrize(("names", "warned"), [(2, True), (3, False), (4, True)])
def test_labels_of_other_classes_are_warned_of(
    tmp_path: Path, photo: Path, capsys: Any, names: int, warned: bool
) -> None:
    """A head has no background, whose name would be a fourth."""
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(LABELS[i % 3] for i in range(names)))
    args = ["run", detector(tmp_path), "-i", photo, "--device", "float", "--labels", labels, "-q"]
    assert cli.main([*map(str, args)]) == 0
    told = capsys.readouterr().err
    assert (f"warning: {labels} has {names} labels, detections has 3 classes: " in told) == warned


def test_options_stand_for_the_card(tmp_path: Path, photo: Path, capsys: Any) -> None:
    path = detector(tmp_path, "")
    options = ["--detect", "yolov8", "--resize", "letterbox", "--channels", "RGB", "--scale", 0.05, "--device", "float"]
    wanted = expected(path, photo, "yolov8")
    content = json.loads(ran(capsys, "run", path, "-i", photo, "--json", *options))
    boxes = content["images"][0]["outputs"]["detections"]["boxes"]
    assert [box["score"] for box in boxes] == pytest.approx(wanted[:, 2].tolist(), abs=1e-4)
    text = ran(capsys, "run", path, "-i", photo, "--labels", "coco", *options)
    assert any(line.split()[-1] in ("person", "bicycle", "car") for line in text.splitlines() if "0." in line)


def test_anchors_are_an_option(tmp_path: Path, photo: Path, capsys: Any) -> None:
    path = detector(tmp_path, CARD.partition("[detect]")[0], 2 * (5 + CLASSES))
    anchors = [[x for pair in row for x in pair] for row in ANCHORS]
    wanted = expected(path, photo, {"head": "yolov5", "anchors": anchors})
    texts = [",".join(map(str, row)) for row in anchors]
    args = ["run", path, "-i", photo, "--json", "--device", "float", "--detect", "yolov5", "--anchors", *texts]
    boxes = json.loads(ran(capsys, *args))["images"][0]["outputs"]["detections"]["boxes"]
    assert [box["index"] for box in boxes] == wanted[:, 1].tolist() and len(boxes) > 5
    assert cli.main([*map(str, args[:-5]), "--anchors", *texts]) == 2  # of no head
    assert "detect: head is missing" in capsys.readouterr().err


@pytest.mark.parametrize("threshold", [0.05, 0.25, 0.6])
def test_a_threshold_is_the_heads_too(tmp_path: Path, photo: Path, capsys: Any, threshold: float) -> None:
    """Boxes below the head's own threshold are there when a lower one is typed."""
    path = detector(tmp_path)
    wanted = expected(path, photo, {"threshold": threshold})
    text = ran(capsys, "run", path, "-i", photo, "--device", "float", "--threshold", threshold, "--json")
    boxes = json.loads(text)["images"][0]["outputs"]["detections"]["boxes"]
    assert [box["score"] for box in boxes] == pytest.approx(wanted[:, 2].tolist(), abs=1e-4)


@pytest.mark.parametrize("threshold", [0.05, 0.25, 0.6])
def test_a_threshold_is_the_heads_in_a_video_too(tmp_path: Path, photo: Path, capsys: Any, threshold: float) -> None:
    path, out = detector(tmp_path), tmp_path / "out.mjpeg"
    wanted = expected(path, photo, {"threshold": threshold})
    (tmp_path / "clip").mkdir()
    photo.rename(tmp_path / "clip" / photo.name)
    args = ("-i", tmp_path / "clip", "-o", out, "--device", "float", "--threshold", threshold, "--json", "-q")
    boxes = json.loads(ran(capsys, "run", path, *args))["frames"][0]["outputs"]["detections"]["boxes"]
    assert [box["score"] for box in boxes] == pytest.approx(wanted[:, 2].tolist(), abs=1e-4)


def test_no_box(tmp_path: Path, photo: Path, capsys: Any) -> None:
    path = detector(tmp_path, CARD + "threshold = 1.0\n")
    assert "  no boxes" in ran(capsys, "run", path, "-i", photo, "--device", "float").splitlines()


def test_show_and_compile(tmp_path: Path, photo: Path, capsys: Any) -> None:
    path = detector(tmp_path)
    rows = {row["name"]: row for row in json.loads(ran(capsys, "show", path, "--json"))["layers"]}
    assert rows["detections"]["type"] == "AnchorFreeDetectionOutput"
    compiled = tmp_path / "eye.chai"
    ran(capsys, "compile", path, path.with_suffix(".caffemodel"), "--calibration", tmp_path, "-o", compiled)
    fixed = json.loads(ran(capsys, "run", compiled, "-i", photo, "--json"))["images"][0]["outputs"]["detections"][
        "boxes"
    ]
    assert cli.main(["run", str(compiled), "-i", str(photo), "--threshold", "0.1"]) == 0
    assert "note: eye has boxes whose scores exceed 0.25 alone" in capsys.readouterr().err
    args = ["run", path, "-i", photo, "--json", "--calibration", tmp_path]
    assert fixed == json.loads(ran(capsys, *args))["images"][0]["outputs"]["detections"]["boxes"] != []


# -- evaluate


@pytest.fixture
def _here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "Processes", Here)
    yield
    release()


@pytest.mark.usefixtures("_here")
def test_coco_truth(tmp_path: Path, photo: Path, capsys: Any) -> None:
    """Where the truth is what float finds, COCO's figures are 1, also of boxes whose scores are far below what run shows."""
    path = detector(tmp_path)
    boxes = expected(path, photo, {"threshold": 0.001, "iou": 0.7})[:, 1:].tolist()
    assert min(box[1] for box in boxes) < 0.2 and len(boxes) > 20
    annotations = [
        {"image_id": 1, "category_id": 10 + int(label), "bbox": [x0, y0, x1 - x0, y1 - y0], "area": 2000}
        for label, _, x0, y0, x1, y1 in boxes
    ]
    categories = [{"id": 10 + i, "name": name} for i, name in enumerate(LABELS)]
    truth = tmp_path / "coco.json"
    content = {"images": [{"id": 1, "file_name": photo.name}], "annotations": annotations, "categories": categories}
    truth.write_text(json.dumps(content))
    args = ["evaluate", path, "--images", photo, "--truth", truth]
    report = json.loads(ran(capsys, *args, "--json"))
    checked(report, "chai.evaluate/3")
    side = report["float"]
    assert side["coco_map"] == side["coco_map50"] == side["coco_map_medium"] == pytest.approx(1)
    assert side["coco_map_small"] is None and "map50" not in side
    assert [one["label"] for one in side["coco_classes"]] == LABELS
    assert 0 < report["devices"]["emulator"]["coco_map50"] <= 1
    text = ran(capsys, *args)
    assert "mAP@0.5:0.95 (COCO)" in text and "  owl" in text
    (tmp_path / "other.txt").write_text("cat\ndog\ncow\n")
    assert cli.main([*map(str, args), "--labels", str(tmp_path / "other.txt")]) == 2
    assert "the network has no class 'owl'" in capsys.readouterr().err
