"""Description of an accelerator: manifest, memory layout of blobs and weights, and records of bit fields.

Names are loaded when they are first used: a Task needs the layout, but no manifest before a network is planned.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .manifest import Overlay as Overlay, default as default, load as load, names as names
    from .sections import (
        BitField as BitField,
        Host as Host,
        Layout as Layout,
        OnChipBuffer as OnChipBuffer,
        Record as Record,
        Register as Register,
        TaskLimits as TaskLimits,
        TaskSection as TaskSection,
    )

__all__ = [
    "BitField",
    "Host",
    "Layout",
    "OnChipBuffer",
    "Overlay",
    "Record",
    "Register",
    "TaskLimits",
    "TaskSection",
    "default",
    "load",
    "names",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'chai.overlay' has no attribute {name!r}")
    home = ".manifest" if name in ("Overlay", "default", "load", "names") else ".sections"
    value = globals()[name] = getattr(import_module(home, __name__), name)
    return value
