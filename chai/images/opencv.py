"""Pictures to input blobs as OpenCV's blobFromImage makes them: bytes are resized with its integers, to the same bits.

Source: OpenCV 4, modules/dnn/src/dnn_utils.cpp and modules/imgproc/src/resize.cpp (INTER_LINEAR).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..blob import Array, show
from ..errors import UsageError
from ..limits import limits
from ..text import number_of
from ..util.lazy_numpy import np

ONE = 2048  # of a weight for bytes: 11 bits
FLOATS = ("float32", "float64")


def sized(image: Any, size: Sequence[int] | None, crop: bool) -> Array:
    """Return an image (H, W), (H, W, 3) or (H, W, 4), of bytes or floats, as pixels (height, width, C).

    ``size``   width and height; (0, 0) or None: the image's
    ``crop``   cut the centre instead of changing the proportions

    Raises UsageError for what is no image.
    """
    pixels = _pixels(image)
    width, height = _size(size) if size is not None and any(size) else pixels.shape[1::-1]
    elements = height * width * pixels.shape[2]
    if elements > limits().blob_elements:
        raise UsageError("blobFromImage: " + limits().exceeded("blob_elements", elements))
    if pixels.shape[:2] == (height, width):
        return pixels
    return _cut(pixels, height, width) if crop else resize(pixels, height, width)


def blob_of(
    images: Iterable[Array], scale: float = 1.0, mean: Any = (), swap: bool = False, bytes_wanted: bool = False
) -> Array:
    """Return pixels (height, width, C) as a blob (N, C, height, width).

    ``scale``  multiplies the result, which is float32, or bytes if ``bytes_wanted``
    ``mean``   subtracted, one number per channel after ``swap``; one number alone is the first channel's, as in OpenCV
    ``swap``   exchange the first and the third channel

    Raises UsageError for none, and for one that has another size or number of channels than the first.
    """
    items: list[Array] = []
    for pixels in images:
        if swap and pixels.shape[2] > 2:
            pixels = pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
        means = channel_means("blobFromImage", mean, pixels.shape[2])
        if not bytes_wanted:
            pixels = pixels if pixels.dtype.name in FLOATS else pixels.astype(np.float32)
            pixels = ((pixels - means.astype(pixels.dtype)) * pixels.dtype.type(scale)).astype(np.float32)
        elif pixels.dtype != np.uint8 or means.any() or scale != 1:
            raise UsageError("blobFromImage: a blob of bytes needs an image of bytes, without mean and scale")
        items.append(pixels.transpose(2, 0, 1))
        if items[-1].shape != items[0].shape:
            first, other = show(items[0].shape), show(items[-1].shape)
            raise UsageError(f"blobFromImages: images of {first} and {other}", hint="size=(width, height) resizes them")
    if not items:
        raise UsageError("blobFromImages: there is no image")
    return np.stack(items)


def factor_of(call: str, scale: Any) -> float:
    """Return a scale factor, 1 for None, as in OpenCV. Raises UsageError for what is no number."""
    if not isinstance(scale, (int, float, np.integer, np.floating, type(None))):
        raise UsageError(f"{call}: scalefactor {scale!r}: expected a number")
    return 1.0 if scale is None else float(scale)


def channel_means(call: str, mean: Any, channels: int) -> Array:
    """Return the mean of each channel, 0 where ``mean`` (or None) has none, as in OpenCV. Raises UsageError for more than 4."""
    try:
        values = np.asarray(() if mean is None else mean, np.float64).ravel()
    except (TypeError, ValueError):
        raise UsageError(f"{call}: mean {mean!r}: expected a number, or one per channel") from None
    if len(values) > 4:
        raise UsageError(f"{call}: mean of {number_of(len(values), 'number')}, expected one per channel, 4 at most")
    if channels > 4 and values.any():
        raise UsageError(f"{call}: mean for {channels} channels, expected 4 at most", hint="subtract it before")
    means = np.zeros(max(4, channels))
    means[: len(values)] = values
    return means[:channels]


def resize(pixels: Array, height: int, width: int, scales: tuple[float, float] | None = None) -> Array:
    """Resize (H, W, C) bilinearly, as cv2.resize does; ``scales``: of rows and columns, instead of the sizes' ratios."""
    rows, columns = scales or (pixels.shape[0] / height, pixels.shape[1] / width)
    integers = pixels.dtype == np.uint8
    left, right, weights, outside = _taps(width, columns, pixels.shape[1])
    near, far = _weights(np.where(outside, np.float32(0), weights), integers, 1)
    across = pixels[:, left] * near + pixels[:, right] * far
    top, bottom, weights, _ = _taps(height, rows, pixels.shape[0])
    near, far = _weights(weights, integers, 2)
    down: Array
    if integers:
        across >>= 4
        down = ((across[top] * near >> 16) + (across[bottom] * far >> 16) + 2) >> 2
        return down.astype(np.uint8)
    down = across[top] * near + across[bottom] * far
    return down


def _taps(new: int, scale: float, old: int) -> tuple[Array, Array, Array, Array]:
    """Return the two neighbours of each new place, the weight of the second, and where one of them is outside."""
    at = ((np.arange(new) + 0.5) * scale - 0.5).astype(np.float32)
    low = np.floor(at)
    first = low.astype(np.intp)
    near, far = (np.clip(place, 0, old - 1) for place in (first, first + 1))
    return near, far, at - low, (first < 0) | (first + 1 > old - 1)


def _weights(second: Array, integers: bool, axes: int) -> tuple[Array, Array]:
    both = (1 - second).reshape(-1, *[1] * axes), second.reshape(-1, *[1] * axes)
    if not integers:
        return both
    first, last = (np.rint(each * np.float32(ONE)).astype(np.int32) for each in both)
    return first, last


def _cut(pixels: Array, height: int, width: int) -> Array:
    """Resize until both sides are as large as wanted, and cut the centre."""
    factors = (np.float32(new) / np.float32(old) for new, old in zip((height, width), pixels.shape))
    factor = float(max(factors))  # a float32 in OpenCV
    high, wide = (round(side * factor) for side in pixels.shape[:2])
    whole = resize(pixels, high, wide, (1 / factor, 1 / factor))
    top, left = (high - height) // 2, (wide - width) // 2
    return whole[top : top + height, left : left + width]


def _pixels(image: Any) -> Array:
    pixels = np.asarray(image)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    numbers = pixels.dtype.name in ("uint8", *FLOATS) and pixels.size > 0
    if not numbers or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise UsageError(
            f"blobFromImage: expected an image (H, W) or (H, W, 3) of uint8 or float32, found "
            f"{show(np.shape(image))} of {pixels.dtype}",
            hint="was the file read? cv.imread returns None for one that it cannot read",
        )
    return pixels


def _size(size: Sequence[int]) -> tuple[int, int]:
    if len(size) != 2 or not all(isinstance(n, (int, np.integer)) and 0 < n <= 65_535 for n in size):
        raise UsageError(f"blobFromImage: size {tuple(size)}: expected width and height in pixels")
    return int(size[0]), int(size[1])
