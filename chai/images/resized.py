"""Images that were resized before: what a network will see of others, guessed from them.

Caffe resizes without smoothing, most other tools with it. Copies in the size that a network's images are resized to are
smoother, or sharper, than the originals after Caffe's resizing, and their blobs have other ranges.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..blob import Array, Shape
from ..errors import ParseError
from ..kernels.pixels import bilinear
from ..util.lazy_numpy import np
from .files import FORMATS, read
from .preprocess import Preprocess

if TYPE_CHECKING:
    from PIL.Image import Image


SMALL = 96  # pixels: data sets of small pictures (28, 32, 64, 96) come in the networks' size
LARGER = 8 / 7  # side of a view's crop, relative to the input's, if the image is as large


def resized(files: Iterable[Path], how: Preprocess) -> list[Path]:
    """Return the images that have exactly the size of ``how.resize``, unless that is small."""
    if how.resize is None or isinstance(how.resize, str) or min(how.resize) <= SMALL:
        return []
    suspects = []
    for file in files:
        if file.suffix.lower() in FORMATS:
            try:
                size = read(file).size
            except ParseError:
                continue  # reported when it is used
            if (size[1], size[0]) == how.resize:
                suspects.append(file)
    return suspects


def views(image: Image, how: Preprocess, shape: Shape) -> list[Array]:
    """Return two items (C, H, W) for an input blob of ``shape``.

    Both are the centre of the image, a little larger than the input, resized to it without and with smoothing.
    """
    pixels = how.pixels(image, shape)
    _, crop = how.sizes(shape)
    height, width = (min(have, round(need * LARGER)) for have, need in zip(pixels.shape, crop))
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    part = pixels[top : top + height, left : left + width]
    return [how.item(way(part, crop), shape) for way in (bilinear, smoothed)]


def smoothed(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize pixels (H, W) or (H, W, C): each new one is a mean weighted by a triangle of twice its width, rounded."""
    for axis, new in enumerate(size):
        old = pixels.shape[axis]
        width = max(1.0, old / new)
        centre = (np.arange(new) + 0.5) * (old / new)
        weight = np.maximum(0, 1 - np.abs(np.arange(old) + 0.5 - centre[:, None]) / width)
        weight = (weight / weight.sum(1, keepdims=True)).astype(np.float32)
        pixels = np.moveaxis(np.tensordot(weight, pixels, (1, axis)), 0, axis)
    return np.rint(pixels)
