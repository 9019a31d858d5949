"""TanH: hyperbolic tangent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph import Layer
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array


class TanH(Layer):
    """Element by element."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.tanh(bottoms[0]),)
