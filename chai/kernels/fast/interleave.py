"""Interleave: codes of several parts side by side."""

from __future__ import annotations

from ...tasks.interleave import COLUMNS, Interleave
from ...tasks.window import POINT
from ..native.table import Form, Kind


def form(task: Interleave) -> Form:
    """Return an Interleave as an operation."""
    return Form(Kind.INTERLEAVE, None, POINT._replace(stride=(task.factor, COLUMNS)), apart=task.apart)
