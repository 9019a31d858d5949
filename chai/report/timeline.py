"""Timeline of a forward pass: a Chrome trace, for https://ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..runtime.perf import PerfInfo
from ..runtime.perf.picture import LANES, placed
from ..util.files import complete


def chrome_trace(perf: PerfInfo) -> dict[str, Any]:
    """Return the steps of ``perf`` as JSON objects of the Trace Event Format; ``ts`` and ``dur`` in microseconds."""
    events: list[dict[str, Any]] = [_name("process_name", 0, "chai")]
    events += [_name("thread_name", thread, lane) for thread, lane in enumerate(LANES, 1)]
    for step, lane, start in placed(perf.steps):
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
    other = {"wall_ms": perf.wall_ms, "batch": perf.batch}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def save(perf: PerfInfo, path: str | Path) -> None:
    """Write the trace of ``perf`` atomically."""
    with complete(path) as part:
        part.write_text(json.dumps(chrome_trace(perf), allow_nan=False), "utf-8")
