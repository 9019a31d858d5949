"""Bilinear resizing with aligned corners, as in DeepLab's Interp."""

from __future__ import annotations

from ..blob import Array, Shape
from ..util.lazy_numpy import np


def resize(x: Array, out: Shape) -> Array:
    """Resize x (N, C, H, W) to (N, C, *out): pixel i samples i * (size - 1) / (new size - 1), or 0 if new size is 1."""
    for axis, new in ((2, out[0]), (3, out[1])):
        old = x.shape[axis]
        place = np.arange(new, dtype=np.float32) * np.float32((old - 1) / (new - 1) if new > 1 else 0)
        first = np.minimum(place.astype(np.intp), old - 1)
        weight = (place - first).reshape(-1, *(1,) * (3 - axis)).astype(np.float32)
        x = (1 - weight) * np.take(x, first, axis) + weight * np.take(x, np.minimum(first + 1, old - 1), axis)
    return x
