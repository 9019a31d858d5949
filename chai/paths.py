"""Where chai's own data files are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(*parts: str) -> Path:
    """Path of a shipped file or folder, e.g. ``resource("proto", "caffe.desc")``."""
    inside = _PACKAGE / "_data"
    root = inside if inside.is_dir() else _PACKAGE.parent
    return root.joinpath(*parts)


def networks() -> list[str]:
    """Names of the shipped networks."""
    return sorted(p.stem for p in resource("prototxt").glob("*.prototxt"))


def network(name: str) -> Path | None:
    """The prototxt of a shipped network, or None if there is none of that name."""
    return resource("prototxt", f"{name}.prototxt") if name in networks() else None
