"""Layers that move numbers or pick them: Concat, Slice, Flatten, Reshape, Permute, Crop and ArgMax."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

Array = np.ndarray
Shape = tuple[int, ...]


def concat(bottoms: Sequence[Array], axis: int) -> Array:
    sizes = [b.shape[axis] for b in bottoms]
    first = bottoms[0].shape
    y = np.zeros((*first[:axis], sum(sizes), *first[axis + 1 :]))
    for i, bottom in enumerate(bottoms):
        for at in np.ndindex(bottom.shape):
            y[(*at[:axis], sum(sizes[:i]) + at[axis], *at[axis + 1 :])] = bottom[at]
    return y


def cut(x: Array, axis: int, points: Sequence[int]) -> list[Array]:
    """Slice: pieces that begin at 0 and at each of ``points``."""
    bounds = [0, *points, x.shape[axis]]
    pieces = []
    for i in range(len(bounds) - 1):
        y = np.zeros((*x.shape[:axis], bounds[i + 1] - bounds[i], *x.shape[axis + 1 :]))
        for at in np.ndindex(y.shape):
            y[at] = x[(*at[:axis], at[axis] + bounds[i], *at[axis + 1 :])]
        pieces.append(y)
    return pieces


def with_shape(x: Array, shape: Sequence[int]) -> Array:
    """The same numbers in the same order."""
    y = np.zeros(tuple(shape))
    for target, source in zip(np.ndindex(y.shape), np.ndindex(x.shape), strict=True):
        y[target] = x[source]
    return y


def reshaped(bottom: Shape, dims: Sequence[int], axis: int = 0, num_axes: int = -1) -> Shape:
    """Reshape's rule: ``dims`` stand for ``num_axes`` axes from ``axis`` on."""
    start = axis if axis >= 0 else len(bottom) + axis + 1
    end = len(bottom) if num_axes == -1 else start + num_axes
    top = list(bottom[:start])
    for i, dim in enumerate(dims):
        top.append(bottom[start + i] if dim == 0 else dim)
    top += bottom[end:]
    if -1 in top:
        known = prod(d for d in top if d != -1)
        top[top.index(-1)] = prod(bottom) // known
    return tuple(top)


def flattened(bottom: Shape, axis: int = 1, end_axis: int = -1) -> Shape:
    start, end = axis % len(bottom), end_axis % len(bottom)
    return (*bottom[:start], prod(bottom[start : end + 1]), *bottom[end + 1 :])


def permute(x: Array, order: Sequence[int]) -> Array:
    full = [*order, *(a for a in range(x.ndim) if a not in order)]
    y = np.zeros([x.shape[a] for a in full])
    for at in np.ndindex(y.shape):
        source = [0] * x.ndim
        for i, a in enumerate(full):
            source[a] = at[i]
        y[at] = x[tuple(source)]
    return y


def crop(x: Array, like: Shape, axis: int, offset: Sequence[int]) -> Array:
    start = axis % x.ndim
    shift = [0] * x.ndim
    for i in range(start, x.ndim):
        shift[i] = 0 if not offset else offset[0] if len(offset) == 1 else offset[i - start]
    y = np.zeros((*x.shape[:start], *like[start:]))
    for at in np.ndindex(y.shape):
        y[at] = x[tuple(a + s for a, s in zip(at, shift))]
    return y


def best(values: Sequence[float], top_k: int) -> list[int]:
    """Indices of the largest values as Caffe's std::greater of (value, index) orders them."""
    pairs = sorted(((float(v), i) for i, v in enumerate(values)), reverse=True)
    return [i for _, i in pairs[:top_k]]


def arg_max(x: Array, axis: int | None, top_k: int, out_max_val: bool) -> Array:
    if axis is None:
        y = np.zeros((x.shape[0], 2 if out_max_val else 1, top_k, *(1,) * (x.ndim - 3)))
        for n in range(x.shape[0]):
            row = x[n].ravel()
            for k, i in enumerate(best(row, top_k)):
                y[n, 0, k] = i
                if out_max_val:
                    y[n, 1, k] = row[i]
        return y
    y = np.zeros((*x.shape[:axis], top_k, *x.shape[axis + 1 :]))
    for at in np.ndindex((*x.shape[:axis], *x.shape[axis + 1 :])):
        row = [float(x[(*at[:axis], i, *at[axis:])]) for i in range(x.shape[axis])]
        for k, i in enumerate(best(row, top_k)):
            y[(*at[:axis], k, *at[axis:])] = row[i] if out_max_val else i
    return y
