"""Log: the logarithm of shift + scale * x."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from ..blob import Array, Shape
from ..graph import Layer
from ..util.lazy_numpy import np


class Log(Layer):
    """Element by element; -inf for 0, nan below."""

    message = "log_param"
    elementwise = True

    @dataclass(frozen=True)
    class Params:
        """Base -1 means e."""

        base: float = -1.0
        scale: float = 1.0
        shift: float = 0.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        base = self.params.base
        if base != -1 and (base <= 0 or base == 1):
            raise self.wrong(f"base {base}; it must be above 0 and not 1, or -1 for e")
        return bottoms

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(np.float32(p.scale) * bottoms[0] + np.float32(p.shift))
        return (y if p.base == -1 else y * np.float32(1 / log(p.base)),)
