"""A forward pass over time: as a Chrome trace, for https://ui.perfetto.dev or chrome://tracing, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..util import html
from ..util.files import complete

if TYPE_CHECKING:
    from .perf import PerfInfo, StepTime

LANES = ("host", "custom", "fpga")  # one row each, in this order; thread ids count from 1
_LEFT, _WIDTH, _LANE = 60, 700, 22  # pixels of the picture: names of lanes, time, one lane
_NARROW = 2.0  # pixels; neighbours on a lane are drawn as one until they are that wide


def chrome_trace(perf: PerfInfo) -> dict[str, Any]:
    """Return the steps of ``perf`` as JSON objects of the Trace Event Format; ``ts`` and ``dur`` in microseconds."""
    events: list[dict[str, Any]] = [_name("process_name", 0, "chai")]
    events += [_name("thread_name", thread, lane) for thread, lane in enumerate(LANES, 1)]
    for step, lane, start in _placed(perf):
        events.append(
            {
                "name": step.name,
                "cat": step.type,
                "ph": "X",
                "ts": start,
                "dur": step.ms * 1000,
                "pid": 1,
                "tid": 1 + LANES.index(lane),
                "args": {"type": step.type, "macs": step.macs, "bytes": step.bytes},
            }
        )
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"wall_ms": perf.wall_ms, "batch": perf.batch},
    }


def _placed(perf: PerfInfo) -> Iterator[tuple[StepTime, str, float]]:
    """Yield steps in the order they began, with lane and start in microseconds.

    A step stands at its ``begin``, or behind the step before it on its lane where the clock has them touch: steps of one
    lane never overlap.
    """
    free = dict.fromkeys(LANES, 0.0)
    for step in sorted(perf.steps, key=lambda s: s.begin):
        lane = step.engine if step.engine in LANES else "host"
        start = max(step.begin * 1000, free[lane])
        free[lane] = start + step.ms * 1000
        yield step, lane, start


def timeline(perf: PerfInfo) -> str:
    """Return the same as an SVG: a lane per engine, milliseconds from left to right, each step's name under the mouse.

    Steps too short to be seen are drawn together with those that follow.
    """
    steps = list(_placed(perf))
    first = min((start for _, _, start in steps), default=0.0)  # of a stream's last batch it is late
    full = max((start + step.ms * 1000 for step, _, start in steps), default=0.0) - first or 1.0
    scale = _WIDTH / full
    lanes = [lane for lane in LANES if any(found == lane for _, found, _ in steps)]
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
        for start, end, words in _pieces([(s, start) for s, found, start in steps if found == lane], _NARROW / scale):
            parts.append(
                f'<rect x="{_LEFT + (start - first) * scale:.2f}" y="{_LANE * row}" width="{(end - start) * scale:.2f}" '
                f'height="{_LANE - 6}" fill="{html.colour(lane)}"><title>{html.text(words)}</title></rect>'
            )
    return "".join(parts) + "</svg>"


def _pieces(steps: list[tuple[StepTime, float]], least: float) -> Iterator[tuple[float, float, str]]:
    """Start, end (microseconds) and words of what is drawn: a step, or several that are narrow together."""
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


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def save(perf: PerfInfo, path: str | Path) -> None:
    """Write the trace of ``perf``; the file appears complete or not at all."""
    with complete(path) as part:
        part.write_text(json.dumps(chrome_trace(perf), allow_nan=False), "utf-8")
