"""Read PBM, PGM and PPM pictures, whose comments and numbers Pillow reads one by one in Python."""

from __future__ import annotations

import re
from math import prod

from ..blob import Array
from ..errors import ParseError
from ..limits import limits
from ..util.lazy_numpy import np

_HEADER = 4_096  # most bytes before the pixels; comments of programs that write such files have about 40
_BLANK = rb"(?:\s|#[^\r\n]*[\r\n])+"
_NUMBER = rb"([0-9]{1,9})"
_BLANKS = b" \t\r\n\v\f"


def recognise(data: bytes) -> bool:
    """Return whether a file begins as one of them."""
    return re.match(rb"P[1-6][\s#]", data) is not None


def pixels(data: bytes, path: str) -> Array:
    """Return the pixels, uint8 (H, W) or (H, W, 3): white, or the file's largest value, is 255.

    Raises ParseError for too many pixels or numbers, and ValueError for what is no such picture.
    """
    kind = int(data[1:2])
    bits, plain = kind in (1, 4), kind < 4
    header = re.match(
        rb"P." + (_BLANK + _NUMBER) * (2 if bits else 3) + (rb"(?:\s|#[^\r\n]*[\r\n])" if plain else rb"\s"),
        data[:_HEADER],
    )
    if header is None:
        raise ValueError(f"there is no width, height and largest value in its first {_HEADER} bytes")
    width, height, most = map(int, [*header.groups(), b"1"][:3])
    check(width, height, path)
    if not width * height or not 0 < most < 1 << 16:
        raise ValueError(f"{width}x{height} pixels up to {most}")
    shape = (height, width) if kind not in (3, 6) else (height, width, 3)
    begin = header.end()
    if bits:
        values = (_digits(data[begin:], path) if plain else _bits(data, begin, shape))[: prod(shape)] ^ 1
    elif plain:
        values = _numbers(data[begin:], path)[: prod(shape)]
    else:
        size = 1 if most < 256 else 2
        count = min(prod(shape), (len(data) - begin) // size)
        values = np.frombuffer(data, f">u{size}", count, begin)
    if values.size < prod(shape):
        raise ValueError(f"{values.size} numbers for {'x'.join(map(str, shape))}")
    return _bytes(values, most, gray=len(shape) == 2).reshape(shape)


def check(width: int, height: int, path: str) -> None:
    """Raise ParseError for a picture of too many pixels."""
    if width * height > limits().image_pixels:
        raise ParseError(f"{width}x{height} pixels: " + limits().exceeded("image_pixels", width * height), path=path)


def _text(data: bytes, path: str) -> bytes:
    """Return pixels written as text, without comments. Raises ParseError if it is too long."""
    if len(data) > limits().text_bytes:
        raise ParseError("pixels as text: " + limits().exceeded("text_bytes", len(data)) + " bytes", path=path)
    return re.sub(rb"#[^\r\n]*", b"", data)


def _numbers(data: bytes, path: str) -> Array:
    text = _text(data, path)
    if text.translate(None, _BLANKS + b"0123456789"):
        raise ValueError("its pixels are no numbers")
    return np.fromstring(text, np.float64, sep=" ")


def _digits(data: bytes, path: str) -> Array:
    digits = _text(data, path).translate(None, _BLANKS)
    if digits.translate(None, b"01"):
        raise ValueError("its pixels are neither 0 nor 1")
    return np.frombuffer(digits, np.uint8) & 1


def _bits(data: bytes, begin: int, shape: tuple[int, ...]) -> Array:
    """Return the bits of rows that begin at a byte each, 1 for black."""
    row = -(-shape[1] // 8)
    whole = np.frombuffer(data, np.uint8, offset=begin)[: shape[0] * row]
    rows = whole[: whole.size // row * row].reshape(-1, row)
    return np.unpackbits(rows, axis=1)[:, : shape[1]].ravel()


def _bytes(values: Array, most: int, gray: bool) -> Array:
    """Return values up to ``most`` as bytes. Gray ones of 16 bits lose the lower half, as in a PNG."""
    if values.max() > most:
        raise ValueError(f"a value of {values.max():.0f} where the largest is {most}")
    if most == 255:
        return values.astype(np.uint8, copy=False)
    known = np.arange(most + 1) / most
    table = np.rint(known * 65535).astype(np.uint16) >> 8 if gray and most > 255 else np.rint(known * 255)
    whole: Array = np.empty(values.shape, np.uint8)
    for at in range(0, values.size, 1 << 20):  # numpy makes indices of 8 bytes each
        whole[at : at + (1 << 20)] = table[values[at : at + (1 << 20)].astype(np.intp)]
    return whole
