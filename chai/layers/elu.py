"""ELU: x for x > 0, alpha * (exp(x) - 1) below."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class ELU(Layer):
    """Element by element."""

    message = "elu_param"
    elementwise = True

    @dataclass(frozen=True)
    class Params:
        """alpha is the slope at 0 from the negative side."""

        alpha: float = 1.0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        return (np.where(x > 0, x, np.float32(self.params.alpha) * np.expm1(np.minimum(x, 0))),)
