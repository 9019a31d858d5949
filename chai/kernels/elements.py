"""Layers that compute each number on its own, in C; in numpy they are their own ``forward``, which has the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..blob import Array, Shape
from ..util.lazy_numpy import np
from . import float_kernels
from .native import NativeLayer


def native_pair(operation: str, shape: Shape, factors: Sequence[float], rectified: bool) -> NativeLayer | None:
    """Return PROD or MAX of two blobs of this shape, or their SUM, multiplied by ``factors``; None if numpy computes it."""
    planes = _planes(shape, 1, 1)
    if (used := float_kernels(planes)) is None:
        return None
    return used.pair(operation, planes, tuple(factors), rectified)


def native_scale(
    shape: Shape, axes: range, factors: Array | None, addends: Array | None, rectified: bool, two: bool = False
) -> NativeLayer | None:
    """Return factor * x + addend, of a number each for the places along some axes; None if numpy computes it.

    Factors are 1 where there are none, or a second bottom if there are ``two``.
    """
    planes = _planes(shape, axes.start, len(axes))
    if (used := float_kernels(planes)) is None:
        return None
    if factors is None and not two:
        factors = np.ones(planes[1], np.float32)
    return used.scaled(planes, factors, addends, rectified)


def native_batch_norm(shape: Shape, blobs: Sequence[Array], eps: float, rectified: bool) -> NativeLayer | None:
    """Return a BatchNorm with stored statistics of a blob of this shape; None if numpy computes it."""
    planes = _planes(shape, 1, 1)
    used = float_kernels(planes)
    return None if used is None else used.standardised(planes, blobs, eps, rectified)


def native_leaky(shape: Shape, slopes: Array) -> NativeLayer | None:
    """Return a ReLU with a slope for each channel, or one for all; None if numpy computes it."""
    planes = _planes(shape, 1, 1 if slopes.size > 1 else 0)
    used = float_kernels(planes)
    return None if used is None else used.leaky(planes, slopes)


def _planes(shape: Shape, first: int, count: int) -> Shape:
    """Return a shape as (N, C, H, 1): the axes before some, these, and those after them."""
    return prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :]), 1
