"""PriorBox and DetectionOutput of SSD, as its C++ has them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Box = tuple[float, float, float, float]
Pair = tuple[float, float]


def prior_box(
    feature: tuple[int, int],
    image: tuple[int, int],
    min_sizes: Sequence[float],
    max_sizes: Sequence[float] = (),
    ratios: Sequence[float] = (),
    flip: bool = True,
    clip: bool = False,
    variance: Sequence[float] = (0.1,),
    step: Pair | None = None,
    offset: float = 0.5,
) -> Array:
    """(1, 2, H * W * boxes * 4); every pair is (height, width)."""
    known = [1.0]
    for ratio in ratios:
        if all(abs(ratio - k) >= 1e-6 for k in known):
            known.append(ratio)
            if flip:
                known.append(1 / ratio)
    step_h, step_w = step or (image[0] / feature[0], image[1] / feature[1])
    numbers: list[float] = []
    for h in range(feature[0]):
        for w in range(feature[1]):
            x, y = (w + offset) * step_w, (h + offset) * step_h
            for s, smallest in enumerate(min_sizes):
                size = int(smallest)  # an int in the C++: fractions of a pixel are lost
                sides = [(float(size), float(size))]
                if max_sizes:
                    both = math.sqrt(size * int(max_sizes[s]))
                    sides.append((both, both))
                sides += [(size * math.sqrt(r), size / math.sqrt(r)) for r in known if abs(r - 1) >= 1e-6]
                for wide, high in sides:
                    numbers += [
                        (x - wide / 2) / image[1],
                        (y - high / 2) / image[0],
                        (x + wide / 2) / image[1],
                        (y + high / 2) / image[0],
                    ]
    if clip:
        numbers = [min(max(v, 0.0), 1.0) for v in numbers]
    top = np.zeros((1, 2, len(numbers)))
    for i, v in enumerate(numbers):
        top[0, 0, i] = v
        top[0, 1, i] = variance[0] if len(variance) == 1 else variance[i % 4]
    return top


def decode(code: str, location: Sequence[float], prior: Sequence[float], variance: Sequence[float]) -> Box:
    """Corners of the box that ``location`` describes; give variances of 1 when they are encoded in the target."""
    v = [float(a) * float(b) for a, b in zip(location, variance)]
    x0, y0, x1, y1 = (float(p) for p in prior)
    wide, high = x1 - x0, y1 - y0
    if code == "CORNER":
        return x0 + v[0], y0 + v[1], x1 + v[2], y1 + v[3]
    if code == "CORNER_SIZE":
        return x0 + v[0] * wide, y0 + v[1] * high, x1 + v[2] * wide, y1 + v[3] * high
    x, y = (x0 + x1) / 2 + v[0] * wide, (y0 + y1) / 2 + v[1] * high
    w, h = math.exp(v[2]) * wide, math.exp(v[3]) * high
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def area(box: Box) -> float:
    x0, y0, x1, y1 = box
    return 0.0 if x1 < x0 or y1 < y0 else (x1 - x0) * (y1 - y0)


def overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or high <= 0:
        return 0.0
    return wide * high / (area(a) + area(b) - wide * high)


def suppress(boxes: Sequence[Box], scores: Sequence[float], least: float, most: float, eta: float, k: int) -> list[int]:
    """ApplyNMSFast: indices kept, best first. ``least``: score threshold, ``most``: overlap threshold."""
    order = [i for i in range(len(scores)) if scores[i] > least]
    order.sort(key=lambda i: -scores[i])  # stable: the lower index first
    if k > -1:
        order = order[:k]
    kept: list[int] = []
    for i in order:
        if all(overlap(boxes[i], boxes[j]) <= most for j in kept):
            kept.append(i)
            if eta < 1 and most > 0.5:
                most *= eta
    return kept


def detection_output(
    locations: Array,
    scores: Array,
    priors: Array,
    classes: int,
    share_location: bool = True,
    background: int = 0,
    code: str = "CORNER",
    variance_in_target: bool = False,
    confidence: float = -math.inf,
    nms: float = 0.3,
    eta: float = 1.0,
    top_k: int = -1,
    keep_top_k: int = -1,
) -> Array:
    """(1, 1, boxes, 7): image, label, score, corners."""
    boxes = priors.shape[2] // 4
    groups = 1 if share_location else classes
    rows: list[list[float]] = []
    for n in range(locations.shape[0]):
        indices: dict[int, list[int]] = {}
        corners: dict[int, list[Box]] = {}
        score: dict[int, list[float]] = {}
        for label in range(classes):
            if label == background:
                continue
            group = 0 if share_location else label
            corners[label], score[label] = [], []
            for p in range(boxes):
                start = (p * groups + group) * 4
                variance = [1.0] * 4 if variance_in_target else priors[0, 1, 4 * p : 4 * p + 4]
                corners[label].append(
                    decode(code, locations[n, start : start + 4], priors[0, 0, 4 * p : 4 * p + 4], variance)
                )
                score[label].append(float(scores[n, p * classes + label]))
            indices[label] = suppress(corners[label], score[label], confidence, nms, eta, top_k)
        pairs = [(score[label][i], label, i) for label in indices for i in indices[label]]
        if -1 < keep_top_k < len(pairs):
            pairs.sort(key=lambda pair: -pair[0])
            indices = {label: [i for _, owner, i in pairs[:keep_top_k] if owner == label] for label in indices}
        for label in sorted(indices):
            rows += [[n, label, score[label][i], *corners[label][i]] for i in indices[label]]
    if not rows:
        rows = [[n, -1, -1, -1, -1, -1, -1] for n in range(locations.shape[0])]
    return np.array(rows, np.float64).reshape(1, 1, -1, 7)
