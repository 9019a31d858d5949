"""Swish: x * sigmoid(beta * x)."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class Swish(Layer):
    """Element by element."""

    message = "swish_param"
    elementwise = True

    @dataclass(frozen=True)
    class Params:
        """The slope of the sigmoid at 0, times 4."""

        beta: float = 1.0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        # sigmoid by tanh, which does not overflow
        return (x * (0.5 * np.tanh(np.float32(0.5 * self.params.beta) * x) + np.float32(0.5)),)
