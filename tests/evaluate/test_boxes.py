"""Boxes: matching and average precision against hand-made examples and a naive loop."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import inf, isclose, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.evaluate import Output
from chai.evaluate.boxes import Boxes, BoxSums, average_precision, hits, overlap, pairs
from chai.evaluate.kinds import reduce
from tests.conftest import examples

OUTPUT = Output("detection_out", "boxes", None)
A, B, FAR = [0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0], [50.0, 50.0, 60.0, 60.0]


def naive_overlap(one: Any, other: Any) -> Fraction:
    """Pixels of a grid in both boxes over pixels in any; corners are whole numbers."""
    cells = [{(x, y) for x in range(b[0], b[2]) for y in range(b[1], b[3])} for b in (one, other)]
    return Fraction(len(cells[0] & cells[1]), len(cells[0] | cells[1]))


whole = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 5), st.integers(1, 5)).map(
    lambda t: [t[0], t[1], t[0] + t[2], t[1] + t[3]]
)


@given(whole, whole)
def test_overlap_is_shared_pixels_over_all(one: list[int], other: list[int]) -> None:
    assert isclose(overlap(one, other), naive_overlap(one, other))


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        (A, A, 1.0),
        ([5.0, 5.0, 5.0, 5.0], [5.0, 5.0, 5.0, 5.0], 1.0),  # equal boxes agree, also those without area
        ([5.0, 5.0, 5.0, 9.0], A, 0.0),
        (A, [10.0, 0.0, 20.0, 10.0], 0.0),  # they touch
        ([0.0, 0.0, inf, inf], A, 0.0),
        ([nan, 0.0, 5.0, 5.0], A, 0.0),
        ([9.0, 9.0, 1.0, 1.0], A, 0.0),
    ],
)
def test_overlap_of_odd_boxes(one: list[float], other: list[float], value: float) -> None:
    assert overlap(one, other) == value == overlap(other, one)


# -- one side against the other


def test_a_box_is_matched_by_class_and_half_an_overlap() -> None:
    half = [0.0, 0.0, 10.0, 5.0]  # IoU with A is exactly 0.5
    less = [0.0, 0.0, 10.0, 4.9]
    assert len(pairs([[1, 0.9, *half]], [[1, 0.8, *A]])) == 1
    assert len(pairs([[1, 0.9, *less]], [[1, 0.8, *A]])) == 0
    assert len(pairs([[2, 0.9, *A]], [[1, 0.8, *A]])) == 0
    assert len(pairs([[1, 0.9, *A], [1, 0.8, *A]], [[1, 0.9, *A]])) == 1  # each box has one partner
    assert len(pairs([], [[1, 0.9, *A]])) == len(pairs([[1, 0.9, *A]], [])) == 0


def test_the_best_box_chooses_first() -> None:
    near, nearer = [0.0, 0.0, 10.0, 7.0], [0.0, 0.0, 10.0, 9.0]
    expected = [[1, 0.5, *A], [1, 0.5, 0.0, 0.0, 10.0, 6.0]]
    # the better box takes A; the other one has the second box, with which it shares more than half
    assert len(pairs([[1, 0.3, *near], [1, 0.9, *nearer]], expected)) == 2


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), whole), max_size=6))
def test_every_box_matches_itself_in_any_order(boxes: list[Any]) -> None:
    own = [[label, score / 10, *corners] for label, score, corners in boxes]
    assert len(pairs(own, own[::-1])) == len(pairs(own, own)) == len(own)


@settings(max_examples=examples(60))
@given(*[st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9), whole), max_size=4)] * 2)
def test_no_matching_has_more_pairs_than_the_best_assignment(one: list[Any], other: list[Any]) -> None:
    """Greedy is at least half of the largest matching and never more."""
    a, b = ([[c, s / 10, *x] for c, s, x in boxes] for boxes in (one, other))
    fits = [[x[0] == y[0] and naive_overlap(x[2:], y[2:]) >= Fraction(1, 2) for y in b] for x in a]
    longer = b if len(b) >= len(a) else a
    best = 0
    for order in permutations(range(len(longer)), min(len(a), len(b))):
        assigned = zip(range(len(a)), order) if longer is b else zip(order, range(len(b)))
        best = max(best, sum(fits[i][j] for i, j in assigned))
    assert best / 2 <= len(pairs(a, b)) <= best


def test_precision_and_recall() -> None:
    """Of three images one has the same box, one a box too much, one has none on either side."""
    records = [
        {"image": 0, "float": [[1, 0.9, *A]], "emulator": [[1, 0.8, *A]]},
        {"image": 1, "float": [[1, 0.9, *A], [2, 0.7, *B]], "emulator": [[1, 0.8, *A], [2, 0.6, *FAR], [1, 0.5, *B]]},
        {"image": 2, "float": [], "emulator": [[1, 0.1, *A]]},  # below the threshold
    ]
    measure = Boxes(OUTPUT, 0.3)
    first, second = reduce(records, ["float", "emulator"], measure, lambda _: None).values()
    assert second.to_json() == {
        "agree": 2,
        "agreement": 2 / 3,
        "agreement_95": [pytest.approx(0.2077, abs=1e-4), pytest.approx(0.9385, abs=1e-4)],
        "boxes": 4,
        "expected": 3,
        "matched": 2,
        "precision": 2 / 4,
        "recall": 2 / 3,
    }
    assert first.judged() == {}
    assert ["same boxes, images", "", "2/3 (66.6 %)"] in measure.rows({"float": first, "emulator": second})


def test_images_without_any_box_count_and_give_no_precision() -> None:
    records = [{"image": i, "float": [], "emulator": []} for i in range(4)]
    measure = Boxes(OUTPUT)
    sides = reduce(records, ["float", "emulator"], measure, lambda _: [])
    figures = sides["emulator"].to_json()
    assert (sides["emulator"].images, figures["agree"], figures["precision"], figures["recall"]) == (4, 4, None, None)
    assert figures["map50"] is None  # there is no true box
    rows = {row[0]: row[1:] for row in measure.rows(sides)}
    assert rows["precision"] == ["", "-"] and rows["mAP@0.5 (VOC)"] == ["-", "-"]


# -- against the truth


def naive_average_precision(ranked: list[tuple[float, bool]], positives: int) -> float:
    """The area under max precision at recall >= r, recall by recall: exact, from the definition."""
    order = sorted(range(len(ranked)), key=lambda i: (-ranked[i][0], i))
    points = []
    for k in range(1, len(order) + 1):
        right = sum(ranked[i][1] for i in order[:k])
        points.append((Fraction(right, positives), Fraction(right, k)))
    area = Fraction(0)
    for step in range(1, positives + 1):  # between recall (step - 1) / positives and step / positives
        area += max((p for r, p in points if r >= Fraction(step, positives)), default=Fraction(0)) / positives
    return float(area)


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12), st.integers(0, 5))
def test_average_precision_is_the_area_by_its_definition(ranked: list[tuple[int, bool]], missed: int) -> None:
    positives = sum(hit for _, hit in ranked) + missed
    if positives:
        scored = [(score / 8, hit) for score, hit in ranked]
        assert isclose(average_precision(scored, positives), naive_average_precision(scored, positives), abs_tol=1e-12)


@pytest.mark.parametrize(
    ("hits", "positives", "area"),
    [
        ([True], 1, 1.0),
        ([False, True], 1, 0.5),
        ([True, False], 2, 0.5),
        ([], 3, 0.0),
        ([False, False], 3, 0.0),
        # recalls 1/4, 2/4, 3/4 at precisions 1, 2/3 (lifted to 3/4), 3/4; the fourth object is never found
        ([True, False, True, True, False], 4, 0.25 * (1 + 0.75 + 0.75)),
    ],
)
def test_average_precision_by_hand(hits: list[bool], positives: int, area: float) -> None:
    ranked = [(1 - i / 10, hit) for i, hit in enumerate(hits)]
    assert isclose(average_precision(ranked, positives), area)


def test_a_second_box_on_one_object_is_wrong_even_if_another_object_is_near() -> None:
    """PASCAL VOC's rule: a box counts for the object that it overlaps most, taken or not."""
    truth = [[1, *A], [1, 0.0, 0.0, 10.0, 6.0]]
    boxes = [[1, 0.9, *A], [1, 0.8, 0.0, 0.0, 10.0, 9.0]]
    assert hits(boxes, truth) == [(1, 0.9, True), (1, 0.8, False)]


def test_mean_average_precision_by_hand() -> None:
    """Class 1: 1/2 + 1/2 * 2/3; class 2: found behind a wrong box of an empty image, 1/2; class 3: never found."""
    truth: dict[int, Any] = {0: [[1, *A], [1, *B]], 1: [[2, *A], [3, *B]], 2: []}
    records = [
        {"image": 0, "float": [[1, 0.9, *A], [1, 0.5, *FAR], [1, 0.4, *B]]},
        {"image": 1, "float": [[2, 0.2, *A]]},
        {"image": 2, "float": [[2, 0.7, *A], [4, 0.9, *A]]},  # a class without any true box has no AP
        {"image": 3, "float": [[1, 1.0, *FAR]]},  # nothing is known of this image
    ]
    (side,) = reduce(records[::-1], ["float"], Boxes(OUTPUT), truth.get).values()
    assert isinstance(side, BoxSums)
    assert (side.images, side.known) == (4, 3)
    assert side.mean_average_precision is not None
    assert isclose(side.mean_average_precision, ((0.5 + 0.5 * 2 / 3) + 0.5 + 0) / 3)


def naive_map(boxes: list[list[Any]], truth: list[list[Any]]) -> float:
    """All images at once, from PASCAL VOC's description, with nothing shared with the code under test."""
    areas = []
    for label in sorted({t[0] for each in truth for t in each}):
        listed = [(b[1], image, b[2:]) for image, each in enumerate(boxes) for b in each if b[0] == label]
        listed.sort(key=lambda entry: -entry[0])
        used: set[tuple[int, int]] = set()
        ranked = []
        for score, image, corners in listed:
            best, at = Fraction(-1), -1
            for i, t in enumerate(truth[image]):
                if t[0] == label and naive_overlap(corners, t[1:]) > best:
                    best, at = naive_overlap(corners, t[1:]), i
            right = best >= Fraction(1, 2) and (image, at) not in used
            if right:
                used.add((image, at))
            ranked.append((score, right))
        areas.append(naive_average_precision(ranked, sum(t[0] == label for each in truth for t in each)))
    return sum(areas) / len(areas)


@pytest.mark.parametrize("seed", range(20))
def test_mean_average_precision_of_random_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def some(count: int) -> list[list[int]]:
        low, size = rng.integers(0, 5, (count, 2)), rng.integers(1, 6, (count, 2))
        return np.concatenate([low, low + size], 1).tolist()

    truth = [[[int(rng.integers(1, 4)), *c] for c in some(int(rng.integers(0, 5)))] for _ in range(7)]
    truth[0].append([1, 0, 0, 3, 3])
    scores = iter(rng.permutation(200).tolist())
    boxes = [
        [[int(rng.integers(1, 5)), next(scores) / 200, *c] for c in some(int(rng.integers(0, 9)))] for _ in range(7)
    ]
    records = [{"image": i, "float": each} for i, each in enumerate(boxes)]
    (side,) = reduce(records, ["float"], Boxes(OUTPUT), lambda image: truth[image]).values()
    assert isinstance(side, BoxSums) and side.mean_average_precision is not None
    assert isclose(side.mean_average_precision, naive_map(boxes, truth), abs_tol=1e-12)
