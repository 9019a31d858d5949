"""COCO's average precision against pycocotools, and its files of annotations."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.errors import ParseError, UsageError
from chai.evaluate.coco import CocoPrecision
from chai.evaluate.truth import CocoTruth, is_coco
from chai.limits import Limits
from tests.conftest import thinned

NAMES = ["cat", "dog", "owl", "fox"]
IDS = [1, 7, 18, 90]  # with gaps, as COCO's


def case(seed: int) -> tuple[dict[str, Any], list[list[list[float]]]]:
    """A file of annotations, and boxes [class, score, corners] of each image: near true ones, or anywhere."""
    random = np.random.default_rng(seed)
    images, annotations, boxes_by_image = [], [], []
    whole = bool(seed % 2)  # corners on whole pixels, whose overlaps can be exactly 0.5
    for image in range(int(random.integers(1, 7))):
        images.append({"id": 10 * image + 3, "file_name": f"{image}.jpg", "width": 400, "height": 300})
        boxes: list[list[float]] = []
        for _ in range(int(random.integers(0, 9))):
            size = random.choice([12.0, 40.0, 150.0]) * random.uniform(0.5, 1.5, 2)
            box = [*random.uniform(0, 250, 2), *size]
            box = [float(round(x)) for x in box] if whole else [float(x) for x in box]
            label = int(random.integers(0, 3))
            area = float(box[2] * box[3] * random.choice([1.0, 0.6]))
            crowd = int(random.random() < 0.15)
            annotations.append(
                {"id": len(annotations) + 1, "image_id": 10 * image + 3, "category_id": IDS[label], "bbox": box,
                 "area": area, "iscrowd": crowd}
            )  # fmt: skip
            for _ in range(int(random.integers(0, 4)) + 8 * crowd):
                x, y, w, h = np.array(box) + random.normal(0, 1, 4) * random.choice([0, 2, 8])
                other = label if random.random() < 0.8 else int(random.integers(0, 4))
                score = float(random.choice([0.25, 0.5, random.random()]))
                if w > 1 and h > 1:
                    corners = [x, y, x + w, y + h]
                    boxes.append([other, score, *(float(round(c)) if whole else float(c) for c in corners)])
        if seed % 10 == 0:  # more of a class than count
            low = random.uniform(0, 200, (130, 2))
            boxes += [[0, float(s), *map(float, [*a, *(a + 30)])] for s, a in zip(random.random(130), low)]
        random.shuffle(boxes)
        boxes_by_image.append(boxes)
    categories = [{"id": key, "name": name} for key, name in zip(IDS, NAMES)]
    return {"images": images, "annotations": annotations, "categories": categories}, boxes_by_image


def of_pycocotools(
    content: dict[str, Any], boxes_by_image: list[list[list[float]]], ids: Sequence[int] = IDS
) -> tuple[Any, Any]:
    """Its twelve figures, and the average precision of each category at each overlap."""
    coco = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed")
    cocoeval = pytest.importorskip("pycocotools.cocoeval", reason="pycocotools is not installed")
    results = [
        {"image_id": image["id"], "category_id": ids[int(box[0])], "score": box[1],
         "bbox": [box[2], box[3], box[4] - box[2], box[5] - box[3]]}
        for image, boxes in zip(content["images"], boxes_by_image) for box in boxes
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = json.loads(json.dumps(content))
        truth.createIndex()
        if not results:
            return None, None
        judge = cocoeval.COCOeval(truth, truth.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    precision = judge.eval["precision"][:, :, :, 0, 2]  # overlaps, recalls, categories; -1 where nothing is true
    return judge.stats, precision.mean(1).T


@pytest.mark.parametrize("block", thinned(3, range(10)))
def test_figures_of_pycocotools(tmp_path: Path, block: int) -> None:
    """Of 20 random sets of images: the means, those by size of the objects, and those of each class."""
    compared = 0
    for seed in range(20 * block, 20 * block + 20):
        content, boxes_by_image = case(seed)
        stats, classes = of_pycocotools(content, boxes_by_image)
        if stats is None:
            continue
        path = tmp_path / "truth.json"
        path.write_text(json.dumps(content))
        truth = CocoTruth(path, NAMES)
        mine = CocoPrecision(truth.names)
        for image, boxes in zip(content["images"], boxes_by_image):
            known = truth(Path(image["file_name"]))
            assert known is not None
            mine.add(boxes, known)
        figures = mine.figures()
        for place, key in enumerate(("map", "map50", "map75", "map_small", "map_medium", "map_large")):
            value = figures[f"coco_{key}"]
            assert (-1 if value is None else value) == pytest.approx(stats[place], abs=1e-6), (seed, key)
        each = {one["index"]: one for one in figures["coco_classes"]}  # type: ignore[attr-defined]
        for index, at in enumerate(classes):
            assert (index in each) == (at[0] > -1)
            if index in each:
                assert each[index]["ap"] == pytest.approx(at.mean(), abs=1e-6)
                assert each[index]["ap50"] == pytest.approx(at[0], abs=1e-6)
                assert each[index]["label"] == NAMES[index]
                compared += 1
    assert compared > 30


# -- files


GOOD: dict[str, Any] = {
    "info": {"year": 2017},
    "images": [{"id": 5, "file_name": "a.jpg"}, {"id": 6, "file_name": "val/b.jpg"}],
    "annotations": [
        {
            "image_id": 5,
            "category_id": 90,
            "bbox": [1, 2.5, 30, 40],
            "area": 700.5,
            "iscrowd": 1,
            "segmentation": [[1, 2]],
        },
        {"image_id": 5, "category_id": 1, "bbox": [0, 0, 4, 5]},
    ],
    "categories": [{"id": 90, "name": "fox", "supercategory": "animal"}, {"id": 1, "name": "cat"}],
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "coco.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_categories_are_classes_by_name(tmp_path: Path) -> None:
    truth = CocoTruth(written(tmp_path, GOOD), NAMES)
    assert truth.names == {3: "fox", 0: "cat"}
    assert truth(Path("/x/a.jpg")) == [(3, 1, 2.5, 31, 42.5, True, 700.5), (0, 0, 0, 4, 5, False, 20)]
    assert truth(Path("/x/val/b.jpg")) == [] and truth(Path("/x/b.jpg")) is None and truth(Path("c.jpg")) is None


def test_what_is_a_file_of_coco(tmp_path: Path) -> None:
    assert is_coco(written(tmp_path, GOOD))
    assert not is_coco(written(tmp_path, '{"file": "a.jpg", "boxes": []}\n'))
    (tmp_path / "truth.jsonl").write_text(json.dumps(GOOD))
    assert not is_coco(tmp_path / "truth.jsonl") and not is_coco(tmp_path / "none.json")


@pytest.mark.parametrize("labels", [["cat", "dog"], ["Fox", "Cat"], []], ids=str)
def test_names_that_do_not_match_are_refused(tmp_path: Path, labels: list[str]) -> None:
    with pytest.raises(UsageError, match=r"coco\.json: (the network has no class|its categories have names)") as raised:
        CocoTruth(written(tmp_path, GOOD), labels)
    assert "--labels" in (raised.value.hint or "")


def changed(key: str, entry: int, **values: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(GOOD))
    content[key][entry].update(values)
    return content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "this is no JSON"),
        ("[" * 100_000, "this is no JSON"),
        ('{"annotations": [' + "1" * 5000 + "]}", "this is no JSON"),
        ("[]", 'expected {"images"'),
        ({**GOOD, "images": 1}, "images: expected"),
        ({**GOOD, "annotations": [3]}, "annotations: expected"),
        ({"images": [], "annotations": []}, "categories: expected"),
        (changed("images", 0, id="5"), "id: expected a whole number, found '5'"),
        (changed("images", 0, file_name=""), "file_name: expected the name of an image"),
        (changed("images", 1, file_name="a.jpg"), "two images are 'a.jpg'"),
        (changed("images", 1, id=5), "two images have id 5"),
        (changed("annotations", 0, image_id=7), "annotation 0: there is no image of its image_id"),
        (changed("annotations", 1, category_id=2), "annotation 1: area, iscrowd or category_id"),
        (changed("annotations", 1, bbox=[1, 2, 3]), "annotation 1: bbox: expected [x, y, width, height]"),
        (changed("annotations", 1, bbox=[1, 2, -3, 4]), "annotation 1: bbox"),
        (changed("annotations", 1, bbox=[1, 2, float("nan"), 4]), "annotation 1: bbox"),
        (changed("annotations", 1, bbox=[1, 2, 1e300, 4]), "annotation 1: bbox"),
        (changed("annotations", 1, iscrowd=2), "annotation 1: area, iscrowd"),
        (changed("annotations", 1, area=[1]), "annotation 1: area, iscrowd"),
    ],
)
def test_files_that_are_not_of_this_form(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(ParseError) as raised:
        CocoTruth(written(tmp_path, content), NAMES)
    assert words in raised.value.headline and "coco.json" in raised.value.headline


@pytest.mark.parametrize("limit", ["coco_values=30", "coco_bytes=100"])
def test_a_file_beyond_the_limits_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    name, _, most = limit.partition("=")
    small = Limits(**{name: int(most)})
    monkeypatch.setattr("chai.evaluate.truth.limits", lambda: small)
    monkeypatch.setattr("chai.util.files.limits", lambda: small)
    with pytest.raises(ParseError, match=limit):
        CocoTruth(written(tmp_path, GOOD), NAMES)
