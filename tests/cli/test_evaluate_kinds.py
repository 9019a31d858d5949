"""chai evaluate on detectors and maps, as users run it; most of them with a worker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import cli
from chai.artifact.save import save
from chai.evaluate.workers import processes
from chai.evaluate.workers.job import answer, release
from chai.parser.caffemodel import write_caffemodel
from tests.cli.conforms import checked
from tests.evaluate.test_outputs import CONV, FC, INPUT, SSD, layer

Evaluate = Callable[..., "dict[str, Any]"]
SIZE = 18, 10  # width and height of the images; the network's input is 8 x 6


class Here:
    """A Crew of one: this process. What travels is JSON, as it is to any other worker."""

    def __init__(self, job: Any, jobs: int, timeout: float) -> None:
        self.job, self.part = job.to_json(), None

    def room(self) -> int:
        return int(self.part is None)

    def give(self, part: Any) -> None:
        self.part = part

    def wait(self) -> list[Any]:
        part, self.part = self.part, None
        job, sent = json.loads(json.dumps([self.job, part]))
        return [(part, json.loads(json.dumps(answer(job, sent))))]

    def close(self) -> None:
        release()


def network(folder: Path, layers: str, scale: float = 1.0) -> list[str]:
    """NET WEIGHTS of these layers, with seeded weights."""
    path = folder / "net.prototxt"
    path.write_text(INPUT + layers)
    net = chai.Net(path, device="float")
    rng = np.random.default_rng(5)
    rows = [
        (x.name, x.type, [scale * rng.normal(size=b.shape).astype(np.float32) for b in x.blobs])
        for x in net.graph.layers
    ]
    write_caffemodel(folder / "net.caffemodel", "net", rows)
    return [str(path), str(folder / "net.caffemodel")]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Five images."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(6)
    for i in range(5):
        Image.fromarray(rng.integers(0, 255, (SIZE[1], SIZE[0], 3), np.uint8)).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch, photos: Path, capsys: Any) -> Iterator[Evaluate]:
    """The JSON of a run on the photos."""
    monkeypatch.setattr(processes, "Processes", Here)

    def run(net: list[str], *options: Any, code: int = 0) -> dict[str, Any]:
        args = ["evaluate", *net, "--images", str(photos), "--scale", "0.02", "--json", "-q", *map(str, options)]
        status = cli.main(args)
        out, err = capsys.readouterr()
        assert status == code, err
        return json.loads(out) if out else {"error": err}  # type: ignore[no-any-return]

    yield run
    release()


def outputs(net: list[str], photos: Path) -> list[Any]:
    """The first output of every photo in float, one at a time."""
    exact = chai.Net(*net, device="float", batch=1)
    way = chai.Preprocess(scale=0.02)
    return [
        exact.forward(way(Image.open(f), (1, 3, 6, 8))[None])[exact.outputs[0]].copy() for f in sorted(photos.iterdir())
    ]


def inside(rows: Any) -> Any:
    """The rows of boxes with an area in the picture: untrained weights give others, too."""
    corners = rows[:, 3:].clip(0, 1)
    return rows[(corners[:, :2] < corners[:, 2:]).all(1)]


def in_pixels(rows: Any) -> list[list[float]]:
    """Class and corners in pixels of the photos."""
    return [[int(r[1]), *(r[3:].clip(0, 1) * np.tile(SIZE, 2)).tolist()] for r in rows]


# -- boxes


def test_a_detector_is_measured_by_its_boxes(tmp_path: Path, photos: Path, evaluated: Evaluate) -> None:
    """In batches of any size, images without a box among them."""
    net = network(tmp_path, SSD)
    reports = [evaluated(net, "--batch", n, "--calibration", photos) for n in (1, 2, 5)]
    assert reports[0]["devices"] == reports[1]["devices"] == reports[2]["devices"]
    content = reports[0]
    checked(content, "chai.evaluate/3")
    assert (content["images"], content["threshold"]) == (5, 0.3)
    assert content["output"] == {
        "blob": "detection_out", "kind": "boxes", "logits": None, "decision": None, "classes": 2, "first_class": 1,
    }  # fmt: skip
    rows = [inside(value.reshape(-1, 7)) for value in outputs(net, photos)]
    sides = content["devices"]["emulator"]
    assert sides["expected"] == sum(int((r[:, 2] >= 0.3).sum()) for r in rows) > 5
    assert sides["matched"] <= min(sides["expected"], sides["boxes"])
    assert sides["precision"] == sides["matched"] / sides["boxes"] > 0.5
    assert sides["recall"] == sides["matched"] / sides["expected"] > 0.5
    assert "kl" not in sides and "map50" not in sides
    higher = evaluated(net, "--calibration", photos, "--threshold", "0.9")
    assert higher["threshold"] == 0.9
    assert higher["devices"]["emulator"]["expected"] == sum(int((r[:, 2] >= 0.9).sum()) for r in rows)


def test_boxes_against_the_truth(tmp_path: Path, photos: Path, evaluated: Evaluate) -> None:
    """What float finds is right where the truth says the same, in pixels of the image, and mAP is then 1."""
    net = network(tmp_path, SSD)
    rows = [inside(value.reshape(-1, 7)) for value in outputs(net, photos)]
    lines = [{"file": f"{i}.png", "boxes": in_pixels(r[r[:, 1] > 0])} for i, r in enumerate(rows)]
    truth = tmp_path / "truth.jsonl"
    truth.write_text("".join(json.dumps(line) + "\n" for line in lines[:4]))
    report = evaluated(net, "--truth", truth)
    assert (report["images"], report["known"]) == (5, 4)
    assert report["float"] == {"map50": pytest.approx(1.0)}
    assert 0.2 < report["devices"]["emulator"]["map50"] <= 1
    # each box of one image is shifted by its own size: then it is a miss and a wrong box
    for box in lines[0]["boxes"]:
        width = box[3] - box[1]
        box[1], box[3] = box[1] + 100 * width, box[3] + 100 * width
    truth.write_text("".join(json.dumps(line) + "\n" for line in lines[:4]))
    assert evaluated(net, "--truth", truth)["float"]["map50"] < 1


def test_a_face_detector_finds_what_caffe_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, models: Path
) -> None:
    """Real Caffe's surer boxes are the truth; of the others one is missing, as the JPEG decoder was another."""
    monkeypatch.setattr(processes, "Processes", Here)
    folder = models / "yuface_v1_ssd"
    with open(tmp_path / "truth.jsonl", "w") as file:
        for photo in sorted((folder / "images").iterdir()):
            rows = np.load(folder / "cases" / photo.stem / "ref.npz")["detection_out"].reshape(-1, 7)
            with Image.open(photo) as image:
                boxes = [[int(r[1]), *(r[3:] * np.tile(image.size, 2)).tolist()] for r in rows if r[2] >= 0.3]
            file.write(json.dumps({"file": photo.name, "boxes": boxes}) + "\n")
    net = [str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel")]
    options = ["--mean", "103.94,116.78,123.68", "--truth", str(tmp_path / "truth.jsonl"), "--json", "-q"]
    assert cli.main(["evaluate", *net, "--images", str(folder / "images"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["known"] == report["images"] == 2
    assert report["float"]["map50"] == pytest.approx(1.0)
    assert report["devices"]["emulator"]["map50"] > 0.9 and report["devices"]["emulator"]["recall"] > 0.9
    release()


def test_a_detector_that_finds_nothing(tmp_path: Path, evaluated: Evaluate) -> None:
    net = network(tmp_path, SSD.replace("confidence_threshold: 0.05", "confidence_threshold: 0.999"))
    report = evaluated(net)
    sides = report["devices"]["emulator"]
    assert (report["images"], sides["agree"], sides["boxes"], sides["precision"], sides["recall"]) == (
        5,
        5,
        0,
        None,
        None,
    )


def test_numbers_of_boxes_do_not_depend_on_workers_or_journals(chai_command: Any, tmp_path: Path, photos: Path) -> None:
    """Real workers; the second journal begins with half of the first one's lines."""
    net = network(tmp_path, SSD)
    options = ["--images", photos, "--scale", "0.02", "--json", "--batch", "2", "-q", "--calibration", photos]
    one = chai_command("evaluate", *net, *options, "--jobs", "1", "--journal", "a.jsonl")
    assert one.returncode == 0, one.stderr
    two = chai_command("evaluate", *net, *options, "--jobs", "2")
    assert two.stdout == one.stdout
    lines = (tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b.jsonl").write_text("".join(lines[:3]))
    resumed = chai_command("evaluate", *net, *options, "--journal", "b.jsonl", "--threshold", "0.3")
    assert resumed.stdout == one.stdout


# -- maps


def test_a_map_is_measured_by_its_pixels(tmp_path: Path, photos: Path, evaluated: Evaluate, capsys: Any) -> None:
    net = network(tmp_path, CONV)
    truth = tmp_path / "masks"
    truth.mkdir()
    expected = [value[0].argmax(0) for value in outputs(net, photos)]
    for i, classes in enumerate(expected[:3]):  # each pixel of the photo takes the map's
        y, x = (np.arange(SIZE[1]) + 0.5) * 6 / SIZE[1], (np.arange(SIZE[0]) + 0.5) * 8 / SIZE[0]
        pixels = classes[np.ix_(y.astype(int), x.astype(int))].astype(np.uint8)
        pixels[0, :4] = 255
        Image.fromarray(pixels).save(truth / f"{i}.png")
    report = evaluated(net, "--truth", truth, "--batch", "2")
    assert report["output"]["kind"] == "map" and (report["images"], report["known"]) == (5, 3)
    assert report["float"] == {"pixel_accuracy": 1.0, "mean_iou_truth": 1.0}
    sides = report["devices"]["emulator"]
    assert 0.8 < sides["pixel_agreement"] <= 1 and 0.5 < sides["mean_iou"] <= 1
    assert sides["kl"] is None and sides["logits_sqnr_db"] > 20
    assert 0.8 < sides["pixel_accuracy"] <= 1
    wrong = Image.open(truth / "0.png").point(lambda v: v if v == 255 else (v + 1) % 4)
    wrong.save(truth / "0.png")
    assert evaluated(net, "--truth", truth)["float"]["pixel_accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image.new("L", (8, 6)), "is 8x6, the image 18x10 pixels"),
        (Image.new("L", SIZE, 4), "has class 4, the network 4 classes"),
        (Image.new("RGB", SIZE), "this PNG has pixels of mode RGB, expected class indices"),
    ],
)
def test_a_bad_map_of_the_truth_concerns_its_image_only(
    tmp_path: Path, evaluated: Evaluate, image: Image.Image, words: str
) -> None:
    net = network(tmp_path, CONV)
    (tmp_path / "masks").mkdir()
    image.save(tmp_path / "masks" / "2.png")
    report = evaluated(net, "--truth", tmp_path / "masks", code=65)
    (failed,) = report["failed"]
    assert report["images"] == 4 and failed["file"].endswith("2.png") and words in failed["error"]


def test_a_journal_of_maps_belongs_to_its_truth(tmp_path: Path, evaluated: Evaluate) -> None:
    net = network(tmp_path, CONV)
    (tmp_path / "masks").mkdir()
    Image.new("L", SIZE, 1).save(tmp_path / "masks" / "2.png")
    options = ["--truth", tmp_path / "masks", "--journal", tmp_path / "j.jsonl"]
    assert evaluated(net, *options) == evaluated(net, *options)
    Image.new("L", SIZE, 2).save(tmp_path / "masks" / "2.png")
    assert "is of another run: its true maps differ" in evaluated(net, *options, code=2)["error"]


# -- what an output is


def test_kl_is_null_where_the_output_is_no_softmax(tmp_path: Path, evaluated: Evaluate) -> None:
    assert evaluated(network(tmp_path, FC))["devices"]["emulator"]["kl"] is None
    layers = CONV + FC.replace('"data"', '"conv"') + layer("Softmax", "fc", "prob")
    soft = evaluated(network(tmp_path, layers, 0.1))["devices"]["emulator"]
    assert 0 < soft["kl"] < 0.1 and soft["logits_sqnr_db"] < 100


def test_an_output_is_named_with_its_kind(tmp_path: Path, evaluated: Evaluate) -> None:
    net = network(tmp_path, CONV + FC)
    assert "one output of class scores, boxes or a map is needed" in evaluated(net, code=2)["error"]
    for choice in ("fc=scores", "conv=map", "conv=scores"):  # the last: as if each pixel's channel were a class
        report = evaluated(net, "--output", choice)
        assert f"{report['output']['blob']}={report['output']['kind']}" == choice
    assert report["output"]["classes"] == 4 * 6 * 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--output", "fc"], "--output fc: expected BLOB=scores|boxes|map"),
        (["--output", "cf=map"], "has no output 'cf'"),
        (["--output", "fc=boxes"], "its shape is 5x5, expected rows of 7 numbers"),
        (["--threshold", "0.5"], "--threshold does nothing where the output is no boxes: 'fc' is of kind scores"),
        (["--threshold", "2"], "expected a number from 0 to 1"),
        (["--threshold", "nan"], "expected a number from 0 to 1"),
        (["--truth", "."], "expected a file, the output is scores"),
        (["--truth", "other.txt"], "--truth other.txt has no answer for any of the 5 images"),
    ],
)
def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluated: Evaluate, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("7.png 1\n")
    assert words in evaluated(network(tmp_path, FC), *options, code=2)["error"]


def test_the_kind_is_printed(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(processes, "Processes", Here)
    for layers, line in (
        (SSD, "output detection_out: boxes, 2 classes"),
        (CONV, "output conv: a map, 4 classes"),
        (FC, "output fc: class scores, 5 classes"),
    ):
        assert cli.main(["evaluate", *network(tmp_path, layers), "--images", str(photos), "--scale", "0.02"]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[1] == line and max(map(len, shown[1:])) <= 80


@pytest.mark.parametrize(
    ("layers", "blob", "kind"), [(SSD, "detection_out", "boxes"), (CONV, "conv", "map"), (FC, "fc", "scores")]
)
def test_a_compiled_network_of_every_kind(
    tmp_path: Path, photos: Path, evaluated: Evaluate, layers: str, blob: str, kind: str
) -> None:
    """Against float, what the prototxt with the same formats gives."""
    net = network(tmp_path, layers)
    way = chai.Preprocess(scale=0.02)
    fixed = chai.Net(*net, calibrate=np.stack([way(Image.open(f), (1, 3, 6, 8)) for f in sorted(photos.iterdir())]))
    save(fixed, tmp_path / "net.chai", fixed.card)
    report = evaluated([str(tmp_path / "net.chai")], "--reference", *net)
    assert (report["output"]["blob"], report["output"]["kind"]) == (blob, kind)
    assert report["devices"] == evaluated(net, "--calibration", photos)["devices"]
    twice = evaluated([str(tmp_path / "net.chai")], "--device", "emulator", "--device", "null")
    assert twice["reference"] == "emulator" and twice["float"] is None and "null" in twice["devices"]
