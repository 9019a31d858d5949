"""Frames: pictures of a video, before and after they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ..blob import Array
from ..images.files import decoded, of_pixels
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from PIL.Image import Image

    from .threads import Stop

RATE = 25.0  # frames a second of sources that do not say it


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
            return decoded(self.data, self.name)
        image = of_pixels(self.data)
        return image, image.size


@dataclass(frozen=True)
class VideoFrame:
    """A decoded frame.

    ``name``, ``number``, ``seconds``, ``read``   as in RawFrame
    ``dropped``  how many frames of the source had been dropped when it was taken
    """

    name: str
    number: int
    seconds: float
    read: float
    dropped: int
    image: Image = field(repr=False)

    @property
    def pixels(self) -> Array:
        """Return its pixels, uint8 (H, W, 3) in RGB, or (H, W) if it is gray."""
        return np.asarray(self.image if self.image.mode in ("L", "RGB") else self.image.convert("RGB"))

    @property
    def age(self) -> float:
        """Return the seconds since it was read."""
        return perf_counter() - self.read


class FrameSource(NamedTuple):
    """A place that frames come from.

    ``name``    as it is shown: without user names, passwords and queries
    ``live``    whether frames that are not taken in time are lost there, so that only the newest counts
    ``frames``  yields the frames until there is none, or until a stop. Raises ChaiError in place of one that cannot be read
    """

    name: str
    live: bool
    frames: Callable[[Stop], Iterator[RawFrame]]
