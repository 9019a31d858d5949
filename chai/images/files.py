"""Find and read image files, .npy inputs, mean images and labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..blob import Array, Shape
from ..detect.labels import SETS
from ..errors import ParseError, UsageError
from ..kernels.native.library import computing
from ..util.data import npy
from ..util.files import content, in_its_place, text
from ..util.lazy_numpy import np
from ..util.log import logger
from . import netpbm
from .parts import essential
from .pictures import Feed, Pictures, item_shape, stacked
from .preprocess import UNIT, PictureWindow, Preprocess, whole

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".ppm": "PPM", ".pgm": "PPM"}
UNREAD = (".webp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".jp2", ".jxl")  # pictures, too, that chai does not read
ImagePlace = tuple[Path, "int | None", str]  # file of an image, its item in a .npy of several, and the name of both
log = logger("chai.images")

# the transpose for each orientation of Exif, as numbers: newer versions of Pillow have them in an enum
_UPRIGHT: dict[int, Any] = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


def read(path: str | Path) -> Image:
    """Return an upright picture of bounded size. Raises ParseError unless it is a JPEG, PNG, BMP or PPM."""
    return decoded(content(path, "image_bytes"), str(path))[0]


def of_pixels(pixels: Array) -> Image:
    """Return a picture of pixels, uint8 (H, W) or (H, W, 3)."""
    from PIL import Image

    return Image.fromarray(pixels)


def decoded(data: bytes, name: str, least: tuple[int, int] | None = None) -> tuple[Image, tuple[int, int]]:
    """Return an upright picture from the bytes of its file, and its width and height there. Raises ParseError.

    A JPEG of at least twice the height and width ``least`` is decoded at the smallest part of its size, of a half, quarter and
    eighth, that still has them.
    """
    with _opened(data, name, sorted(set(FORMATS.values()))) as (image, orientation):
        aside = orientation > 4  # its columns are the upright picture's rows
        size = image.size[::-1] if aside else image.size
        if least is not None:
            image.draft(None, least if aside else least[::-1])
        if image.mode.startswith("I"):  # 16 bits a pixel
            from PIL import Image

            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image.load()
        return image if orientation == 1 else image.transpose(_UPRIGHT[orientation]), size


def read_classes(path: str | Path) -> Array:
    """Return the class of each pixel, int64 (H, W), from a PNG of class indices: gray values, or a palette's indices.

    Raises ParseError for anything else.
    """
    with _opened(content(path, "image_bytes"), str(path), ["PNG"]) as (image, _):
        if image.mode not in ("L", "P", "I", "I;16", "I;16B"):
            raise ParseError(
                f"this PNG has pixels of mode {image.mode}, expected class indices",
                path=str(path),
                hint="gray (mode L or I;16), or the indices of a palette (mode P), not its colours",
            )
        return np.asarray(image).astype(np.int64)


@contextmanager
def _opened(data: bytes, path: str, formats: list[str]) -> Iterator[tuple[Image, int]]:
    """Open an image of bounded size, with its orientation; errors that Pillow raises in the block become ParseErrors."""
    import warnings

    from PIL import Image

    if not data:
        raise ParseError("this is no readable image: the file is empty", path=path)
    try:
        if "PPM" in formats and netpbm.recognise(data):
            yield Image.fromarray(netpbm.pixels(data, path)), 1
            return
        data, orientation = essential(data, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # chai checks its own limit below
            with Image.open(BytesIO(data), formats=[name for name in formats if name != "PPM"]) as image:
                netpbm.check(image.width, image.height, path)
                yield image, orientation
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        words = str(error) or type(error).__name__
        reason = "unknown format" if "cannot identify" in words else words
        message = f"this is no readable image ({reason}); expected {', '.join(formats)}"
        raise ParseError(message, path=path) from error


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
    paths: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            files = sorted(p for p in place.iterdir() if p.is_file())
            inside = [p for p in files if p.suffix.lower() in (*FORMATS, ".npy")]
            _warn_of([p.name for p in files if p.suffix.lower() in UNREAD], place)
            if not inside:
                message = f"there is no image in {str(place)!r}"
                raise UsageError(message, hint="looked for " + " ".join([*FORMATS, ".npy"]))
            paths += inside
        elif place.is_file() or (pipes and place.exists()):
            paths.append(place)
        elif place.exists():
            raise UsageError(f"{str(place)!r} is a pipe or a device, expected an image", hint="save it to a file first")
        else:
            raise UsageError(f"there is no image {str(place)!r}", hint=in_its_place(place))
    return paths


def _warn_of(unread: list[str], folder: Path) -> None:
    if unread:
        names = ", ".join(unread[:3]) + (", ..." if len(unread) > 3 else "")
        files = "file is" if len(unread) == 1 else "files are"
        words = len(unread), files, folder, names, " ".join(FORMATS)
        log.warning("%d %s left out of %s (%s): convert to one of %s", *words)


def label_lines(path: str | Path) -> list[str]:
    """Return the lines of a file of labels; coco and voc, if no files, name sets."""
    if str(path) in SETS and not Path(path).exists():
        return list(SETS[str(path)])
    return text(path, "text_bytes").splitlines()


def read_labels(path: str | Path) -> list[str]:
    """Return one label per line of ``label_lines``, without ImageNet's leading synset id (n01440764)."""
    return [re.sub(r"^n\d{8} ", "", line) for line in label_lines(path)]


class ImagePart(NamedTuple):
    """The name of an image, and the part of it that an input shows."""

    name: str
    window: PictureWindow = UNIT


def places(files: Iterable[Path], rank: int) -> Iterator[ImagePlace]:
    """Yield the place of every image; a .npy of at least ``rank`` axes (the input blob's) has several.

    A file that cannot be read has one: reading it later raises the error.
    """
    for file in files:
        items: Sequence[int | None] = [None]
        if file.suffix.lower() == ".npy":
            with suppress(ParseError, OSError):
                array = npy.mapped(file)
                items = range(len(array)) if array.ndim >= rank else items
        yield from ((file, item, str(file) if len(items) == 1 else f"{file}[{item}]") for item in items)


def reader(file: str | Path, steps: Preprocess, shape: Shape) -> Callable[[int | None], tuple[Feed, PictureWindow]]:
    """Return a function that returns an item of a file for an input blob, and what it shows of the image.

    An image is Pictures of one, an item of a .npy is float32. Raises ParseError, as the function does.
    """

    def read(_item: int | None) -> tuple[Feed, PictureWindow]:
        pictures, size = picture(file, steps, shape)
        return pictures, steps.window(size, shape)

    if Path(file).suffix.lower() != ".npy":
        return read
    array = npy.mapped(file)

    def read_item(item: int | None) -> tuple[Feed, PictureWindow]:
        numbers = npy.floats(array if item is None else array[item], file)
        return numbers, whole(*numbers.shape[:0:-1]) if numbers.ndim == 3 else UNIT

    return read_item


def items(
    files: Iterable[Path], steps: Preprocess, shape: Shape, unread: Callable[[Path, ParseError], None]
) -> Iterator[tuple[ImagePart, Feed]]:
    """Yield every image for an input blob of ``shape``, as ``reader`` reads it.

    Call ``unread`` once for a file that cannot be read, or not from some item on.
    """
    for file in files:
        read = None
        for _, item, name in places([file], len(shape)):
            try:
                read = read or reader(file, steps, shape)
                feed, window = read(item)
            except ParseError as error:
                unread(file, error)
                break
            yield ImagePart(name, window), feed


def batches(items: Iterable[tuple[ImagePart, Feed]], size: int) -> Iterator[tuple[list[ImagePart], Feed]]:
    """Yield up to ``size`` consecutive inputs of one shape at a time, with what they show."""
    parts: list[ImagePart] = []
    data: list[Feed] = []
    for part, item in items:
        if len(data) == size or (data and item_shape(data[0]) != item_shape(item)):
            yield parts, stacked(data)
            parts, data = [], []
        parts.append(part)
        data.append(item)
    if data:
        yield parts, stacked(data)


def picture(file: str | Path, steps: Preprocess, shape: Shape) -> tuple[Pictures, tuple[int, int]]:
    """Return an image as Pictures of one for an input blob, and its width and height."""
    return computing(_picture, file, steps, shape)


def _picture(file: str | Path, steps: Preprocess, shape: Shape) -> tuple[Pictures, tuple[int, int]]:
    image, size = decoded(content(file, "image_bytes"), str(file), steps.least(shape))
    return Pictures(steps.resized(image, shape)[None], steps), size


def prepared(
    pictures: Iterable[str | Path | Image], steps: Preprocess, shape: Shape, fast_decode: bool = False
) -> Pictures:
    """Return pictures, or their files, as one batch for an input blob. Raises UsageError if there is no picture."""
    how = replace(steps, fast_decode=fast_decode or steps.fast_decode)
    if isinstance(pictures, (str, Path)):
        raise UsageError(f"preprocess: expected a list of pictures, found {pictures}", hint=f"[{str(pictures)!r}]")
    items = [
        picture(each, how, shape)[0].pixels[0] if isinstance(each, (str, Path)) else steps.resized(each, shape)
        for each in pictures
    ]
    if not items:
        raise UsageError("preprocess: there is no picture", hint="name at least one")
    return Pictures(np.stack(items), steps)
