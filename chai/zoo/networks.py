"""The networks that are shipped with chai."""

from __future__ import annotations

from pathlib import Path

from ..util.paths import resource


def names() -> list[str]:
    return sorted(p.stem for p in resource("prototxt").glob("*.prototxt"))


def prototxt(name: str) -> Path | None:
    """Return the prototxt of a shipped network; None if the name is unknown."""
    return resource("prototxt", f"{name}.prototxt") if name in names() else None
