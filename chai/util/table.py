"""Tables as plain text, for terminals and pipes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from ..text import visible


@dataclass(frozen=True)
class Table:
    """Cells as text; ``align`` has one l or r per column."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str


def plain(head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Return columns of ASCII text; ``align`` has one l or r per column. Nothing is truncated."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = []
    for row in (head, *rows):
        cells = (c.ljust(w) if a == "l" else c.rjust(w) for c, w, a in zip(row, widths, align))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def whole_width(table: Table, size: Callable[[str], int]) -> int:
    """Return the width of a table, whose columns have two blanks between them. ``size`` measures a text."""
    return sum(max(map(size, column)) + 2 for column in zip(table.head, *table.rows)) - 2


def fit(table: Table, width: int, optional: Sequence[str], size: Callable[[str], int]) -> tuple[Table, list[str]]:
    """Leave out columns until the table is no wider than ``width``; return it and the heads of what was left out.

    ``optional`` columns are left out in this order. Without all of them the table may still be too wide.
    """
    left_out = []
    for head in optional:
        if whole_width(table, size) <= width:
            break
        if head in table.head:
            table = _without(table, table.head.index(head))
            left_out.append(head)
    return table, left_out


def _without(table: Table, column: int) -> Table:
    head, align, *rows = ([*row[:column], *row[column + 1 :]] for row in (table.head, table.align, *table.rows))
    return Table(head, rows, "".join(align))


def filled(begin: str, words: Sequence[str], width: int, indent: str, commas: int) -> list[str]:
    """Return ``begin`` and words as lines of at most ``width``; a word is never cut, however long.

    ``commas``  number of the first word that commas follow, up to the last but one
    """
    lines = [begin]
    for i, word in enumerate(words):
        part = f"{word}," if commas <= i < len(words) - 1 else word
        if len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(indent + part)
    return lines


def tail(name: str, width: int) -> str:
    """Return the last characters of a name that is too long: layers of one block differ there."""
    return name if len(name) <= width else "..." + name[3 - width :]


def floored(value: float, digits: int = 1) -> str:
    """Return a measured value with a few decimals, rounded down, so that a value below a bound is never printed as it."""
    if not isfinite(value):
        return f"{value}"
    rounded = f"{value:.{digits}f}"
    units = int(rounded.replace(".", ""))
    if float(rounded) > value:
        units -= 1
    return f"{units / 10**digits:.{digits}f}"


def quantity(value: float) -> str:
    """Return a count with at most three digits: 947, 1 M, 1.58 G."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:  # else it rounds up to 1000 of the unit below
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"
