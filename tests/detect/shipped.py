"""The detector that chai ships, and when its boxes are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.digit_scenes import BoxedDigit

NETWORK = "digits_detector"
CONVOLUTIONS = {"conv1", "conv2", "conv3", "conv4", "conv5", "conv6", "boxes", "classes"}


def is_right(boxes: Any, truth: Sequence[BoxedDigit]) -> bool:
    """Whether boxes (image, class, score, corners) are the digits: each of one's class, with an overlap of half or more."""
    left = list(truth)
    for _, label, _, *corners in boxes.tolist():
        own = [digit for digit in left if digit.label == label and overlap(corners, digit[1:]) >= 0.5]
        if not own:
            return False
        left.remove(own[0])
    return not left


def overlap(one: Any, other: Any) -> float:
    """Intersection over union of two boxes."""
    (x1, y1, x2, y2), (left, top, right, bottom) = one, other
    common = max(0.0, min(x2, right) - max(x1, left)) * max(0.0, min(y2, bottom) - max(y1, top))
    return common / ((x2 - x1) * (y2 - y1) + (right - left) * (bottom - top) - common)
