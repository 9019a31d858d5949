"""Save drawn frames: a file of MJPEG, a folder of JPEGs, an MP4 file. Each holds whole frames at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import UsageError
from ..images.drawing import jpeg
from ..util.files import complete
from .mp4 import Mp4, WholeFile
from .places import WRITTEN

if TYPE_CHECKING:
    from PIL.Image import Image

QUALITY = 90  # of JPEGs


class Writer(Protocol):
    """Writes frames; ``add`` and ``close`` raise OSError if the disk is full, after which what is there still plays."""

    def add(self, image: Image, seconds: float) -> None:
        """Write a frame, ``seconds`` after the first."""

    def close(self) -> None:
        """End the file."""


def writer(path: Path) -> Writer:
    """Return what writes to a path: by its suffix, a folder if it has none. Raises UsageError for another suffix."""
    suffix = path.suffix.lower()
    if path.is_dir() or not suffix:
        return FrameFolder(path)
    if suffix not in WRITTEN:
        raise UsageError(
            f"-o {path}: expected {', '.join(WRITTEN)} or a folder for a video", hint=f"-o {path.stem}.mp4"
        )
    return Mp4(path) if suffix == ".mp4" else MjpegFile(path)


class FrameFolder:
    """Writes numbered JPEGs into a folder: frame_000000.jpg."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        path.mkdir(exist_ok=True)

    def add(self, image: Image, seconds: float) -> None:
        """Write a frame."""
        with complete(self.path / f"frame_{self.count:06}.jpg") as part:
            part.write_bytes(jpeg(image, QUALITY))
        self.count += 1

    def close(self) -> None:
        """Do nothing: each file is whole."""


class MjpegFile(WholeFile):
    """Writes JPEGs one after the other."""

    def add(self, image: Image, seconds: float) -> None:
        """Write a frame."""
        self.append(jpeg(image, QUALITY))
