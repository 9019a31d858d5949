"""Layers in float32, each one operation of the library on planes (N, C, H, W)."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...tasks.window import Window
from ...util.lazy_numpy import np
from .library import Library, library
from .single import Single
from .table import Form, Kind

if TYPE_CHECKING:
    from ...blob import Array, Shape

KEPT = 1024  # operations: more than the layers of a large network
RATE, BANDWIDTH = 64, 16  # multiply-accumulates and bytes of weights in a nanosecond of one thread, roughly


class Floats(NamedTuple):
    """The library's variant in use. Numbers depend neither on the batch nor on the number of threads."""

    library: Library

    def convolved(
        self, x: Array, weights: Array, bias: Array | None, window: Window, group: int, rectified: bool = False
    ) -> Array:
        """Return the convolution of x (N, C, H, W) with weights (M, C/group, kh, kw) and bias (M,), padded with 0.

        If it is ``rectified``, numbers below 0 are 0.
        """
        biases = None if bias is None else bias.shape
        product = _product(self.library, window, group, rectified, x.shape, weights.shape, biases)
        if bias is None:
            return product.run(_plain(x), _plain(weights))
        return product.run(_plain(x), _plain(weights), _plain(bias))

    def softmax(self, x: Array, axis: int) -> Array:
        """Return the softmax of x along an axis, in 0 .. ndim - 1."""
        shape = x.shape
        planes = prod(shape[:axis]), shape[axis], 1, prod(shape[axis + 1 :])
        return _softmax(self.library, planes).run(_plain(x)).reshape(shape)

    def largest(self, x: Array, window: Window, out: Shape) -> Array:
        """Return the maximum of each window clipped to the image, (N, C, *out); -FLT_MAX for an empty one."""
        return _pool(self.library, Kind.LARGEST, window, x.shape, (*x.shape[:2], *out)).run(_plain(x))

    def total(self, x: Array, window: Window, out: Shape) -> Array:
        """Return the sum of each window clipped to the image, (N, C, *out): every bit is numpy's."""
        return _pool(self.library, Kind.TOTAL, window, x.shape, (*x.shape[:2], *out)).run(_plain(x))

    def normalised(self, x: Array, size: int, alpha: float, k: float) -> Array:
        """Return the LRN of x (N, C, H, W) over ``size`` channels with beta 0.75: every bit is numpy's."""
        return _lrn(self.library, size, alpha, k, x.shape).run(_plain(x))


def floats() -> Floats | None:
    """Return the kernels; None without a library."""
    used = library()
    return None if used is None else Floats(used)


@lru_cache(maxsize=KEPT)
def _product(
    used: Library, window: Window, group: int, rectified: bool, source: Shape, weights: Shape, bias: Shape | None
) -> Single:
    target = (source[0], weights[0], *window.sizes(source[2:]))
    form = Form(Kind.PRODUCT, window=window, group=group, rectified=rectified)
    parameters = (4 * prod(weights),) if bias is None else (4 * prod(weights), 4 * prod(bias))
    ns = max(prod(target) * prod(weights[1:]) / RATE, parameters[0] / BANDWIDTH)
    return Single(used, form, source, target, parameters, ns)


@lru_cache(maxsize=KEPT)
def _pool(used: Library, kind: Kind, window: Window, source: Shape, target: Shape) -> Single:
    return Single(used, Form(kind, window=window), source, target, (), prod(source) / 4)


@lru_cache(maxsize=KEPT)
def _lrn(used: Library, size: int, alpha: float, k: float, shape: Shape) -> Single:
    form = Form(Kind.LRN, window=Window((size, 1), (1, 1), (0, 0)), numbers=(alpha / size, k))
    return Single(used, form, shape, shape, (), prod(shape) * 0.3)


@lru_cache(maxsize=KEPT)
def _softmax(used: Library, planes: Shape) -> Single:
    return Single(used, Form(Kind.SOFTMAX), planes, planes, (), prod(planes))


def _plain(array: Array) -> Array:
    """Return it as C reads it: contiguous, aligned float32."""
    flags = array.flags
    plain = flags.c_contiguous and flags.aligned and array.dtype == np.float32
    return array if plain else np.require(array, np.float32, ["C", "A"])
