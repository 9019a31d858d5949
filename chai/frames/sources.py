"""Sources of frames: a folder of pictures, a stream of JPEGs, arrays; and what libav reads, in a process of its own."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from ..errors import ParseError, UsageError
from ..images import files as images, netpbm
from ..util.files import content, in_its_place, opened
from ..util.lazy_numpy import np
from .frame import RATE, FrameSource, RawFrame
from .mjpeg import split
from .places import ADDRESS, CAMERA, CONTAINERS, STREAMS
from .threads import Stop, VideoStopped
from .worker.process import VideoJob, decoded_frames

WAIT = 0.1  # seconds between looks at whether the video was stopped


def source(place: Any, raw: tuple[int, int] | None = None) -> FrameSource:
    """Return the source that ``place`` names: a path, "-", "camera:0", "rtsp://..."; or an iterable of arrays.

    ``raw`` is height and width of frames on the standard input that are bytes of red, green and blue alone.

    Raises UsageError for one that is not there or that chai does not read.
    """
    if not isinstance(place, (str, Path)):
        if isinstance(place, Iterable):
            return Arrays(place)
        raise UsageError(f"a video from {type(place).__name__}", hint="a path, an address, or an iterable of arrays")
    text = str(place)
    if raw is not None and text != "-":
        raise UsageError("raw frames come from the standard input alone", hint="PROGRAM | chai run ... -i - --raw HxW")
    if text == "-":
        return PictureStream("stdin", None) if raw is None else RawStream("stdin", *raw)
    if camera := CAMERA.fullmatch(text):
        device = camera[2] or f"/dev/video{camera[1]}"
        if not Path(device).exists():
            raise UsageError(f"there is no camera {device}", hint=_cameras())
        return LibavVideo(text, VideoJob(kind="camera", place=device), live=True)
    if address := ADDRESS.match(text):
        if address[1].lower() not in ("rtsp", "rtsps"):
            raise UsageError(f"chai reads no video from {address[1].lower()}://", hint="rtsp://, or a file")
        return LibavVideo(shown(text), VideoJob(kind="stream", place=text), live=True)
    return _file(Path(text))


def _file(path: Path) -> FrameSource:
    if path.is_dir():
        return Folder(path.name or str(path), path)
    if not path.exists():
        raise UsageError(f"there is no video {str(path)!r}", hint=in_its_place(path))
    suffix = path.suffix.lower()
    if suffix in CONTAINERS:
        return LibavVideo(path.name, VideoJob(kind="file", place=str(path), container=CONTAINERS[suffix]))
    if suffix in STREAMS:
        return PictureStream(path.name, path)
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


@dataclass
class Arrays:
    """Frames that a program has or makes: uint8 (H, W, 3) in RGB, or (H, W)."""

    arrays: Iterable[Any]
    name: str = "frames"
    live: bool = False

    def frames(self, stop: Stop) -> Iterator[RawFrame]:
        """Yield them."""
        for number, array in enumerate(self.arrays):
            if stop.stopped:
                return
            shape = getattr(array, "shape", ())
            if str(getattr(array, "dtype", "")) != "uint8" or not (len(shape) == 2 or shape[2:] == (3,)):
                kind = f"{getattr(array, 'dtype', type(array).__name__)} {shape}"
                raise UsageError(f"frame {number} is {kind}", hint="expected uint8 (H, W, 3) in RGB, or (H, W)")
            yield RawFrame(f"{self.name}[{number}]", number, number / RATE, array)


@dataclass
class Folder:
    """Pictures of a folder, sorted by name."""

    name: str
    path: Path
    live: bool = False

    def frames(self, stop: Stop) -> Iterator[RawFrame]:
        """Yield them, read from the disk."""
        files = [file for file in images.find([self.path]) if file.suffix.lower() in images.FORMATS]
        if not files:
            raise UsageError(f"there is no picture in {str(self.path)!r}", hint=" ".join(images.FORMATS))
        for number, file in enumerate(files):
            if stop.stopped:
                return
            yield RawFrame(str(file), number, number / RATE, content(file, "image_bytes"))


@dataclass
class PictureStream:
    """JPEG or PPM pictures one after the other, in a file or on the standard input (``path`` None)."""

    name: str
    path: Path | None
    live: bool = False

    def frames(self, stop: Stop) -> Iterator[RawFrame]:
        """Yield them as they come."""
        if self.path is None:
            yield from self._split(_stdin(), stop)
        else:
            with opened(self.path) as file:
                yield from self._split(file, stop)

    def _split(self, file: BinaryIO, stop: Stop) -> Iterator[RawFrame]:
        with suppress(VideoStopped):
            for number, data in enumerate(split(_reader(file.fileno(), stop), self.name)):
                yield RawFrame(f"{self.name}[{number}]", number, number / RATE, data)
        if self.path is not None and not os.fstat(file.fileno()).st_size:
            raise ParseError("there is no frame: the file is empty", path=self.name)


@dataclass
class RawStream:
    """Frames on the standard input that are nothing but pixels: bytes of red, green and blue, row by row."""

    name: str
    height: int
    width: int
    live: bool = False

    def frames(self, stop: Stop) -> Iterator[RawFrame]:
        """Yield them as they come."""
        netpbm.check(self.width, self.height, self.name)
        size, number = self.height * self.width * 3, 0
        read = _reader(_stdin().fileno(), stop)
        with suppress(VideoStopped):
            while data := _filled(read, size):
                if len(data) < size:
                    message = f"the stream ends inside frame {number}: {len(data):,} of its {size:,} bytes"
                    raise ParseError(message, path=self.name, hint="--raw HxW is height and width of rgb24 frames")
                pixels = np.frombuffer(data, np.uint8).reshape(self.height, self.width, 3)
                yield RawFrame(f"{self.name}[{number}]", number, number / RATE, pixels)
                number += 1


def _stdin() -> BinaryIO:
    """Return the standard input. Raises UsageError if it is a terminal, or closed."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-i - reads frames from a pipe, and there is none", hint="PROGRAM | chai run ... -i -")
    return sys.stdin.buffer


def _filled(read: Callable[[int], bytes], size: int) -> bytearray:
    """Return so many bytes, or those before the end of the stream."""
    data = bytearray()
    while len(data) < size and (block := read(size - len(data))):
        data += block
    return data


def _reader(file: int, stop: Stop) -> Callable[[int], bytes]:
    """Return a function that reads up to so many bytes. It raises VideoStopped when the video was stopped."""

    def read(count: int) -> bytes:
        while not stop.stopped:
            if select.select([file], [], [], WAIT)[0]:
                return os.read(file, count)
        raise VideoStopped

    return read


@dataclass
class LibavVideo:
    """Frames that libav reads, in a process of its own: a video file, a camera, an RTSP stream."""

    name: str
    job: VideoJob
    live: bool = False

    def frames(self, stop: Stop) -> Iterator[RawFrame]:
        """Yield them as they are decoded."""
        for number, (seconds, pixels) in enumerate(decoded_frames(self.job, self.name, stop)):
            yield RawFrame(f"{self.name}[{number}]", number, seconds, pixels)
