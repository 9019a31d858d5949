"""What an accelerator is: its manifest, the layout of blobs and weights in its memory, and its records of bit fields."""

from .manifest import (
    Buffer,
    Field,
    Host,
    Layout,
    Limits,
    Overlay,
    Record,
    Register,
    Section,
    default,
    load,
    names,
)

__all__ = [
    "Buffer",
    "Field",
    "Host",
    "Layout",
    "Limits",
    "Overlay",
    "Record",
    "Register",
    "Section",
    "default",
    "load",
    "names",
]
