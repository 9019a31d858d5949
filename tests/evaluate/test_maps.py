"""Maps: pixels of one class, mean IoU and the truth's pixels against loops of plain Python."""

from __future__ import annotations

from math import isclose, log
from typing import Any

import numpy as np
import pytest

from chai.evaluate import Output
from chai.evaluate.kinds import reduce
from chai.evaluate.maps import Answer, Maps, MapSums, class_map, counts, seen_in
from chai.images.preprocess import UNIT, PictureWindow, whole

SCORES = Output("score", "map", "score", None, 4)


def answer(values: Any, decision: str | None = None, logits: Any = None) -> Answer:
    return Answer(values, values if logits is None else logits, class_map(values, decision))


def test_the_class_of_each_pixel() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 4, 5))
    best = [[max(range(3), key=lambda c: values[c, i, j]) for j in range(5)] for i in range(4)]
    classes = class_map(values, None)
    assert classes is not None and classes.tolist() == best
    indices = class_map(np.array([[[3.0, 0.0], [1.0, 2.0]]]), "argmax")
    assert indices is not None and indices.tolist() == [[3, 0], [1, 2]]
    two = class_map(np.array([[[0.5, 0.6]]]), "sigmoid")
    assert two is not None and two.tolist() == [[0, 1]]
    assert class_map(np.array([[[0.5, 0.6]]]), None) is None  # one channel says no classes


def test_pixels_mean_iou_and_kl_over_several_images() -> None:
    """The sums run over the pixels of all images, not over images."""
    rng = np.random.default_rng(2)
    sizes = [(5, 7), (3, 2), (6, 4)]
    exact = [rng.dirichlet(np.ones(4), size).transpose(2, 0, 1) for size in sizes]
    other = [rng.dirichlet(np.ones(4), size).transpose(2, 0, 1) for size in sizes]
    measure = Maps(Output("prob", "map", "score", "softmax", 4))
    records = [
        {"image": i, **measure.record({"float": answer(a), "emulator": answer(b)}, UNIT, None)}
        for i, (a, b) in enumerate(zip(exact, other))
    ]
    side = reduce(records, ["float", "emulator"], measure, lambda _: None)["emulator"].to_json()

    pairs = [
        (int(a[:, y, x].argmax()), int(b[:, y, x].argmax()))
        for a, b in zip(exact, other)
        for y in range(a.shape[1])
        for x in range(a.shape[2])
    ]
    ious = []
    for c in range(4):
        union = sum(c in pair for pair in pairs)
        ious += [sum(pair == (c, c) for pair in pairs) / union] if union else []
    assert side["pixel_agreement"] == sum(p == q for p, q in pairs) / len(pairs)
    assert isclose(side["mean_iou"], sum(ious) / len(ious))
    kls = [
        sum(a[c, y, x] * log(a[c, y, x] / b[c, y, x]) for c in range(4) for y in range(h) for x in range(w)) / (h * w)
        for a, b, (h, w) in zip(exact, other, sizes)
    ]
    assert isclose(side["kl"], sum(kls) / 3, rel_tol=1e-6)


def test_a_map_that_is_no_softmax_has_no_kl() -> None:
    values = np.random.default_rng(3).random((4, 2, 3))
    measure = Maps(SCORES)
    record = {"image": 0, **measure.record({"float": answer(values), "emulator": answer(values)}, UNIT, None)}
    sides = reduce([record], ["float", "emulator"], measure, lambda _: None)
    side = sides["emulator"].to_json()
    assert (side["kl"], side["pixel_agreement"], side["mean_iou"]) == (None, 1.0, 1.0)
    assert ["KL(float || it), nats", "", "-"] in measure.rows(sides)


def test_one_channel_without_classes_has_an_sqnr_only() -> None:
    values = np.ones((1, 2, 3))
    measure = Maps(Output("y", "map", "y", None, None))
    sides = {"float": answer(values), "emulator": answer(values + 0.1)}
    record = {"image": 0, **measure.record(sides, UNIT, np.zeros((2, 3), np.int64))}
    side = reduce([record], ["float", "emulator"], measure, lambda _: None)["emulator"]
    assert side.known == 0
    assert side.to_json() == {
        "pixel_agreement": None, "mean_iou": None, "kl": None, "logits_sqnr_db": pytest.approx(20),
    }  # fmt: skip


def test_classes_that_are_on_neither_side_do_not_count() -> None:
    (zero, two) = counts(np.array([0, 0, 2]), np.array([0, 2, 2]))
    assert (zero, two) == ([0, 1, 2, 1], [2, 1, 1, 2])


# -- the truth


def naive_seen(classes: Any, window: Any, size: tuple[int, int]) -> dict[tuple[int, int], int]:
    """The map's class at the centre of every pixel of an image that the network saw."""
    left, top, right, bottom = window[:4]
    seen = {}
    for y in range(size[0]):
        for x in range(size[1]):
            if left <= x + 0.5 < right and top <= y + 0.5 < bottom:
                row = int((y + 0.5 - top) / (bottom - top) * classes.shape[0])
                column = int((x + 0.5 - left) / (right - left) * classes.shape[1])
                seen[y, x] = int(classes[row, column])
    return seen


@pytest.mark.parametrize(
    ("shape", "window", "size"),
    [
        ((4, 6), (0.0, 0.0, 6.0, 4.0), (4, 6)),
        ((4, 6), (0.0, 0.0, 12.0, 8.0), (8, 12)),  # the image is larger than the map
        ((8, 12), (0.0, 0.0, 5.0, 3.0), (3, 5)),
        ((5, 3), (2.5, 1.25, 8.0, 6.5), (9, 11)),  # a crop: what the network did not see does not count
    ],
)
def test_each_pixel_of_the_truth_is_judged_by_the_map_pixel_it_is_in(
    shape: tuple[int, int], window: tuple[float, float, float, float], size: tuple[int, int]
) -> None:
    classes = np.arange(np.prod(shape)).reshape(shape)
    rows, columns, indices = seen_in(classes, PictureWindow(*window), size)
    expected = naive_seen(classes, window, size)
    assert {(int(y), int(x)): int(indices[i, j]) for i, y in enumerate(rows) for j, x in enumerate(columns)} == expected


def test_accuracy_and_mean_iou_leave_out_255() -> None:
    values = np.zeros((4, 2, 4))
    for x, label in enumerate([0, 1, 2, 2]):
        values[label, :, x] = 1  # both rows say 0 1 2 2
    target = np.array([[0, 1, 1, 255], [255, 3, 2, 2]])
    measure = Maps(SCORES)
    window = whole(4, 2)
    record = {"image": 0, **measure.record({"float": answer(values)}, window, target)}
    unknown = {"image": 1, **measure.record({"float": answer(values)}, window, None)}
    side = reduce([unknown, record], ["float"], measure, lambda _: None)["float"]
    assert isinstance(side, MapSums) and (side.images, side.known) == (2, 1)
    # of six pixels 0, 1, 2, 2 are right; unions: 0: 1, 1: 3 (two said, two true, one both), 2: 4-1 ..., 3: 1
    pairs = [(0, 0), (1, 1), (1, 2), (3, 1), (2, 2), (2, 2)]
    ious = [sum(p == (c, c) for p in pairs) / sum(c in p for p in pairs) for c in range(4)]
    assert side.judged() == {"pixel_accuracy": 4 / 6, "mean_iou_truth": pytest.approx(sum(ious) / 4)}
    rows = {row[0]: row[1:] for row in measure.rows({"float": side})}
    assert rows == {"right class, pixels": ["66.67 %"], "mean IoU with the truth": [f"{sum(ious) / 4:.4f}"]}
