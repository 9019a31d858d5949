"""Float32 pooling windows, one axis after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import np
from ..window import Window

if TYPE_CHECKING:
    from ..graph import Array, Shape


def max_pool(x: Array, window: Window, out: Shape) -> Array:
    """Maximum of each window clipped to the image; x (N, C, H, W) float32 or int8 -> (N, C, *out).

    An empty window gives the least value of the type (-FLT_MAX).
    """
    least = float(np.finfo(np.float32).min) if x.dtype == np.float32 else int(np.iinfo(x.dtype).min)
    return _reduce(x, window, out, np.maximum, least)


def sum_pool(x: Array, window: Window, out: Shape) -> Array:
    """Sum of each window clipped to the image; x (N, C, H, W) -> (N, C, *out)."""
    return _reduce(x, window, out, np.add, 0.0)


def areas(window: Window, size: Shape, out: Shape) -> Array:
    """Elements of each window as Caffe's average counts them: clipped at size + pad, padding inside counted.

    float32 (OH, OW); a window that begins behind the image counts as 1, its sum being 0.
    """
    sides = []
    for i in range(2):
        start = np.arange(out[i]) * window.stride[i] - window.pad[i]
        sides.append(np.maximum(np.minimum(start + window.kernel[i], size[i] + window.pad[i]) - start, 1))
    return np.multiply.outer(*sides).astype(np.float32)


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
    return x


def _at(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)
