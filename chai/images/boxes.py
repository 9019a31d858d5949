"""Boxes in pixels of pictures, from the rows of a layer that detects: the one place that turns answers into boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..blob import Array
from ..util.lazy_numpy import np
from .preprocess import PictureWindow


def detections(rows: Array, windows: Mapping[int, PictureWindow], first_class: int = 0) -> Array:
    """Return the boxes of the pictures of a batch, float32 (boxes, 7): image, class, score, x1, y1, x2, y2.

    ``rows``         (..., 7) of a layer: image, label, score and corners as fractions of the network's input
    ``windows``      the part of each picture that the input shows; others' boxes are left out
    ``first_class``  label of the first class, which is 0 in the result: 1 if label 0 is the background

    Corners are pixels of the picture, and inside it. Boxes are sorted by image, then by descending score. Rows without a box,
    without area in the picture or with anything that is no number are left out; (0, 7) if nothing was detected.
    """
    rows = rows.reshape(-1, 7)
    rows = rows[(rows[:, 1] >= first_class) & np.isin(rows[:, 0], list(windows)) & ~np.isnan(rows).any(1)]
    rows = rows[np.lexsort((-rows[:, 2], rows[:, 0]))]
    boxes = rows.astype(np.float32)
    boxes[:, 1] -= first_class
    for image, (left, top, right, bottom, width, height) in windows.items():
        own = boxes[:, 0] == image
        low, size = np.array([left, top] * 2), np.array([right - left, bottom - top] * 2)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite corners, which are clipped
            boxes[own, 3:] = np.clip(low + rows[own, 3:].astype(np.float64) * size, 0, [width, height] * 2)
    return boxes[(boxes[:, 3:5] < boxes[:, 5:]).all(1)]


def class_names(labels: Sequence[str], first_class: int, classes: int | None) -> Sequence[str]:
    """Return the names of classes from 0, of labels that may begin with the background's.

    ``classes``  the number of classes without it, None if it is unknown
    """
    return labels if len(labels) == classes else labels[first_class:]
