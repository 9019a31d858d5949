"""Streams of pictures are cut where each picture ends, whatever the sizes of the blocks that arrive."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from chai.errors import ParseError
from chai.frames.mjpeg import split
from chai.limits import limits

RNG = np.random.default_rng(2)


def reader(data: bytes, most: int = 1 << 30) -> Callable[[int], bytes]:
    stream = io.BytesIO(data)
    return lambda count: stream.read(min(count, most))


def picture(format: str, mode: str = "RGB", size: tuple[int, int] = (31, 17), **options: Any) -> bytes:
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    data = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, shape, np.uint8)).save(data, format, **options)
    return data.getvalue()


def thumbnail() -> bytes:
    """A JPEG with another one in a segment of its own, whose end is not the end."""
    whole, inner = picture("JPEG"), picture("JPEG", size=(9, 5))
    segment = b"Exif\0\0" + inner
    return whole[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + whole[2:]


PICTURES = [
    picture("JPEG"),
    picture("JPEG", "L", quality=100),
    picture("JPEG", progressive=True),
    picture("JPEG", size=(64, 48), restart_marker_blocks=1),
    thumbnail(),
    picture("PPM"),
    picture("PPM", "L"),
    picture("PPM", size=(1, 1)),
]


@given(
    st.lists(st.sampled_from(PICTURES), max_size=8),
    st.integers(1, 700),
    st.sampled_from([b"", b"\n", b"\r\n", b"\0\0\0"]),
)
def test_the_pictures_come_back(pictures: list[bytes], block: int, between: bytes) -> None:
    assert list(split(reader(between.join(pictures), block), "s")) == pictures


@given(st.sampled_from(PICTURES), st.data())
def test_a_torn_picture_is_named(last: bytes, data: Any) -> None:
    cut = data.draw(st.integers(1, len(last) - 1))
    seen = []
    with pytest.raises(ParseError) as torn:
        for one in split(reader(PICTURES[0] + PICTURES[5] + last[:cut], 100), "s"):
            seen.append(one)  # noqa: PERF402
    assert seen == [PICTURES[0], PICTURES[5]]
    assert torn.value.headline == "s: the stream ends inside frame 2"


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_end(data: bytes) -> None:
    with suppress(ParseError):
        assert b"".join(split(reader(data, 7), "s")) in data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"RIFF....AVI ", "expected a JPEG or PPM picture, found 52 49 46 46"),
        (b"P6 99999 99999 255 ", "exceeds the limit image_pixels"),
        (b"P6 # comment without an end" + b" " * 60, "expected P5 or P6, width, height"),
        (b"\xff\xd8\x00\x01\x02\x03", "no JPEG marker at byte 2"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ParseError) as refusal:
        list(split(reader(data), "s"))
    assert words in refusal.value.headline


def test_a_picture_without_an_end_costs_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_LIMITS", "image_bytes=300000")
    from chai.env import env

    env.cache_clear()
    limits.cache_clear()
    asked = 0

    def endless(count: int) -> bytes:
        nonlocal asked
        asked += count
        return (b"" if asked > count else PICTURES[0][:-2]) + bytes(count // 2)

    with pytest.raises(ParseError, match="exceeds the limit image_bytes"):
        list(split(endless, "s"))
    assert asked < 2_000_000
