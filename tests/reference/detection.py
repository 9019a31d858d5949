"""The detection layers of YOLO and of R-CNN, as their C++ has them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Box = tuple[float, float, float, float]


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def overlap(a: Box, b: Box) -> float:
    """Intersection over union of boxes given by centre and size."""
    sides = []
    for i in range(2):
        left = max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2)
        right = min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
        sides.append(right - left)
    inside = 0.0 if min(sides) < 0 else sides[0] * sides[1]
    return inside / (a[2] * a[3] + b[2] * b[3] - inside)


def kept(candidates: list[tuple[float, int, Box]], image: int, nms: float) -> list[list[float]]:
    """Rows (image, label from 1, score, corners) of candidates (score, label, box), best first."""
    candidates = sorted(candidates, key=lambda f: -f[0])
    gone: set[int] = set()
    rows = []
    for i, (score, label, (x, y, w, h)) in enumerate(candidates):
        if i in gone:
            continue
        gone |= {j for j in range(i + 1, len(candidates)) if overlap(candidates[i][2], candidates[j][2]) >= nms}
        rows.append([image, label + 1, score, x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    return rows


def rows_of(rows: list[list[float]], images: int) -> Array:
    return np.array(rows or [[n, *[-1] * 6] for n in range(images)]).reshape(1, 1, -1, 7)


def yolov3(
    bottoms: Sequence[Array],
    classes: int,
    anchors: Sequence[tuple[float, float]],
    masks: Sequence[Sequence[int]],
    scales: Sequence[int],
    confidence: float,
    nms: float,
) -> Array:
    rows: list[list[float]] = []
    for image in range(len(bottoms[0])):
        candidates = []
        for x, mask, scale in zip(bottoms, masks, scales):
            high, wide = x.shape[2:]
            for row in range(high):
                for column in range(wide):
                    for n, anchor in enumerate(mask):
                        v = [float(x[image, n * (5 + classes) + k, row, column]) for k in range(5 + classes)]
                        box = (
                            (column + sigmoid(v[0])) / wide,
                            (row + sigmoid(v[1])) / high,
                            math.exp(v[2]) * anchors[anchor][0] / (wide * scale),
                            math.exp(v[3]) * anchors[anchor][1] / (high * scale),
                        )
                        for c in range(classes):
                            score = sigmoid(v[4]) * sigmoid(v[5 + c])
                            if score > confidence:
                                candidates.append((score, c, box))
        rows += kept(candidates, image, nms)
    return rows_of(rows, len(bottoms[0]))


def yolov2(
    bottoms: Sequence[Array], classes: int, anchors: Sequence[tuple[float, float]], confidence: float, nms: float
) -> Array:
    rows: list[list[float]] = []
    for image in range(len(bottoms[0])):
        candidates = []
        for x in bottoms:
            high, wide = x.shape[2:]
            for row in range(high):
                for column in range(wide):
                    for n, anchor in enumerate(anchors):
                        v = [float(x[image, n * (5 + classes) + k, row, column]) for k in range(5 + classes)]
                        box = (
                            (column + sigmoid(v[0])) / wide,
                            (row + sigmoid(v[1])) / high,
                            math.exp(v[2]) * anchor[0] / wide,
                            math.exp(v[3]) * anchor[1] / high,
                        )
                        shares = [math.exp(c - max(v[5:])) for c in v[5:]]
                        label = shares.index(max(shares))
                        score = sigmoid(v[4]) * shares[label] / sum(shares)
                        if score >= confidence:
                            candidates.append((score, label, box))
        rows += kept(candidates, image, nms)
    return rows_of(rows, len(bottoms[0]))


def c_round(v: float) -> int:
    return math.floor(abs(v) + 0.5) * (1 if v >= 0 else -1)


def roi_pooling(x: Array, regions: Array, size: tuple[int, int], scale: float) -> Array:
    """Fast R-CNN: maxima of parts; regions (R, 5)."""
    _, channels, height, width = x.shape
    y = np.zeros((len(regions), channels, *size))
    for r, c, i, j in np.ndindex(y.shape):
        image, x1, y1, x2, y2 = (float(v) for v in regions[r])
        left, top, right, bottom = (c_round(v * scale) for v in (x1, y1, x2, y2))
        high, wide = max(bottom - top + 1, 1) / size[0], max(right - left + 1, 1) / size[1]
        seen = [
            float(x[int(image), c, h, w])
            for h in range(max(math.floor(i * high) + top, 0), min(math.ceil((i + 1) * high) + top, height))
            for w in range(max(math.floor(j * wide) + left, 0), min(math.ceil((j + 1) * wide) + left, width))
        ]
        y[r, c, i, j] = max(seen) if seen else 0.0
    return y


def psroi_pooling(x: Array, regions: Array, outputs: int, group: int, scale: float) -> Array:
    """R-FCN: averages of parts, each from a channel of its own."""
    _, _, height, width = x.shape
    y = np.zeros((len(regions), outputs, group, group))
    for r, c, i, j in np.ndindex(y.shape):
        image, x1, y1, x2, y2 = (float(v) for v in regions[r])
        left, top = c_round(x1) * scale, c_round(y1) * scale
        wide = max((c_round(x2) + 1) * scale - left, 0.1) / group
        high = max((c_round(y2) + 1) * scale - top, 0.1) / group
        seen = [
            float(x[int(image), (c * group + i) * group + j, h, w])
            for h in range(max(math.floor(i * high + top), 0), min(math.ceil((i + 1) * high + top), height))
            for w in range(max(math.floor(j * wide + left), 0), min(math.ceil((j + 1) * wide + left), width))
        ]
        y[r, c, i, j] = sum(seen) / len(seen) if seen else 0.0
    return y


def anchor_boxes(base: int, ratios: Sequence[float], scales: Sequence[float]) -> list[list[float]]:
    """Corners x1, y1, x2, y2 of the anchors of the pixel (0, 0), both included."""
    middle = (base - 1) / 2
    boxes = []
    for ratio in ratios:
        wide = int(math.sqrt(base * base / ratio) + 0.5)
        high = int(wide * ratio + 0.5)
        for scale in scales:
            x, y = (wide * scale - 1) / 2, (high * scale - 1) / 2
            boxes.append([middle - x, middle - y, middle + x, middle + y])
    return boxes


def shared(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of boxes of whole pixels, corners included."""
    if a[0] > b[2] or a[1] > b[3] or a[2] < b[0] or a[3] < b[1]:
        return 0.0
    sides = [min(a[i + 2], b[i + 2]) - max(a[i], b[i]) + 1 for i in range(2)]
    areas = [(c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b)]
    return sides[0] * sides[1] / (sum(areas) - sides[0] * sides[1])


def proposals(
    scores: Array,
    deltas: Array,
    image: Sequence[float],
    ratios: Sequence[float],
    scales: Sequence[float],
    stride: int = 16,
    base: int = 16,
    smallest: int = 16,
    before: int = 6000,
    after: int = 300,
    nms: float = 0.7,
) -> tuple[Array, Array]:
    """PVANET's regions (K, 5) and their scores (K,); ``image``: height, width, scale of heights, of widths."""
    anchors = anchor_boxes(base, ratios, scales)
    candidates = []
    for row, column in np.ndindex(scores.shape[2:]):
        for k, anchor in enumerate(anchors):
            box, high_enough = [0.0] * 4, True
            for i in range(2):  # across, down
                first = anchor[i] + (column, row)[i] * stride
                size = anchor[i + 2] - anchor[i] + 1
                center = float(deltas[0, 4 * k + i, row, column]) * size + first + size / 2
                size *= math.exp(float(deltas[0, 4 * k + 2 + i, row, column]))
                most = image[1 - i] - 1
                box[i], box[i + 2] = (max(0, min(v, most)) for v in (center - size / 2, center + size / 2))
                high_enough &= box[i + 2] - box[i] + 1 >= smallest * image[3 - i]
            candidates.append((float(scores[0, len(anchors) + k, row, column]) * high_enough, box))
    candidates = sorted(candidates, key=lambda f: -f[0])[:before]
    stay: list[tuple[float, list[float]]] = []
    for score, box in candidates:
        if len(stay) < after and all(shared(box, other) <= nms for _, other in stay):
            stay.append((score, box))
    return np.array([[0, *box] for _, box in stay]), np.array([score for score, _ in stay])
