"""Non-maximum suppression, shared by all detection layers; in C where a library was compiled."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

from ..blob import Array
from ..util.lazy_numpy import np
from .native import library
from .native.library import Library, pointer

BLOCK = 64  # boxes that are compared with each other at once
LANES = 16  # of native/boxes.h


class Suppression(NamedTuple):
    """The boxes to drop: those whose overlap (intersection over union) with a kept one exceeds the threshold.

    ``inclusive``  whether an overlap that equals the threshold is enough
    ``edge``  added to the sides of boxes: 1 if both corners are pixels of the box
    ``eta``   multiplies the threshold for every kept box while it is above 0.5, if eta < 1
    ``most``  boxes at which the search stops
    """

    threshold: float
    inclusive: bool = False
    edge: int = 0
    eta: float = 1.0
    most: int | None = None


def suppress(low: Array, high: Array, area: Array, rule: Suppression) -> list[int]:
    """Return the indices of the boxes to keep, in the order of ``area``, which must be best first.

    ``low`` and ``high`` (2, boxes) are corners, ``area`` is (boxes,): float32. Disjoint boxes never overlap, nor do boxes
    without area.
    """
    ends = np.concatenate([high, -low])  # the least ends of two boxes are those of what they have in common
    used = library.library()
    if used is None or ends.dtype != np.float32 or area.dtype != np.float32:
        return _in_numpy(ends, area, rule)
    return _in_c(used, np.ascontiguousarray(ends), np.ascontiguousarray(area), rule)


class _SuppressionState(ctypes.Structure):
    """``suppression`` of native/boxes.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("next", "kept", "most")),
        *((name, ctypes.c_float) for name in ("limit", "eta", "edge")),
        ("inclusive", ctypes.c_int32),
    ]


def _in_c(used: Library, ends: Array, area: Array, rule: Suppression) -> list[int]:
    count = len(area)
    near, kept = np.full((5, count + LANES), np.nan, np.float32), np.empty(count, np.int64)
    most = -1 if rule.most is None else rule.most
    state = _SuppressionState(0, 0, most, rule.threshold, rule.eta, rule.edge, rule.inclusive)
    places = pointer(ends), pointer(area), ctypes.c_int64(count), pointer(near), pointer(kept), ctypes.byref(state)
    while state.next < count:  # between calls Python handles signals
        used.calls.chai_suppress(*places)
    indices: list[int] = kept[: state.kept].tolist()
    return indices


def _in_numpy(ends: Array, area: Array, rule: Suppression) -> list[int]:
    """Compute overlaps for many pairs at once: within a block of the best boxes, then of those kept of it with all others."""
    exceeds = np.greater_equal if rule.inclusive else np.greater
    limit, kept, left = np.float32(rule.threshold), list[int](), np.arange(len(area))
    worst = np.full(len(area), -1, np.float32)  # largest overlap with a kept box
    while len(left):
        block, left = left[:BLOCK], left[BLOCK:]
        overlaps, own = _overlaps(ends, area, block, block, rule.edge), worst[block]
        new = list[int]()
        for i in range(len(block)):
            if exceeds(own[i], limit):
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
            left = left[~exceeds(others, limit)]
    return kept


def _overlaps(ends: Array, area: Array, some: Array, others: Array, edge: int) -> Array:
    """Return the intersection over union of some boxes with others; it may be NaN for boxes without area."""
    common = np.minimum(ends.take(some, 1)[:, :, None], ends.take(others, 1)[:, None])  # take: rows stay contiguous
    wide, high = common[:2] + common[2:]
    product = (wide + edge) * (high + edge) if edge else wide * high
    inside = np.where(np.minimum(wide, high) >= 0, product, np.float32(0))
    union = area[some, None] + area[others] - inside
    with np.errstate(invalid="ignore", divide="ignore"):
        overlaps: Array = inside / union
    return overlaps


def runs(numbers: Array) -> Iterator[slice]:
    """Yield a slice for each run of equal numbers."""
    ends = [*(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    return map(slice, [0, *ends[:-1]], ends) if len(numbers) else iter(())
