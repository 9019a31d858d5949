"""Pooling windows, one axis after the other; float32 in C."""

from __future__ import annotations

from functools import lru_cache

from .. import kernels
from ..blob import Array, Shape
from ..tasks.window import Window
from ..util.lazy_numpy import np


def max_pool(x: Array, window: Window, out: Shape) -> Array:
    """Return the maximum of each window clipped to the image; x (N, C, H, W) float32 or int8 -> (N, C, *out).

    An empty window gives the least value of the type (-FLT_MAX).
    """
    if x.dtype == np.float32 and (layer := kernels.floats.pool(x.shape, window, out)) is not None:
        return layer.run(x)
    least = float(np.finfo(np.float32).min) if x.dtype == np.float32 else int(np.iinfo(x.dtype).min)
    return _reduce(x, window, out, np.maximum, least)


def sum_pool(x: Array, window: Window, out: Shape) -> Array:
    """Sum each window clipped to the image; x (N, C, H, W) -> (N, C, *out)."""
    if x.dtype == np.float32 and (layer := kernels.floats.sums(x.shape, window, out)) is not None:
        return layer.run(x)
    return _reduce(x, window, out, np.add, 0.0)


def mean_pool(x: Array, window: Window, out: Shape, areas: Array) -> Array:
    """Return ``sum_pool`` divided by ``areas``, a number for each window (float32); NaN where both are 0."""
    if x.dtype == np.float32 and (layer := kernels.floats.pool(x.shape, window, out, areas)) is not None:
        return layer.run(x)
    with np.errstate(invalid="ignore"):
        y: Array = sum_pool(x, window, out) / areas
    return y


def max_pool_and_place(x: Array, window: Window, out: Shape) -> tuple[Array, Array]:
    """Return ``max_pool``, and row * W + column of each maximum's first pixel; -1 for an empty window."""
    n, c, h, w = x.shape
    best = np.full((n, c, *out), np.finfo(np.float32).min, np.float32)
    place = np.full((n, c, *out), -1, np.float32)
    rows, columns = (np.arange(out[i]) * window.stride[i] - window.pad[i] for i in range(2))
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            down, right = rows + i, columns + j
            seen = np.logical_and.outer((down >= 0) & (down < h), (right >= 0) & (right < w))
            pixel = np.add.outer(np.clip(down, 0, h - 1) * w, np.clip(right, 0, w - 1))
            value = x.reshape(n, c, h * w)[:, :, pixel]
            better = seen & (value > best)
            best = np.where(better, value, best)
            place = np.where(better, pixel.astype(np.float32), place)
    return best, place


@lru_cache(maxsize=1024)
def areas(window: Window, out: Shape, first: Shape, last: Shape) -> Array:
    """Return the area of each window clipped to rows and columns from ``first`` up to, not including, ``last``.

    float32 (OH, OW). As in Caffe, a window that begins at ``last`` has area 0, and one beyond it a side below 0.
    """
    sides = []
    for i in range(2):
        start = np.arange(out[i]) * window.stride[i] - window.pad[i]
        stop = np.minimum(start + window.kernel[i], last[i])
        sides.append(stop - np.maximum(start, first[i]))
    result: Array = np.multiply.outer(*sides).astype(np.float32)
    return result


def _reduce(x: Array, window: Window, out: Shape, operation: np.ufunc, neutral: float) -> Array:
    for axis in (2, 3):
        i = axis - 2
        kernel, stride, pad = window.kernel[i], window.stride[i], window.pad[i]
        need = (out[i] - 1) * stride + kernel  # pixels from the first window's start to the last one's end
        if pad or need > x.shape[axis]:
            shape = list(x.shape)
            shape[axis] = max(need, pad + x.shape[axis])
            padded = np.full(shape, neutral, x.dtype)
            padded[_at(axis, slice(pad, pad + x.shape[axis]))] = x
            x = padded
        taps = (x[_at(axis, slice(k, k + (out[i] - 1) * stride + 1, stride))] for k in range(kernel))
        result = np.array(next(taps))
        for tap in taps:
            operation(result, tap, out=result)
        x = result
    if x.dtype == np.float32:  # Caffe begins with it: a maximum of -inf is -FLT_MAX, a sum of -0 is 0
        operation(x, np.float32(neutral), out=x)
    return x


def _at(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)
