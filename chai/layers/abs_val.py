"""AbsVal: |x|."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class AbsVal(Layer):
    """Element by element."""

    elementwise = True

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.abs(bottoms[0]),)
