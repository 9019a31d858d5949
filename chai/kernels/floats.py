"""Layers in float32, each one operation of the library on planes (N, C, H, W), kept for its sizes.

Each function returns the layer for bottoms of a shape; None if numpy is to compute it, because there is no library or a size is
beyond it. Numbers depend neither on the batch nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

from ..blob import Array, Shape
from ..tasks.window import POINT, Filtering, Window
from ..util.lazy_numpy import np
from .native import NativeLayer
from .native.library import library
from .native.packed import TERMS, ChannelTable, packed
from .native.single import Single, single
from .native.table import SIZE, Form, Kind

RATE, BANDWIDTH = 64, 16  # multiply-accumulates and bytes of weights in a nanosecond of one thread, roughly
PAIRS = {"SUM": Kind.PLUS, "PROD": Kind.TIMES, "MAX": Kind.GREATER}
FEWEST_CHANNELS, FEWEST_TILES = 16, 36  # inputs and outputs of a group, and tiles of an image, for which tiles pay
EACH = 0.125  # nanoseconds for a number that is computed on its own
MAX_COLUMNS = 2048  # columns of a pooling window, and of 16 times its stride, at most: several windows are side by side


def convolution(shape: Shape, weights: Array, bias: Array | None, filtering: Filtering) -> NativeLayer | None:
    """Return the convolution of maps (N, C, H, W) with weights (M, C/group, kh, kw) and bias (M,), padded with 0."""
    used, product = library(), _product(filtering, shape, weights.shape, None if bias is None else bias.shape)
    if used is None or product is None:
        return None
    written = (packed(used, weights),) if product.operation.kind == Kind.TILED else ()
    filters = written[0].array if written else weights

    def scaled(table: ChannelTable, rectified: bool) -> NativeLayer:
        after = _product(filtering._replace(rectified=rectified), shape, weights.shape, table.array.shape)
        return NativeLayer(after, (filters, table.array), packed=(*written, table))

    arrays = (filters,) if bias is None else (filters, bias)
    return NativeLayer(product, arrays, packed=written, scaled=None if filtering.rectified else scaled)


def inner_product(
    shape: tuple[int, int], weights: Array, bias: Array | None, rectified: bool = False
) -> NativeLayer | None:
    """Return x W' + bias of x (N, K), weights (M, K) and bias (M,); None also if the weights are stored as (K, M)."""
    if not weights.flags.c_contiguous:
        return None
    filters = weights.reshape(*weights.shape, 1, 1)
    return convolution((*shape, 1, 1), filters, bias, Filtering(POINT, 1, rectified))


def pool(shape: Shape, window: Window, out: Shape, areas: Array | None = None) -> NativeLayer | None:
    """Return the maximum of each window clipped to the image, (N, C, *out); -FLT_MAX for an empty one.

    With ``areas``, a number for each window, its sum divided by that: every bit is numpy's.
    """
    if areas is None:
        return _layer(_pool(Kind.LARGEST, window, shape, out))
    return _layer(_pool(Kind.MEAN, window, shape, out), areas)


def sums(shape: Shape, window: Window, out: Shape) -> NativeLayer | None:
    """Return the sum of each window clipped to the image, (N, C, *out): every bit is numpy's."""
    return _layer(_pool(Kind.TOTAL, window, shape, out))


def lrn(shape: Shape, size: int, alpha: float, k: float) -> NativeLayer | None:
    """Return the LRN of maps (N, C, H, W) over ``size`` channels with beta 0.75: every bit is numpy's."""
    return _layer(_alike(Kind.LRN, shape, (), (alpha / size, k), False, 0.3, (size, 1)))


def softmax(shape: Shape, axis: int) -> NativeLayer | None:
    """Return the softmax along an axis, 0 .. ndim - 1; its top has the shape (outer, size, 1, inner)."""
    planes = prod(shape[:axis]), shape[axis], 1, prod(shape[axis + 1 :])
    return _layer(_alike(Kind.SOFTMAX, planes, each=1.0))


def pair(operation: str, shape: Shape, factors: Sequence[float], rectified: bool) -> NativeLayer | None:
    """Return PROD or MAX of two blobs of this shape, or their SUM, multiplied by ``factors``."""
    planes = _planes(shape, 1, 1)
    return _layer(_alike(PAIRS[operation], planes, (4 * prod(shape),), tuple(factors), rectified))


def scale(
    shape: Shape, axes: range, factors: Array | None, addends: Array | None, rectified: bool, two: bool = False
) -> NativeLayer | None:
    """Return factor * x + addend, of a number each for the places along some axes.

    Factors are 1 where there are none, or a second bottom if there are ``two``.
    """
    planes = _planes(shape, axes.start, len(axes))
    size = 4 * planes[1]
    scaled = _alike(Kind.SCALE, planes, (size,) if addends is None else (size, size), rectified=rectified)
    if scaled is not None and factors is None and not two:
        factors = np.ones(planes[1], np.float32)
    return _layer(scaled, *(each for each in (factors, addends) if each is not None))


def batch_norm(shape: Shape, blobs: Sequence[Array], eps: float, rectified: bool) -> NativeLayer | None:
    """Return a BatchNorm with stored statistics, its three blobs, of a blob of this shape."""
    planes = _planes(shape, 1, 1)
    size = 4 * planes[1]
    return _layer(_alike(Kind.NORMALISE, planes, (size, size, 4), (eps,), rectified), *blobs)


def leaky(shape: Shape, slopes: Array) -> NativeLayer | None:
    """Return a ReLU with a slope for each channel, or one for all."""
    planes = _planes(shape, 1, 1 if slopes.size > 1 else 0)
    return _layer(_alike(Kind.LEAKY, planes, (4 * planes[1],)), slopes)


def concat(shapes: Sequence[Shape], axis: int) -> NativeLayer | None:
    """Return bottoms of these shapes side by side along an axis."""
    if library() is None or not all(_fit(shape, (4 * prod(shape[axis:]),)) for shape in shapes):
        return None
    return NativeLayer(None, parts=prod(shapes[0][:axis]))


def in_tiles(filtering: Filtering, target: Shape, weights: Shape) -> bool:
    """Return whether tiles.h computes a convolution: for all variants and batches alike, as last bits of sums differ."""
    window, group, _ = filtering
    (outputs, channels), tiles = weights[:2], prod([-(-size // 2) for size in target[2:]])
    narrow = min(channels, outputs // group) < FEWEST_CHANNELS
    return window[0] == (3, 3) and window.stride == window.dilation == (1, 1) and not narrow and tiles >= FEWEST_TILES


def _planes(shape: Shape, first: int, count: int) -> Shape:
    """Return a shape as (N, C, H, 1): the axes before some, these, and those after them."""
    return prod(shape[:first]), prod(shape[first : first + count]), prod(shape[first + count :]), 1


def _fit(*sizes: Shape) -> bool:
    return all(0 < size <= SIZE for size in chain(*sizes))


def _layer(single: Single | None, *parameters: Array) -> NativeLayer | None:
    return None if single is None else NativeLayer(single, parameters)


def _product(filtering: Filtering, source: Shape, weights: Shape, bias: Shape | None) -> Single | None:
    window, group, rectified = filtering
    target = (source[0], weights[0], *window.sizes(source[2:]))
    if not _fit(weights):
        return None
    kind, size = Kind.PRODUCT, 4 * prod(weights)
    ns = max(prod(target) * prod(weights[1:]) / RATE, size / BANDWIDTH)
    if in_tiles(filtering, target, weights):
        kind, size = Kind.TILED, 4 * TERMS * weights[0] * weights[1]
    table = bias is not None and len(bias) > 1
    form = Form(kind, window=window, group=group, rectified=rectified, numbers=(1.0,) if table else ())
    return single(library(), form, source, target, (size,) if bias is None else (size, 4 * prod(bias)), ns)


def _pool(kind: int, window: Window, source: Shape, out: Shape) -> Single | None:
    if window.kernel[1] > MAX_COLUMNS or 16 * window.stride[1] > MAX_COLUMNS:
        return None
    divisors = (4 * prod(out),) if kind == Kind.MEAN else ()
    return single(library(), Form(kind, window=window), source, (*source[:2], *out), divisors, prod(source) / 4)


def _alike(
    kind: int,
    planes: Shape,
    parameters: tuple[int, ...] = (),
    numbers: tuple[float, ...] = (),
    rectified: bool = False,
    each: float = EACH,
    kernel: tuple[int, int] = (1, 1),
) -> Single | None:
    """Return the operation of a kind whose top has the shape of its bottom; it takes ``each`` nanoseconds for a number."""
    form = Form(kind, window=POINT._replace(kernel=kernel), numbers=numbers, rectified=rectified)
    return single(library(), form, planes, planes, parameters, prod(planes) * each)
