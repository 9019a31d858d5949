"""Layers in float32, each one operation of the library on planes (N, C, H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ...blob import Array, Shape
from ...tasks.window import Filtering, Window
from . import NativeLayer
from .library import Library, library
from .packed import TERMS, ChannelTable, packed
from .single import Single
from .table import Form, Kind

KEPT = 1024  # operations: more than the layers of a large network
RATE, BANDWIDTH = 64, 16  # multiply-accumulates and bytes of weights in a nanosecond of one thread, roughly
PAIRS = {"SUM": Kind.PLUS, "PROD": Kind.TIMES, "MAX": Kind.GREATER}
FEWEST_CHANNELS, FEWEST_TILES = 16, 36  # inputs and outputs of a group, and tiles of an image, for which tiles pay
ELEMENTS = 8  # numbers in a nanosecond, each of which is computed on its own


class Floats:
    """The layers that the library's variant in use computes, each for bottoms of a shape.

    Numbers depend neither on the batch nor on the number of threads.
    """

    __slots__ = ("library",)

    def __init__(self, library: Library) -> None:
        self.library = library

    def product(self, shape: Shape, weights: Array, bias: Array | None, filtering: Filtering) -> NativeLayer:
        """Return the convolution of maps (N, C, H, W) with weights (M, C/group, kh, kw) and bias (M,), padded with 0."""
        single = _product(self.library, filtering, shape, weights.shape, None if bias is None else bias.shape)
        written = (packed(self.library, weights),) if single.operation.kind == Kind.TILED else ()
        used = written[0].array if written else weights

        def scaled(table: ChannelTable, rectified: bool) -> NativeLayer:
            after = filtering._replace(rectified=rectified)
            single = _product(self.library, after, shape, weights.shape, table.array.shape)
            return NativeLayer(single, (used, table.array), packed=(*written, table))

        arrays = (used,) if bias is None else (used, bias)
        return NativeLayer(single, arrays, packed=written, scaled=None if filtering.rectified else scaled)

    def softmax(self, shape: Shape, axis: int) -> NativeLayer:
        """Return the softmax along an axis, 0 .. ndim - 1; its top has the shape (outer, size, 1, inner)."""
        return NativeLayer(_softmax(self.library, (prod(shape[:axis]), shape[axis], 1, prod(shape[axis + 1 :]))))

    def pool(self, shape: Shape, window: Window, out: Shape, areas: Array | None = None) -> NativeLayer:
        """Return the maximum of each window clipped to the image, (N, C, *out); -FLT_MAX for an empty one.

        With ``areas``, a number for each window, its sum divided by that: every bit is numpy's.
        """
        kind, parameters = (Kind.LARGEST, ()) if areas is None else (Kind.MEAN, (areas,))
        return NativeLayer(_pool(self.library, kind, window, shape, (*shape[:2], *out)), parameters)

    def sums(self, shape: Shape, window: Window, out: Shape) -> NativeLayer:
        """Return the layer that sums each window clipped to the image, (N, C, *out): every bit is numpy's."""
        return NativeLayer(_pool(self.library, Kind.TOTAL, window, shape, (*shape[:2], *out)))

    def lrn(self, shape: Shape, size: int, alpha: float, k: float) -> NativeLayer:
        """Return the LRN of maps (N, C, H, W) over ``size`` channels with beta 0.75: every bit is numpy's."""
        return NativeLayer(_lrn(self.library, size, alpha, k, shape))

    def pair(self, operation: str, planes: Shape, factors: tuple[float, ...], rectified: bool) -> NativeLayer:
        """Return the layer that computes SUM (of numbers times ``factors``), PROD or MAX of two bottoms (N, C, H, W)."""
        return NativeLayer(_pair(self.library, PAIRS[operation], planes, factors, rectified))

    def scaled(self, planes: Shape, factors: Array | None, addends: Array | None, rectified: bool) -> NativeLayer:
        """Return the layer that computes factor * x + addend of each channel (N, C, H, W); no factors: in a second bottom."""
        arrays = tuple([each for each in (factors, addends) if each is not None])
        return NativeLayer(_scale(self.library, planes, addends is not None, rectified), arrays)

    def standardised(self, planes: Shape, blobs: Sequence[Array], eps: float, rectified: bool) -> NativeLayer:
        """Return the layer that computes a BatchNorm of each channel (N, C, H, W) with its three blobs."""
        return NativeLayer(_normalise(self.library, planes, eps, rectified), tuple(blobs))

    def leaky(self, planes: Shape, slopes: Array) -> NativeLayer:
        """Return the layer that multiplies numbers below 0 by the slope of their channel (N, C, H, W)."""
        return NativeLayer(_leaky(self.library, planes), (slopes,))


def floats() -> Floats | None:
    """Return the kernels; None without a library."""
    used = library()
    return None if used is None else Floats(used)


@lru_cache(maxsize=KEPT)
def _product(used: Library, filtering: Filtering, source: Shape, weights: Shape, bias: Shape | None) -> Single:
    window, group, rectified = filtering
    target = (source[0], weights[0], *window.sizes(source[2:]))
    kind, size = Kind.PRODUCT, 4 * prod(weights)
    ns = max(prod(target) * prod(weights[1:]) / RATE, size / BANDWIDTH)
    if in_tiles(filtering, target, weights):
        kind, size = Kind.TILED, 4 * TERMS * weights[0] * weights[1]
    table = bias is not None and len(bias) > 1
    form = Form(kind, window=window, group=group, rectified=rectified, numbers=(1.0,) if table else ())
    parameters = (size,) if bias is None else (size, 4 * prod(bias))
    return Single(used, form, source, target, parameters, ns)


def in_tiles(filtering: Filtering, target: Shape, weights: Shape) -> bool:
    """Return whether tiles.h computes a convolution: for all variants and batches alike, as last bits of sums differ."""
    window, group, _ = filtering
    (outputs, channels), tiles = weights[:2], prod([-(-size // 2) for size in target[2:]])
    narrow = min(channels, outputs // group) < FEWEST_CHANNELS
    return window[0] == (3, 3) and window.stride == window.dilation == (1, 1) and not narrow and tiles >= FEWEST_TILES


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


@lru_cache(maxsize=KEPT)
def _pair(used: Library, kind: int, shape: Shape, factors: tuple[float, ...], rectified: bool) -> Single:
    form = Form(kind, numbers=factors, rectified=rectified)
    return Single(used, form, shape, shape, (4 * prod(shape),), prod(shape) / ELEMENTS)


@lru_cache(maxsize=KEPT)
def _scale(used: Library, planes: Shape, added: bool, rectified: bool) -> Single:
    size = 4 * planes[1]
    arrays = (size, size) if added else (size,)  # factors and addends of the channels
    return Single(used, Form(Kind.SCALE, rectified=rectified), planes, planes, arrays, prod(planes) / ELEMENTS)


@lru_cache(maxsize=KEPT)
def _normalise(used: Library, planes: Shape, eps: float, rectified: bool) -> Single:
    form, blobs = Form(Kind.NORMALISE, numbers=(eps,), rectified=rectified), (4 * planes[1], 4 * planes[1], 4)
    return Single(used, form, planes, planes, blobs, prod(planes) / ELEMENTS)


@lru_cache(maxsize=KEPT)
def _leaky(used: Library, planes: Shape) -> Single:
    return Single(used, Form(Kind.LEAKY), planes, planes, (4 * planes[1],), prod(planes) / ELEMENTS)
