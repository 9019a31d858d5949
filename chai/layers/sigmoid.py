"""Sigmoid: 1 / (1 + exp(-x))."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class Sigmoid(Layer):
    decision = "sigmoid"
    computes_scores = True
    elementwise = never_negative = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (sigmoid(bottoms[0]),)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), without overflow."""
    y: Array = 0.5 * np.tanh(0.5 * x) + np.float32(0.5)
    return y
