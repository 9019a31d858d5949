"""Suggest the name that a user may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return "did you mean 'x'?" for the known name most similar to ``name``; None if none is similar."""
    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else None
