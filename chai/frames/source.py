"""Sources of frames: a folder of pictures, Motion JPEG in a file or from a pipe, or pictures of a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import UsageError
from ..images.files import as_picture, decoded, find, read
from ..util.files import in_its_place
from .mjpeg import jpegs

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".mjpeg", ".mjpg")


def frames(source: str | Path | BinaryIO | Iterable[Any]) -> Iterator[Image]:
    """Yield the frames of a source, one at a time, in their order.

    ``source``  a folder of pictures, sorted by name; a file or an open binary stream of Motion JPEG; or an iterable of pictures
                (PIL) and arrays, uint8 (H, W, 3) RGB or (H, W)

    Raises UsageError for no such source, ParseError for a frame that cannot be read, after those before it.
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        if path.is_dir():
            yield from map(read, [file for file in find([path]) if file.suffix.lower() != ".npy"])
            return
        if not path.exists():
            raise UsageError(f"there is no folder or video {str(path)!r}", hint=in_its_place(path))
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"{str(path)!r}: expected a folder of pictures, or Motion JPEG ({' or '.join(SUFFIXES)})",
                hint="ffmpeg -i VIDEO -c:v mjpeg -q:v 3 OUT.mjpeg",
            )
        with closing(open(path, "rb")) as file:
            yield from _of_stream(file, str(path))
    elif hasattr(source, "read"):
        yield from _of_stream(source, str(getattr(source, "name", "the stream")))
    else:
        yield from map(as_picture, source)


def _of_stream(stream: Any, name: str) -> Iterator[Image]:
    for number, data in enumerate(jpegs(stream, name), 1):
        yield decoded(data, f"{name}, frame {number}")
