"""Non-maximum suppression, shared by all detection layers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..blob import Array
from ..util.lazy_numpy import np

BLOCK = 64  # boxes that are compared with each other at once


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

    ``low`` and ``high`` (2, boxes) are corners, ``area`` is (boxes,). Disjoint boxes never overlap, nor do boxes without area.
    Overlaps are computed for many pairs at once: within a block of the best boxes, then of those kept of it with all others.
    """
    ends = np.concatenate([high, -low])  # the least ends of two boxes are those of what they have in common
    limit, kept, left = np.float32(rule.threshold), list[int](), np.arange(len(area))
    worst = np.full(len(area), -1, np.float32)  # largest overlap with a kept box
    while len(left):
        block, left = left[:BLOCK], left[BLOCK:]
        overlaps, own = _overlaps(ends, area, block, block, rule.edge), worst[block]
        new = list[int]()
        for i in range(len(block)):
            if rule.exceeds(own[i], limit):
                continue
            new.append(i)
            if len(kept) + len(new) == rule.most:
                kept += block[new].tolist()
                return kept
            if rule.eta < 1 and limit > 0.5:
                limit *= np.float32(rule.eta)
            np.fmax(own, overlaps[i], out=own)
        kept += block[new].tolist()
        if len(left):
            others = np.fmax(worst[left], np.fmax.reduce(_overlaps(ends, area, block[new], left, rule.edge)))
            worst[left] = others
            left = left[~rule.exceeds(others, limit)]
    return kept


def _overlaps(ends: Array, area: Array, some: Array, others: Array, edge: int) -> Array:
    """Return the intersection over union of some boxes with others; of those without area it may be no number."""
    common = np.minimum(ends.take(some, 1)[:, :, None], ends.take(others, 1)[:, None])  # take: rows stay contiguous
    wide, high = common[:2] + common[2:]
    product = (wide + edge) * (high + edge) if edge else wide * high
    inside = np.where(np.minimum(wide, high) >= 0, product, np.float32(0))
    union = area[some, None] + area[others] - inside
    with np.errstate(invalid="ignore", divide="ignore"):
        overlaps: Array = inside / union
    return overlaps


def runs(numbers: Array) -> Iterator[slice]:
    """Yield where equal numbers follow each other."""
    ends = [*(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    return map(slice, [0, *ends[:-1]], ends) if len(numbers) else iter(())
