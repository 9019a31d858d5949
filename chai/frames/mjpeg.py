"""Motion JPEG: cut a stream of bytes into JPEGs, each one after the other, without decoding any.

Source: ITU-T T.81, annex B: a segment has its length, but for the data of a scan, which ends at the next marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from ..errors import ParseError
from ..limits import limits

CHUNK = 1 << 16  # bytes that are read at once
START, END, SCAN = b"\xff\xd8", 0xD9, 0xDA
ALONE = {0x01, *range(0xD0, 0xD8)}  # markers without a segment
STUFFED = {0x00, *range(0xD0, 0xD8)}  # bytes after 0xFF that go on with the data of a scan


def jpegs(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the bytes of each JPEG of a stream; ``name`` is named in errors.

    Raises ParseError, after the JPEGs before it, for one that is torn, too large, or is none.
    """
    buffer, count = bytearray(), 0
    reading = _Reading()
    while True:
        end = reading.end(buffer)
        if end is not None:
            yield bytes(buffer[:end])
            del buffer[:end]
            reading, count = _Reading(), count + 1
            continue
        if reading.wrong or (len(buffer) >= 2 and not buffer.startswith(START)):
            raise ParseError(f"frame {count + 1} is no JPEG", path=name, hint="expected Motion JPEG: JPEGs in a row")
        if len(buffer) > limits().image_bytes:
            raise ParseError(f"frame {count + 1}: " + limits().exceeded("image_bytes", len(buffer)), path=name)
        chunk = stream.read1(CHUNK) if hasattr(stream, "read1") else stream.read(CHUNK)
        if not chunk:
            if buffer:
                raise ParseError(f"frame {count + 1} is torn: the stream ends in it", path=name)
            return
        buffer += chunk


class _Reading:
    """The place in one JPEG up to which it was looked at, so that no byte is looked at twice."""

    def __init__(self) -> None:
        self.at, self.in_scan, self.wrong = 2, False, False

    def end(self, data: bytearray) -> int | None:
        """Return the end of the JPEG at the start of ``data``; None if it is not there yet."""
        while True:
            if self.in_scan and not self._skip_scan(data):
                return None
            if len(data) < self.at + 2:
                return None
            marker = data[self.at + 1]
            if data[self.at] != 0xFF or marker == 0:
                self.wrong = True
                return None
            if marker == END:
                return self.at + 2
            if marker == 0xFF:  # a fill byte
                self.at += 1
            elif marker in ALONE:
                self.at += 2
            elif len(data) < self.at + 4:
                return None
            else:
                length = int.from_bytes(data[self.at + 2 : self.at + 4], "big")
                self.wrong = length < 2
                if self.wrong:
                    return None
                self.in_scan = marker == SCAN
                self.at += 2 + length

    def _skip_scan(self, data: bytearray) -> bool:
        """Move to the marker after the data of a scan; return whether it is there."""
        while True:
            found = data.find(0xFF, self.at)
            self.at = len(data) if found < 0 else found
            if len(data) < self.at + 2:
                return False
            if data[self.at + 1] not in STUFFED:
                self.in_scan = False
                return True
            self.at += 2
