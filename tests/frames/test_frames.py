"""Frames of folders, Motion JPEG and programs, and their boxes: in order, and what is torn after what is before it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import chai
from chai.errors import ParseError, UsageError
from chai.frames.mjpeg import jpegs
from chai.frames.source import frames
from chai.images.boxes import detections
from chai.limits import Limits
from tests.cli.test_detect import WAY, detector
from tests.detect.common import SIZE

COUNT = 7


def picture(number: int, width: int = 75, height: int = 110) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 255, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def jpeg(number: int, **options: Any) -> bytes:
    """A JPEG; its Exif may hold another one, whose markers are no end of it."""
    out = io.BytesIO()
    picture(number).save(out, "JPEG", **options)
    return out.getvalue()


def clip() -> list[bytes]:
    """JPEGs of all kinds: in one scan and in several, with restart markers, with a picture in a comment, gray."""
    gray = io.BytesIO()
    picture(6).convert("L").save(gray, "JPEG")
    each = [
        jpeg(0),
        jpeg(1, progressive=True),
        jpeg(2, restart_marker_blocks=3),
        jpeg(3, comment=jpeg(9, quality=5)[:9000]),
    ]
    return [*each, jpeg(4, quality=100), jpeg(5, optimize=True), gray.getvalue()]


class Dripping(io.RawIOBase):
    """A stream that gives bytes in pieces of some size, as a pipe may."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size, self.at = data, size, 0

    def read(self, _size: int = -1) -> bytes:
        self.at += self.size
        return self.data[self.at - self.size : self.at]


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 10**6])
def test_jpegs_are_cut_where_they_end(size: int) -> None:
    parts = clip()
    whole = b"".join(parts)
    assert [*jpegs(Dripping(whole, size), "x")] == parts  # type: ignore[arg-type]
    assert [*jpegs(io.BytesIO(b""), "x")] == []


@given(st.integers(0, 6), st.integers(1, 4000), st.integers(1, 5000))
def test_a_torn_clip_gives_what_is_before_the_tear(number: int, cut: int, size: int) -> None:
    parts = clip()
    torn = b"".join(parts[:number]) + parts[number][: min(cut, len(parts[number]) - 1)]
    found: list[bytes] = []
    with pytest.raises(ParseError, match=rf"clip: frame {number + 1} is torn"):
        found.extend(jpegs(Dripping(torn, size), "clip"))  # type: ignore[arg-type]
    assert found == parts[:number]


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(1, 50))
def test_any_bytes_are_frames_or_an_error(data: bytes, at: int, size: int) -> None:
    one = jpeg(0, quality=5)
    damaged = one[:at] + data + one[at:]
    try:
        parts = [*jpegs(Dripping(damaged, size), "clip")]  # type: ignore[arg-type]
    except ParseError as error:
        assert error.message.startswith("frame ")
    else:
        assert b"".join(parts) == damaged and all(part[:2] == b"\xff\xd8" for part in parts)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"RIFF....AVI ", "frame 1 is no JPEG"),
        (jpeg(0) + b"\n--boundary", "frame 2 is no JPEG"),
        (b"\xff\xd8\xff\xe0\0\0", "no JPEG"),
    ],
)
def test_what_is_no_motion_jpeg(data: bytes, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        list(jpegs(io.BytesIO(data), "clip"))


def test_a_frame_without_an_end_is_refused_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that never ends takes no more memory than a picture may have."""
    monkeypatch.setattr("chai.frames.mjpeg.limits", lambda: replace(Limits(), image_bytes=300_000))
    head = jpeg(0)[:-2]
    endless = Dripping(head + bytes(10**7), 5000)
    with pytest.raises(ParseError, match=r"frame 1: .*image_bytes=300,000"):
        list(jpegs(endless, "clip"))  # type: ignore[arg-type]
    assert endless.at < 400_000


# -- sources


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def test_sources_give_the_same_frames(tmp_path: Path) -> None:
    parts = clip()
    wanted = [Image.open(io.BytesIO(part)) for part in parts]
    (tmp_path / "clip.mjpeg").write_bytes(b"".join(parts))
    (tmp_path / "folder").mkdir()
    for i, part in enumerate(parts):
        (tmp_path / "folder" / f"{i:03}.jpg").write_bytes(part)
    same([*frames(tmp_path / "clip.mjpeg")], wanted)
    same([*frames(tmp_path / "folder")], wanted)
    same([*frames(io.BytesIO(b"".join(parts)))], wanted)
    same([*frames([np.asarray(image) for image in wanted])], wanted)
    same([*frames(wanted)], wanted)


def test_what_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"....ftyp")
    for place, words in ((tmp_path / "none", "no folder or video"), (tmp_path / "clip.mp4", "Motion JPEG")):
        with pytest.raises(UsageError, match=words) as raised:
            next(frames(place))
        assert raised.value.hint


@pytest.mark.parametrize(
    "array", [np.zeros((3, 4)), np.zeros((3, 4, 4), np.uint8), np.zeros(5, np.uint8), np.zeros((0, 3), np.uint8)]
)
def test_arrays_that_are_no_frame(array: Any) -> None:
    with pytest.raises(UsageError, match="a frame of"):
        next(frames([array]))


# -- boxes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return detector(tmp_path)


def wanted(net: chai.Net, image: Image.Image) -> Any:
    rows = net.forward(WAY(image, (1, 3, *SIZE))[None])["detections"].copy()
    return detections(rows, {0: WAY.window(image.size, (1, 3, *SIZE))})


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_boxes_of_each_frame_in_order(path: Path, device: str) -> None:
    """Frames of several sizes; on an overlay through the pipeline of net.stream."""
    images = [picture(i, 40 + 20 * (i % 3), 110) for i in range(COUNT)]
    calibration = np.concatenate([WAY(image, (1, 3, *SIZE))[None] for image in images])
    options = {} if device == "float" else {"calibrate": calibration}
    with chai.Net(path, path.with_suffix(".caffemodel"), device, batch=1, **options) as net:
        expected = [wanted(net, image) for image in images]
        found = [*chai.video(net, images)]
    assert [frame for frame, _ in found] == images
    for (_, boxes), other in zip(found, expected):
        assert len(boxes) > 3 and np.allclose(boxes, other, atol=1e-3)


def test_frames_are_taken_as_they_are_needed(path: Path) -> None:
    """Never more than the pipeline holds, whatever the source has."""
    taken = 0

    def endless() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield picture(0)

    with chai.Net(path, path.with_suffix(".caffemodel"), "float", batch=1) as net:
        results = chai.video(net, endless())
        for _ in range(3):
            next(results)
        results.close()  # type: ignore[attr-defined]
    assert taken <= 3 + 2


def test_a_torn_clip_is_done_up_to_the_tear(path: Path, tmp_path: Path) -> None:
    (tmp_path / "clip.mjpeg").write_bytes(jpeg(0) + jpeg(1) + jpeg(2)[:-400])
    with chai.Net(path, path.with_suffix(".caffemodel"), "float", batch=1) as net:
        results = chai.video(net, tmp_path / "clip.mjpeg")
        assert [len(next(results)[1]) > 0 for _ in range(2)] == [True, True]
        with pytest.raises(ParseError, match=r"clip\.mjpeg: frame 3 is torn"):
            next(results)


def test_a_network_without_boxes_is_refused() -> None:
    with (
        chai.Net("digits", device="float") as net,
        pytest.raises(UsageError, match=r"video: .*outputs of boxes \(none\)"),
    ):
        next(chai.video(net, []))
