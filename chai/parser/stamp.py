"""The first line of a quantised prototxt: which weights its formats belong to."""

from __future__ import annotations

import re

STAMP = re.compile(r"\A# chai quantize: [^\n]*sha256 ([0-9a-f]{64})[^\n]*\r?\n")


def stamp(weights: str, digest: str, note: str) -> str:
    """Return the line, without its end; ASCII, whatever the file's name."""
    name = weights.encode("ascii", "backslashreplace").decode()
    return f"# chai quantize: {note}; weights sha256 {digest} {name}"


def stamped(text: str) -> str | None:
    """SHA-256 of the weights that a network's text asks for; None if it names none."""
    found = STAMP.match(text)
    return found.group(1) if found else None
