"""Non-maximum suppression, shared by all detection layers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from ..blob import Array
from ..util.lazy_numpy import np


class Suppression(NamedTuple):
    """The boxes to drop: those whose overlap (intersection over union) with a kept one ``exceeds`` the threshold.

    ``edge``  added to the sides of boxes: 1 if both corners are pixels of the box
    ``eta``   multiplies the threshold for every kept box while it is above 0.5, if eta < 1
    ``most``  boxes at which the search stops
    """

    threshold: float
    exceeds: Callable[[Any, Any], Any] = operator.gt
    edge: int = 0
    eta: float = 1.0
    most: int | None = None


def suppress(low: Array, high: Array, area: Array, rule: Suppression) -> list[int]:
    """Return the indices of the boxes to keep, in the order of ``area``, which must be best first.

    ``low`` and ``high`` (boxes, 2) are corners, ``area`` is (boxes,). Disjoint boxes never overlap, nor do boxes without area.
    """
    threshold, exceeds, edge, eta, most = rule
    limit = np.float32(threshold)
    worst = np.full(len(area), -1, np.float32)  # largest overlap with a kept box
    kept: list[int] = []
    for i in range(len(area)):
        if exceeds(worst[i], limit):
            continue
        kept.append(i)
        if len(kept) == most:
            break
        if eta < 1 and limit > 0.5:
            limit *= np.float32(eta)
        rest = slice(i + 1, None)
        common = np.minimum(high[rest], high[i]) - np.maximum(low[rest], low[i])
        inside = np.where((common >= 0).all(1), (common + edge).prod(1), 0)
        union = area[rest] + area[i] - inside
        overlap = np.divide(inside, union, out=np.full(len(union), -1, np.float32), where=union > 0)
        np.fmax(worst[rest], overlap, out=worst[rest])
    return kept
