"""Heads of detectors, one number at a time: candidates of every cell, then the best boxes of each class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

Array = np.ndarray
Candidate = tuple[float, int, tuple[float, float, float, float]]  # score, class, corners as fractions of the input


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def softmax(values: Sequence[float]) -> list[float]:
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


def corners(x: float, y: float, w: float, h: float) -> tuple[float, float, float, float]:
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def anchored(
    maps: Sequence[Array],
    anchors: Sequence[Sequence[tuple[float, float]]],
    strides: Sequence[int],
    scales: Sequence[float],
    square: bool,
    soft: bool,
) -> Iterator[tuple[list[float], tuple[float, float, float, float]]]:
    """Scores of all classes and corners of every anchor of an image's maps (anchors * (5 + classes), H, W)."""
    for x, sizes, stride, scale in zip(maps, anchors, strides, scales):
        high, wide = x.shape[1:]
        entries = len(x) // len(sizes)
        for a, (aw, ah) in enumerate(sizes):
            for row in range(high):
                for column in range(wide):
                    v = [float(x[a * entries + i, row, column]) for i in range(entries)]
                    cx = (column + sigmoid(v[0]) * scale - (scale - 1) / 2) * stride
                    cy = (row + sigmoid(v[1]) * scale - (scale - 1) / 2) * stride
                    if square:
                        w, h = (2 * sigmoid(v[2])) ** 2 * aw, (2 * sigmoid(v[3])) ** 2 * ah
                    else:
                        w, h = math.exp(v[2]) * aw, math.exp(v[3]) * ah
                    shares = softmax(v[5:]) if soft else [sigmoid(s) for s in v[5:]]
                    box = corners(cx / (wide * stride), cy / (high * stride), w / (wide * stride), h / (high * stride))
                    yield [sigmoid(v[4]) * share for share in shares], box


def anchor_free(maps: Sequence[Array], bins: int) -> Iterator[tuple[list[float], tuple[float, float, float, float]]]:
    """Scores of all classes and corners of every cell of an image's maps (4 * bins + classes, H, W)."""
    for x in maps:
        high, wide = x.shape[1:]
        for row in range(high):
            for column in range(wide):
                v = [float(each) for each in x[:, row, column]]
                sides = []
                for side in range(4):
                    own = v[side * bins : (side + 1) * bins]
                    sides.append(own[0] if bins == 1 else sum(i * p for i, p in enumerate(softmax(own))))
                left, top, right, bottom = sides
                cx, cy = column + 0.5, row + 0.5
                box = ((cx - left) / wide, (cy - top) / high, (cx + right) / wide, (cy + bottom) / high)
                yield [sigmoid(s) for s in v[4 * bins :]], box


def decoded(
    x: Array, size: tuple[int, int], objectness: bool
) -> Iterator[tuple[list[float], tuple[float, float, float, float]]]:
    """Scores of all classes and corners of every column (4 + classes, boxes); ``size`` is the input's height and width."""
    height, width = size
    for column in x.T.tolist():
        cx, cy, w, h = column[:4]
        scores = [column[4] * s for s in column[5:]] if objectness else column[4:]
        yield scores, corners(cx / width, cy / height, w / width, h / height)


def shared(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2)."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height)


def detections(
    every: Sequence[Iterator[tuple[list[float], tuple[float, float, float, float]]]],
    confidence: float,
    nms: float,
    keep: int = 300,
    several: bool = False,
) -> Array:
    """Rows (image, class, score, corners) of the boxes of each image, as the layers write them."""
    rows = []
    for image, boxes in enumerate(every):
        candidates: list[Candidate] = []
        for scores, box in boxes:
            best = max(range(len(scores)), key=lambda c: scores[c])
            candidates += [(s, c, box) for c, s in enumerate(scores) if s > confidence and (several or c == best)]
        kept: list[Candidate] = []
        for score, label, box in sorted(candidates, key=lambda c: -c[0]):
            if all(label != other or shared(box, place) <= nms for _, other, place in kept):
                kept.append((score, label, box))
        rows += [[image, label, score, *box] for score, label, box in kept[:keep]]
    return np.array(rows or [[n, *[-1] * 6] for n in range(len(every))]).reshape(1, 1, -1, 7)
