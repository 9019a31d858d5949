"""Describe what splits a network's segments on the overlay, as lines of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict


class SplitRow(TypedDict):
    """Layers on the host between layers on the overlay, for one reason; ``without`` them this number of segments is left."""

    reason: str
    layers: list[str]
    without: int


class Splits(TypedDict):
    """The layers that split the segments, and the number of segments if all of these layers ran on the overlay."""

    by_reason: list[SplitRow]
    joined: int


def lines(splits: Splits | None) -> Iterator[tuple[str, str, list[str]]]:
    """Yield label, sentence and layers of each line."""
    if splits is None or not splits["by_reason"]:
        return
    for row in splits["by_reason"]:
        yield "split", f"{row['reason']}; {segments(row['without'])} without:", row["layers"]
    yield "join", f"{segments(splits['joined'])} if all of these ran on the overlay", []


def segments(count: int) -> str:
    """Return a number of segments as text."""
    return f"{count} segment{'s' * (count != 1)}"
