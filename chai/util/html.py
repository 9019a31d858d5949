"""HTML for reports and notebooks. Names come from untrusted files, so every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import visible
from .table import Table

# Okabe-Ito: colour-blind safe on light and dark backgrounds. A word always accompanies the colour.
COLOURS = {"fpga": "#0072B2", "host": "#E69F00", "custom": "#CC79A7", "input": "#009E73"}
COLOURS |= {"pack": "#56B4E9", "unpack": "#56B4E9"}  # between the two; the word says which
MOST = 200  # rows of a table in a notebook

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})

# Text and background keep the notebook's colours, light or dark.
_STYLE = """
.chai{overflow-x:auto;line-height:1.35}.chai .rows{max-height:32em;overflow-y:auto}
.chai table{border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums;color:inherit}
.chai th,.chai td{padding:.1em .7em;border-bottom:1px solid rgba(128,128,128,.35);text-align:left;color:inherit}
.chai .r{text-align:right}.chai .bar{min-width:8em}.chai .bar div{height:.8em}
.chai svg{font:11px sans-serif;max-width:100%}.chai svg text{fill:currentColor}
"""


def text(words: str) -> str:
    """Return text as one escaped line: tags, quotes and control characters have no effect."""
    return visible(words).translate(_ESCAPES)


def markup(table: Table, bars: Sequence[tuple[str, float]] = ()) -> str:
    """Return an HTML table. ``bars`` holds (engine, percent) for a bar at the end of each row."""
    side = ['<{} class="r">' if a == "r" else "<{}>" for a in table.align]
    head = "".join(s.format("th") + text(cell) for s, cell in zip(side, table.head)) + ("<th>" if bars else "")
    rows = ["<tr>" + "".join(s.format("td") + text(cell) for s, cell in zip(side, row)) for row in table.rows]
    if bars:
        rows = [row + _bar(*bar) for row, bar in zip(rows, bars)]
    return f"<table>\n<thead><tr>{head}</thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"


def colour(engine: str) -> str:
    """Return the colour of an engine; unknown names have the host's."""
    return COLOURS.get(engine, COLOURS["host"])


def _bar(engine: str, percent: float) -> str:
    width = min(100.0, max(0.0, percent))
    return f'<td class="bar"><div style="width:{width:.1f}%;background:{colour(engine)}"></div>'


def notebook(*parts: str) -> str:
    """Return the result of a ``_repr_html_``: its parts with their own style on the notebook's background."""
    return f'<div class="chai"><style>{_STYLE}</style>\n' + "\n".join(parts) + "\n</div>"


def paragraph(words: str) -> str:
    return f"<p>{text(words)}</p>"


def rows(table: Table, bars: Sequence[tuple[str, float]] = (), most: int = MOST) -> str:
    """Return a table in a scrolling pane; above ``most`` rows, only its first and last rows."""
    left = len(table.rows) - most
    if left > 0:
        first, last = most // 2, len(table.rows) - most // 2
        gap = [f"... {left} more ...", *[""] * (len(table.head) - 1)]
        table = Table(table.head, [*table.rows[:first], gap, *table.rows[last:]], table.align)
        bars = [*bars[:first], ("", 0), *bars[last:]] if bars else ()
    return f'<div class="rows">{markup(table, bars)}</div>'
