"""What an accelerator is: its manifest, the layout of blobs and weights in its memory, and its records of bit fields."""

from .manifest import (
    Buffer,
    ConvLimits,
    Field,
    Host,
    Layout,
    Overlay,
    PoolLimits,
    Record,
    Register,
    default,
    load,
    names,
)

__all__ = [
    "Buffer",
    "ConvLimits",
    "Field",
    "Host",
    "Layout",
    "Overlay",
    "PoolLimits",
    "Record",
    "Register",
    "default",
    "load",
    "names",
]
