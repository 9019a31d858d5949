"""Clips of moving digits, and chai's detector, which was trained on other digits."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.blob import Array
from chai.util.paths import resource
from tests.detect.shipped import NETWORK
from tools.digit_scenes import HEIGHT, WIDTH, BoxedDigit, background, colour, ink, paint, picture, read_digits

Truth = list[BoxedDigit]
PLACES = (0, 0, WIDTH, HEIGHT // 2), (0, HEIGHT // 2, WIDTH // 2, HEIGHT), (WIDTH // 2, HEIGHT // 2, WIDTH, HEIGHT)
SIDES = 24, 36  # pixels of a digit with its border
STAYS = 6  # frames that a digit crosses its place in
SEED = 20
SCENE = 20  # frames of a background


@lru_cache(maxsize=1)
def held_back() -> tuple[Array, Array]:
    """The digits that the detector was not trained on, uint8 (N, 8, 8), and their labels."""
    return read_digits(resource("prototxt", "digits_images"))


class MovingDigit:
    """A held-back digit that crosses a place, a part of the picture, in a straight line."""

    def __init__(self, rng: Any, place: tuple[int, int, int, int], behind: Array) -> None:
        digits, labels = held_back()
        which = int(rng.integers(len(digits)))
        left, top, right, bottom = place
        self.label, self.shares = int(labels[which]), ink(rng, digits[which], SIDES)
        self.shade = colour(rng, behind[top:bottom, left:right])
        height, width = self.shares.shape
        room = np.array([right - left - width, bottom - top - height])
        self.begin, self.end = (np.array([left, top]) + rng.uniform(0, 1, 2) * room for _ in range(2))

    def paint(self, canvas: Array, share: float) -> Truth:
        """Paint it where it is after a share of its way; none if no colour stands out from the background."""
        if self.shade is None:
            return []
        left, top = np.rint(self.begin + share * (self.end - self.begin)).astype(int).tolist()
        paint(canvas, self.shares, left, top, self.shade)
        height, width = self.shares.shape
        return [BoxedDigit(self.label, left, top, left + width, top + height)]


@lru_cache(maxsize=4)
def _frames(count: int) -> list[tuple[Array, Truth]]:
    rng = np.random.default_rng(SEED)
    moving: list[MovingDigit | None] = [None] * len(PLACES)
    frames = []
    for number in range(count):
        if number % SCENE == 0:
            behind = background(rng)
        for i, place in enumerate(PLACES):
            if (number + 2 * i) % STAYS == 0 or number == 0:  # one after the other
                moving[i] = MovingDigit(rng, place, behind) if rng.uniform() < 0.8 else None
        canvas, truth = behind.copy(), list[BoxedDigit]()
        for i, digit in enumerate(moving):
            if digit is not None:
                truth += digit.paint(canvas, (number + 2 * i) % STAYS / STAYS)
        frames.append((picture(canvas, rng, 3), truth))
    return frames


def clip(count: int) -> Iterator[tuple[Array, Truth]]:
    """Frames of up to three digits that move, uint8 (HEIGHT, WIDTH, 3), and what is in each."""
    return iter(_frames(count))


def detector(device: str = "emulator") -> chai.Net:
    return chai.Net(NETWORK, device=device)


def jpeg(frame: Array, quality: int = 95) -> bytes:
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "JPEG", quality=quality)
    return data.getvalue()


def mjpeg(path: Path, count: int) -> list[Truth]:
    """Write a clip; return what is in its frames."""
    frames = list(clip(count))
    path.write_bytes(b"".join(jpeg(frame) for frame, _ in frames))
    return [truth for _, truth in frames]


@contextmanager
def many_open_files() -> Iterator[None]:
    """Let every new file have a descriptor of 1,024 or more, which select.select does not take."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"a process may have no more than {hard} files open")
    with ExitStack() as open_files:
        open_files.callback(setrlimit, RLIMIT_NOFILE, (soft, hard))
        setrlimit(RLIMIT_NOFILE, (max(soft, 2048), hard))
        last = 0
        while last < 1024:
            last = os.open(os.devnull, os.O_RDONLY)
            open_files.callback(os.close, last)
        yield


def pyav() -> Any:
    """PyAV, or skip the test."""
    return pytest.importorskip("av", reason="PyAV is not installed: pip install -e '.[video]'")
