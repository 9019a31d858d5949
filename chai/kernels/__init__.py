"""Fast implementations of the arithmetic that layers share, in C or in numpy.

``floats`` is imported at its first use: a list of layers needs no kernels in C. Where layers are defined, it is
``kernels.floats``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import floats as floats
else:

    def __getattr__(name: str) -> Any:
        if name != "floats":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f".{name}", __name__)
