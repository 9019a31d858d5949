"""Activations, Power, Eltwise, Bias and Scale, and InnerProduct."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray


def each(x: Array, function: Callable[[float], float]) -> Array:
    """``function`` of every element."""
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        y[at] = function(float(x[at]))
    return y


def relu(x: Array, negative_slope: float = 0.0) -> Array:
    return each(x, lambda v: v if v > 0 else negative_slope * v)


def elu(x: Array, alpha: float = 1.0) -> Array:
    return each(x, lambda v: v if v > 0 else alpha * (math.exp(v) - 1))


def sigmoid(x: Array) -> Array:
    return each(x, lambda v: 1 / (1 + math.exp(-v)))


def tanh(x: Array) -> Array:
    return each(x, lambda v: (math.exp(2 * v) - 1) / (math.exp(2 * v) + 1))


def absolute(x: Array) -> Array:
    return each(x, lambda v: -v if v < 0 else v)


def power(x: Array, exponent: float, scale: float, shift: float) -> Array:
    return each(x, lambda v: math.pow(shift + scale * v, exponent))


def prelu(x: Array, slopes: Sequence[float]) -> Array:
    """One slope per channel (axis 1), or a single one for all."""
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        v = float(x[at])
        y[at] = v if v > 0 else float(slopes[at[1] if len(slopes) > 1 else 0]) * v
    return y


def eltwise(bottoms: Sequence[Array], operation: str, coeff: Sequence[float] = ()) -> Array:
    y = np.zeros(bottoms[0].shape)
    for at in np.ndindex(y.shape):
        values = [float(b[at]) for b in bottoms]
        if operation == "PROD":
            y[at] = math.prod(values)
        elif operation == "MAX":
            y[at] = max(values)
        else:
            y[at] = sum(c * v for c, v in zip(coeff or [1.0] * len(values), values))
    return y


def laid(small: Array, at: tuple[int, ...], axis: int) -> float:
    """The element of ``small`` that lies over index ``at`` when its first axis is ``axis`` of the large blob."""
    return float(small[at[axis : axis + small.ndim]])


def scale(x: Array, factor: Array, axis: int, bias: Array | None = None) -> Array:
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        y[at] = float(x[at]) * laid(factor, at, axis) + (0.0 if bias is None else laid(bias, at, axis))
    return y


def inner_product(x: Array, w: Array, b: Array | None, axis: int, transpose: bool = False) -> Array:
    """w (M, K), or (K, M) if ``transpose``; K counts the elements from ``axis`` on."""
    lead = x.shape[:axis]
    m = w.shape[1] if transpose else w.shape[0]
    y = np.zeros((*lead, m))
    for at in np.ndindex(lead):
        row = x[at].ravel()
        for out in range(m):
            total = 0.0 if b is None else float(b[out])
            for k in range(len(row)):
                total += float(row[k]) * float(w[k, out] if transpose else w[out, k])
            y[(*at, out)] = total
    return y
