"""Save drawn frames: a file of MJPEG, a folder of JPEGs, an MP4 file. Each holds whole frames at any moment."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..images.drawing import jpeg
from ..util.files import complete, incomplete, link_target
from ..util.lazy_numpy import np
from .places import WRITTEN
from .worker import EXTRA

if TYPE_CHECKING:
    from PIL.Image import Image

QUALITY = 90  # of JPEGs
CLOCK = Fraction(1, 90_000)  # seconds of a tick, as in MPEG's own streams
FRAGMENT = 25  # frames at most between two that need no other, where a player can begin
CODECS = ("libx264", "mpeg4")  # the first that PyAV was built with
KINDS = (b"moov", b"mdat")  # boxes after which a file plays
OPTIONS = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"}


def writer(path: Path) -> Writer:
    """Return what writes to a path: by its suffix, a folder if it has none. Raises UsageError for another suffix.

    Its ``add`` and ``close`` raise OSError if the disk is full, after which what is there still plays.
    """
    suffix = path.suffix.lower()
    if path.is_dir() or not suffix:
        return FrameFolder(path)
    if suffix not in WRITTEN:
        message = f"-o {path}: expected {', '.join(WRITTEN)} or a folder for a video"
        raise UsageError(message, hint=f"-o {path.stem}.mp4")
    return Mp4(path) if suffix == ".mp4" else MjpegFile(path)


class FrameFolder:
    """Writes numbered JPEGs into a folder: frame_000000.jpg."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        path.mkdir(exist_ok=True)

    def add(self, image: Image, seconds: float) -> None:
        """Write a frame, ``seconds`` after the first."""
        with complete(self.path / f"frame_{self.count:06}.jpg") as part:
            part.write_bytes(jpeg(image, QUALITY))
        self.count += 1

    def close(self) -> None:
        """Do nothing: each file is whole."""


class WholeFile:
    """A file that grows by whole parts. It gets its name with ``close``, also if a later part found no room."""

    def __init__(self, path: Path) -> None:
        self.path, self.target = path, link_target(path)
        self.part = incomplete(self.target)
        self.file = open(self.part, "wb", buffering=0)  # noqa: SIM115
        self.size = 0

    def append(self, data: bytes) -> None:
        """Write a part, or raise OSError and leave the file as it was."""
        view = memoryview(data)
        try:
            while view:
                view = view[self.file.write(view) :]
        except OSError as error:
            self.file.truncate(self.size)
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self.size += len(data)

    def close(self) -> None:
        """Give the file its name, unless there is nothing in it."""
        self.file.close()
        if self.size:
            os.replace(self.part, self.target)
        else:
            self.part.unlink(missing_ok=True)


class MjpegFile(WholeFile):
    """Writes JPEGs one after the other."""

    def add(self, image: Image, seconds: float) -> None:
        self.append(jpeg(image, QUALITY))


class _Fragments:
    """A buffer that libav writes to: bytes that are kept until a fragment is whole."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def whole(self) -> bytes:
        """Return the boxes that are complete, up to the last mdat, and forget them."""
        at = end = 0
        while len(self.data) >= at + 8:
            size, kind = int.from_bytes(self.data[at : at + 4], "big"), bytes(self.data[at + 4 : at + 8])
            at += max(8, size)
            if at <= len(self.data) and kind in KINDS:
                end = at
        data = bytes(self.data[:end])
        del self.data[:end]
        return data


class Mp4:
    """Writes frames with PyAV as H.264, else MPEG-4, in fragments: what is there plays, wherever the file ends.

    Sizes are those of the first frame, rounded up to even numbers.
    """

    def __init__(self, path: Path) -> None:
        try:
            import av
        except ImportError as error:
            raise UsageError(
                f"-o {path}: .mp4 needs PyAV ({error})", hint=f"{EXTRA}, or -o {path.stem}.mjpeg"
            ) from None
        self._av = av
        self._parts, self._file = _Fragments(), WholeFile(path)
        self._container = av.open(self._parts, "w", format="mp4", options=OPTIONS)
        self._stream: Any = None
        self._last = -1

    def add(self, image: Image, seconds: float) -> None:
        pixels = np.asarray(image.convert("RGB"))
        if self._stream is None:
            self._begin(*pixels.shape[:2])
        height, width = self._stream.height, self._stream.width
        if pixels.shape[:2] != (height, width):
            whole = np.zeros((height, width, 3), np.uint8)
            whole[: pixels.shape[0], : pixels.shape[1]] = pixels[:height, :width]
            pixels = whole
        frame = self._av.VideoFrame.from_ndarray(pixels, format="rgb24")
        self._last = max(self._last + 1, round(seconds / CLOCK))
        frame.pts, frame.time_base = self._last, CLOCK
        self._write(frame)

    def close(self) -> None:
        """End the stream and put the file in its place."""
        try:
            if self._stream is not None:
                self._write(None)
            self._container.close()
            self._file.append(self._parts.whole())
        finally:
            self._file.close()

    def _begin(self, height: int, width: int) -> None:
        known = self._av.codecs_available
        codec = next((name for name in CODECS if name in known), CODECS[-1])
        self._stream = self._container.add_stream(codec, rate=25)
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = "yuv420p"
        self._stream.time_base = self._stream.codec_context.time_base = CLOCK
        self._stream.codec_context.gop_size = FRAGMENT
        if codec == "libx264":
            self._stream.options = {"preset": "veryfast", "tune": "zerolatency"}
        else:
            self._stream.bit_rate = 4_000_000

    def _write(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        if data := self._parts.whole():
            self._file.append(data)


Writer = FrameFolder | MjpegFile | Mp4
