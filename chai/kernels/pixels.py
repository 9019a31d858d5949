"""Pixels of pictures, as bytes: resized, and looked up in tables of their codes."""

from __future__ import annotations

from math import prod

from ..blob import Array
from ..tasks.window import Window
from ..util.lazy_numpy import np
from .native.library import library
from .native.single import single
from .native.table import SIZE, Form, Kind

Size = tuple[int, int]
LOOKED_UP, RESIZED = 1, 0.2  # bytes in a nanosecond, roughly


def look_up(pixels: Array, codes: Array, backwards: bool) -> Array:
    """Return the codes, int8 (N, C, H, W), of pixels, uint8 (N, H, W, C), or (N, H, W) of one channel.

    Channel c of the result has ``codes[c]`` (int8, of 256 bytes), and is that of the pixels, ``backwards`` the C-th from the end.
    """
    pixels = pixels.reshape(*pixels.shape[:3], -1)
    count, height, width, channels = pixels.shape
    shape = count, channels, height, width
    form, ns = Form(Kind.TABLE, backwards=backwards), prod(shape) / LOOKED_UP
    if (table := single(library(), form, shape, shape, (256 * channels,), ns)) is not None:
        return table.run(np.ascontiguousarray(pixels), codes)
    out = np.empty(shape, np.int8)
    for c in range(channels):
        out[:, c] = codes[c][pixels[..., channels - 1 - c if backwards else c]]
    return out


def resized(pixels: Array, size: Size, crop: Size) -> Array:
    """Return the centre ``crop`` of ``bilinear`` to a size, as bytes (uint8), of bytes (H, W) or (H, W, C)."""
    top, left = ((whole - part) // 2 for whole, part in zip(size, crop))
    if pixels.shape[:2] != size:
        source = 1, prod(pixels.shape[2:]), *pixels.shape[:2]
        form, ns = Form(Kind.RESIZE, window=Window(size, (1, 1), (top, left))), source[1] * prod(crop) / RESIZED
        if max(size) <= SIZE and (cut := single(library(), form, source, (*source[:2], *crop), (), ns)) is not None:
            return cut.run(np.ascontiguousarray(pixels)).view(np.uint8).reshape(*crop, *pixels.shape[2:])
        pixels = bilinear(pixels, size).astype(np.uint8)
    return pixels[top : top + crop[0], left : left + crop[1]]


def bilinear(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize pixels (H, W) or (H, W, C), rounding to integers as cv::resize(INTER_LINEAR) does for bytes."""
    return np.rint(interpolate(pixels, size), dtype=np.float32)


def interpolate(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize values (H, W) or (H, W, C) bilinearly; bytes become float32.

    Half-pixel centres, no smoothing when shrinking, and repeated edges: as Caffe's cv::resize(INTER_LINEAR), with which
    published networks were evaluated.
    """
    for axis, new in enumerate(size):
        old = pixels.shape[axis]
        if old == new:
            continue
        at = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
        low = np.minimum(at.astype(np.intp), max(old - 2, 0))
        weight = (at - low).astype(np.float32).reshape((-1,) + (1,) * (pixels.ndim - 1 - axis))
        kind = np.result_type(pixels, weight)
        first = pixels.take(low, axis).astype(kind, copy=False)
        pixels = first + (pixels.take(np.minimum(low + 1, old - 1), axis).astype(kind, copy=False) - first) * weight
    return pixels
