"""Row indices, for layers that select rows."""

from __future__ import annotations

from ..blob import Array
from ..errors import ModelError
from ..graph import Layer
from ..util.lazy_numpy import np


def rows(layer: Layer, index: Array, count: int) -> Array:
    """Convert ``index`` to integers as C does. Raises ModelError if one is outside 0 .. count - 1."""
    low, high = index.min(initial=0), index.max(initial=0)
    if not (low > -1 and high < count):  # written so that nan is refused too
        wrong = low if low <= -1 else high
        raise layer.failure(ModelError(f"index {wrong:g} is outside 0 .. {count - 1}"))
    return index.astype(np.intp)
