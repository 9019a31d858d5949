"""BatchNorm, BN, LRN, MVN, Normalize and Softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .window import pooling

Array = np.ndarray


def batch_norm(x: Array, mean: Sequence[float], variance: Sequence[float], divisor: float, eps: float) -> Array:
    """``mean`` and ``variance`` are sums over what ``divisor`` counts; a divisor of 0 makes both 0."""
    factor = 0.0 if divisor == 0 else 1 / divisor
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        c = at[1] if x.ndim > 1 else 0
        y[at] = (float(x[at]) - mean[c] * factor) / math.sqrt(variance[c] * factor + eps)
    return y


def batch_statistics(x: Array) -> tuple[list[float], list[float]]:
    """Mean and variance of each channel over batch and space."""
    means, variances = [], []
    for c in range(x.shape[1]):
        values = [float(x[at]) for at in np.ndindex(x.shape) if at[1] == c]
        mean = sum(values) / len(values)
        means.append(mean)
        variances.append(sum((v - mean) ** 2 for v in values) / len(values))
    return means, variances


def lrn_across(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    y = np.zeros(x.shape)
    for n, c, h, w in np.ndindex(x.shape):
        near = range(max(0, c - (size - 1) // 2), min(x.shape[1], c + (size - 1) // 2 + 1))
        total = sum(float(x[n, i, h, w]) ** 2 for i in near)
        y[n, c, h, w] = float(x[n, c, h, w]) / (k + alpha / size * total) ** beta
    return y


def lrn_within(x: Array, size: int, alpha: float, beta: float) -> Array:
    """Caffe builds this from Power, Pooling AVE, Power and Eltwise; k has no part in it."""
    half = (size - 1) // 2
    mean = pooling(x.astype(np.float64) ** 2, "AVE", (size, size), (1, 1), (half, half))
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        y[at] = float(x[at]) * (1 + alpha * float(mean[at])) ** -beta
    return y


def normalize(x: Array, scales: Sequence[float], across_spatial: bool, eps: float) -> Array:
    """``scales``: one per channel, or a single one."""
    y = np.zeros(x.shape)
    _, channels, height, width = x.shape
    for n, c, h, w in np.ndindex(x.shape):
        total = 0.0
        for i in range(channels):
            if across_spatial:
                total += sum(float(x[n, i, p, q]) ** 2 for p in range(height) for q in range(width))
            else:
                total += float(x[n, i, h, w]) ** 2
        y[n, c, h, w] = float(x[n, c, h, w]) / math.sqrt(total + eps) * scales[c if len(scales) > 1 else 0]
    return y


def softmax(x: Array, axis: int) -> Array:
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        row = [float(x[(*at[:axis], i, *at[axis + 1 :])]) for i in range(x.shape[axis])]
        y[at] = math.exp(row[at[axis]] - max(row)) / sum(math.exp(v - max(row)) for v in row)
    return y


def mvn(x: Array, normalize_variance: bool, across_channels: bool, eps: float) -> Array:
    y = np.zeros(x.shape)
    for n, c, h, w in np.ndindex(x.shape):
        near = range(x.shape[1]) if across_channels else [c]
        values = [float(x[n, i, p, q]) for i in near for p in range(x.shape[2]) for q in range(x.shape[3])]
        mean = sum(values) / len(values)
        y[n, c, h, w] = float(x[n, c, h, w]) - mean
        if normalize_variance:
            y[n, c, h, w] /= math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) + eps
    return y


def bn(
    x: Array, scale: Sequence[float], shift: Sequence[float], mean: Sequence[float], deviation: Sequence[float]
) -> Array:
    """scale * (x - mean) / deviation + shift, all of them one per channel."""
    y = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        c = at[1]
        y[at] = float(scale[c]) * (float(x[at]) - float(mean[c])) / float(deviation[c]) + float(shift[c])
    return y
