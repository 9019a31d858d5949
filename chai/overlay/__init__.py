"""Description of an accelerator: manifest, memory layout of blobs and weights, and records of bit fields."""

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
