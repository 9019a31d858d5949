"""OpenCV itself, which chai does without."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def own(module: str, asked: str, name: str) -> Any:
    """Return what OpenCV's ``module`` has under a name that ``asked``, a module of chai, does not have.

    Raises AttributeError that says which of both is missing.
    """
    if not name.startswith("__"):
        try:
            return getattr(import_module(module), name)
        except ImportError:
            raise AttributeError(
                f"module {asked!r} has no attribute {name!r}; if it is OpenCV's own: pip install opencv-python"
            ) from None
        except AttributeError:
            raise AttributeError(f"neither {asked!r} nor {module!r} has an attribute {name!r}") from None
    raise AttributeError(f"module {asked!r} has no attribute {name!r}")
