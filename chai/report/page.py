"""Reports as one self-contained HTML file, or as a PNG of its bars.

The HTML needs no script and no network, and contains its data as JSON. Names come from untrusted files: every text is
escaped, and the page's content security policy allows nothing but its own style.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..text import in_ascii
from ..util.files import complete
from ..util.html import COLOURS, markup, text
from ..util.table import Table, tail

BAD = "#D55E00"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NAMES, _FULL, _LINE, _WIDTH = 290, 300, 16, 760  # pixels: end of the names, full bar, line height, picture width
_LONGEST = 42  # characters of a name
_MOST = 1000  # bars of a PNG

_STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1a1a1a;--faint:#d0d0d0;--bad:#b34a00}
@media(prefers-color-scheme:dark){:root{--back:#16181c;--text:#e8e8e8;--faint:#4a4d52;--bad:#ff8a3d}}
body{background:var(--back);color:var(--text);font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:62em;
padding:0 1em}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em}dt{font-weight:600}dd{margin:0}
.wide{overflow-x:auto}svg{font:11px monospace;max-width:100%}svg text{fill:var(--text)}
rect{stroke:var(--text);stroke-width:.5}svg .bad,.no{fill:var(--bad);color:var(--bad);font-weight:600}
.axis{stroke:var(--faint)}.bound{stroke:var(--bad);stroke-dasharray:3 3}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.1em .7em;border-bottom:1px solid var(--faint);text-align:left}.r{text-align:right}
"""


@dataclass(frozen=True)
class Bar:
    """One bar. ``value`` may be infinite (a full bar); ``text`` is its label; ``engine`` determines the colour."""

    name: str
    value: float
    text: str
    engine: str
    bad: bool = False


@dataclass(frozen=True)
class Chart:
    """Bars from 0 to ``full``; ``bound`` is the value that all bars should reach."""

    title: str
    bars: Sequence[Bar]
    full: float
    bound: float

    def pixels(self, value: float) -> float:
        """Return the length of a bar."""
        return _FULL * min(1.0, max(0.0, value / self.full))


def body(verdict: Sequence[str], missed: Sequence[str], chart: Chart, table: Table) -> list[str]:
    """Return the HTML of verdict, missed goals, chart and table, for a ``document``."""
    return [
        *(f"<p>{text(line)}</p>" for line in verdict),
        *(f'<p class="no">missed: {text(line)}</p>' for line in missed),
        f'<h2>{text(chart.title)}</h2>\n<div class="wide">{svg(chart)}</div>',
        f'<h2>All numbers</h2>\n<div class="wide">{markup(table)}</div>',
    ]


def document(
    title: str, facts: Mapping[str, str], body: Sequence[str], data: Mapping[str, Any], style: str = ""
) -> str:
    """Return a page of title, facts, the HTML of ``body``, and ``data`` as JSON (without NaN) for other programs."""
    pairs = "".join(f"<dt>{text(k)}<dd>{text(v)}" for k, v in facts.items())
    numbers = json.dumps(data, separators=(",", ":"), allow_nan=False)
    numbers = numbers.replace("<", "\\u003c")  # "</" and "<!--" would end the element or change its parsing
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{text(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>",
            f"<h1>{text(title)}</h1>\n<dl>{pairs}</dl>",
            *body,
            f'<script type="application/json" id="data">{numbers}</script>',
            "</body>\n</html>\n",
        ]
    )


def svg(chart: Chart) -> str:
    """Return the chart as an inline SVG for the page of ``document``."""
    height = _LINE * (len(chart.bars) + 2)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" aria-label="{text(chart.title)}">',
        "<defs><style>"
        + "".join(f".{name}{{fill:{colour}}}" for name, colour in {**COLOURS, "host": "url(#hatch)"}.items())
        + '</style><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M1 0V5" stroke="{COLOURS["host"]}" stroke-width="3"/></pattern></defs>',
    ]
    for tick in range(5):
        x = _NAMES + _FULL * tick / 4
        parts.append(f'<path class="axis" d="M{x:g} {_LINE}V{height}"/>')
        parts.append(f'<text x="{x:g}" y="11" text-anchor="middle">{chart.full * tick / 4:g}</text>')
    for i, bar in enumerate(chart.bars):
        y, width = _LINE * (i + 1), chart.pixels(bar.value)
        engine = bar.engine if bar.engine in COLOURS else "host"
        parts.append(
            f'<text x="{_NAMES - 6}" y="{y + 12}" text-anchor="end"{_MARK * bar.bad}>{text(tail(bar.name, _LONGEST))}</text>'
            f'<rect class="{engine}" x="{_NAMES}" y="{y + 3}" width="{width:.1f}" height="11"/>'
            f'<text x="{_NAMES + _FULL + 8}" y="{y + 12}"{_MARK * bar.bad}>{text(_beside(bar))}</text>'
        )
    parts.append(f'<path class="bound" d="M{_NAMES + chart.pixels(chart.bound):g} {_LINE}V{height}"/>')
    return "".join(parts) + "</svg>"


def save(path: str | Path, page: str) -> None:
    """Write a page atomically."""
    with complete(path) as part:
        part.write_bytes(page.encode("utf-8"))


def save_png(path: str | Path, chart: Chart) -> None:
    """Write a PNG of the chart with up to 1000 bars, atomically."""
    from PIL import Image, ImageDraw, ImageFont

    bars = chart.bars[:_MOST]
    image = Image.new("RGB", (_WIDTH, _LINE * (len(bars) + 4)), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default()  # which has no letters outside ASCII in old versions of Pillow
    more = f" (the first {_MOST} of {len(chart.bars)})" if len(bars) < len(chart.bars) else ""
    draw.text((8, 4), in_ascii(chart.title + more), fill="black", font=font)
    bottom = _LINE * (len(bars) + 3)
    for tick in range(5):
        x = _NAMES + _FULL * tick // 4
        draw.line((x, 2 * _LINE, x, bottom), fill="#d0d0d0")
        draw.text((x - 6, _LINE + 4), f"{chart.full * tick / 4:g}", fill="black", font=font)
    for i, bar in enumerate(bars):
        y, end = _LINE * (i + 2), _NAMES + int(chart.pixels(bar.value))
        colour, ink = COLOURS.get(bar.engine, COLOURS["host"]), BAD if bar.bad else "black"
        draw.text((8, y + 2), in_ascii(tail(bar.name, _LONGEST)), fill=ink, font=font)
        if bar.engine == "host":
            for x in range(_NAMES, end, 5):
                draw.line((x, y + 13, min(x + 10, end), y + 3), fill=colour, width=2)
        else:
            draw.rectangle((_NAMES, y + 3, end, y + 13), fill=colour)
        draw.rectangle((_NAMES, y + 3, end, y + 13), outline="black")
        draw.text((_NAMES + _FULL + 8, y + 2), in_ascii(_beside(bar)), fill=ink, font=font)
    x = _NAMES + int(chart.pixels(chart.bound))
    draw.line((x, 2 * _LINE, x, bottom), fill=BAD)
    with complete(path) as part:
        image.quantize(64).save(part, "PNG")


_MARK = ' class="bad"'


def _beside(bar: Bar) -> str:
    return f"{bar.text}  {bar.engine}" + ("  below the bound" if bar.bad else "")
