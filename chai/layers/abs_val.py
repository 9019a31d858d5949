"""AbsVal: |x|."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class AbsVal(Layer):
    """Element by element."""

    elementwise = never_negative = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.abs(bottoms[0]),)
