"""Turn pictures into input blobs, as Caffe does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ParseError, UsageError
from ..limits import limits
from ..util.data import npy
from ..util.files import content
from ..util.lazy_numpy import np
from ..zoo.published import Published, from_table

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..blob import Array, Shape

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".ppm": "PPM", ".pgm": "PPM"}
CHANNELS = ("BGR", "RGB", "gray")
_TABLE = re.compile(r"\s*\[\s*preprocess\s*\]")
LARGEST = 1e9  # of a mean or a scale; the product of three does not overflow float32
DEPTH = 32  # parts of a dotted key, in whose number TOML's reader takes quadratic time
_DEEP = re.compile(rf"""(?<![\w"'-])[\w"'-]+(?:[ \t]*\.[ \t]*[\w"'-]+){{{DEPTH}}}""")
_KEYS = {"resize": 2, "crop": 2, "channels": 0, "mean": None, "raw_scale": 1, "scale": 1}


@dataclass(frozen=True)
class Preprocess:
    """Steps from an image to an input blob, in this order.

    ``resize``     (height, width) in pixels, bilinear without smoothing, as Caffe's; None: the network's input size
    ``crop``       (height, width) cut from the centre; None: the network's input size if that is smaller
    ``channels``   "BGR", "RGB" or "gray"; None: as in Caffe, BGR for three channels and gray for one
    ``raw_scale``  pixels range from 0 to this (pycaffe's name; default 255)
    ``mean``       is subtracted: one number, one per channel in that order, or an array (C, H, W)
    ``scale``      multiplies the result
    ``given``      False if everything is default: uncertain results then come with a hint
    """

    resize: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    channels: str | None = None
    raw_scale: float = 255.0
    mean: Any = ()
    scale: float = 1.0
    given: bool = False

    def __post_init__(self) -> None:
        """Raise UsageError for numbers that overflow float32."""
        for name in ("mean", "raw_scale", "scale"):
            if not _within(getattr(self, name)):
                raise UsageError(f"{name}: expected finite numbers up to {LARGEST:g}")

    def with_options(self, **options: Any) -> Preprocess:
        """Return a copy with the options that are not None. Raises UsageError for invalid values."""
        chosen = {k: v for k, v in options.items() if v is not None}
        if not chosen:
            return self
        new = replace(self, **chosen, given=True)
        if new.channels not in (None, *CHANNELS):
            raise UsageError(f"channels {new.channels!r}: expected one of {', '.join(CHANNELS)}")
        for name in ("resize", "crop"):
            size = getattr(new, name)
            if size is not None and (len(size) != 2 or min(size) < 1 or max(size) > 65_535):
                raise UsageError(f"{name} {size}: expected height and width in pixels")
        return new

    def describe(self, shape: Shape) -> str:
        """Return one line: 256x256 -> 224x224 BGR, mean 104 117 123."""
        resize, crop = self.sizes(shape)
        size = "x".join(map(str, resize)) + ("" if crop == resize else " -> " + "x".join(map(str, crop)))
        words = [f"{size} {self._channels(shape)}"]
        if getattr(self.mean, "ndim", 0) == 3:
            words.append("mean image")
        elif len(np.atleast_1d(self.mean)):
            words.append("mean " + " ".join(f"{m:g}" for m in np.atleast_1d(self.mean)))
        if self.raw_scale != 255:
            words.append(f"raw_scale {self.raw_scale:g}")
        if self.scale != 1:
            words.append(f"scale {self.scale:g}")
        return ", ".join(words)

    def __call__(self, image: Image, shape: Shape) -> Array:
        """Return the image as one item (C, H, W), float32, of an input blob of ``shape`` (N, C, H, W)."""
        pixels = self.pixels(image, shape)
        resize, crop = self.sizes(shape)
        pixels = bilinear(pixels, resize)
        top, left = ((r - c) // 2 for r, c in zip(resize, crop))
        return self.item(pixels[top : top + crop[0], left : left + crop[1]], shape)

    def pixels(self, image: Image, shape: Shape) -> Array:
        """Return the image's pixels, float32 (H, W) or (H, W, 3), for an input blob of ``shape`` (N, C, H, W)."""
        channels = self._channels(shape)
        wanted = 1 if channels == "gray" else 3
        if len(shape) != 4 or shape[1] != wanted:
            raise UsageError(
                f"a {channels} image has {wanted} channels, the input blob is {'x'.join(map(str, shape))}",
                hint="--channels gray, BGR or RGB",
            )
        return np.asarray(image.convert("L" if wanted == 1 else "RGB"), np.float32)

    def item(self, pixels: Array, shape: Shape) -> Array:
        """Return pixels of the input's size as one item (C, H, W), float32."""
        item = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        if self._channels(shape) == "BGR":
            item = item[::-1]
        if self.raw_scale != 255:
            item = item * np.float32(self.raw_scale / 255)
        mean = np.asarray(self.mean, np.float32)
        if mean.size:
            item = item - self._mean(mean, len(item), pixels.shape[:2])
        if self.scale != 1:
            item = item * np.float32(self.scale)
        return np.ascontiguousarray(item, np.float32)

    def window(self, size: tuple[int, int], shape: Shape) -> tuple[float, float, float, float]:
        """Return left, top, right, bottom, in pixels of an image of ``size`` (width, height), of the input's window."""
        resize, crop = self.sizes(shape)
        across, down = size[0] / resize[1], size[1] / resize[0]
        left, top = (resize[1] - crop[1]) // 2, (resize[0] - crop[0]) // 2
        return left * across, top * down, (left + crop[1]) * across, (top + crop[0]) * down

    def _mean(self, mean: Array, channels: int, size: tuple[int, int]) -> Array:
        if mean.size in (1, channels) and mean.ndim < 3:
            return mean.reshape(-1, 1, 1)
        mean = mean[0] if mean.ndim == 4 and len(mean) == 1 else mean
        if mean.ndim != 3 or mean.shape[0] != channels or mean.shape[1] < size[0] or mean.shape[2] < size[1]:
            found = "x".join(map(str, mean.shape))
            wanted = f"{channels} numbers or an image of {channels}x{size[0]}x{size[1]} or larger"
            raise UsageError(f"the mean is {found}; expected {wanted}")
        top, left = ((m - s) // 2 for m, s in zip(mean.shape[1:], size))
        return mean[:, top : top + size[0], left : left + size[1]]

    def _channels(self, shape: Shape) -> str:
        return self.channels or ("gray" if len(shape) == 4 and shape[1] == 1 else "BGR")

    def sizes(self, shape: Shape) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the sizes (height, width) that an image is resized to and cropped to. Raises UsageError."""
        net = shape[2], shape[3]
        crop = self.crop or net
        resize = self.resize or crop
        if crop != net:
            raise UsageError(
                f"images of {crop[0]}x{crop[1]} for an input blob of {net[0]}x{net[1]}",
                hint="make crop (or resize) the network's input size",
            )
        if resize[0] < crop[0] or resize[1] < crop[1]:
            raise UsageError(
                f"a crop of {crop[0]}x{crop[1]} does not fit into images resized to {resize[0]}x{resize[1]}"
            )
        return resize, crop


def _within(value: Any) -> bool:
    """Return whether all numbers of a value, sequence or array are finite and at most ``LARGEST`` in magnitude."""
    if isinstance(value, (tuple, list)):
        return all(map(_within, value))
    return bool(abs(value) <= LARGEST) if isinstance(value, (int, float)) else bool((abs(value) <= LARGEST).all())


def bilinear(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize pixels (H, W) or (H, W, C), rounding to integers as cv::resize(INTER_LINEAR) does for bytes."""
    return np.rint(interpolate(pixels, size))


def interpolate(pixels: Array, size: tuple[int, int]) -> Array:
    """Resize values (H, W) or (H, W, C) bilinearly; float32 stays float32.

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
        first = pixels.take(low, axis)
        pixels = first + (pixels.take(np.minimum(low + 1, old - 1), axis) - first) * weight
    return pixels


def read(path: str | Path) -> Image:
    """Return an upright picture of bounded size. Raises ParseError unless it is a JPEG, PNG, BMP or PPM."""
    from PIL import Image, ImageOps

    with _opened(path, sorted(set(FORMATS.values()))) as image:
        if image.mode.startswith("I"):  # 16 bits a pixel
            return Image.fromarray((np.asarray(image, np.uint32) >> 8).astype(np.uint8))
        upright = ImageOps.exif_transpose(image)
        upright.load()
        return upright


def read_classes(path: str | Path) -> Array:
    """Return the class of each pixel, int64 (H, W), from a PNG of class indices: gray values, or a palette's indices.

    Raises ParseError for anything else.
    """
    with _opened(path, ["PNG"]) as image:
        if image.mode not in ("L", "P", "I", "I;16", "I;16B"):
            raise ParseError(
                f"this PNG has pixels of mode {image.mode}, expected class indices",
                path=str(path),
                hint="gray (mode L or I;16), or the indices of a palette (mode P), not its colours",
            )
        return np.asarray(image).astype(np.int64)


@contextmanager
def _opened(path: str | Path, formats: list[str]) -> Iterator[Image]:
    """Open an image of bounded size; errors that Pillow raises in the block become ParseErrors."""
    import warnings

    from PIL import Image

    data = content(path, "image_bytes")
    if not data:
        raise ParseError("this is no readable image: the file is empty", path=str(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # chai checks its own limit below
            with Image.open(BytesIO(data), formats=formats) as image:
                if image.width * image.height > limits().image_pixels:
                    raise ParseError(
                        f"{image.width}x{image.height} pixels: "
                        + limits().exceeded("image_pixels", image.width * image.height),
                        path=str(path),
                    )
                yield image
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ParseError(
            f"this is no readable image ({_reason(error)}); expected {', '.join(formats)}",
            path=str(path),
        ) from error


def _reason(error: Exception) -> str:
    text = str(error)
    return "unknown format" if "cannot identify" in text else text or type(error).__name__


def read_array(path: str | Path) -> Array:
    """Read a .npy array as float32. Raises ParseError for anything but plain numbers of bounded size."""
    return npy.floats(npy.mapped(path), path)


def read_mean(path: str | Path) -> Array:
    """Return a mean image (C, H, W): .npy or Caffe's .binaryproto."""
    from ..parser.caffemodel import read_blob_file

    mean = read_array(path) if str(path).endswith(".npy") else read_blob_file(path)
    return mean[0] if mean.ndim == 4 and len(mean) == 1 else mean


def find(places: Iterable[str | Path], pipes: bool = False) -> list[Path]:
    """Return the named image and .npy files, and those in the named folders, sorted by name.

    Raises UsageError for a name that does not exist, a folder without images, and unless ``pipes`` for a pipe, which can
    be read only once.
    """
    found: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            inside = sorted(p for p in place.iterdir() if p.suffix.lower() in (*FORMATS, ".npy") and p.is_file())
            if not inside:
                raise UsageError(
                    f"there is no image in {str(place)!r}", hint="looked for " + " ".join([*FORMATS, ".npy"])
                )
            found += inside
        elif place.is_file() or (pipes and place.exists()):
            found.append(place)
        elif place.exists():
            raise UsageError(f"{str(place)!r} is a pipe or a device, expected an image", hint="save it to a file first")
        else:
            raise UsageError(f"there is no image {str(place)!r}")
    return found


@dataclass(frozen=True)
class Card:
    """The TOML file next to a prototxt: title, labels, preprocessing, published weights."""

    title: str = ""
    labels: tuple[str, ...] = ()
    preprocess: Preprocess = Preprocess()
    weights: Published | None = None


def card_text(path: Path) -> str:
    """Return the text of a card; "" if there is no such file. Raises ParseError."""
    if not path.is_file():
        return ""
    try:
        return content(path, "card_bytes").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"this is no TOML: {error}", path=str(path)) from error


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef]
    try:
        if _DEEP.search(text):
            raise ValueError(f"a key of more than {DEPTH} parts")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number with more digits than Python reads
        raise ParseError(f"this is no TOML: {error}", path=str(path)) from error


def read_card(prototxt: str | Path) -> Card:
    """Return the card NAME.toml next to NAME.prototxt, an empty one if there is none. Raises ParseError."""
    path = Path(prototxt).with_suffix(".toml")
    return parse_card(card_text(path), path)


def parse_card(text: str, path: Path) -> Card:
    """Read a card from its text; ``path`` is named in errors. Raises ParseError."""
    table = _toml(text, path)
    unknown = [k for k in table if k not in ("title", "labels", "preprocess", "weights")]
    if unknown:
        raise ParseError(
            f"unknown key {unknown[0]!r}; expected title, labels, [preprocess] or [weights]", path=str(path)
        )
    labels = table.get("labels", [])
    if not isinstance(labels, list) or not all(isinstance(x, str) for x in labels):
        raise ParseError("labels: expected a list of texts", path=str(path))
    return Card(
        str(table.get("title", "")),
        tuple(labels),
        _preprocess(table.get("preprocess"), path),
        from_table(table["weights"], path) if "weights" in table else None,
    )


def with_preprocess(text: str, how: Preprocess, path: Path, comment: str = "") -> str:
    """Replace the [preprocess] table of a card; every other line of ``text`` stays. Raises ParseError if it cannot be done.

    A card cannot hold a mean image, so it is left out; ``comment`` may say where it is.
    """
    block = [f"# {comment}\n"] * bool(comment) + [f"{key} = {value}\n" for key, value in _values(how)]
    lines = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    after = next((i for i in range(first + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
    before = "".join(lines[:first])
    if before and first == len(lines):
        before = before.rstrip("\n") + "\n\n"
    table = "".join(["[preprocess]\n", *block]) if block else ""
    gap = "\n" if table and after < len(lines) else ""
    card = before + table + gap + "".join(lines[after:])
    expected = {**_toml(text, path), **_toml(table, path)}
    if not table:
        expected.pop("preprocess", None)
    if _toml(card, path) != expected:
        raise ParseError(
            "its preprocessing cannot be replaced: expected [preprocess] and a line for each key", path=str(path)
        )
    return card


def _values(how: Preprocess) -> Iterator[tuple[str, str]]:
    """Yield (key, value as TOML) of every setting that is not the default."""
    for key in _KEYS:
        value = getattr(how, key)
        if key in ("resize", "crop") and value is not None:
            yield key, str(list(value))
        elif key == "channels" and value is not None:
            yield key, f'"{value}"'
        elif key == "mean" and not isinstance(value, np.ndarray) and len(np.atleast_1d(value)):
            yield key, str([float(m) for m in np.atleast_1d(value)])
        elif key in ("raw_scale", "scale") and value != getattr(Preprocess, key):
            yield key, repr(float(value))


def _preprocess(table: Any, path: Path) -> Preprocess:
    if table is None:
        return Preprocess()
    if not isinstance(table, Mapping):
        raise ParseError("preprocess: expected a table, [preprocess]", path=str(path))
    options: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise ParseError(f"[preprocess] has no key {key!r}; expected {', '.join(_KEYS)}", path=str(path))
        if key == "channels":
            if value not in CHANNELS:
                raise ParseError(f"channels: expected one of {', '.join(CHANNELS)}, found {value!r}", path=str(path))
            options[key] = value
            continue
        numbers = value if isinstance(value, list) else [value]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) <= LARGEST for n in numbers):
            raise ParseError(f"{key}: expected numbers, found {str(value)[:80]}", path=str(path))
        if key in ("resize", "crop") and (len(numbers) != 2 or not all(isinstance(n, int) for n in numbers)):
            raise ParseError(f"{key}: expected [height, width], found {value!r}", path=str(path))
        options[key] = tuple(numbers) if key in ("resize", "crop", "mean") else float(numbers[0])
    try:
        return Preprocess().with_options(**options) if options else Preprocess()
    except UsageError as error:
        raise ParseError(error.message, path=str(path)) from error


def from_transform(transform: Any) -> Preprocess:
    """Return the Preprocess of a data layer's transform_param. A mean_file is not opened: the user must name it."""
    return Preprocess(
        resize=transform.resize,
        crop=transform.crop,
        mean=tuple(transform.mean_value),
        scale=transform.scale,
        channels="gray" if transform.force_gray else None,
        given=True,
    )


def prepared(pictures: Iterable[str | Path | Image], card: Card, transform: Any, shape: Shape) -> Array:
    """Return pictures, or their files, as one batch for an input blob: by the card, or else by its data layer's
    ``transform``. Raises UsageError if there is no picture."""
    how = card.preprocess
    if transform is not None and not how.given:
        how = from_transform(transform)
    items = [how(read(p) if isinstance(p, (str, Path)) else p, shape) for p in pictures]
    if not items:
        raise UsageError("preprocess: there is no picture")
    return np.stack(items)


def read_labels(path: str | Path) -> list[str]:
    """Return one label per line; ImageNet's leading synset id (n01440764) is dropped."""
    lines = content(path, "text_bytes").decode("utf-8", "replace").splitlines()
    return [
        line.partition(" ")[2] if line[:1] == "n" and line[1:9].isdecimal() and line[9:10] == " " else line
        for line in lines
    ]
