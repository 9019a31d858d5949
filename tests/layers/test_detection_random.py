"""DetectionOutput against SSD's loops in float32, every bit of each row: random boxes, classes, thresholds, ties, NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from chai.kernels import boxes as suppression
from chai.layers import detection_output
from chai.layers.detection_output import DetectionOutput, NonMaximumSuppression

Array = np.ndarray
F = np.float32
LEAST = -np.finfo(F).max


@dataclass(frozen=True)
class Case:
    locations: Array  # (images, boxes, groups, 4)
    scores: Array  # (images, boxes, classes)
    priors: Array  # (2, boxes, 4)
    params: DetectionOutput.Params

    def forward(self) -> Array:
        images, classes = len(self.scores), self.params.num_classes
        layer = DetectionOutput("d", ("l", "s", "p"), ("d",), self.params)
        bottoms = self.locations.reshape(images, -1), self.scores.reshape(images, -1), self.priors.reshape(1, 2, -1)
        assert layer.shapes(*(b.shape for b in bottoms)) == ((1, 1, 1, 7),)
        assert classes == self.scores.shape[2]
        with np.errstate(all="ignore"):
            (top,) = layer.forward(*bottoms)
        assert top.dtype == F
        return np.asarray(top)


def decoded(case: Case, image: int, box: int, label: int) -> list[Any]:
    """DecodeBBox: the corners of a box."""
    p, (x0, y0, x1, y1) = case.params, case.priors[0, box]
    location = case.locations[image, box, 0 if p.share_location else label]
    v = location if p.variance_encoded_in_target else [a * b for a, b in zip(location, case.priors[1, box])]
    wide, high = x1 - x0, y1 - y0
    if p.code_type == "CORNER":
        return [x0 + v[0], y0 + v[1], x1 + v[2], y1 + v[3]]
    if p.code_type == "CORNER_SIZE":
        return [x0 + v[0] * wide, y0 + v[1] * high, x1 + v[2] * wide, y1 + v[3] * high]
    x, y = (x0 + x1) / F(2) + v[0] * wide, (y0 + y1) / F(2) + v[1] * high
    w, h = np.exp(v[2]) * wide / F(2), np.exp(v[3]) * high / F(2)
    return [x - w, y - h, x + w, y + h]


def size(box: list[Any]) -> Any:
    """BBoxSize."""
    return F(0) if box[2] < box[0] or box[3] < box[1] else (box[2] - box[0]) * (box[3] - box[1])


def overlap(a: list[Any], b: list[Any]) -> Any:
    """JaccardOverlap."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if not (wide > 0 and high > 0):
        return F(0)
    return wide * high / (size(a) + size(b) - wide * high)


def kept(case: Case, image: int, label: int) -> list[int]:
    """ApplyNMSFast: the boxes of a class, best first."""
    p, nms = case.params, case.params.nms_param or NonMaximumSuppression()
    scores, threshold = case.scores[image, :, label], F(nms.nms_threshold)
    least = LEAST if p.confidence_threshold is None else F(p.confidence_threshold)
    order = sorted((i for i in range(len(scores)) if scores[i] > least), key=lambda i: -scores[i])
    if nms.top_k is not None and nms.top_k > -1:
        order = order[: nms.top_k]
    boxes = {i: decoded(case, image, i, label) for i in order}
    chosen: list[int] = []
    for i in order:
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in chosen):
            chosen.append(i)
            if nms.eta < 1 and threshold > F(0.5):
                threshold *= F(nms.eta)
    return chosen


def expected(case: Case) -> Array:
    """Forward of detection_output_layer.cpp."""
    p, rows = case.params, list[list[Any]]()
    for image in range(len(case.scores)):
        labels = [label for label in range(p.num_classes) if label != p.background_label_id]
        pairs = [(label, box) for label in labels for box in kept(case, image, label)]
        if -1 < p.keep_top_k < len(pairs):
            best = sorted(pairs, key=lambda pair: -case.scores[image, pair[1], pair[0]])[: p.keep_top_k]
            pairs = [pair for pair in pairs if pair in best]
        for label, box in pairs:
            rows.append([image, label, case.scores[image, box, label], *decoded(case, image, box, label)])
    rows = rows or [[image, *[-1] * 6] for image in range(len(case.scores))]
    return np.array(rows, F).reshape(1, 1, -1, 7)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    images, boxes, classes = (draw(st.integers(1, most)) for most in (3, 40, 5))
    share, in_target = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    corners = rng.uniform(0, 1, (boxes, 2, 2)).astype(F)
    if draw(st.booleans()):  # else some are turned inside out
        corners.sort(1)
    priors = np.stack([corners.reshape(-1, 4), rng.uniform(0.05, 0.5, (boxes, 4)).astype(F)])
    scale = draw(st.sampled_from((0.0, 0.1, 0.5, 3.0)))
    locations = rng.normal(0, 1, (images, boxes, 1 if share else classes, 4)).astype(F) * F(scale)
    levels = draw(st.sampled_from((0, 2, 7)))  # of scores, so that some are equal; 0: all numbers
    shape = images, boxes, classes
    scores = (rng.integers(0, levels, shape) / levels if levels else rng.uniform(0, 1, shape)).astype(F)
    for value in draw(st.lists(st.sampled_from((np.nan, np.inf, -np.inf)), max_size=2)):
        scores[rng.random(shape) < 0.2] = value
    counts = st.sampled_from((-1, 0, 1, 3, 10, 1000))
    nms = NonMaximumSuppression(
        draw(st.sampled_from((0.0, 0.1, 0.3, 0.7, 1.0))),
        draw(st.none() | counts),
        draw(st.sampled_from((1.0, 0.9, 0.5))),
    )
    params = DetectionOutput.Params(
        num_classes=classes,
        share_location=share,
        background_label_id=draw(st.integers(-1, classes)),
        nms_param=draw(st.none() | st.just(nms)),
        code_type=draw(st.sampled_from(("CORNER", "CENTER_SIZE", "CORNER_SIZE"))),
        keep_top_k=draw(counts),
        variance_encoded_in_target=in_target,
        confidence_threshold=draw(st.sampled_from((None, 0.0, 0.01, 0.5, 0.9, 2.0))),
    )
    return Case(locations, scores, priors, params)


@pytest.mark.parametrize("block", [5, 64, None])
@given(case=cases())
def test_rows_are_those_of_the_loops(block: int | None, case: Case) -> None:
    """``block``: boxes that numpy compares at once; with 5 there are several blocks. None: in C, where it was compiled."""
    with np.errstate(all="ignore"):
        wanted = expected(case)
    with pytest.MonkeyPatch.context() as patch:
        if block is not None:
            patch.setattr(suppression, "BLOCK", block)
            patch.setattr(suppression.library, "library", lambda: None)
        rows = case.forward()
    assert rows.shape == wanted.shape
    assert np.array_equal(rows, wanted)


@pytest.mark.parametrize("threshold", [0.01, None])
def test_only_the_best_boxes_are_decoded(monkeypatch: pytest.MonkeyPatch, threshold: float | None) -> None:
    """Of each class that exceeds the threshold, and of these at most top_k."""
    rng, boxes = np.random.default_rng(5), 500
    priors = np.sort(rng.uniform(0, 1, (2, boxes, 2, 2)).astype(F), 2).reshape(2, boxes, 4)
    scores = rng.uniform(0, 1, (2, boxes, 3)).astype(F)
    scores[:, :, 1] *= np.where(rng.random((2, boxes)) < 0.01, F(1), F(0.01))  # few exceed a threshold of 0.01
    nms = NonMaximumSuppression(0.45, 20)
    params = DetectionOutput.Params(num_classes=3, nms_param=nms, code_type="CORNER", confidence_threshold=threshold)
    case = Case(rng.normal(0, 0.1, (2, boxes, 1, 4)).astype(F), scores, priors, params)
    decoded_boxes: list[int] = []
    decode = DetectionOutput._decode

    def counted(self: DetectionOutput, candidates: Any, *more: Any) -> Any:
        decoded_boxes.append(len(candidates.box))
        return decode(self, candidates, *more)

    monkeypatch.setattr(detection_output.DetectionOutput, "_decode", counted)
    assert np.array_equal(case.forward(), expected(case))
    few = int((scores[:, :, 1] > 0.01).sum()) if threshold else 2 * 20
    assert decoded_boxes == [2 * 20 + few]
