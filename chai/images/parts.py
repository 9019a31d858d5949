"""Reduce a picture's file to the parts that its pixels need.

Comments, profiles and Exif cost time and memory: Pillow reads each chunk of a PNG and each segment of a JPEG in Python, unpacks
what is compressed, and copies what each of 65,535 Exif tags names. A scan of a JPEG, for which a hundred bytes are enough, is a
pass over all of its pixels.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress

from ..errors import ParseError
from ..limits import limits

_MARKER = rb"\xff[\x02-\xcf\xd9-\xfe]"  # the others have no length: bytes of a scan, restarts, a start
_SCAN, _END, _APP1 = 0xDA, 0xD9, 0xE1
_FRAMES = {0xC0, 0xC1, 0xC2}  # baseline, extended and progressive, with Huffman codes
_RARE = {*range(0xC3, 0xD0)} - {0xC4, 0xC8}  # lossless, hierarchical, arithmetic coding
_SEGMENTS = _FRAMES | {0xC4, 0xDB, 0xDD, 0xE0, 0xEE}  # and Huffman codes, quantisation, restarts; JFIF, Adobe: colours
_CHUNKS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"}
_RUNS = (1, 2)  # of a BMP's compressions
_XMP = rb'tiff:Orientation(?:="|>)([1-8])'
_ORIENTATION = 0x0112  # tag in Exif


def essential(data: bytes, path: str) -> tuple[bytes, int]:
    """Return a JPEG, PNG or BMP without what its pixels do not need, and its orientation (1 to 8, as in Exif).

    Raises ParseError if it has more parts than the limits allow.
    """
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data, path)
    if data.startswith(b"\x89PNG"):
        return _png(data, path)
    if data.startswith(b"BM") and data[30:31] in map(bytes, zip(_RUNS)) and len(data) > limits().text_bytes:
        raise ParseError("a BMP of runs: " + limits().exceeded("text_bytes", len(data)) + " bytes", path=path)
    return data, 1


def _jpeg(data: bytes, path: str) -> tuple[bytes, int]:
    """Walk over the markers as libjpeg does. What comes after the first scan it reads by itself: that is kept."""
    pattern, kept, orientation = re.compile(_MARKER), [data[:2]], 0
    parts, scans, at = 0, 0, 2
    while (marker := pattern.search(data, at)) and (code := data[marker.end() - 1]) != _END:
        if code in _RARE:
            raise ParseError("a JPEG of a rare kind, expected a baseline or progressive one", path=path)
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
        parts += 1
        scans += code == _SCAN
        _check("image_parts", parts, path)
        _check("image_scans", scans, path)
        if scans == 1 and code == _SCAN:
            kept.append(data[marker.start() :])
        elif not scans and code in _SEGMENTS:
            kept.append(data[marker.start() : at])
        elif not scans and code == _APP1:
            orientation = orientation or _orientation(data[marker.end() + 2 : at])
    return b"".join(kept), orientation or 1


def _png(data: bytes, path: str) -> tuple[bytes, int]:
    kept, orientation, parts, at = [data[:8]], 0, 0, 8
    while name := data[at + 4 : at + 8]:
        begin, at = at, at + 12 + int.from_bytes(data[at : at + 4], "big")
        parts += 1
        _check("image_parts", parts, path)
        if name in _CHUNKS:
            kept.append(data[begin:at])
        elif name == b"eXIf":
            orientation = orientation or _orientation(b"Exif\0\0" + data[begin + 8 : at - 4])
        elif name == b"iTXt":
            orientation = orientation or _orientation(data[begin + 8 : at - 4])
        if name == b"IEND":
            break
    return b"".join(kept), orientation or 1


def _orientation(metadata: bytes) -> int:
    """Return the orientation in Exif or XMP, 0 if there is none."""
    if not metadata.startswith(b"Exif\0\0"):
        xmp = re.search(_XMP, metadata)
        return int(xmp[1]) if xmp else 0
    tiff = metadata[6:]
    order = "<" if tiff.startswith(b"II") else ">"
    with suppress(struct.error):  # an end before the entry
        (begin,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, begin)
        for i in range(count):
            tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, begin + 2 + 12 * i)
            if tag == _ORIENTATION:
                return int(value) if 1 <= value <= 8 else 0
    return 0


def _check(name: str, count: int, path: str) -> None:
    if count > getattr(limits(), name):
        raise ParseError(limits().exceeded(name, count), path=path)
