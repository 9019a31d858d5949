"""YOLOv2's layers and CHaiDNN's reorg, from darknet's definitions: flat indices and one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def reorg(x: Array, stride: int) -> Array:
    """Value by value where darknet's reorg_cpu (forward 0) takes it from; x (N, C, H, W)."""
    batch, channels, height, width = x.shape
    parts = channels // (stride * stride)
    memory, moved = x.ravel(), np.zeros(x.size)
    for to in range(x.size):
        column = to % width
        row = to // width % height
        channel = to // (width * height) % channels
        image = to // (width * height * channels)
        fine_column = column * stride + channel // parts % stride
        fine_row = row * stride + channel // parts // stride
        part = channel % parts
        moved[to] = memory[fine_column + width * stride * (fine_row + height * stride * (part + parts * image))]
    return moved.reshape(batch, channels * stride * stride, height // stride, width // stride)


def logistic(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def region(x: Array, classes: int, coords: int, num: int, softmax: bool) -> Array:
    y = np.zeros(x.shape)
    entries = coords + 1 + classes
    for n, channel, row, column in np.ndindex(x.shape):
        first, entry = channel // entries * entries, channel % entries
        v = float(x[n, channel, row, column])
        if entry > coords and softmax:
            scores = [math.exp(float(x[n, first + coords + 1 + c, row, column])) for c in range(classes)]
            y[n, channel, row, column] = math.exp(v) / sum(scores)
        elif entry in (0, 1) or entry >= coords:
            y[n, channel, row, column] = logistic(v)
        else:
            y[n, channel, row, column] = v
    return y


def union_share(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2)."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return width * height / (areas - width * height)


def detections(
    x: Array, confidence: float, overlap: float, keep: int, anchors: Sequence[float]
) -> list[list[list[float]]]:
    """Rows (image, class, score, x1, y1, x2, y2) of each image, best first; x is what ``region`` gives."""
    batch, channels, height, width = x.shape
    num = len(anchors) // 2
    classes = channels // num - 5
    rows_by_image = []
    for n in range(batch):
        rows = []
        for c in range(classes):
            candidates = []
            for anchor in range(num):
                for row in range(height):
                    for column in range(width):
                        v = [float(x[n, anchor * (5 + classes) + i, row, column]) for i in range(5 + classes)]
                        middle = (column + v[0]) / width, (row + v[1]) / height
                        size = (
                            math.exp(v[2]) * anchors[2 * anchor] / width,
                            math.exp(v[3]) * anchors[2 * anchor + 1] / height,
                        )
                        low = [middle[i] - size[i] / 2 for i in range(2)]
                        high = [middle[i] + size[i] / 2 for i in range(2)]
                        if v[4] * v[5 + c] > confidence:
                            candidates.append((v[4] * v[5 + c], [*low, *high]))
            kept: list[tuple[float, list[float]]] = []
            for score, box in sorted(candidates, reverse=True):
                if all(union_share(box, other) <= overlap for _, other in kept):
                    kept.append((score, box))
            rows += [[n, c, score, *box] for score, box in kept]
        rows_by_image.append(sorted(rows, key=lambda r: -r[2])[:keep])
    return rows_by_image
