"""The detector that chai ships: where its layers run, how good it is, and what its files take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.cli import main
from chai.images import files as images
from chai.images.boxes import detections
from chai.images.preprocess import whole
from chai.util.paths import resource
from tests.conftest import ROOT
from tests.detect.shipped import CONVOLUTIONS, NETWORK
from tests.evaluate.test_coco import of_pycocotools
from tools.digit_scenes import HEIGHT, WIDTH

SCENES = resource("prototxt", "digits_scenes")
TRUTH = SCENES / "instances.json"
PAGE = (ROOT / "docs" / "detect.md").read_text()
LOW = 0.001  # scores of boxes that count for mean precisions exceed it
FIGURES = "map", "map50", "map75", "map_small"


def test_every_layer_before_the_head_is_on_the_overlay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", NETWORK, "--overlay", "pynq-z2", "--json"]) == 0
    engines = {layer["name"]: layer["engine"] for layer in json.loads(capsys.readouterr().out)["layers"]}
    assert engines.pop("data") == "input"
    assert engines.pop("detections") == "host"
    assert engines.keys() >= CONVOLUTIONS
    assert set(engines.values()) == {"fpga"}


def test_its_files_are_small() -> None:
    files = [resource("prototxt", f"{NETWORK}{suffix}") for suffix in (".prototxt", ".caffemodel", ".toml")]
    assert sum(file.stat().st_size for file in files) < 300_000
    assert sum(file.stat().st_size for file in SCENES.iterdir()) < 100_000


@pytest.fixture(scope="module")
def evaluation() -> Any:
    """What ``chai evaluate`` says of float and emulator."""
    from io import StringIO

    with pytest.MonkeyPatch.context() as patch:
        out = StringIO()
        patch.setattr("sys.stdout", out)
        code = main(
            ["evaluate", NETWORK, "--images", str(SCENES), "--truth", str(TRUTH), "--jobs", "1", "--json", "-q"]
        )
    assert code == 0
    return json.loads(out.getvalue())


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_mean_precisions_are_those_of_pycocotools(evaluation: Any, device: str) -> None:
    files = images.find([SCENES])
    counted = []
    with chai.Net(NETWORK, device=device, detect={"threshold": LOW}) as net:
        if device == "emulator":
            net.calibrate(net.pictures(files[:8]))  # as chai evaluate does
        for file in files:
            boxes = detections(net.forward(net.pictures([file]))["detections"], {0: whole(WIDTH, HEIGHT)})
            counted.append(boxes[:, 1:].tolist())
    content = json.loads(TRUTH.read_text())
    assert [image["file_name"] for image in content["images"]] == [file.name for file in files]
    stats, classes = of_pycocotools(content, counted, range(1, 11))
    side = evaluation["float"] if device == "float" else evaluation["devices"][device]
    for key, value in zip(FIGURES, stats):
        assert side[f"coco_{key}"] == pytest.approx(value, abs=1e-6)
    assert side["coco_map50"] > 0.95
    for one, at in zip(side["coco_classes"], classes):
        assert one["ap"] == pytest.approx(at.mean(), abs=1e-6)


def test_the_page_shows_how_rows_become_boxes_of_a_letterboxed_picture(tmp_path: Path) -> None:
    """A scene, enlarged ten times, on a wider picture: the true boxes have moved with it."""
    picture, left = Image.new("RGB", (1280, 720), (128, 128, 128)), 300
    with images.read(SCENES / "scene_04.jpg") as scene:
        picture.paste(scene.resize((10 * WIDTH, 10 * HEIGHT)), (left, 0))
    picture.save(tmp_path / "wide.png")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "import detections" in block)
    net = chai.Net(NETWORK, device="float")
    names: dict[str, Any] = {"net": net, "rows": net.forward(net.preprocess([tmp_path / "wide.png"]))["detections"]}
    exec(code, names)
    content = json.loads(TRUTH.read_text())
    (number,) = (image["id"] for image in content["images"] if image["file_name"] == "scene_04.jpg")
    true = [one["bbox"] for one in content["annotations"] if one["image_id"] == number]
    corners = [(left + 10 * x, 10 * y, left + 10 * (x + w), 10 * (y + h)) for x, y, w, h in true]
    assert len(names["boxes"]) == len(true) == 4
    for box in names["boxes"][:, 3:]:
        assert min(np.abs(box - each).max() for each in corners) < 20, "two pixels of the scene"


def test_the_demo_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its mean precisions are those of ``chai evaluate``, but for formats from other pictures; layers have their engines."""
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--detect", "--json", "-q"]) == 0
    demo = json.loads(capsys.readouterr().out)
    assert demo["total"] == len(demo["pictures"]) == len(images.find([SCENES]))
    assert demo["right"] == sum(picture["right"] for picture in demo["pictures"]) >= 0.9 * demo["total"]
    assert demo["layers"]["host"] == ["detections"]
    assert set(demo["layers"]["fpga"]) >= CONVOLUTIONS
    assert 0.9 < demo["coco_map50"] <= 1
    with images.read(tmp_path / "chai-demo.png") as picture:
        assert min(picture.size) > 600
    assert main(["demo", "--detect", "--device", "float", "-o", "b.png"]) == 0
    printed = capsys.readouterr()
    assert "mAP@0.5 (COCO)" in printed.out
    assert "of the pictures of held-back digits shipped with chai" in printed.out
    assert printed.err.splitlines()[-1].startswith("next: chai run digits_detector")
