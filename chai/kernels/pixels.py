"""Pixels of pictures, as bytes: resized, and looked up in tables of their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array

Size = tuple[int, int]


def look_up(pixels: Array, codes: Array, backwards: bool) -> Array:
    """Return the codes, int8 (N, C, H, W), of pixels, uint8 (N, H, W, C), or (N, H, W) of one channel.

    Channel c of the result has ``codes[c]`` (int8, of 256 bytes), and is that of the pixels, ``backwards`` the C-th from the end.
    """
    return _looked_up(pixels.reshape(*pixels.shape[:3], -1), codes, backwards)


def _looked_up(pixels: Array, codes: Array, backwards: bool) -> Array:
    count, height, width, channels = pixels.shape
    out = np.empty((count, channels, height, width), np.int8)
    for c in range(channels):
        out[:, c] = codes[c][pixels[..., channels - 1 - c if backwards else c]]
    return out


def resized(pixels: Array, size: Size, crop: Size) -> Array:
    """Return the centre ``crop`` of ``bilinear``, as bytes (uint8), of pixels (H, W) or (H, W, C)."""
    top, left = ((whole - part) // 2 for whole, part in zip(size, crop))
    if pixels.shape[:2] == size:
        return pixels[top : top + crop[0], left : left + crop[1]]
    part: Array = bilinear(pixels, size)[top : top + crop[0], left : left + crop[1]]
    return part.astype(np.uint8)


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
