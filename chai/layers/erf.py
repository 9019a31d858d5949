"""Erf: the error function, of which GELU is made: erf(x) = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: the error is at most 1.5e-7
_P = 0.3275911
_FACTORS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


class Erf(Layer):
    """Element by element, within 1.5e-7."""

    new_tops = True
    fork = "ONNX"
    elementwise = keeps_sign = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0].astype(np.float64)
        t = 1 / (1 + _P * np.abs(x))
        total = np.zeros_like(t)
        for factor in _FACTORS:
            total = (total + factor) * t
        y = np.copysign(1 - total * np.exp(-x * x), x)
        return (np.where(x == 0, x, y).astype(np.float32),)
