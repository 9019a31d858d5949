"""The layer types: one file each, imported on first use.

Files are named after their type: ``InnerProduct`` is in ``inner_product.py``. Adding a file adds the type; nothing has
to be registered. Files with a leading underscore hold code that several types share.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path

from ..graph import Layer


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    stems = (p.stem for folder in __path__ for p in Path(folder).glob("*.py"))
    return {stem.replace("_", ""): stem for stem in stems if not stem.startswith("_")}


def find(name: str) -> type[Layer] | None:
    """Return the class of a layer type (case-sensitive), or None if there is none."""
    stem = _files().get(name.lower())
    return _defined(stem).get(name) if stem else None


def spelled(text: str) -> str | None:
    """Return the type whose name is this text but for case and underscores, or None if there is none."""
    plain = text.replace("_", "").lower()
    return (
        next((name for name in _defined(_files()[plain]) if name.lower() == plain), None) if plain in _files() else None
    )


def types() -> list[str]:
    """Return the names of all layer types in alphabetical order."""
    return sorted((name for stem in _files().values() for name in _defined(stem)), key=str.lower)


def _defined(stem: str) -> dict[str, type[Layer]]:
    module = import_module(f".{stem}", __name__)
    return {
        n: c
        for n, c in vars(module).items()
        if isinstance(c, type) and issubclass(c, Layer) and c.__module__ == module.__name__
    }
