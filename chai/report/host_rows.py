"""Rows of what a pass takes of its host: the steps, what the driver of a device does, and what is around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median_low

from ..runtime.times import Times

Row = tuple[str, str, int]  # kind, name, amount


def rows_of(times: Times, moves: Sequence[Row], whole: float, per_ms: float) -> list[Row]:
    """Return the rows of a pass of ``whole`` units, of which a millisecond of its clock has ``per_ms``.

    They are its steps, ``moves`` of blobs, and what is around them. Segments without their moves, and without what the
    accelerator counted itself, are the driver's.
    """
    segments = [step for step in times.steps if step.kind == "fpga"]
    host = (step for step in times.steps if step.kind != "fpga")
    rows = [(step.type if step.kind == "host" else step.kind, step.name, round(step.ms * per_ms)) for step in host]
    rows += moves
    device = sum((step.device_ms or 0.0) * per_ms for step in segments)
    driver = sum(step.ms * per_ms for step in segments) - device - sum(number for *_, number in moves)
    rows.append(("driver", f"segments: {len(segments)}", round(driver)))
    rows.append(("feed", "before the first step", round(times.feed_ms * per_ms)))
    rows.append(("between", "between steps", round(times.between_ms * per_ms)))
    rows.append(("call", "around the pass", round(whole - device) - sum(number for *_, number in rows)))
    return rows


def medians(passes: Sequence[Sequence[Row]]) -> tuple[Row, ...]:
    """Return the median of each row over passes of the same rows, in the order of the first. Raises ValueError for others."""
    numbers: dict[tuple[str, str, int], list[int]] = {}
    for rows in passes:
        seen: Counter[tuple[str, str]] = Counter()
        for kind, name, number in rows:
            numbers.setdefault((kind, name, seen[kind, name]), []).append(
                number
            )  # a blob may be stored for several segments
            seen[kind, name] += 1
    if any(len(counts) != len(passes) for counts in numbers.values()):
        raise ValueError("passes of one network have different rows")
    return tuple((kind, name, median_low(counts)) for (kind, name, _), counts in numbers.items())
