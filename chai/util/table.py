"""Tables as plain text, for terminals and pipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from .text import visible


@dataclass(frozen=True)
class Table:
    """Cells as text; ``align`` has one l or r per column."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str


def plain(head: Sequence[str], rows: Sequence[Sequence[str]], align: str, gap: str = "  ") -> str:
    """Return columns of ASCII text; ``align`` has one l or r per column. Nothing is truncated."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = []
    for row in (head, *rows):
        cells = (c.ljust(w) if a == "l" else c.rjust(w) for c, w, a in zip(row, widths, align))
        lines.append(gap.join(cells).rstrip())
    return "\n".join(lines)


def floored(value: float, digits: int = 1) -> str:
    """Return a measured value with a few decimals, rounded down, so that a value below a bound is never printed as it."""
    from decimal import ROUND_FLOOR, Decimal  # few commands need it

    if not isfinite(value):
        return f"{value}"
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR))


def quantity(value: float) -> str:
    """Return a count with about three digits: 947, 1.0 M, 1.58 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"
