"""Find networks: shipped ones, published weights, and files that a user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_compiled(path: str | Path) -> bool:
    """Return whether a path is a compiled network."""
    return str(path).endswith(".chai")
