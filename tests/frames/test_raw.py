"""Frames on standard input that are nothing but pixels."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.errors import ParseError, UsageError
from chai.frames.sources import RawFrame, source
from chai.frames.threads import Stop

from .common import many_open_files

HEIGHT, WIDTH = 5, 7
FRAMES = np.random.default_rng(6).integers(0, 256, (4, HEIGHT, WIDTH, 3), np.uint8)


def read(
    monkeypatch: pytest.MonkeyPatch, data: bytes, block: int, size: tuple[int, int] = (HEIGHT, WIDTH)
) -> tuple[list[RawFrame], str]:
    """The frames of a pipe that has these bytes, in blocks, and the error that it ends with."""
    out, into = os.pipe()

    def write() -> None:
        for start in range(0, len(data), block):
            os.write(into, data[start : start + block])
        os.close(into)

    thread = threading.Thread(target=write)
    thread.start()
    frames: list[RawFrame] = []
    error = ""
    with open(out, "rb", buffering=0) as file:
        monkeypatch.setattr(sys, "stdin", type("", (), {"buffer": file, "isatty": lambda _=None: False}))
        try:
            for frame in source("-", size).frames(Stop()):
                frames.append(frame)  # noqa: PERF402
        except ParseError as refusal:
            error = refusal.message
    thread.join()
    return frames, error


@pytest.mark.parametrize("block", [1, 40, 100, 1 << 16])
def test_frames_of_any_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    frames, error = read(monkeypatch, FRAMES.tobytes(), block)
    assert error == ""
    np.testing.assert_array_equal([np.asarray(frame.data) for frame in frames], FRAMES)
    assert [(frame.number, frame.name) for frame in frames[:2]] == [(0, "stdin[0]"), (1, "stdin[1]")]


def test_a_pipe_with_a_large_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    with many_open_files():
        frames, error = read(monkeypatch, FRAMES.tobytes(), 100)
    assert error == ""
    np.testing.assert_array_equal([np.asarray(frame.data) for frame in frames], FRAMES)


def test_a_torn_frame_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    frames, error = read(monkeypatch, FRAMES.tobytes()[:-7], 64)
    np.testing.assert_array_equal([np.asarray(frame.data) for frame in frames], FRAMES[:3])
    assert error == "the stream ends inside frame 3: 98 of its 105 bytes"


def test_a_size_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    _, error = read(monkeypatch, b"", 1, (60_000, 60_000))
    assert error.startswith("60000x60000 pixels: ")
    assert "image_pixels" in error


@pytest.mark.parametrize("place", ["clip.mjpeg", "camera:0", Path("frames")])
def test_other_sources_have_no_raw_frames(place: Any) -> None:
    with pytest.raises(UsageError, match="raw frames come from the standard input alone"):
        source(place, (HEIGHT, WIDTH))
