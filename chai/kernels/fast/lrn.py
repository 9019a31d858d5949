"""LRN of codes."""

from __future__ import annotations

from ...tasks.lrn import LRNTask
from ...tasks.window import POINT
from ...util.lazy_numpy import np
from ..native.table import Form, Kind, fits


def form(task: LRNTask) -> Form | None:
    """Return an LRN as an operation."""
    if not fits(task.requantization) or np.abs(task.slopes).max(initial=0) >= 1 << 17:
        return None
    window = POINT._replace(kernel=(task.local_size, 1))
    table = np.stack([task.bases, task.slopes], 1).reshape(-1)
    return Form(Kind.LRN_CODES, task.requantization, window, bias=table, zeros=(task.zero,))
