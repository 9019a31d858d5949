"""Paths of chai's own files: data, next to the package in a checkout and inside it in a wheel; modules, and their classes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

Base = TypeVar("Base")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def shipped(*parts: str) -> str:
    """Return the path of a shipped file or folder, e.g. ``shipped("proto", "caffe.desc")``."""
    inside = f"{_PACKAGE}/_data"
    return os.path.join(inside if os.path.isdir(inside) else os.path.dirname(_PACKAGE), *parts)


def resource(*parts: str) -> Path:
    from pathlib import Path  # with urllib: a tenth of the start of a compiled network, which needs no Path

    return Path(shipped(*parts))


def stem(path: str | Path) -> str:
    """Return the name of a file without its ending."""
    return os.path.splitext(os.path.basename(path))[0]


def modules(folders: Iterable[str]) -> set[str]:
    """Return the names of the Python files in the folders of a package, without ``.py``; ``Path.glob`` takes 20 times as long."""
    return {name.removesuffix(".py") for folder in folders for name in os.listdir(folder) if name.endswith(".py")}


def defined(package: str, stem: str, base: type[Base]) -> dict[str, type[Base]]:
    """Return the classes derived from ``base`` that a file of a package defines, and does not import, by name."""
    module = import_module(f".{stem}", package)
    classes = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    return {n: cls for n, cls in classes.items() if issubclass(cls, base) and cls.__module__ == module.__name__}
