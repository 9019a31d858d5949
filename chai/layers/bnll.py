"""BNLL: log(1 + exp(x)), a soft ReLU."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class BNLL(Layer):
    """Element by element."""

    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.logaddexp(bottoms[0], np.float32(0)),)  # without overflow
