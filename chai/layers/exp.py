"""Exp: base ^ (shift + scale * x)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from ..blob import Array, Shape
from ..graph import Layer
from ..util.lazy_numpy import np


class Exp(Layer):
    """Element by element."""

    message = "exp_param"
    elementwise = True

    @dataclass(frozen=True)
    class Params:
        """Base -1 means e."""

        base: float = -1.0
        scale: float = 1.0
        shift: float = 0.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.base != -1 and self.params.base <= 0:
            raise self.wrong(f"base {self.params.base}; it must be above 0, or -1 for e")
        return bottoms

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        factor = 1.0 if p.base == -1 else log(p.base)
        return (np.exp(np.float32(factor * p.scale) * bottoms[0] + np.float32(factor * p.shift)),)
