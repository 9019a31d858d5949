"""Log: the logarithm of shift + scale * x."""

from __future__ import annotations

from math import log

from ..blob import Array, Shape
from ..graph import Layer
from ..util.lazy_numpy import np
from .exp import Exp


class Log(Layer):
    """Element by element; -inf for 0, nan below."""

    message = "log_param"
    Params = Exp.Params
    elementwise = True

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
