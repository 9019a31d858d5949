"""Paths of chai's own data files: next to the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def resource(*parts: str) -> Path:
    """Return the path of a shipped file or folder, e.g. ``resource("proto", "caffe.desc")``."""
    inside = _PACKAGE / "_data"
    root = inside if inside.is_dir() else _PACKAGE.parent
    return root.joinpath(*parts)
