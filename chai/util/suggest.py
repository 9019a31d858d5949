"""Suggest the name that a user may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most like ``name``, at most ``count``, the nearest first."""
    from difflib import get_close_matches  # not needed unless a name is wrong

    return get_close_matches(str(name), list(known), count, cutoff)  # of Python callers that pass no text, too


def did_you_mean(
    name: str, known: Iterable[str], *, listed: str | None = None, quoted: bool = True, cutoff: float = 0.6
) -> str | None:
    """Return "did you mean 'x'?" for the known name that is most like ``name``; None if none is.

    ``listed``  a word for the known names, which are all listed after the question: "devices: float, null"
    """
    names = list(known)
    near = nearest(name, names, 1, cutoff)
    parts = [f"did you mean {word!r}?" if quoted else f"did you mean {word}?" for word in near]
    if listed:
        parts.append(f"{listed}: {', '.join(names)}")
    return " ".join(parts) or None
