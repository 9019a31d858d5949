"""The first line of a quantised prototxt, which names the weights that its formats belong to."""

from __future__ import annotations

import re

STAMP = re.compile(r"\A# chai quantize: [^\n]*sha256 ([0-9a-f]{64})[^\n]*\r?\n")


def stamp(weights: str, digest: str, note: str) -> str:
    """Return the line without a newline. It is ASCII even if the file name is not."""
    name = weights.encode("ascii", "backslashreplace").decode()
    return f"# chai quantize: {note}; weights sha256 {digest} {name}"


def stamped(text: str) -> str | None:
    """Return the SHA-256 of the weights that a network's text requires; None if it names none."""
    stamp = STAMP.match(text)
    return stamp.group(1) if stamp else None
