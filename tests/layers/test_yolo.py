"""Yolov3DetectionOutput and YoloDetectionOutput against the fork's loops, image by image."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.detection import yolov2, yolov3

from .common import Array, Run, close, numbers

ANCHORS = [(10.0, 14.0), (23.0, 27.0), (37.0, 58.0), (81.0, 82.0), (135.0, 169.0)]
CLASSES = 3
Sizes = tuple[tuple[int, int], ...]


def compare(rows: Array, wanted: Array) -> None:
    assert np.array_equal(rows[..., :2], wanted[..., :2])  # image and label, in the same order
    close(rows, wanted)


def grids(boxes: int, sizes: Sizes = ((3, 3), (5, 5))) -> list[Array]:
    return [numbers(2, boxes * (5 + CLASSES), *size, seed=size[0], low=-3, high=3) for size in sizes]


def repeated(name: str, values: object) -> str:
    return " ".join(f"{name}: {v}" for v in values)


@pytest.mark.parametrize("sizes", [((3, 3), (5, 5)), ((2, 5), (7, 4))], ids=["square", "oblong"])
@pytest.mark.parametrize("nms", [0.1, 0.45, 0.995, 2.0])
@pytest.mark.parametrize("confidence", [0.01, 0.4, 0.99])
def test_yolov3(run: Run, nms: float, confidence: float, sizes: Sizes) -> None:
    bottoms = grids(2, sizes)
    text = (
        f"num_classes: {CLASSES} num_box: 2 confidence_threshold: {confidence} nms_threshold: {nms} "
        f"{repeated('biases', np.ravel(ANCHORS))} {repeated('mask', (3, 4, 0, 2))} {repeated('anchors_scale', (32, 16))}"
    )
    (y,) = run("Yolov3DetectionOutput", f"yolov3_detection_output_param {{ {text} }}", *bottoms)
    compare(y, yolov3(bottoms, CLASSES, ANCHORS, ((3, 4), (0, 2)), (32, 16), confidence, nms))


def test_yolov3_of_one_grid(run: Run) -> None:
    bottoms = grids(3, ((4, 4),))
    text = (
        f"num_classes: {CLASSES} mask_group_num: 1 {repeated('biases', np.ravel(ANCHORS))} "
        f"{repeated('mask', (1, 2, 3))} anchors_scale: 32"
    )
    (y,) = run("Yolov3DetectionOutput", f"yolov3_detection_output_param {{ {text} }}", *bottoms)
    compare(y, yolov3(bottoms, CLASSES, ANCHORS, ((1, 2, 3),), (32,), 0.01, 0.45))


@pytest.mark.parametrize("sizes", [((4, 4),), ((3, 3), (5, 5)), ((2, 5), (7, 4))])
@pytest.mark.parametrize("nms", [0.1, 0.45])
@pytest.mark.parametrize("confidence", [0.01, 0.3, 0.99])
def test_yolov2(run: Run, sizes: Sizes, nms: float, confidence: float) -> None:
    bottoms = grids(2, sizes)
    anchors = [(1.08, 1.19), (3.42, 4.41)]
    text = (
        f"num_classes: {CLASSES} num_box: 2 confidence_threshold: {confidence} nms_threshold: {nms} "
        f"{repeated('biases', np.ravel(anchors))}"
    )
    (y,) = run("YoloDetectionOutput", f"yolo_detection_output_param {{ {text} }}", *bottoms)
    compare(y, yolov2(bottoms, CLASSES, anchors, confidence, nms))


def test_nothing_found_gives_a_row_per_image(run: Run) -> None:
    anchors = repeated("biases", range(1, 5))
    text = f"num_classes: {CLASSES} num_box: 2 confidence_threshold: 1 {anchors}"
    (y,) = run("YoloDetectionOutput", f"yolo_detection_output_param {{ {text} }}", *grids(2, ((4, 4),)))
    assert y[0, 0].tolist() == [[0, *[-1] * 6], [1, *[-1] * 6]]
