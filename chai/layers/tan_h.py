"""TanH: hyperbolic tangent."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class TanH(Layer):
    """Element by element."""

    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.tanh(bottoms[0]),)
