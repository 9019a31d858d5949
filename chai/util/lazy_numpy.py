"""numpy, imported at its first use.

Shapes are plain ints, so reading and printing a network (``chai show``) needs no numpy, and importing it takes longer
than the rest of such a command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # the next access is a plain attribute
            return value

    np = _Numpy()

__all__ = ["np"]
