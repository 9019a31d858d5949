"""Heads of networks: the layer that [detect] or an option attaches gives the boxes of the outputs it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.detect.head import FAMILIES, SUCCESSORS, Head, head_of
from chai.errors import ParseError, UsageError
from tests.reference import heads

from .common import ANCHORS, CLASSES, SIZE, STRIDES, a_map, answers, maps, reshaped, written

FLAT = [[x for pair in row for x in pair] for row in ANCHORS]
CELLS = [[x / stride for pair in row for x in pair] for row, stride in zip(ANCHORS, STRIDES)]
Rows = Any


def same(rows: Rows, wanted: Rows) -> None:
    assert rows.shape[2] > 10
    assert np.array_equal(rows[..., :2], wanted[..., :2])
    assert np.allclose(rows, wanted, rtol=1e-4, atol=1e-5)


def per_image(*bottoms: Any) -> list[list[Any]]:
    return [[bottom[image] for bottom in bottoms] for image in range(2)]


@pytest.mark.parametrize(
    ("name", "more", "scales", "square", "soft"),
    [
        ("yolov2", {"anchors": CELLS}, (1, 1), False, True),
        ("yolov3", {"anchors": FLAT}, (1, 1), False, False),
        ("yolov3", {"anchors": FLAT, "scale_xy": [1.2, 1.1], "strides": [8, 16]}, (1.2, 1.1), False, False),
        ("yolov4-tiny", {"anchors": FLAT}, (1.05, 1.05), False, False),
        ("yolov5", {"anchors": FLAT, "classes": CLASSES}, (2, 2), True, False),
    ],
)
def test_anchored_heads(
    tmp_path: Path, name: str, more: dict[str, Any], scales: tuple[float, float], square: bool, soft: bool
) -> None:
    """Whatever the order of the outputs: anchors belong to maps from the finest to the coarsest."""
    raw = answers(written(tmp_path, maps(2 * (5 + CLASSES))))
    every = [
        heads.anchored(image, ANCHORS, STRIDES, scales, square, soft) for image in per_image(raw["map8"], raw["map16"])
    ]
    wanted = heads.detections(every, 0.25, 0.45)
    for strides in (STRIDES, STRIDES[::-1]):
        path = written(tmp_path, maps(2 * (5 + CLASSES), strides))
        outputs = answers(path, {"head": name, **more})
        assert list(outputs) == ["detections"]
        if strides == STRIDES:  # random weights are in the order of the layers
            same(outputs["detections"], wanted)
        other = chai.Net(path, device="float", detect={"head": name, **more}).graph.layer("detections")
        assert other.bottoms == ("map8", "map16") and other.params.stride == STRIDES


@pytest.mark.parametrize("name", ["yolov8", *(name for name, head in SUCCESSORS.items() if head == "yolov8")])
def test_a_head_without_anchors(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, maps(4 * 16 + CLASSES))
    raw = answers(path)
    every = [heads.anchor_free(image, 16) for image in per_image(raw["map8"], raw["map16"])]
    same(answers(path, name)["detections"], heads.detections(every, 0.25, 0.7))
    rows = answers(path, {"head": name, "threshold": 0.6, "iou": 0.2, "multi_label": True})["detections"]
    every = [heads.anchor_free(image, 16) for image in per_image(raw["map8"], raw["map16"])]
    same(rows, heads.detections(every, 0.6, 0.2, several=True))


def test_distances_and_classes_in_two_maps(tmp_path: Path) -> None:
    layers = "".join(a_map(f"{n}{s}", s, c) for s in STRIDES for n, c in (("classes", CLASSES), ("sides", 64)))
    path = written(tmp_path, layers)
    raw = answers(path)
    joined = [np.concatenate([raw[f"sides{s}"], raw[f"classes{s}"]], 1) for s in STRIDES]
    every = [heads.anchor_free(image, 16) for image in per_image(*joined)]
    same(answers(path, "yolov8")["detections"], heads.detections(every, 0.25, 0.7))


def joined_maps(channels: int, last: bool = False) -> str:
    """All maps as one blob (N, channels, cells), or (N, cells, channels)."""
    layers = maps(channels)
    for stride in STRIDES:
        cells = SIZE[0] // stride * (SIZE[1] // stride)
        layers += reshaped(f"map{stride}", f"flat{stride}", 0, channels, cells)
    layers += (
        'layer { name: "all" type: "Concat" bottom: "flat8" bottom: "flat16" top: "all" concat_param { axis: 2 } }\n'
    )
    if last:
        layers += (
            'layer { name: "turned" type: "Permute" bottom: "all" top: "turned" permute_param { order: [0, 2, 1] } }\n'
        )
    return layers


def test_all_maps_in_one_blob(tmp_path: Path) -> None:
    path = written(tmp_path, joined_maps(64 + CLASSES))
    grids = [(SIZE[0] // s, SIZE[1] // s) for s in STRIDES]
    (raw,) = answers(path).values()
    parts = np.split(raw, [grids[0][0] * grids[0][1]], 2)
    every = [heads.anchor_free(image, 16) for image in per_image(*[p.reshape(2, -1, *g) for p, g in zip(parts, grids)])]
    detect = {"head": "yolov8", "classes": CLASSES, "strides": list(STRIDES)}
    same(answers(path, detect)["detections"], heads.detections(every, 0.25, 0.7))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("name", "objectness"), [("yolov8", False), ("yolov5", True)])
def test_decoded_heads(tmp_path: Path, name: str, objectness: bool, last: bool) -> None:
    """The axis of the boxes is the one with a box, or some, for each cell."""
    layers = joined_maps(4 + objectness + CLASSES, last)
    layers += f'layer {{ name: "out" type: "Sigmoid" bottom: "{"turned" if last else "all"}" top: "out" }}\n'
    path = written(tmp_path, layers)
    (raw,) = answers(path).values()
    assert raw.shape[2 - last] == 96 + 24
    every = [heads.decoded(x.T if last else x, SIZE, objectness) for x in raw]
    iou = FAMILIES[name].iou
    rows = answers(path, {"head": name, "strides": list(STRIDES), "iou": 1.0})["detections"]
    same(rows, heads.detections(every, 0.25, 1.0))
    assert iou == {"yolov8": 0.7, "yolov5": 0.45}[name]


def test_other_outputs_stay(tmp_path: Path) -> None:
    path = written(tmp_path, maps(64 + CLASSES) + a_map("extra", 32, 5))
    outputs = answers(path, {"head": "yolov8", "outputs": ["map16", "map8"]})
    assert list(outputs) == ["extra", "detections"] and outputs["extra"].shape == (2, 5, 2, 3)


def test_the_card_and_an_option_that_changes_it(tmp_path: Path) -> None:
    path = written(tmp_path, maps(64 + CLASSES), 'labels = "voc"\n[detect]\nhead = "yolov8"\nthreshold = 0.4\n')
    with chai.Net(path, device="float") as net:
        assert net.outputs == ["detections"] and net.graph.layer("detections").params.confidence_threshold == 0.4
        assert net.card.labels[:2] == ("aeroplane", "bicycle") and len(net.card.labels) == 20
        assert net.card.detect == Head("yolov8", threshold=0.4)
    with chai.Net(path, device="float", detect={"iou": 0.3}) as net:
        params = net.graph.layer("detections").params
        assert (params.confidence_threshold, params.nms_threshold) == (0.4, 0.3)
    with chai.Net(path, device="float", end_layer="map8") as net:  # its own outputs are cut away
        assert net.outputs == ["map8"]
    path.with_suffix(".toml").unlink()
    with chai.Net(path, device="float", detect={"threshold": 0.1}) as net:  # of no head
        assert net.outputs == ["map8", "map16"]


def test_on_the_overlay_the_maps_are_convolutions_and_the_head_is_on_the_host(tmp_path: Path) -> None:
    layers = a_map("quarter", 4, 16)
    layers += "".join(a_map(f"map{s}", s // 4, 67).replace('bottom: "data"', 'bottom: "quarter"') for s in STRIDES)
    path = written(tmp_path, layers)
    with chai.Net(path, detect="yolov8", calibrate=np.zeros((1, 3, *SIZE), np.float32)) as net:
        assert {net.partition.engine(name) for name in ("quarter", "map8", "map16")} == {"fpga"}
        assert net.partition.engine("detections") == "host"


def test_a_compiled_network_has_its_head(tmp_path: Path) -> None:
    from chai.artifact.save import save

    path = written(tmp_path, maps(64 + CLASSES))
    with chai.Net(path, detect="yolov8", batch=2, calibrate=np.random.default_rng(0).normal(size=(2, 3, *SIZE))) as net:
        expected = net.forward(answers_input())["detections"]
        save(net, tmp_path / "eye.chai")
    with chai.Net(tmp_path / "eye.chai") as net:
        assert np.array_equal(net.forward(answers_input())["detections"], expected) and expected.shape[2] > 10
    with pytest.raises(UsageError, match="is compiled: detect cannot be given"):
        chai.Net(tmp_path / "eye.chai", detect="yolov8")


def answers_input() -> Any:
    return np.random.default_rng(5).normal(size=(2, 3, *SIZE)).astype(np.float32)


# -- what is refused


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("yolov7", "unknown head 'yolov7'"),
        ({}, "head is missing"),
        (7, "expected the name of a head or a table"),
        ({"head": 8}, "unknown head '8'"),
        ({"head": "yolov8", "treshold": 1}, "no key 'treshold'"),
        ({"head": "yolov8", "threshold": 2}, "threshold: 2.0 is outside 0 .. 1"),
        ({"head": "yolov8", "threshold": float("nan")}, "threshold: nan is outside 0 .. 1"),
        ({"head": "yolov8", "threshold": True}, "threshold: expected float, found True"),
        ({"head": "yolov8", "threshold": 10**400}, "threshold: expected float, found 1000"),
        ({"head": "yolov8", "classes": 0}, "classes: 0 is outside 1 .. 65535"),
        ({"head": "yolov8", "classes": 2.5}, "classes: expected int, found 2.5"),
        ({"head": "yolov8", "strides": []}, "strides: expected a list"),
        ({"head": "yolov8", "strides": [8] * 101}, "strides: expected a list"),
        ({"head": "yolov8", "strides": [0]}, "strides: 0 is outside 1 .. 65535"),
        ({"head": "yolov8", "outputs": [1]}, "outputs[0]: expected str, found 1"),
        ({"head": "yolov8", "multi_label": 1}, "multi_label: expected bool, found 1"),
        ({"head": "yolov8", "anchors": [1, 2]}, "yolov8 has no anchors"),
        ({"head": "yolov5", "anchors": [1, 2, 3]}, "anchors: expected a width and a height"),
        ({"head": "yolov5", "anchors": [[1, 2], 3]}, "anchors[1]: expected a list, found 3"),
        (
            {"head": "yolov5", "anchors": [1, 1e9]},
            "anchors: expected a width and a height of each anchor, from 0 to 65535",
        ),
        ({"head": "yolov5", "reg_max": 1000}, "reg_max: 1000 is outside 1 .. 256"),
    ],
    ids=str,
)
def test_what_is_no_head(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(UsageError, match="detect") as raised:
        head_of(value)
    assert words in raised.value.message


def test_a_card_is_refused_with_its_path(tmp_path: Path) -> None:
    path = written(tmp_path, maps(67), '[detect]\nhead = "yolov9000"\n')
    with pytest.raises(ParseError, match=r"eye.toml: detect: unknown head 'yolov9000'"):
        chai.Net(path, device="float")
    path.with_suffix(".toml").write_text('labels = "coca"\n[detect]\nhead = "yolov8"\n')
    with pytest.raises(ParseError, match=r"labels: expected a list of texts, or coco or voc"):
        chai.Net(path, device="float")


@pytest.mark.parametrize(
    ("layers", "detect", "words"),
    [
        (maps(67), {"head": "yolov8", "classes": 4}, "expected 64 channels of distances and 4 classes"),
        (maps(64), "yolov8", "expected 64 channels of distances and some classes"),
        (maps(67), {"head": "yolov8", "outputs": ["map9"]}, "no output 'map9'"),
        (maps(16), "yolov5", "its anchors are missing"),
        (maps(16), {"head": "yolov5", "anchors": FLAT[:1]}, "[2] anchors for 2 maps"),
        (maps(16), {"head": "yolov5", "anchors": [FLAT[0], FLAT[0][:2]]}, "[2, 1] anchors for 2 maps"),
        (maps(17), {"head": "yolov5", "anchors": FLAT}, "map8 is no map of 2 anchors"),
        (maps(10), {"head": "yolov5", "anchors": FLAT}, "map8 is no map of 2 anchors"),
        (maps(16), {"head": "yolov5", "anchors": FLAT, "classes": 2}, "map8 has 3 classes; expected 2"),
        (maps(16), {"head": "yolov5", "anchors": FLAT, "strides": [8]}, "1 strides for 2 maps"),
        (joined_maps(7), "yolov8", "expected boxes for 126 cells of strides [8, 16, 32]"),
        (joined_maps(7), {"head": "yolov8", "strides": [8, 16], "classes": 2}, "7 numbers of a box; expected 4 and 2"),
        (joined_maps(4), {"head": "yolov8", "strides": [8, 16]}, "4 numbers of a box; expected 4 and some classes"),
        (reshaped("data", "flat", 0, -1), "yolov8", "they are no maps, and no boxes"),
    ],
)
def test_heads_that_do_not_fit(tmp_path: Path, layers: str, detect: Any, words: str) -> None:
    """The error names the outputs and their sizes."""
    with pytest.raises(UsageError) as raised:
        chai.Net(written(tmp_path, layers), device="float", detect=detect)
    assert words in raised.value.message


def test_logits_in_place_of_boxes_are_found_out(tmp_path: Path) -> None:
    path = written(tmp_path, joined_maps(64 + CLASSES))
    with pytest.raises(chai.ModelError, match=r"layer 'detections' .*expected probabilities of boxes that are decoded"):
        answers(path, {"head": "yolov8", "strides": list(STRIDES)})
