"""Compiled networks (.chai): one file with everything a board needs, and no code.

container   file layout: prefix, JSON header, sections, checksums
save, load  an Execution to a file, and back; load uses reader (header values), layers and steps
source      a file as the source of a Net's plan

``CompiledSource`` is loaded when it is first used: a prototxt needs none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .source import CompiledSource as CompiledSource

__all__ = ["CompiledSource"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'chai.artifact' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(".source", __name__), name)
    return value
