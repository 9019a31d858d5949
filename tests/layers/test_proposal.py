"""Proposal against PVANET's loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.reference.detection import anchor_boxes, proposals

from .common import GEOMETRY, Array, Run, close, numbers

RATIOS, SCALES = (0.5, 1.0, 2.0), (1.0, 2.5)
A, H, W = 6, 5, 7
IMAGE = (70.0, 110.0, 1.0, 1.0)
TEXT = "ratio: [0.5, 1, 2] scale: [1, 2.5]"


def scores(height: int = H, width: int = W, anchors: int = A, seed: int = 1) -> Array:
    """Backgrounds and objects of a softmax over two classes; no two objects are equal."""
    places = numbers(1, anchors, height, width, seed=seed)
    spread = np.linspace(-5, 5, places.size)[places.ravel().argsort()].reshape(places.shape)
    p = (1 / (1 + np.exp(-spread))).astype(np.float32)
    assert len(np.unique(p)) == p.size
    return np.concatenate([1 - p, p], 1)


def deltas(height: int = H, width: int = W, anchors: int = A, seed: int = 2) -> Array:
    return numbers(1, 4 * anchors, height, width, seed=seed) * np.float32(0.3)


def propose(run: Run, text: str, s: Array, d: Array, image: tuple[float, ...] = IMAGE, **options: Any) -> Array:
    """Regions of the layer, after comparing them and their scores with the reference."""
    options = {"ratios": RATIOS, "scales": SCALES, **options}
    regions, marks = run("Proposal", f"proposal_param {{ {text} }}", s, d, np.array([image], np.float32), tops=2)
    wanted, wanted_marks = proposals(s, d, (*image, image[2])[:4], **options)
    assert np.array_equal(marks, wanted_marks.astype(np.float32))
    close(regions, wanted)
    return regions


def test_anchors_of_the_paper() -> None:
    """The reference itself, against the table that Faster R-CNN's authors publish, which counts pixels from 1."""
    table = [
        [-83, -39, 100, 56], [-175, -87, 192, 104], [-359, -183, 376, 200],
        [-55, -55, 72, 72], [-119, -119, 136, 136], [-247, -247, 264, 264],
        [-35, -79, 52, 96], [-79, -167, 96, 184], [-167, -343, 184, 360],
    ]  # fmt: skip
    assert np.array_equal(anchor_boxes(16, (0.5, 1, 2), (8, 16, 32)), np.array(table) - 1)


def test_defaults(run: Run) -> None:
    assert 20 < len(propose(run, TEXT, scores(), deltas())) < A * H * W


def test_the_most(run: Run) -> None:
    assert len(propose(run, TEXT + " post_nms_topn: 11", scores(), deltas(), after=11)) == 11
    assert len(propose(run, TEXT + " pre_nms_topn: 13 nms_thresh: 1", scores(), deltas(), before=13, nms=1.0)) == 13


@pytest.mark.parametrize("nms", [0.0, 0.3, 0.5, 0.9])
def test_overlaps(run: Run, nms: float) -> None:
    propose(run, f"{TEXT} nms_thresh: {nms}", scores(), deltas(), nms=nms)


@pytest.mark.parametrize(("stride", "base", "smallest"), [(8, 16, 0), (16, 13, 20), (24, 9, 40)])
def test_sizes(run: Run, stride: int, base: int, smallest: int) -> None:
    text = f"{TEXT} feat_stride: {stride} base_size: {base} min_size: {smallest}"
    propose(run, text, scores(), deltas(), stride=stride, base=base, smallest=smallest)


@pytest.mark.parametrize(
    "image", [(70, 110, 1.5), (70, 110, 1, 3), (70, 110, 3, 1, 9, 9), (30, 200, 0.5, 0.25), (0, 0, 0)]
)
def test_images(run: Run, image: tuple[float, ...]) -> None:
    propose(run, TEXT, scores(), deltas(), image)


def test_small_regions_stay_without_their_score(run: Run) -> None:
    body = f"proposal_param {{ {TEXT} min_size: 30 }}"
    regions, marks = run("Proposal", body, scores(), deltas(), np.array([IMAGE], np.float32), tops=2)
    small = (regions[:, 3:] - regions[:, 1:3] + 1 < 30).any(1)
    assert np.array_equal(marks == 0, small)
    assert 0 < small.sum() < len(small)


@pytest.mark.parametrize(
    ("before", "after", "smallest"), [(6000, 300, 30), (60, 300, 30), (6000, 9, 30), (6000, 300, 500)]
)
def test_as_in_python(run: Run, before: int, after: int, smallest: int) -> None:
    """py-faster-rcnn leaves small regions out before it counts any."""
    text = f"{TEXT} min_size: {smallest} pre_nms_topn: {before} post_nms_topn: {after} chai_python: true"
    regions, marks = run(
        "Proposal", f"proposal_param {{ {text} }}", scores(), deltas(), np.array([IMAGE[:3]], "f"), tops=2
    )
    wanted, all_marks = proposals(
        scores(), deltas(), IMAGE, RATIOS, SCALES, smallest=smallest, before=before, after=9999
    )
    large = np.flatnonzero(all_marks)[:after]
    assert len(large) < len(all_marks)
    assert marks.shape == (len(large), 1)
    assert np.array_equal(marks[:, 0], all_marks[large].astype(np.float32))
    close(regions, wanted[large].reshape(-1, 5))


def test_equal_scores_go_by_pixel_then_anchor(run: Run) -> None:
    s = np.full((1, 2 * A, H, W), 0.5, np.float32)
    regions = propose(run, TEXT + " nms_thresh: 1 min_size: 0", s, deltas(), nms=1.0, smallest=0)
    assert len(regions) == A * H * W


@pytest.mark.parametrize(("nms", "stay"), [(0.5, 2), (0.499, 1)])
def test_an_overlap_at_the_threshold_stays(run: Run, nms: float, stay: int) -> None:
    """In an image of one row and 18 columns: pixels 0 .. 16 and 8 .. 17 share 9 of 18."""
    text = f"proposal_param {{ ratio: 1 scale: 1 min_size: 1 feat_stride: 8 nms_thresh: {nms} }}"
    image = np.array([[1, 18, 1]], np.float32)
    (regions,) = run("Proposal", text, scores(1, 2, 1), np.zeros((1, 4, 1, 2), np.float32), image)
    assert len(regions) == stay


def test_numbers_that_are_none(run: Run) -> None:
    """As C compares: what is not a number becomes the corner 0, what is infinite the edge."""
    d = deltas(1, 1, 1)
    d[0, :, 0, 0] = 0, np.nan, np.inf, 0
    s, image = scores(1, 1, 1), np.array([IMAGE], np.float32)
    (regions,) = run("Proposal", "proposal_param { ratio: 1 scale: 1 }", s, d, image)
    assert np.array_equal(regions, [[0, 0, 0, 109, 0]])


@GEOMETRY
@given(
    st.lists(st.sampled_from((0.3, 0.5, 1.0, 1.7, 3.0)), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from((0.5, 1.0, 2.0, 4.0)), min_size=1, max_size=3, unique=True),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(1, 40),
    st.sampled_from((0.2, 0.45, 0.7)),
    st.integers(0, 1000),
)
def test_any_anchors(
    run: Run,
    ratios: list[float],
    scales: list[float],
    height: int,
    width: int,
    stride: int,
    most: int,
    nms: float,
    seed: int,
) -> None:
    count = len(ratios) * len(scales)
    text = f"ratio: {ratios} scale: {scales} feat_stride: {stride} post_nms_topn: {most} nms_thresh: {nms} min_size: 7"
    options = {"ratios": ratios, "scales": scales, "stride": stride, "after": most, "nms": nms, "smallest": 7}
    s, d = scores(height, width, count, seed), deltas(height, width, count, seed + 1)
    propose(run, text, s, d, (60.0, 85.0, 1.25), **options)
