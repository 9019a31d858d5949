"""Turn pictures into input blobs, as Caffe does."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from ..blob import Array, Shape, show
from ..errors import UsageError
from ..text import number_of
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..fixed import Format
    from ..graph.source import Transform

OPTIONS = ("resize", "crop", "channels", "mean", "raw_scale", "scale")  # in a card and on a command line
CHANNELS = ("BGR", "RGB", "gray")
LETTERBOX = "letterbox"
BORDER = 114  # gray level of its borders, as YOLO's programs have them
LARGEST = 1e9  # of a mean or a scale; the product of three does not overflow float32


class PictureWindow(NamedTuple):
    """Left, top, right and bottom of an input in pixels of its picture, and the picture's width and height.

    It reaches beyond a picture that was given borders.
    """

    left: float = 0.0
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0
    width: float = 1.0
    height: float = 1.0


UNIT = PictureWindow()


def whole(width: float, height: float) -> PictureWindow:
    """Return the window of an input that shows a picture of this size as it is."""
    return PictureWindow(0.0, 0.0, float(width), float(height), float(width), float(height))


@dataclass(frozen=True)
class Preprocess:
    """Steps from an image to an input blob, in this order.

    ``resize``     (height, width) in pixels, bilinear without smoothing, as Caffe's; None: the network's input size;
                   "letterbox": the largest size of the picture's proportions in it, with gray borders (114) on two sides
    ``crop``       (height, width) cut from the centre; None: the network's input size if that is smaller
    ``channels``   "BGR", "RGB" or "gray"; None: as in Caffe, BGR for three channels and gray for one
    ``raw_scale``  pixels range from 0 to this (pycaffe's name; default 255)
    ``mean``       is subtracted: one number, one per channel in that order, or an array (C, H, W)
    ``scale``      multiplies the result: one number, or one per channel in that order, as torchvision's 1 / deviation
    ``chosen``     False if everything is default: uncertain results then come with a hint
    ``fast_decode``  decode JPEGs of at least twice the size of ``resize`` at a half, quarter or eighth of theirs, as libjpeg
                   can: faster, but the pixels are smoothed, and others than Caffe's
    """

    resize: tuple[int, int] | str | None = None
    crop: tuple[int, int] | None = None
    channels: str | None = None
    raw_scale: float = 255.0
    mean: Any = ()
    scale: float | tuple[float, ...] = 1.0
    chosen: bool = False
    fast_decode: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for invalid values."""
        for name in ("mean", "raw_scale", "scale"):
            if not _within(getattr(self, name)):
                raise UsageError(f"{name}: expected finite numbers up to {LARGEST:g}", hint="pixels are 0 to 255")
        if self.channels not in (None, *CHANNELS):
            raise UsageError(f"channels are {self.channels!r}", hint=f"expected one of {', '.join(CHANNELS)}")
        for name in ("resize", "crop"):
            object.__setattr__(self, name, _size(name, getattr(self, name)))
        if self.resize == LETTERBOX and self.crop is not None:
            raise UsageError("crop: a picture with borders is not cropped", hint=f"resize is {LETTERBOX!r}")
        if getattr(self.scale, "ndim", 0):  # an array, which is neither equal to 1 nor not
            object.__setattr__(self, "scale", tuple(np.ravel(self.scale).tolist()))

    def with_options(self, **options: Any) -> Preprocess:
        """Return a copy with the options that are not None. Raises UsageError for invalid values."""
        changes = {k: v for k, v in options.items() if v is not None}
        return replace(self, **changes, chosen=True) if changes else self

    def describe(self, shape: Shape) -> str:
        """Return one line: 256x256 -> 224x224 BGR, mean 104 117 123."""
        resize, crop = self.sizes(shape)
        size = show(resize) + ("" if crop == resize else f" -> {show(crop)}")
        size = f"{LETTERBOX} {size}" if self.resize == LETTERBOX else size
        words = [f"{size} {self._channels(shape)}"]
        if getattr(self.mean, "ndim", 0) > 1:
            words.append("mean image")
        elif len(np.atleast_1d(self.mean)):
            words.append("mean " + " ".join(f"{m:g}" for m in np.atleast_1d(self.mean)))
        if self.raw_scale != 255:
            words.append(f"raw_scale {self.raw_scale:g}")
        if self.scale != 1:
            words.append("scale " + " ".join(f"{s:g}" for s in np.atleast_1d(self.scale)))
        if self.fast_decode:
            words.append("fast decode")
        return ", ".join(words)

    def __call__(self, image: Image, shape: Shape) -> Array:
        """Return the image as one item (C, H, W), float32, of an input blob of ``shape`` (N, C, H, W)."""
        return self.item(self.resized(image, shape), shape)

    def resized(self, image: Image, shape: Shape) -> Array:
        """Return the image's pixels after resize and crop, uint8 (H, W) or (H, W, 3), for an input blob of ``shape``."""
        from ..kernels.pixels import resized  # which a network without pictures does without

        pixels, (resize, crop) = self.pixels(image, shape), self.sizes(shape)
        channels = self.check_channels(shape)
        self._mean(channels, crop), self._scale(channels)  # raise their errors already here
        if self.resize != LETTERBOX:
            return resized(pixels, resize, crop)
        size = fitted(pixels.shape[:2], crop)
        top, left = borders(size, crop)
        item = np.full((*crop, *pixels.shape[2:]), BORDER, np.uint8)
        item[top : top + size[0], left : left + size[1]] = resized(pixels, size, size)
        return item

    def least(self, shape: Shape) -> tuple[int, int] | None:
        """Return the height and width that an image must keep when it is decoded; None: those of its file."""
        if not self.fast_decode:
            return None
        self.check_channels(shape)
        return self.sizes(shape)[0]

    def pixels(self, image: Image, shape: Shape) -> Array:
        """Return the image's pixels, uint8 (H, W) or (H, W, 3), for an input blob of ``shape`` (N, C, H, W)."""
        if not hasattr(image, "mode"):  # as Pillow's images have, which may not be loaded
            kind = type(image).__name__
            message = f"preprocess: expected a picture or its file, found {kind}"
            raise UsageError(message, hint="a file: net.preprocess([file]); arrays: chai.Pictures")
        mode = "L" if self.check_channels(shape) == 1 else "RGB"
        return np.asarray(image if image.mode == mode else image.convert(mode))

    def check_channels(self, shape: Shape) -> int:
        """Return the channels of an input blob. Raises UsageError if pictures have others."""
        channels = self._channels(shape)
        wanted = 1 if channels == "gray" else 3
        if len(shape) != 4 or shape[1] != wanted:
            message = f"a {channels} image has {number_of(wanted, 'channel')}, the input blob is {show(shape)}"
            raise UsageError(message, hint="--channels gray, BGR or RGB")
        return wanted

    def item(self, pixels: Array, shape: Shape) -> Array:
        """Return pixels of the input's size as one item (C, H, W), float32."""
        pixels = np.asarray(pixels, np.float32)
        item = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        if self.backwards(shape):
            item = item[::-1]
        if self.raw_scale != 255:
            item = item * np.float32(self.raw_scale / 255)
        mean = self._mean(len(item), pixels.shape[:2])
        if mean.size:
            item = item - mean
        if self.scale != 1:
            item = item * self._scale(len(item))
        return np.ascontiguousarray(item, np.float32)

    def backwards(self, shape: Shape) -> bool:
        """Return whether the channels of an item are those of a picture (RGB) in the opposite order."""
        return self._channels(shape) == "BGR"

    def by_byte(self, channels: int) -> bool:
        """Return whether an item's number depends on its byte and channel alone: with a mean image on its place, too."""
        mean = np.asarray(self.mean)
        return mean.ndim < 3 and mean.size in (0, 1, channels)

    def codes_of_bytes(self, shape: Shape, format: Format) -> Array:
        """Return the code of each byte in each channel of an item, int8 (C, 256), where ``by_byte``."""
        channels = self.check_channels(shape)
        if (codes := self._codes.get((channels, format))) is None:
            from ..kernels.codes import pack

            pixels = np.arange(256, dtype=np.uint8)[None]
            pixels = pixels if channels == 1 else np.repeat(pixels[..., None], channels, 2)
            item = self.item(pixels, (1, channels, 1, 256))
            codes = self._codes[channels, format] = pack(item, format).reshape(channels, 256)
        return codes

    @cached_property
    def _codes(self) -> dict[tuple[int, Format], Array]:
        return {}

    def window(self, size: tuple[int, int], shape: Shape) -> PictureWindow:
        """Return the part of an image of ``size`` (width, height) that the input shows."""
        resize, crop = self.sizes(shape)
        left, top = (resize[1] - crop[1]) // 2, (resize[0] - crop[0]) // 2
        if self.resize == LETTERBOX:
            resize = fitted(size[::-1], crop)
            top, left = (-before for before in borders(resize, crop))
        across, down = size[0] / resize[1], size[1] / resize[0]
        return PictureWindow(
            left * across, top * down, (left + crop[1]) * across, (top + crop[0]) * down, *map(float, size)
        )

    def _mean(self, channels: int, size: tuple[int, int]) -> Array:
        mean = np.asarray(self.mean, np.float32)
        if self.by_byte(channels):
            return mean.reshape(-1, 1, 1)
        mean = mean[0] if mean.ndim == 4 and len(mean) == 1 else mean
        if mean.ndim != 3 or mean.shape[0] != channels or mean.shape[1] < size[0] or mean.shape[2] < size[1]:
            wanted = f"{channels} numbers or an image of {channels}x{size[0]}x{size[1]} or larger"
            raise UsageError(
                f"the mean is {show(mean.shape)}; expected {wanted}", hint="e.g. one number for all channels"
            )
        top, left = ((m - s) // 2 for m, s in zip(mean.shape[1:], size))
        return mean[:, top : top + size[0], left : left + size[1]]

    def _scale(self, channels: int) -> Array:
        scale = np.asarray(self.scale, np.float32)
        if scale.size not in (1, channels):
            expected = "1" if channels == 1 else f"1 or {channels}, one per channel"
            raise UsageError(f"{number_of(scale.size, 'scale')}; expected {expected}", hint="--scale 0.017")
        return scale.reshape(-1, 1, 1)

    def _channels(self, shape: Shape) -> str:
        return self.channels or ("gray" if len(shape) == 4 and shape[1] == 1 else "BGR")

    def sizes(self, shape: Shape) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the sizes (height, width) that an image is resized to and cropped to. Raises UsageError."""
        net = shape[2], shape[3]
        crop = self.crop or net
        resize = crop if self.resize in (None, LETTERBOX) else self.resize
        assert not isinstance(resize, str)
        if crop != net:
            message = f"images of {crop[0]}x{crop[1]} for an input blob of {net[0]}x{net[1]}"
            raise UsageError(message, hint="make crop (or resize) the network's input size")
        if resize[0] < crop[0] or resize[1] < crop[1]:
            message = f"a crop of {crop[0]}x{crop[1]} does not fit into images resized to {resize[0]}x{resize[1]}"
            raise UsageError(message, hint=f"resize to {crop[0]}x{crop[1]} or more")
        return resize, crop


def fitted(size: tuple[int, int], whole: tuple[int, int]) -> tuple[int, int]:
    """Return the largest height and width of the proportions of ``size`` that fit into ``whole``."""
    scale = min(whole[0] / size[0], whole[1] / size[1])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def borders(size: tuple[int, int], whole: tuple[int, int]) -> tuple[int, int]:
    """Return the pixels above and left of a picture of ``size`` (height, width) in the middle of ``whole``."""
    return (whole[0] - size[0]) // 2, (whole[1] - size[1]) // 2


def _size(name: str, value: Any) -> tuple[int, int] | str | None:
    """Return a height and width; or None, or the word that ``resize`` may be instead. Raises UsageError."""
    if value is None or (isinstance(value, str) and (name, value) == ("resize", LETTERBOX)):
        return value
    size: tuple[int, ...] = ()
    with suppress(TypeError):  # for what is no sequence of whole numbers
        size = tuple(map(index, value))
    if len(size) != 2 or min(size) < 1 or max(size) > 65_535:
        hint = "e.g. 224, 224" + (f"; or {LETTERBOX!r}" if name == "resize" else "")
        raise UsageError(f"{name} {repr(value)[:60]}: expected height and width in pixels", hint=hint)
    return size[0], size[1]


def _within(value: Any) -> bool:
    """Return whether all of a value, sequence or array are finite numbers of at most ``LARGEST`` in magnitude."""
    if isinstance(value, (tuple, list)):
        return all(map(_within, value))
    if isinstance(value, (int, float)):
        return abs(value) <= LARGEST
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return kind in ("f", "i", "u", "b") and bool((abs(value) <= LARGEST).all())


def from_transform(transform: Transform) -> Preprocess:
    """Return the Preprocess of a data layer's transform_param. A mean_file is not opened: the user must name it."""
    channels, mean = "gray" if transform.force_gray else None, tuple(transform.mean_value)
    return Preprocess(transform.resize, transform.crop, channels, mean=mean, scale=transform.scale, chosen=True)
