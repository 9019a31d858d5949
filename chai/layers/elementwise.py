"""Functions of one number, element by element.

AbsVal: |x|.
BNLL: log(1 + exp(x)), a soft ReLU.
Clip: x limited to the range from min to max.
ELU: x for x > 0, alpha * (exp(x) - 1) below.
Erf: the error function, of which GELU is made: erf(x) = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x.
Exp: base ^ (shift + scale * x).
HardSwish: x * min(max(x + 3, 0), 6) / 6.
Log: the logarithm of shift + scale * x.
Swish: x * sigmoid(beta * x).
TanH: hyperbolic tangent.
Threshold: 1 where x > threshold, else 0.
"""

from __future__ import annotations

from math import log
from typing import Any

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import MessageFields
from ..util.lazy_numpy import np

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: the error is at most 1.5e-7
_P = 0.3275911
_FACTORS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


class FunctionLayer(Layer):
    """The subclass has the function."""

    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (self.function(bottoms[0]),)

    def function(self, x: Array) -> Any:
        """Return the function of each number."""
        raise NotImplementedError(self.type)


class AbsVal(FunctionLayer):
    never_negative = True

    def function(self, x: Array) -> Any:
        return np.abs(x)


class BNLL(FunctionLayer):
    def function(self, x: Array) -> Any:
        return np.logaddexp(x, np.float32(0))  # without overflow


class Clip(FunctionLayer):
    """If max < min, the result is min."""

    class Params(MessageFields):
        min: float | None = None
        max: float | None = None

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.min is None or self.params.max is None:
            raise self.wrong("min or max is missing")
        return bottoms

    def function(self, x: Array) -> Any:
        return np.maximum(np.minimum(x, np.float32(self.params.max)), np.float32(self.params.min))


class ELU(FunctionLayer):
    class Params(MessageFields):
        """alpha is the slope at 0 from the negative side."""

        alpha: float = 1.0

    def function(self, x: Array) -> Any:
        return np.where(x > 0, x, np.float32(self.params.alpha) * np.expm1(np.minimum(x, 0)))


class Erf(FunctionLayer):
    """Within 1.5e-7."""

    fork = "ONNX"
    new_tops = keeps_sign = True

    def function(self, x: Array) -> Any:
        x = x.astype(np.float64)
        t = 1 / (1 + _P * np.abs(x))
        total = np.zeros_like(t)
        for factor in _FACTORS:
            total = (total + factor) * t
        y = np.copysign(1 - total * np.exp(-x * x), x)
        return np.where(x == 0, x, y).astype(np.float32)


class Exp(FunctionLayer):
    class Params(MessageFields):
        """Base -1 means e."""

        base: float = -1.0
        scale: float = 1.0
        shift: float = 0.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.base != -1 and self.params.base <= 0:
            raise self.wrong(f"base {self.params.base}; it must be above 0, or -1 for e")
        return bottoms

    def function(self, x: Array) -> Any:
        p = self.params
        factor = 1.0 if p.base == -1 else log(p.base)
        return np.exp(np.float32(factor * p.scale) * x + np.float32(factor * p.shift))


class HardSwish(FunctionLayer):
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    def function(self, x: Array) -> Any:
        return x * np.clip(x + 3, 0, 6) / 6


class Log(FunctionLayer):
    """-inf for 0, nan below."""

    Params = Exp.Params

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        base = self.params.base
        if base != -1 and (base <= 0 or base == 1):
            raise self.wrong(f"base {base}; it must be above 0 and not 1, or -1 for e")
        return bottoms

    def function(self, x: Array) -> Any:
        p = self.params
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(np.float32(p.scale) * x + np.float32(p.shift))
        return y if p.base == -1 else y * np.float32(1 / log(p.base))


class Swish(FunctionLayer):
    class Params(MessageFields):
        """The slope of the sigmoid at 0, times 4."""

        beta: float = 1.0

    def function(self, x: Array) -> Any:
        # sigmoid by tanh, which does not overflow
        return x * (0.5 * np.tanh(np.float32(0.5 * self.params.beta) * x) + np.float32(0.5))


class TanH(FunctionLayer):
    def function(self, x: Array) -> Any:
        return np.tanh(x)


class Threshold(FunctionLayer):
    class Params(MessageFields):
        """A value equal to threshold gives 0."""

        threshold: float = 0.0

    def function(self, x: Array) -> Any:
        return (x > np.float32(self.params.threshold)).astype(np.float32)
