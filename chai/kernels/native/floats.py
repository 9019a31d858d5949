"""Layers in float32, each one operation of the library on planes (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from ...tasks.window import Window
from .library import Library, library
from .links import Link, Native
from .single import Single, plain
from .table import Form, Kind

if TYPE_CHECKING:
    from ...blob import Array, Shape
    from .chain import Chain

KEPT = 1024  # operations: more than the layers of a large network
RATE, BANDWIDTH = 64, 16  # multiply-accumulates and bytes of weights in a nanosecond of one thread, roughly


class Floats:
    """The library's variant in use. Numbers depend neither on the batch nor on the number of threads.

    Methods named as what they compute take the input's shape, and return the layer to run; the others run it.
    """

    __slots__ = ("library",)

    def __init__(self, library: Library) -> None:
        self.library = library

    def chain(self, links: Sequence[Link], shapes: Mapping[str, Shape], kept: Collection[str]) -> Chain:
        """Return consecutive layers as one table, see Chain."""
        from .chain import Chain  # not needed by the host layers of an overlay, which run alone

        return Chain(self.library, links, shapes, kept)

    def product(
        self, shape: Shape, weights: Array, bias: Array | None, window: Window, group: int, rectified: bool
    ) -> Native:
        """Return the layer that ``convolved`` runs."""
        if bias is None:
            return Native(_product(self.library, window, group, rectified, shape, weights.shape, None), (weights,))
        single = _product(self.library, window, group, rectified, shape, weights.shape, bias.shape)
        return Native(single, (weights, bias))

    def convolved(
        self, x: Array, weights: Array, bias: Array | None, window: Window, group: int, rectified: bool = False
    ) -> Array:
        """Return the convolution of x (N, C, H, W) with weights (M, C/group, kh, kw) and bias (M,), padded with 0.

        If it is ``rectified``, numbers below 0 are 0.
        """
        return _run(self.product(x.shape, weights, bias, window, group, rectified), x)

    def exponential(self, shape: Shape, axis: int) -> Native:
        """Return the layer that ``softmax`` runs."""
        return Native(_softmax(self.library, (prod(shape[:axis]), shape[axis], 1, prod(shape[axis + 1 :]))))

    def softmax(self, x: Array, axis: int) -> Array:
        """Return the softmax of x along an axis, in 0 .. ndim - 1."""
        return _run(self.exponential(x.shape, axis), x).reshape(x.shape)

    def pool(self, shape: Shape, window: Window, out: Shape, areas: Array | None = None) -> Native:
        """Return the layer that ``largest`` runs, with ``areas`` the one that ``mean`` runs."""
        kind, parameters = (Kind.LARGEST, ()) if areas is None else (Kind.MEAN, (areas,))
        return Native(_pool(self.library, kind, window, shape, (*shape[:2], *out)), parameters)

    def largest(self, x: Array, window: Window, out: Shape) -> Array:
        """Return the maximum of each window clipped to the image, (N, C, *out); -FLT_MAX for an empty one."""
        return _run(self.pool(x.shape, window, out), x)

    def total(self, x: Array, window: Window, out: Shape) -> Array:
        """Return the sum of each window clipped to the image, (N, C, *out): every bit is numpy's."""
        return _pool(self.library, Kind.TOTAL, window, x.shape, (*x.shape[:2], *out)).run(plain(x))

    def mean(self, x: Array, window: Window, out: Shape, areas: Array) -> Array:
        """Return ``total`` divided by ``areas``, a number for each window: every bit is numpy's."""
        return _run(self.pool(x.shape, window, out, areas), x)

    def normalisation(self, shape: Shape, size: int, alpha: float, k: float) -> Native:
        """Return the layer that ``normalised`` runs."""
        return Native(_lrn(self.library, size, alpha, k, shape))

    def normalised(self, x: Array, size: int, alpha: float, k: float) -> Array:
        """Return the LRN of x (N, C, H, W) over ``size`` channels with beta 0.75: every bit is numpy's."""
        return _run(self.normalisation(x.shape, size, alpha, k), x)


def _run(layer: Native, x: Array) -> Array:
    assert layer.single is not None
    return layer.single.run(plain(x), *map(plain, layer.parameters))


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
def _pool(used: Library, kind: int, window: Window, source: Shape, target: Shape) -> Single:
    divisors = (4 * prod(target[2:]),) if kind == Kind.MEAN else ()
    return Single(used, Form(kind, window=window), source, target, divisors, prod(source) / 4)


@lru_cache(maxsize=KEPT)
def _lrn(used: Library, size: int, alpha: float, k: float, shape: Shape) -> Single:
    form = Form(Kind.LRN, window=Window((size, 1), (1, 1), (0, 0)), numbers=(alpha / size, k))
    return Single(used, form, shape, shape, (), prod(shape) * 0.3)


@lru_cache(maxsize=KEPT)
def _softmax(used: Library, planes: Shape) -> Single:
    return Single(used, Form(Kind.SOFTMAX), planes, planes, (), prod(planes))
