"""DetectionOutput against SSD's loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.ssd import detection_output, prior_box

from .common import Array, Run, close, numbers

BOXES, CLASSES = 3 * 4 * 3, 5
VARIANCE = (0.1, 0.15, 0.2, 0.25)
PRIORS = prior_box((3, 4), (60, 80), (22,), (35,), (2,), flip=False, variance=VARIANCE).astype(np.float32)


def locations(groups: int = 1) -> Array:
    return numbers(2, BOXES * groups * 4, seed=1)


def scores() -> Array:
    """Every box's classes sum to 1, as behind a softmax; no two scores are equal."""
    e = np.exp(2 * numbers(2, BOXES, CLASSES, seed=2))
    p = (e / e.sum(2, keepdims=True)).astype(np.float32).reshape(2, -1)
    assert len(np.unique(p)) == p.size
    return p


def detect(run: Run, text: str, loc: Array | None = None, conf: Array | None = None, **options: Any) -> Array:
    """What the layer finds, after comparing it with the reference."""
    loc = locations() if loc is None else loc
    conf = scores() if conf is None else conf
    body = f"detection_output_param {{ num_classes: {CLASSES} {text} }}"
    (y,) = run("DetectionOutput", body, loc, conf, PRIORS)
    wanted = detection_output(loc, conf, PRIORS, CLASSES, **options)
    assert np.array_equal(y[..., :2], wanted[..., :2])  # image and label, in the same order
    close(y, wanted)
    return y


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("in_target", [False, True])
@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
def test_codes(run: Run, code: str, in_target: bool, share: bool) -> None:
    loc = locations(1 if share else CLASSES) * np.float32(0.2 if in_target else 1)
    text = (
        f"code_type: {code} variance_encoded_in_target: {str(in_target).lower()} share_location: {str(share).lower()} "
        "nms_param { nms_threshold: 0.4 } confidence_threshold: 0.05"
    )
    options = {"code": code, "variance_in_target": in_target, "share_location": share, "nms": 0.4, "confidence": 0.05}
    assert 2 * CLASSES < detect(run, text, loc, **options).shape[2] < 2 * BOXES * (CLASSES - 1)


def test_defaults(run: Run) -> None:
    detect(run, "")


@pytest.mark.parametrize("background", [0, 2, CLASSES - 1, -1])
def test_background(run: Run, background: int) -> None:
    rows = detect(
        run, f"background_label_id: {background} confidence_threshold: 0.1", background=background, confidence=0.1
    )
    assert set(rows[0, 0, :, 1]) == set(range(CLASSES)) - {background}


@pytest.mark.parametrize("top_k", [-1, 1, 5, 10_000])
def test_top_k_of_each_class(run: Run, top_k: int) -> None:
    detect(run, f"nms_param {{ nms_threshold: 0.45 top_k: {top_k} }}", nms=0.45, top_k=top_k)


@pytest.mark.parametrize("keep_top_k", [-1, 1, 7, 10_000])
def test_keep_top_k_of_each_image(run: Run, keep_top_k: int) -> None:
    rows = detect(run, f"keep_top_k: {keep_top_k} nms_param {{ top_k: 20 }}", keep_top_k=keep_top_k, top_k=20)
    if keep_top_k in (1, 7):
        assert rows.shape[2] == 2 * keep_top_k


@pytest.mark.parametrize("text", ["confidence_threshold: 1.5", "nms_param { top_k: 0 }", "keep_top_k: 0"])
def test_nothing_found_gives_a_row_per_image(run: Run, text: str) -> None:
    (y,) = run(
        "DetectionOutput",
        f"detection_output_param {{ num_classes: {CLASSES} {text} }}",
        locations(),
        scores(),
        PRIORS,
    )
    assert y.tolist() == [[[[0, *[-1] * 6], [1, *[-1] * 6]]]]


def test_an_image_without_detections_has_no_row(run: Run) -> None:
    conf = scores()
    conf[0] = 0
    rows = detect(run, "confidence_threshold: 0.01", conf=conf, confidence=0.01)
    assert set(rows[0, 0, :, 0]) == {1}


def test_a_score_must_exceed_the_threshold(run: Run) -> None:
    conf = np.full((2, BOXES * CLASSES), 0.5, np.float32)
    conf[1, 1] = 0.75
    rows = detect(run, "confidence_threshold: 0.5", conf=conf, confidence=0.5)
    assert rows.shape == (1, 1, 1, 7)


def test_of_equal_scores_the_first_box_wins(run: Run) -> None:
    conf = np.random.default_rng(3).integers(1, 4, (2, BOXES * CLASSES)).astype(np.float32)
    detect(run, "nms_param { nms_threshold: 0.4 }", conf=conf, nms=0.4)
    detect(run, "nms_param { nms_threshold: 0.4 top_k: 9 }", conf=conf, nms=0.4, top_k=9)


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.9, 1.0])
def test_overlap_threshold(run: Run, threshold: float) -> None:
    detect(run, f"nms_param {{ nms_threshold: {threshold} }}", nms=threshold)


def test_eta_lowers_the_threshold_with_every_box_kept(run: Run) -> None:
    plain = detect(run, "nms_param { nms_threshold: 0.9 }", nms=0.9)
    adaptive = detect(run, "nms_param { nms_threshold: 0.9 eta: 0.8 }", nms=0.9, eta=0.8)
    low = detect(run, "nms_param { nms_threshold: 0.45 eta: 0.8 }", nms=0.45, eta=0.8)  # 0.5 and less stays
    assert adaptive.shape[2] < plain.shape[2]
    assert np.array_equal(low, detect(run, "nms_param { nms_threshold: 0.45 }", nms=0.45))


def test_boxes_turned_inside_out_overlap_nothing(run: Run) -> None:
    loc = locations()
    loc[:, ::3] *= 30
    detect(run, "nms_param { nms_threshold: 0.1 }", loc, nms=0.1)


def test_one_image_alone_is_found_as_in_its_batch(run: Run) -> None:
    both = detect(run, "confidence_threshold: 0.1", confidence=0.1)[0, 0]
    alone = detect(run, "confidence_threshold: 0.1", locations()[1:], scores()[1:], confidence=0.1)[0, 0]
    assert np.array_equal(both[both[:, 0] == 1][:, 1:], alone[:, 1:])


def test_a_fourth_bottom_changes_nothing(run: Run) -> None:
    """SSD takes the image there, to draw on."""
    body = f"detection_output_param {{ num_classes: {CLASSES} }}"
    bottoms = (locations(), scores(), PRIORS)
    (three,) = run("DetectionOutput", body, *bottoms)
    (four,) = run("DetectionOutput", body, *bottoms, numbers(2, 3, 6, 8))
    assert np.array_equal(three, four)


MAPS = [(3, 4, 2), (2, 3, 5)]  # height, width, boxes of a pixel


def of_maps(values: Array, size: int) -> list[Array]:
    """(N, boxes, size), boxes by map, box of a pixel, row and column, as a (N, boxes of a pixel, size, H, W) per map."""
    parts, first = [], 0
    for h, w, r in MAPS:
        part = values[:, first : first + h * w * r].reshape(2, r, h, w, size)
        parts.append(part.transpose(0, 1, 4, 2, 3))
        first += h * w * r
    return parts


def test_a_bottom_per_feature_map(run: Run) -> None:
    """no_permute: the same boxes, laid out by map."""
    boxes = sum(h * w * r for h, w, r in MAPS)
    loc = numbers(2, boxes, 4, seed=1)
    conf = np.abs(numbers(2, boxes, CLASSES, seed=2))
    priors = numbers(2, boxes, 4, seed=3, low=0, high=1)  # corners, and variances that differ from box to box
    priors[0, :, 2:] = priors[0, :, :2] + np.float32(0.2) + priors[0, :, 2:] / 2
    scores = [
        np.ascontiguousarray(p.transpose(0, 2, 1, 3, 4).reshape(2, CLASSES, p.shape[1], -1))
        for p in of_maps(conf, CLASSES)
    ]
    places = [np.ascontiguousarray(p.reshape(2, -1, *p.shape[3:])) for p in of_maps(loc, 4)]
    # the priors of a map go by pixel, then box of the pixel
    pixel_priors = np.concatenate([p.transpose(0, 3, 4, 1, 2).reshape(2, -1) for p in of_maps(priors, 4)], 1)
    text = f"num_classes: {CLASSES} code_type: CENTER_SIZE nms_param {{ nms_threshold: 0.4 }} confidence_threshold: 0.7"
    (y,) = run(
        "DetectionOutput",
        f"detection_output_param {{ {text} no_permute: true nbottom: 2 }}",
        *scores,
        *places,
        pixel_priors.reshape(1, 2, -1),
    )
    wanted = detection_output(
        loc.reshape(2, -1), conf.reshape(2, -1), priors.reshape(1, 2, -1), CLASSES,
        code="CENTER_SIZE", nms=0.4, confidence=0.7,
    )  # fmt: skip
    assert y.shape[2] > 2 * CLASSES
    assert np.array_equal(y[..., :2], wanted[..., :2])
    close(y, wanted)
