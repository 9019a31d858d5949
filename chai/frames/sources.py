"""Sources of frames: a folder of pictures, a stream of JPEGs, arrays; and what libav reads, in a process of its own."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

from ..blob import Array
from ..errors import ParseError, UsageError
from ..images import files as images, netpbm
from ..util.files import content, in_its_place, opened
from ..util.lazy_numpy import np
from .mjpeg import split
from .places import ADDRESS, CAMERA, CONTAINERS, STREAMS
from .threads import Stop, VideoStopped
from .worker.process import VideoJob, decoded_frames

if TYPE_CHECKING:
    from PIL.Image import Image

RATE = 25.0  # frames a second of sources that do not say it
WAIT = 0.1  # seconds between looks at whether the video was stopped


@dataclass(frozen=True)
class RawFrame:
    """A frame as its source has it: the bytes of a picture's file, or pixels, uint8 (H, W) or (H, W, 3).

    ``name``     of the source and the frame, for messages
    ``number``   from 0, in the source's order
    ``seconds``  since the first frame, by the source's clock
    ``read``     when it was read, by ``perf_counter``
    """

    name: str
    number: int
    seconds: float
    data: bytes | Array
    read: float = field(default_factory=perf_counter)

    def picture(self) -> tuple[Image, tuple[int, int]]:
        """Return it decoded, and its width and height. Raises ParseError."""
        if isinstance(self.data, bytes):
            return images.decoded(self.data, self.name)
        image = images.of_pixels(self.data)
        return image, image.size


class FrameSource(NamedTuple):
    """A place that frames come from.

    ``name``    as it is shown: without user names, passwords and queries
    ``live``    whether frames that are not taken in time are lost there, so that only the newest counts
    ``frames``  yields the frames until there is none, or until a stop. Raises ChaiError in place of one that cannot be read
    """

    name: str
    live: bool
    frames: Callable[[Stop], Iterator[RawFrame]]


def source(place: Any, raw: tuple[int, int] | None = None) -> FrameSource:
    """Return the source that ``place`` is, or names: a path, "-", "camera:0", "rtsp://..."; or an iterable of arrays.

    ``raw`` is height and width of frames on the standard input that are bytes of red, green and blue alone.

    Raises UsageError for one that is not there or that chai does not read.
    """
    if hasattr(place, "frames") and hasattr(place, "live"):
        ready: FrameSource = place
        return ready
    if not isinstance(place, (str, Path)):
        if isinstance(place, Iterable):
            return _plain("frames", lambda _: _arrays(place), least=0)
        raise UsageError(f"a video from {type(place).__name__}", hint="a path, an address, or an iterable of arrays")
    text = str(place)
    if raw is not None and text != "-":
        raise UsageError("raw frames come from the standard input alone", hint="PROGRAM | chai run ... -i - --raw HxW")
    if text == "-":
        if raw is not None:
            return _plain("stdin", partial(_pixels, *raw))
        return _plain("stdin", lambda stop: split(_reader(_stdin(), stop), "stdin"))
    if camera := CAMERA.fullmatch(text):
        device = camera[2] or f"/dev/video{camera[1]}"
        if not Path(device).exists():
            raise UsageError(f"there is no camera {device}", hint=_cameras())
        return _libav(text, VideoJob(kind="camera", place=device), live=True)
    if address := ADDRESS.match(text):
        if address[1].lower() not in ("rtsp", "rtsps"):
            raise UsageError(f"chai reads no video from {address[1].lower()}://", hint="rtsp://, or a file")
        return _libav(shown(text), VideoJob(kind="stream", place=text), live=True)
    return _file(Path(text))


def _file(path: Path) -> FrameSource:
    if path.is_dir():
        return FrameSource(path.name or str(path), False, partial(_folder, path))
    if not path.exists():
        raise UsageError(f"there is no video {str(path)!r}", hint=in_its_place(path))
    suffix = path.suffix.lower()
    if suffix in CONTAINERS:
        return _libav(path.name, VideoJob(kind="file", place=str(path), container=CONTAINERS[suffix]))
    if suffix in STREAMS:
        return _plain(path.name, partial(_pictures, path))
    kinds = " ".join((*CONTAINERS, *STREAMS))
    raise UsageError(f"{str(path)!r} is no video", hint=f"expected {kinds}, or a folder of pictures")


def shown(address: str) -> str:
    """Return an address without user name, password, query and fragment, which may be secrets."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError("this is no address", hint="rtsp://HOST:PORT/PATH") from None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"


def _cameras() -> str:
    names = sorted(map(str, Path("/dev").glob("video*")))
    return f"cameras here: {', '.join(names)}" if names else "this computer has no /dev/video*"


def _plain(name: str, data: Callable[[Stop], Iterator[bytes | Array]], least: int = 1) -> FrameSource:
    """Return the source of the frames that ``data`` yields, RATE of them a second.

    They are at ``least`` one of a file or pipe: a program that failed writes none.
    """

    def frames(stop: Stop) -> Iterator[RawFrame]:
        number = -1
        with suppress(VideoStopped):
            for number, each in enumerate(data(stop)):
                if stop.stopped:
                    return
                yield RawFrame(f"{name}[{number}]", number, number / RATE, each)
            if number + 1 < least:
                hint = "look for an error of the program that wrote it"
                raise ParseError("there is no frame: the stream is empty", path=name, hint=hint)

    return FrameSource(name, False, frames)


def _arrays(arrays: Iterable[Any]) -> Iterator[Array]:
    """Yield the frames that a program has or makes: uint8 (H, W, 3) in RGB, or (H, W)."""
    for number, array in enumerate(arrays):
        shape = getattr(array, "shape", ())
        if str(getattr(array, "dtype", "")) != "uint8" or not (len(shape) == 2 or shape[2:] == (3,)) or 0 in shape:
            kind = f"{getattr(array, 'dtype', type(array).__name__)} {shape}"
            raise UsageError(f"frame {number} is {kind}", hint="expected uint8 (H, W, 3) in RGB, or (H, W)")
        yield array


def _folder(path: Path, stop: Stop) -> Iterator[RawFrame]:
    """Yield the pictures of a folder, sorted by name."""
    files = [file for file in images.find([path]) if file.suffix.lower() in images.FORMATS]
    if not files:
        raise UsageError(f"there is no picture in {str(path)!r}", hint=" ".join(images.FORMATS))
    for number, file in enumerate(files):
        if stop.stopped:
            return
        yield RawFrame(str(file), number, number / RATE, content(file, "image_bytes"))


def _pictures(path: Path, stop: Stop) -> Iterator[bytes]:
    """Yield the JPEG or PPM pictures that are one after the other in a file."""
    with opened(path) as file:
        yield from split(_reader(file, stop), path.name)


def _pixels(height: int, width: int, stop: Stop) -> Iterator[Array]:
    """Yield frames on the standard input that are nothing but pixels: bytes of red, green and blue, row by row."""
    netpbm.check(width, height, "stdin")
    size, read = height * width * 3, _reader(_stdin(), stop)
    for number in count():
        data = bytearray()
        while len(data) < size and (block := read(size - len(data))):
            data += block
        if not data:
            return
        if len(data) < size:
            message = f"the stream ends inside frame {number}: {len(data):,} of its {size:,} bytes"
            raise ParseError(message, path="stdin", hint="--raw HxW is height and width of rgb24 frames")
        yield np.frombuffer(data, np.uint8).reshape(height, width, 3)


def _libav(name: str, job: VideoJob, live: bool = False) -> FrameSource:
    """Return the source of frames that libav reads, in a process of its own: a video file, a camera, an RTSP stream."""

    def frames(stop: Stop) -> Iterator[RawFrame]:
        for number, (seconds, pixels) in enumerate(decoded_frames(job, name, stop)):
            yield RawFrame(f"{name}[{number}]", number, seconds, pixels)

    return FrameSource(name, live, frames)


def _stdin() -> BinaryIO:
    """Return the standard input. Raises UsageError if it is a terminal, or closed."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-i - reads frames from a pipe, and there is none", hint="PROGRAM | chai run ... -i -")
    return sys.stdin.buffer


def _reader(file: BinaryIO, stop: Stop) -> Callable[[int], bytes]:
    """Return a function that reads up to so many bytes. It raises VideoStopped when the video was stopped."""
    ready = select.poll()  # select takes no descriptor above 1,023
    ready.register(file, select.POLLIN)

    def read(size: int) -> bytes:
        while not stop.stopped:
            if ready.poll(WAIT * 1000):
                return os.read(file.fileno(), size)
        raise VideoStopped

    return read
