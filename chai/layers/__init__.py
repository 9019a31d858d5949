"""The layer types: one file each, imported on first use.

Files are named after their type: ``InnerProduct`` is in ``inner_product.py``. Adding a file adds the type; nothing has
to be registered. Files with a leading underscore hold code that several types share.
"""

from __future__ import annotations

from functools import lru_cache

from ..graph import Layer
from ..util.paths import defined, modules


@lru_cache(maxsize=1)
def _files() -> dict[str, str]:
    return {stem.replace("_", ""): stem for stem in modules(__path__) if not stem.startswith("_")}


def find(name: str) -> type[Layer] | None:
    """Return the class of a layer type (case-sensitive), or None if there is none."""
    stem = _files().get(name.lower())
    return None if stem is None else defined(__name__, stem, Layer).get(name)


def restored(name: str, bottoms: int) -> type[Layer] | None:
    """Return the class of a compiled network's layer: its type's, or what the pass ``unpool`` makes of an Upsample."""
    return defined(__name__, "_unpool", Layer)["MaxUnpool"] if (name, bottoms) == ("Upsample", 3) else find(name)


def spelled(text: str) -> str | None:
    """Return the type whose name is this text but for case and underscores, or None if there is none."""
    plain = text.replace("_", "").lower()
    names = defined(__name__, _files()[plain], Layer) if plain in _files() else ()
    return next((name for name in names if name.lower() == plain), None)


def types() -> list[str]:
    """Return the names of all layer types in alphabetical order."""
    return sorted((name for stem in _files().values() for name in defined(__name__, stem, Layer)), key=str.lower)
