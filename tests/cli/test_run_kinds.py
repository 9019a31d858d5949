"""chai run on detectors and maps: which boxes are listed and drawn, and how a map of one channel looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import cli
from chai.images import drawing
from chai.images.preprocess import whole
from tests.cli.conforms import checked
from tests.cli.test_evaluate_kinds import network
from tests.evaluate.test_outputs import CONV, SSD

CUT = 0.3  # score from which boxes are shown unless it is said


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(8).integers(0, 255, (30, 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def detector(tmp_path: Path) -> list[str]:
    return network(tmp_path, SSD.replace("keep_top_k: 20", "keep_top_k: 60"), 0.2)


def scores(detector: list[str], photo: Path) -> list[float]:
    """Of every box that the network gives, best first."""
    net = chai.Net(*detector, device="float", batch=1)
    rows = net.forward(chai.Preprocess(scale=0.02)(Image.open(photo), (1, 3, 6, 8))[None])["detection_out"].reshape(
        -1, 7
    )
    return sorted(inside(rows)[:, 2].tolist(), reverse=True)


def inside(rows: Any) -> Any:
    """The rows of boxes with an area in the picture: untrained weights give others, too."""
    corners = rows[:, 3:].clip(0, 1)
    return rows[(corners[:, :2] < corners[:, 2:]).all(1)]


def run(capsys: Any, net: list[str], photo: Path, *options: Any) -> str:
    args = [*net, "-i", photo, "--device", "float", "--scale", "0.02", "-q", *options]
    assert cli.main(["run", *map(str, args)]) == 0
    text: str = capsys.readouterr().out
    return text


def listed(text: str) -> list[float]:
    """Scores of the lines of boxes."""
    rows = [line.split() for line in text.splitlines()[2:-1]]
    return [float(row[0]) for row in rows if "." in row[0]]


def test_all_boxes_above_the_threshold_are_shown(detector: list[str], photo: Path, capsys: Any) -> None:
    every = scores(detector, photo)
    above = [score for score in every if score >= CUT]
    assert 5 < len(above) < len(every)
    text = run(capsys, detector, photo)
    assert listed(text) == pytest.approx(above, abs=1e-4)
    left = len(every) - len(above)
    assert f"  {len(above)} boxes of 0.3 or more, {left} below left out (--threshold)" in text.splitlines()
    lower = run(capsys, detector, photo, "--threshold", "0")
    assert listed(lower) == pytest.approx(every, abs=1e-4) and "left out" not in lower
    assert f"  0 boxes of 1 or more, {len(every)} below left out" in run(capsys, detector, photo, "--threshold", "1")


def test_top_cuts_boxes_only_when_it_is_typed(detector: list[str], photo: Path, capsys: Any) -> None:
    above = [score for score in scores(detector, photo) if score >= CUT]
    text = run(capsys, detector, photo, "--top", "2")
    assert listed(text) == pytest.approx(above[:2], abs=1e-4)
    assert f"  2 boxes of 0.3 or more, {len(above) - 2} more left out by --top" in text


def test_boxes_have_a_header_with_their_unit(detector: list[str], photo: Path, capsys: Any) -> None:
    head, first = run(capsys, detector, photo).splitlines()[2:4]
    assert head.endswith("  (pixels)")
    columns = [head.index(side) + len(side) for side in ("score", "left", "top", "right", "bottom")]
    assert all(
        first[end - 1].isdecimal() and not first[end : end + 1].strip() for end in columns
    )  # right-aligned below it
    none = run(capsys, detector, photo, "--threshold", "1")
    assert "score" not in none


def test_outputs_that_do_not_join_are_saved_for_each_pass(detector: list[str], photo: Path, capsys: Any) -> None:
    folder = photo.parent
    (folder / "photos").mkdir()
    shades = np.random.default_rng(9).integers(0, 255, (3, 6, 8, 3), np.uint8)
    for i, shade in enumerate(shades):
        Image.fromarray(shade).save(folder / "photos" / f"{i}.png")
    content = json.loads(run(capsys, detector, folder / "photos", "-o", folder / "out.npz", "--json"))
    assert len(content["images"]) == 3 and content["perf"] is None
    net = chai.Net(*detector, device="float", batch=1)
    rows = [net.forward(np.float32(0.02) * shade.transpose(2, 0, 1)[None, ::-1])["detection_out"] for shade in shades]
    assert len({len(boxes[0, 0]) for boxes in rows}) > 1
    with np.load(folder / "out.npz") as saved:
        assert saved.files == [f"detection_out[{i}]" for i in range(3)]
        assert all(np.allclose(saved[f"detection_out[{i}]"], boxes) for i, boxes in enumerate(rows))


def test_arrays_of_several_sizes_are_saved_under_any_name(tmp_path: Path, capsys: Any) -> None:
    text = 'input: "data" input_shape { dim: 1 dim: 2 dim: 3 dim: 4 }\n'
    text += 'layer { name: "whole" type: "Pooling" bottom: "data" top: "file"\n'
    text += "  pooling_param { pool: AVE global_pooling: true } }\n"
    text += 'layer { name: "twice" type: "Power" bottom: "data" top: "twice" power_param { scale: 2 } }\n'
    text += 'layer { name: "sum" type: "Reduction" bottom: "data" top: "sum" reduction_param { axis: 0 } }\n'
    (tmp_path / "net.prototxt").write_text(text)
    arrays = [np.random.default_rng(i).random((2, 3 + i, 4 + 2 * i), np.float32) for i in range(2)]
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
    images = ["-i", tmp_path / "0.npy", tmp_path / "1.npy", "-o", tmp_path / "out.npz"]
    args = [tmp_path / "net.prototxt", "--random-weights", "--device", "float", "-q", *images]
    assert cli.main(["run", *map(str, args)]) == 0
    assert "wrote" in capsys.readouterr().err
    with np.load(tmp_path / "out.npz") as saved:
        assert sorted(saved.files) == ["file", "sum", "twice[0]", "twice[1]"]
        assert np.allclose(saved["sum"], [array.sum() for array in arrays])
        assert np.allclose(saved["file"][..., 0, 0], [array.mean((1, 2)) for array in arrays])
        assert all(np.array_equal(saved[f"twice[{i}]"][0], 2 * array) for i, array in enumerate(arrays))


def test_json_has_classes_from_0_and_corners_in_pixels(detector: list[str], photo: Path, capsys: Any) -> None:
    """The photo is 40 pixels wide and 30 high, and all of it is the input; label 0 of SSD is the background."""
    answer = json.loads(run(capsys, detector, photo, "--json"))["images"][0]["outputs"]["detection_out"]
    net = chai.Net(*detector, device="float", batch=1)
    data = chai.Preprocess(scale=0.02)(Image.open(photo), (1, 3, 6, 8))[None]
    rows = inside(net.forward(data)["detection_out"].reshape(-1, 7))
    rows = rows[np.argsort(-rows[:, 2], kind="stable")]
    assert len(answer["boxes"]) == len(rows) > 5
    for box, (_, label, score, *corners) in zip(answer["boxes"], rows.tolist()):
        assert (box["index"], box["score"]) == (label - 1, pytest.approx(score))
        pixels = [min(max(x * size, 0), size) for x, size in zip(corners, (40, 30, 40, 30))]
        assert box["pixels"] == pytest.approx(pixels, abs=1e-4)


def test_what_a_run_prints_is_a_truth_for_evaluate(
    detector: list[str], photo: Path, tmp_path: Path, capsys: Any
) -> None:
    """Each side finds exactly its own boxes; what is printed for an array is in pixels of its input."""
    np.save(tmp_path / "array.npy", chai.Preprocess(scale=0.02)(Image.open(photo), (1, 3, 6, 8)))
    for file, scale in ((photo, ["--scale", "0.02"]), (tmp_path / "array.npy", [])):
        args = [*detector, "-i", file, "--device", "float", "-q", "--json", *scale]
        assert cli.main(["run", *map(str, args)]) == 0
        truth = tmp_path / "run.json"
        truth.write_text(capsys.readouterr().out)
        args = [*detector, "--images", file, "--jobs", "1", "-q", "--json", "--truth", truth, *scale]
        assert cli.main(["evaluate", *map(str, args)]) == 0
        content = json.loads(capsys.readouterr().out)
        assert content["known"] == 1 and content["float"]["map50"] == 1


def test_json_has_all_boxes_unless_a_threshold_is_typed(detector: list[str], photo: Path, capsys: Any) -> None:
    every = scores(detector, photo)
    for options, expected, more in (
        ([], every, 0),
        (["--threshold", CUT], None, 0),
        (["--top", 3], every[:3], len(every) - 3),
    ):
        content = json.loads(run(capsys, detector, photo, "--json", *options))
        checked(content, "chai.run/3")
        answer = content["images"][0]["outputs"]["detection_out"]
        expected = [score for score in every if score >= CUT] if expected is None else expected
        assert [box["score"] for box in answer["boxes"]] == pytest.approx(expected)
        assert (answer["more"], answer["below_threshold"]) == (more, len(every) - len(expected) - more)


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ([], CUT, None),
        (["--json"], CUT, None),
        (["--threshold", 0.4], 0.4, None),
        (["--top", 2], CUT, 2),
        (["--threshold", 0], 0, None),
    ],
)
def test_the_boxes_drawn_are_those_above_the_threshold(
    detector: list[str],
    photo: Path,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
    options: list[Any],
    least: float,
    most: int | None,
) -> None:
    drawn: list[Any] = []
    real = drawing.with_boxes
    monkeypatch.setattr(drawing, "with_boxes", lambda image, boxes: drawn.extend(boxes) or real(image, boxes))
    run(capsys, detector, photo, "--draw", tmp_path / "out.png", *options)
    expected = [score for score in scores(detector, photo) if score >= least][:most]
    assert [float(box.text.split()[-1]) for box in drawn] == pytest.approx(expected, abs=0.006)


def test_a_map_of_one_channel_is_an_overlay(photo: Path, tmp_path: Path, capsys: Any) -> None:
    """Half the image, half a scale from the least to the largest value, named below."""
    net = network(tmp_path, CONV.replace("num_output: 4", "num_output: 1"))
    text = run(capsys, net, photo, "--draw", tmp_path / "out.png")
    exact = chai.Net(*net, device="float", batch=1)
    values = exact.forward(chai.Preprocess(scale=0.02)(Image.open(photo), (1, 3, 6, 8))[None])["conv"][0, 0]
    low, high = (np.array(colour, float) for colour in (drawing.LOW, drawing.HIGH))
    with Image.open(tmp_path / "out.png") as image:
        drawn = np.asarray(image).astype(int)
    plain = np.asarray(Image.open(photo)).astype(int)
    share = (values - values.min()) / (values.max() - values.min())
    for y in range(30):
        for x in range(40):
            colour = low + share[y * 6 // 30, x * 8 // 40] * (high - low)
            assert np.abs(drawn[y, x] - (plain[y, x] + colour) / 2).max() <= 1.01
    below = drawn[30:]
    for end in (drawing.LOW, drawing.HIGH):
        assert (below == end).all(-1).sum() > 20
    assert "1x6x8" in text


@pytest.mark.parametrize(
    "values", [np.full((2, 3), 4.0), np.array([[np.nan, 1.0], [np.inf, 2.0]]), np.full((1, 2), np.nan)]
)
def test_flat_and_broken_maps_are_drawn(values: Any) -> None:
    plain = Image.new("RGB", (12, 8), (10, 20, 30))
    drawn = np.asarray(drawing.with_values(plain, values, whole(12, 8)))
    assert drawn.shape == (8, 12, 3) and (drawn[0, 0] == np.array([5, 26, 53])).all()  # the least
