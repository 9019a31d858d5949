"""Paths of chai's own files: data, next to the package in a checkout and inside it in a wheel, and modules of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def shipped(*parts: str) -> str:
    """Return the path of a shipped file or folder, e.g. ``shipped("proto", "caffe.desc")``."""
    inside = f"{_PACKAGE}/_data"
    return os.path.join(inside if os.path.isdir(inside) else os.path.dirname(_PACKAGE), *parts)


def resource(*parts: str) -> Path:
    """Return ``shipped`` as a Path."""
    from pathlib import Path  # with urllib: a tenth of the start of a compiled network, which needs no Path

    return Path(shipped(*parts))


def stem(path: str | Path) -> str:
    """Return the name of a file without its ending."""
    return os.path.splitext(os.path.basename(path))[0]


def modules(folders: Iterable[str]) -> set[str]:
    """Return the names of the Python files in the folders of a package, without ``.py``; ``Path.glob`` takes 20 times as long."""
    return {name.removesuffix(".py") for folder in folders for name in os.listdir(folder) if name.endswith(".py")}
