"""A forward pass as a Chrome trace: open it in https://ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import complete

if TYPE_CHECKING:
    from .perf import PerfInfo

LANES = ("host", "custom", "fpga")  # one row each, in this order; thread ids count from 1


def chrome_trace(perf: PerfInfo) -> dict[str, Any]:
    """The steps of ``perf`` as JSON objects of the Trace Event Format; ``ts`` and ``dur`` in microseconds.

    A step stands at its ``begin``, or behind the step before it on its lane where the clock has them touch: steps of one
    lane never overlap.
    """
    events: list[dict[str, Any]] = [_name("process_name", 0, "chai")]
    events += [_name("thread_name", thread, lane) for thread, lane in enumerate(LANES, 1)]
    free = dict.fromkeys(LANES, 0.0)
    for step in sorted(perf.steps, key=lambda s: s.begin):
        lane = step.engine if step.engine in LANES else "host"
        start, duration = max(step.begin * 1000, free[lane]), step.ms * 1000
        free[lane] = start + duration
        events.append(
            {
                "name": step.name,
                "cat": step.type,
                "ph": "X",
                "ts": start,
                "dur": duration,
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


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def save(perf: PerfInfo, path: str | Path) -> None:
    """Write the trace of ``perf``; the file appears complete or not at all."""
    with complete(path) as part:
        part.write_text(json.dumps(chrome_trace(perf), allow_nan=False), "utf-8")
