"""Upsample: codes repeated, or with zeros around them."""

from __future__ import annotations

from ...tasks.upsample import UpsampleTask
from ...tasks.window import POINT
from ..native.table import Form, Kind


def form(task: UpsampleTask) -> Form | None:
    """Return an Upsample of unchanged codes as an operation."""
    if task.requantization is not None:
        return None
    return Form(Kind.UPSAMPLE, None, POINT._replace(stride=task.factors), zeros=(task.zero,), spread=task.spread)
