"""Ways to damage a file, for the tests of hostile files and for tools/fuzz.py."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 1, 2, 8, 40])]


def duplicate(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice([1, 4, 30, 200])]


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def swap(data: bytearray, rng: random.Random) -> None:
    a, b = sorted(rng.randrange(len(data)) for _ in range(2))
    size = rng.choice([1, 5, 30])
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def extreme(data: bytearray, rng: random.Random) -> None:
    """A number of the text becomes one that nobody tested."""
    digits = [i for i, c in enumerate(data) if 48 <= c < 58]
    if digits:
        at = rng.choice(digits)
        data[at : at + 1] = rng.choice(b"0 -1 99999 2147483647 4294967295 1e9 0x7 nan 1.5".split())


def quoted(data: bytearray, rng: random.Random) -> None:
    """One name of the text takes the place of another."""
    words = bytes(data).split(b'"')
    if len(words) > 4:
        a, b = (rng.randrange(1, len(words), 2) for _ in range(2))
        words[a] = words[b]
        data[:] = b'"'.join(words)


def mutants(data: bytes, rng: random.Random, ways: list[Callable[[bytearray, random.Random], None]]) -> Iterator[bytes]:
    while True:
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            if changed:
                rng.choice(ways)(changed, rng)
        yield bytes(changed)


def deepened(data: bytearray, rng: random.Random) -> None:
    """A message of the text inside itself, many times."""
    at = data.find(b"{", rng.randrange(len(data)))
    if at >= 0:
        data[at:at] = b"{ a " * rng.choice([3, 40, 3000])


def repeated(data: bytearray, rng: random.Random) -> None:
    """A stretch of the file, thousands of times."""
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice([20, 200])] * rng.choice([10, 2000])


def filled(data: bytearray, rng: random.Random) -> None:
    """Some bytes become the smallest or the largest: sizes and counts of a binary file."""
    at = rng.randrange(len(data))
    size = len(data[at : at + rng.choice([1, 2, 4])])
    data[at : at + size] = rng.choice([b"\0", b"\x7f", b"\xff"]) * size


def replayed(data: bytearray, rng: random.Random) -> None:
    """Parts of a picture, from one marker to another, up to thousands of times."""
    starts = [
        marker.start() for marker in re.finditer(rb"\xff[\xc0-\xfe]|[\s\S]{4}(?=IHDR|IDAT|PLTE|[a-z]\w{3})", data)
    ]
    if len(starts) > 1:
        begin, end = sorted(rng.sample(starts, 2))
        data[begin:begin] = data[begin:end] * rng.choice([1, 30, 3000])


def mended(data: bytes) -> bytes:
    """A PNG with the right checksum of each chunk."""
    parts, at = [data[:8]], 8
    while len(data) >= at + 12:
        end = min(at + 8 + int.from_bytes(data[at : at + 4], "big"), len(data) - 4)
        parts += [data[at:end], struct.pack(">I", zlib.crc32(data[at + 4 : end]))]
        at = end + 4
    return b"".join([*parts, data[at:]])


Way = Callable[[bytearray, random.Random], None]
TEXT: list[Way] = [flip, delete, duplicate, truncate, swap, *[extreme] * 5, *[quoted] * 3, deepened, repeated]
BINARY: list[Way] = [flip, flip, delete, duplicate, truncate, swap, repeated]
PICTURE: list[Way] = [*BINARY, filled, filled, replayed]
