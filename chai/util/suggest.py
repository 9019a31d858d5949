"""Suggest the name that a user may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return "did you mean 'x'?" for the known name that is most like ``name``; None if none is."""
    near = get_close_matches(name, list(known), 1, cutoff)
    return f"did you mean {near[0]!r}?" if near else None


def sentences(*parts: str | None) -> str:
    """Return the parts of a hint that there are, with a space between them."""
    return " ".join(filter(None, parts))
