"""A picture of steps over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...util import html
from ..times import StepTime

LANES = ("host", "custom", "fpga")  # one row each, in this order; thread ids count from 1
_LEFT, _WIDTH, _LANE = 60, 700, 22  # pixels: lane names, time axis, height of a lane
_NARROW = 2.0  # pixels; narrower neighbours on a lane are drawn as one


def placed(steps: Iterable[StepTime]) -> Iterator[tuple[StepTime, str, float]]:
    """Yield steps in order of their begin, with lane and start in microseconds.

    A step starts at its ``begin``, or at the end of the previous step on its lane, whichever is later: steps of one
    lane never overlap.
    """
    free = dict.fromkeys(LANES, 0.0)
    for step in sorted(steps, key=lambda s: s.begin):
        lane = step.engine if step.engine in LANES else "host"
        start = max(step.begin * 1000, free[lane])
        free[lane] = start + step.ms * 1000
        yield step, lane, start


def picture(steps: Iterable[StepTime]) -> str:
    """Return an SVG: a lane per engine, milliseconds from left to right, each step's name as tooltip.

    Steps too short to be visible are drawn together with the following ones.
    """
    bars = list(placed(steps))
    first = min((start for _, _, start in bars), default=0.0)  # late for the last batch of a stream
    full = max((start + step.ms * 1000 for step, _, start in bars), default=0.0) - first or 1.0
    scale = _WIDTH / full
    lanes = [lane for lane in LANES if any(own == lane for _, own, _ in bars)]
    height = _LANE * (len(lanes) + 1)
    parts = [
        f'<svg viewBox="0 0 {_LEFT + _WIDTH + 30} {height}" width="{_LEFT + _WIDTH + 30}" role="img" '
        'aria-label="what ran when">'
    ]
    for tick in range(5):
        x = _LEFT + _WIDTH * tick / 4
        parts.append(f'<path d="M{x:g} {_LANE - 6}V{height}" stroke="currentColor" stroke-opacity=".25"/>')
        words = f"{(first + full * tick / 4) / 1000:.4g}" + (" ms" if tick == 4 else "")
        parts.append(f'<text x="{x:g}" y="11" text-anchor="middle">{words}</text>')
    for row, lane in enumerate(lanes, 1):
        parts.append(f'<text x="0" y="{_LANE * row + 13}">{lane}</text>')
        for start, end, words in _pieces([(s, start) for s, other, start in bars if other == lane], _NARROW / scale):
            parts.append(
                f'<rect x="{_LEFT + (start - first) * scale:.2f}" y="{_LANE * row}" width="{(end - start) * scale:.2f}" '
                f'height="{_LANE - 6}" fill="{html.colour(lane)}"><title>{html.text(words)}</title></rect>'
            )
    return "".join(parts) + "</svg>"


def _pieces(steps: list[tuple[StepTime, float]], least: float) -> Iterator[tuple[float, float, str]]:
    """Yield start, end (microseconds) and tooltip of each bar: one step, or several narrow ones."""
    group: list[tuple[StepTime, float]] = []
    for (step, start), following in zip(steps, [*steps[1:], None]):
        group.append((step, start))
        begin = group[0][1]
        if following is not None and following[1] - begin < least and max(step.ms, following[0].ms) * 1000 < least:
            continue
        busy = sum(s.ms for s, _ in group)
        name = f"{step.name} ({step.type})" if len(group) == 1 else f"{group[0][0].name} .. {step.name} ({len(group)})"
        yield begin, max(start + step.ms * 1000, begin + least / 4), f"{name}  {busy:.3f} ms"
        group = []
