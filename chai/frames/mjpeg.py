"""Split a stream of pictures into frames: JPEGs one after the other (MJPEG), or PPM and PGM pictures.

Nothing is decoded here: the markers of a JPEG and the header of a PPM say where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..errors import ParseError
from ..images import netpbm
from ..limits import limits

_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # in the bytes of a scan: not a restart, nor a byte FF
_SCAN, _END = 0xDA, 0xD9
_HEADER = re.compile(rb"P[56]\s+(\d{1,5})\s+(\d{1,5})\s+(\d{1,5})\s")
_LONGEST_HEADER = 64  # bytes
BLOCK = 1 << 16


def split(read: Callable[[int], bytes], name: str) -> Iterator[bytes]:
    """Yield the pictures of a stream. ``read(n)`` returns up to n bytes, none at its end.

    Raises ParseError in place of a picture that is torn, too long, or neither JPEG nor PPM.
    """
    data, number = bytearray(), 0
    while True:
        ends = _ends(data, f"{name}[{number}]")
        while (end := next(ends)) is None:
            block = read(BLOCK)
            if not block:
                if data.strip(b"\r\n\0"):
                    raise ParseError(f"the stream ends inside frame {number}", path=name)
                return
            data += block
            if len(data) - BLOCK > limits().image_bytes:
                raise ParseError(f"frame {number}: " + limits().exceeded("image_bytes", len(data)), path=name)
        yield bytes(data[:end])
        del data[:end]
        number += 1


def _ends(data: bytearray, name: str) -> Iterator[int | None]:
    """Yield None while ``data`` grows, then the end of the picture that it begins with. What was looked at is not again."""
    while len(data) < 2:
        yield None
    while data[0] in b"\r\n\0":  # some programs write a line's end, or pad, between frames
        del data[:1]
        while len(data) < 2:
            yield None
    if data[:2] == b"\xff\xd8":
        yield from _jpeg_end(data, name)
    elif data[:2] == b"P5" or data[:2] == b"P6":
        yield from _netpbm_end(data, name)
    else:
        start = bytes(data[:8]).hex(" ")
        hint = "ffmpeg -i VIDEO -f image2pipe -c:v mjpeg -q:v 2 -   writes JPEGs, -c:v ppm raw frames"
        raise ParseError(f"expected a JPEG or PPM picture, found {start}", path=name, hint=hint)


def _jpeg_end(data: bytearray, name: str) -> Iterator[int | None]:
    at = 2
    while True:
        while len(data) < at + 4 and not (len(data) >= at + 2 and data[at] == 0xFF and data[at + 1] == _END):
            yield None
        if data[at] != 0xFF:
            raise ParseError(f"no JPEG marker at byte {at}", path=name)
        code = data[at + 1]
        if code == _END:
            yield at + 2
            return
        if code == 0xFF:  # fill bytes before a marker
            at += 1
            continue
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
        if code == _SCAN:
            while (marker := _MARKER.search(data, at)) is None:
                at = max(at, len(data) - 1)
                yield None
            at = marker.start()


def _netpbm_end(data: bytearray, name: str) -> Iterator[int | None]:
    while (header := _HEADER.match(data)) is None:
        if len(data) >= _LONGEST_HEADER:
            raise ParseError("expected P5 or P6, width, height and largest value", path=name)
        yield None
    width, height, most = map(int, header.groups())
    netpbm.check(width, height, name)
    size = header.end() + width * height * (3 if data[1:2] == b"6" else 1) * (1 if most < 256 else 2)
    while len(data) < size:
        yield None
    yield size
