"""The history of chai bench: a file with a JSON object per line, which a slow-down is found by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import UsageError
from . import output, schemas
from .bench_report import NOISE, described

_SAME = ("network", "inputs", "device", "overlay", "kernels", "processor")


def remember(path: Path, figures: Mapping[str, Any]) -> None:
    """Append figures to a history, and warn of a slow-down since the last ones of the same circumstances.

    Raises UsageError if the file is of something else.
    """
    try:
        latest = _latest(path, figures) if path.exists() else {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"--history {path}: a line is none of chai bench", hint="name another file") from error
    for what, now in _least(figures):
        time, before = latest.get(what, ("", now))
        if now > before * (1 + NOISE):
            output.say(
                f"warning: {what}: {now:.2f} ms at least, {before:.2f} ms at {time}: {now / before - 1:.0%} slower"
            )
    time = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"schema": schemas.Bench.schema, "time": time, **figures}) + "\n")


def _latest(path: Path, figures: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    """Return time of day and milliseconds of the last figures of each kind, by what they are of."""
    latest = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        earlier = json.loads(line)
        if earlier["schema"] == schemas.Bench.schema and all(earlier[key] == figures[key] for key in _SAME):
            latest.update({what: (str(earlier["time"]), ms) for what, ms in _least(earlier)})
    return latest


def _least(figures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield chai's least times, with what they are of."""
    for run in figures["runs"]:
        yield described(run), float(run["ms_per_image"]["chai"]["min"])
    for name, times in (figures["start"] or {}).items():
        if name.startswith("chai"):
            yield f"start of {name}, CPU time", float(times["cpu"]["min"])
