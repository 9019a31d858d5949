"""Probabilities of classes.

Sigmoid: 1 / (1 + exp(-x)).
Softmax: exp(x) / sum of exp(x) along an axis.
"""

from __future__ import annotations

from .. import kernels
from ..blob import Array, Shape
from ..graph import Layer, OutputKind
from ..graph.params import MessageFields, axis_index
from ..kernels.native import NativeLayer
from ..util.lazy_numpy import np


class Softmax(Layer):
    """The maximum is subtracted first, so nothing overflows."""

    never_negative = True

    class Params(MessageFields):
        axis: int = axis_index(1)

    decision = "softmax"

    def output_kind(self, top: Shape) -> OutputKind | None:
        kind = super().output_kind(top)
        return None if kind == "map" and self.axis(self.params.axis, top) != 1 else kind

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.axis(self.params.axis, bottoms[0])
        return bottoms

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.axis(self.params.axis, bottoms[0]) == 0

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        if self.other is not None:
            return None
        return kernels.floats.softmax(bottoms[0], self.axis(self.params.axis, bottoms[0]))

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, along = bottoms[0], self.axis(self.params.axis, bottoms[0].shape)
        if self.other is not None:
            return (self.other(x, along),)
        if (in_c := self.native((x.shape,), False)) is not None:
            return (in_c.run(x).reshape(x.shape),)
        return (softmax(x, along),)


def softmax(x: Array, along: int) -> Array:
    """Return exp(x) / sum of exp(x) along an axis; the maximum is subtracted first, so nothing overflows."""
    y: Array = np.exp(x - x.max(along, keepdims=True, initial=-np.inf))
    y /= y.sum(along, keepdims=True)
    return y


class Sigmoid(Layer):
    decision = "sigmoid"
    computes_scores = elementwise = never_negative = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (sigmoid(bottoms[0]),)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow."""
    y: Array = 0.5 * np.tanh(0.5 * x) + np.float32(0.5)
    return y
