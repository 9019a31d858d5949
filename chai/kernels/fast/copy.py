"""Copy: codes as they are, rescaled, or looked up."""

from __future__ import annotations

from ...tasks.copy import Copy
from ..native.table import Form, Kind, fits


def form(task: Copy) -> Form | None:
    """Return a Copy as an operation; None for a folded one."""
    r = task.requantization
    if task.fold is not None:
        return None
    if r is None:
        return Form(Kind.COPY if task.lookup is None else Kind.LOOKUP)
    if not fits(r) or r.multiplier.size != 1 or (r.negative is not None and r.negative.size != 1):
        return None
    negative = None if r.negative is None else (int(r.negative.flat[0]),)
    return Form(Kind.SUM, r, factors=(int(r.multiplier.flat[0]),), negative=negative, zeros=(task.zero,))
