"""The heads of detectors against loops over every cell: YOLOv2 to v5, v8 and its successors, and boxes that are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.evaluate.outputs import output
from chai.layers import find
from tests.reference import heads

from .common import Array, Run, close, numbers

ANCHORS = [[(10.0, 13.0), (16.0, 30.0)], [(33.0, 23.0), (30.0, 61.0)]]
STRIDES = 8, 16
CLASSES = 3
GRIDS = (5, 7), (2, 4)


def compare(rows: Array, wanted: Array, least: int = 10) -> None:
    assert rows.shape[2] >= least
    assert np.array_equal(rows[..., :2], wanted[..., :2])  # image and class, in the same order
    close(rows, wanted)


def repeated(name: str, values: Sequence[object]) -> str:
    return " ".join(f"{name}: {v}" for v in values)


def anchored(more: str = "") -> str:
    text = f"{repeated('anchor', np.ravel(ANCHORS))} {repeated('stride', STRIDES)} {more}"
    return f"anchored_detection_output_param {{ {text} }}"


def maps(channels: int, grids: Sequence[tuple[int, int]] = GRIDS, images: int = 2) -> list[Array]:
    return [numbers(images, channels, *grid, seed=grid[0], low=-3, high=3) for grid in grids]


def per_image(bottoms: Sequence[Array]) -> list[list[Array]]:
    return [[bottom[image] for bottom in bottoms] for image in range(len(bottoms[0]))]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("confidence", "nms"), [(0.25, 0.45), (0.01, 0.1), (0.6, 0.9)])
@pytest.mark.parametrize(
    ("text", "scales", "square", "soft"),
    [
        ("score: SOFTMAX", (1, 1), False, True),  # YOLOv2
        ("", (1, 1), False, False),  # v3
        ("scale_x_y: 1.05 scale_x_y: 1.2", (1.05, 1.2), False, False),  # v4
        ("scale_x_y: 2 scale_x_y: 2 size: SQUARE", (2, 2), True, False),  # v5
    ],
)
def test_anchors(
    run: Run,
    text: str,
    scales: tuple[float, float],
    square: bool,
    soft: bool,
    confidence: float,
    nms: float,
    several: bool,
) -> None:
    bottoms = maps(2 * (5 + CLASSES))
    text += f" confidence_threshold: {confidence} nms_threshold: {nms} multi_label: {str(several).lower()}"
    (y,) = run("AnchoredDetectionOutput", anchored(text), *bottoms)
    every = [heads.anchored(image, ANCHORS, STRIDES, scales, square, soft) for image in per_image(bottoms)]
    compare(y, heads.detections(every, confidence, nms, several=several), 1)


def test_maps_with_anchors_on_an_axis_of_their_own(run: Run) -> None:
    """As YOLOv5 is exported for training: the same boxes."""
    bottoms = maps(2 * (5 + CLASSES))
    apart = [np.ascontiguousarray(x.reshape(2, 2, 8, *x.shape[2:]).transpose(0, 1, 3, 4, 2)) for x in bottoms]
    (expected,) = run("AnchoredDetectionOutput", anchored(), *bottoms)
    (y,) = run("AnchoredDetectionOutput", anchored(), *apart)
    compare(y, expected)


FORMS = {
    "maps": lambda m, b: m,
    "pairs": lambda m, b: [part for x in m for part in (x[:, : 4 * b], x[:, 4 * b :])],
    "joined": lambda m, b: [np.concatenate([x.reshape(*x.shape[:2], -1) for x in m], 2)],
    "halves": lambda m, b: [
        np.concatenate([x.reshape(*x.shape[:2], -1)[:, part] for x in m], 2)
        for part in (slice(4 * b), slice(4 * b, None))
    ],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("bins", "confidence", "nms"), [(16, 0.25, 0.7), (5, 0.7, 0.3), (1, 0.25, 0.5)])
def test_distances(run: Run, form: str, bins: int, confidence: float, nms: float) -> None:
    grids = (4, 6), (2, 3)
    plain = maps(4 * bins + CLASSES, grids)
    if bins == 1:
        for x in plain:
            x[:, :4] = np.abs(x[:, :4])
    bottoms = [np.ascontiguousarray(x) for x in FORMS[form](plain, bins)]
    text = f"reg_max: {bins} confidence_threshold: {confidence} nms_threshold: {nms}"
    if bottoms[0].ndim == 3:
        text += " stride: 8 stride: 16 height: 32 width: 48"
    (y,) = run("AnchorFreeDetectionOutput", f"anchor_free_detection_output_param {{ {text} }}", *bottoms)
    every = [heads.anchor_free(image, bins) for image in per_image(plain)]
    compare(y, heads.detections(every, confidence, nms), 5)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("objectness", [False, True])
def test_boxes_that_are_decoded(run: Run, objectness: bool, last: bool) -> None:
    x = np.abs(numbers(2, 4 + objectness + CLASSES, 60, low=0, high=1))
    x[:, :4] *= np.array([96, 64, 40, 30]).reshape(-1, 1)
    bottom = np.ascontiguousarray(x.transpose(0, 2, 1)) if last else x
    text = f"height: 64 width: 96 objectness: {str(objectness).lower()} channels_last: {str(last).lower()}"
    (y,) = run("DecodedDetectionOutput", f"decoded_detection_output_param {{ {text} }}", bottom)
    compare(y, heads.detections([heads.decoded(image, (64, 96), objectness) for image in x], 0.25, 0.45))


def test_few_boxes_are_kept(run: Run) -> None:
    """The best ones of all classes, and no more candidates than top_k."""
    bottoms = maps(4 + CLASSES)
    for x in bottoms:
        x[:, :4] = np.abs(x[:, :4])
    text = "reg_max: 1 confidence_threshold: 0.1 keep_top_k: 7"
    (y,) = run("AnchorFreeDetectionOutput", f"anchor_free_detection_output_param {{ {text} }}", *bottoms)
    every = [heads.anchor_free(image, 1) for image in per_image(bottoms)]
    compare(y, heads.detections(every, 0.1, 0.45, keep=7), 14)
    (one,) = run("AnchorFreeDetectionOutput", f"anchor_free_detection_output_param {{ {text} top_k: 1 }}", *bottoms)
    assert one.shape[2] == 2 and np.array_equal(one[0, 0], y[0, 0, [0, 7]])


def test_no_box_is_a_row_of_minus_one_for_each_image(run: Run) -> None:
    text = "reg_max: 1 confidence_threshold: 0.999"
    (y,) = run("AnchorFreeDetectionOutput", f"anchor_free_detection_output_param {{ {text} }}", *maps(7))
    assert y[0, 0].tolist() == [[0, *[-1] * 6], [1, *[-1] * 6]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_boxes_that_are_no_numbers_are_dropped(value: float) -> None:
    cls = find("AnchoredDetectionOutput")
    assert cls is not None
    params = cls.Params(anchor=tuple(np.ravel(ANCHORS)), stride=STRIDES, nms_threshold=1.0, confidence_threshold=0.001)
    plain = maps(2 * (5 + CLASSES))
    probe = cls("probe", ("a", "b"), ("y",), params)
    count = probe.forward(*plain)[0].shape[2]
    for channel in range(8):
        odd = [x.copy() for x in plain]
        odd[0][0, channel, 2, 3] = value
        (y,) = probe.forward(*odd)
        assert np.isfinite(y).all() and count - 1 <= y.shape[2] <= count


def test_logits_are_no_decoded_scores() -> None:
    cls = find("DecodedDetectionOutput")
    assert cls is not None
    head = cls("head", ("x",), ("y",), cls.Params(height=32, width=32))
    with pytest.raises(chai.ModelError, match=r"layer 'head' .*: a score of 3; expected probabilities"):
        head.forward(np.full((1, 6, 21), 3, np.float32))


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_thresholds_at_both_ends(run: Run, threshold: float) -> None:
    bottoms = maps(2 * (5 + CLASSES))
    text = f"confidence_threshold: {threshold} nms_threshold: 1"
    (y,) = run("AnchoredDetectionOutput", anchored(text), *bottoms)
    assert y.shape[2] == (2 if threshold else 2 * 2 * (5 * 7 + 2 * 4))


def decoded(more: str = "") -> str:
    return f"decoded_detection_output_param {{ height: 32 width: 32 {more} }}"


@pytest.mark.parametrize(
    ("type", "text", "shapes"),
    [
        ("AnchoredDetectionOutput", anchored(), [(1, 2 * (5 + CLASSES), *grid) for grid in GRIDS]),
        ("AnchoredDetectionOutput", anchored(), [(1, 2, *grid, 5 + CLASSES) for grid in GRIDS]),
        ("AnchorFreeDetectionOutput", "", [(1, 64 + CLASSES, *grid) for grid in GRIDS]),
        ("AnchorFreeDetectionOutput", "", [(1, channels, *grid) for grid in GRIDS for channels in (64, CLASSES)]),
        ("DecodedDetectionOutput", decoded(), [(1, 4 + CLASSES, 9)]),
        ("DecodedDetectionOutput", decoded("objectness: true channels_last: true"), [(1, 9, 5 + CLASSES)]),
    ],
)
def test_the_number_of_classes_is_that_of_the_maps(
    tmp_path: Path, type: str, text: str, shapes: list[tuple[int, ...]]
) -> None:
    inputs = [
        f'layer {{ name: "i{i}" type: "Input" top: "i{i}" input_param {{ shape {{ {repeated("dim", shape)} }} }} }}'
        for i, shape in enumerate(shapes)
    ]
    bottoms = " ".join(f'bottom: "i{i}"' for i in range(len(shapes)))
    (tmp_path / "n.prototxt").write_text(
        "\n".join([*inputs, f'layer {{ name: "y" type: "{type}" {bottoms} top: "y" {text} }}'])
    )
    assert output(chai.Net(tmp_path / "n.prototxt", device="float")).classes == CLASSES
