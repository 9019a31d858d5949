"""Read networks (text -> tree -> messages -> Graph) and caffemodels.

``load_graph`` is loaded when it is first used: a compiled network needs none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .load import load_graph as load_graph

__all__ = ["load_graph"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'chai.parser' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(".load", __name__), name)
    return value
