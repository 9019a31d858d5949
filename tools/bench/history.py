"""The history of a benchmark: a file with a JSON object per line, in which slow-downs show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from chai.cli import output
from chai.cli.bench import NOISE, described
from chai.errors import UsageError

from .figures import Figures

_SAME = ("network", "inputs", "device", "overlay", "kernels", "processor", "clock")


def check(path: Path) -> None:
    """Raise UsageError if a file is of something else than figures of this benchmark."""
    for _ in _earlier(path):
        pass


def remember(path: Path, figures: Mapping[str, Any]) -> None:
    """Append figures to a history, and warn of a slow-down since the last ones of the same circumstances.

    Raises UsageError if the file is of something else.
    """
    latest: dict[str, tuple[str, float]] = {}
    for same, earlier in _earlier(path):
        if same == [figures[key] for key in _SAME]:
            latest |= earlier
    for what, now in _least(figures):
        time, before = latest.get(what, ("", now))
        if now > before * (1 + NOISE):
            output.say(
                f"warning: {what}: {now:.2f} ms at least, {before:.2f} ms at {time}: {now / before - 1:.0%} slower"
            )
    time = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"schema": Figures.schema, "time": time, **figures}) + "\n")


def _earlier(path: Path) -> Iterator[tuple[list[Any], dict[str, tuple[str, float]]]]:
    """Yield the circumstances of earlier figures, and time of day and milliseconds of each kind, by what they are of."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            figures = json.loads(line)
            if figures["schema"] == Figures.schema:
                time = str(figures["time"])
                yield [figures[key] for key in _SAME], {what: (time, ms) for what, ms in _least(figures)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"--history {path}: a line is none of this benchmark", hint="name another file") from error


def _least(figures: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield chai's least times, with what they are of."""
    for run in figures["runs"]:
        yield described(run), float(run["ms_per_image"]["chai"]["min"])
    for name, times in (figures["start"] or {}).items():
        if name.startswith("chai"):
            yield f"start of {name}, CPU time", float(times["cpu"]["min"])
