"""Pictures of handwritten digits on coloured backgrounds, with their boxes: what the digits detector sees.

``train_detector.py`` makes its pictures with it, and tests their videos. Every random choice comes from a generator of numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from chai.blob import Array

HEIGHT, WIDTH = 72, 96  # pixels of a picture
SIDES = 20, 36  # least and largest height of a digit with a border of an eighth of its own, in pixels
WIDENED = 0.15  # at most, relative to the height
TURNED = 8.0  # degrees at most
CONTRAST = 70.0  # least difference of a digit's luma from any pixel behind it, 0 to 255
INK = 0.35  # share of the ink's colour from which on a pixel belongs to a digit
NOISE = 8.0  # largest standard deviation, of 255
APART = 2  # pixels between two digits, at least
MOST = 4  # digits in a picture
TRIES = 10  # places of a digit, and colours of a place
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
BICUBIC: Any = 3  # PIL.Image.BICUBIC, which moved to Resampling in Pillow 9.1

Rng = np.random.Generator


class BoxedDigit(NamedTuple):
    """A digit in a picture, and the edges of its ink in pixels."""

    label: int
    left: int
    top: int
    right: int
    bottom: int


def read_digits(folder: Path) -> tuple[Array, Array]:
    """Return the digits of files NAME_LABEL.png, uint8 (N, 8, 8), and their labels (N,)."""
    files = sorted(folder.glob("digit_*.png"))
    return np.stack([np.asarray(Image.open(file)) for file in files]), np.array(
        [int(file.stem.rpartition("_")[2]) for file in files]
    )


def background(rng: Rng) -> Array:
    """Return blurred colours with a few rectangles of others, float32 (HEIGHT, WIDTH, 3) from 0 to 255."""
    rows, columns = rng.integers(2, 5, 2)
    colours = Image.fromarray(rng.integers(0, 256, (rows, columns, 3), np.uint8))
    canvas = np.asarray(colours.resize((WIDTH, HEIGHT), BICUBIC), np.float32).copy()
    canvas += (rng.uniform(0, 255, 3).astype(np.float32) - canvas) * np.float32(
        rng.uniform(0, 0.9)
    )  # often almost plain
    for _ in range(rng.integers(0, 4)):
        height, width = rng.integers(10, 45, 2)
        top, left = rng.integers(-10, HEIGHT - 10), rng.integers(-10, WIDTH - 10)
        part = canvas[max(0, top) : top + height, max(0, left) : left + width]
        part += (rng.uniform(0, 255, 3).astype(np.float32) - part) * np.float32(rng.uniform(0.1, 0.7))
    return canvas


def ink(rng: Rng, digit: Array, sides: tuple[int, int] = SIDES) -> Array:
    """Return a digit as shares of ink, float32 (height, width) from 0 to 1: enlarged, a little wider or narrower, and turned."""
    height = int(rng.integers(*sides, endpoint=True))
    width = round(height * (1 + rng.uniform(-WIDENED, WIDENED)))
    image = Image.fromarray(np.pad(digit, 1)).resize((width, height), BICUBIC)
    turned = image.rotate(rng.uniform(-TURNED, TURNED), BICUBIC)
    shares = np.asarray(turned, np.float32) / 255
    inside = shares >= INK
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    part: Array = shares[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return part


def colour(rng: Rng, behind: Array) -> Array | None:
    """Return a colour, float32 (3,), whose luma differs from that of all pixels behind it; None if none was found."""
    luma = behind.reshape(-1, 3) @ LUMA
    for candidate in rng.uniform(0, 255, (TRIES, 3)).astype(np.float32):
        if np.abs(candidate @ LUMA - luma).min() >= CONTRAST:
            return np.asarray(candidate)
    return None


def paint(canvas: Array, shares: Array, left: int, top: int, shade: Array) -> None:
    """Paint ink of a colour."""
    height, width = shares.shape
    part = canvas[top : top + height, left : left + width]
    part += (shade - part) * shares[..., None]


def picture(canvas: Array, rng: Rng, noise: float) -> Array:
    """Return a canvas as a camera has it, uint8: with noise of a standard deviation."""
    noisy = canvas + rng.standard_normal(canvas.shape, np.float32) * np.float32(noise)
    pixels: Array = np.rint(noisy.clip(0, 255)).astype(np.uint8)
    return pixels


def scene(rng: Rng, digits: Array, labels: Array) -> tuple[Array, list[BoxedDigit]]:
    """Return a picture, uint8 (HEIGHT, WIDTH, 3) in RGB, and the digits in it, which do not overlap."""
    canvas = background(rng)
    placed: list[BoxedDigit] = []
    for which in rng.integers(0, len(digits), rng.integers(0, MOST, endpoint=True)):
        shares = ink(rng, digits[which])
        height, width = shares.shape
        for _ in range(TRIES):
            top, left = int(rng.integers(0, HEIGHT - height + 1)), int(rng.integers(0, WIDTH - width + 1))
            box = BoxedDigit(int(labels[which]), left, top, left + width, top + height)
            if any(near(box, other) for other in placed):
                continue
            shade = colour(rng, canvas[top : box.bottom, left : box.right])
            if shade is not None:
                paint(canvas, shares, left, top, shade)
                placed.append(box)
                break
    return picture(canvas, rng, rng.uniform(0, NOISE)), placed


def near(one: BoxedDigit, other: BoxedDigit) -> bool:
    """Return whether two digits overlap or are closer than APART pixels."""
    return (
        max(one.left, other.left) < min(one.right, other.right) + APART
        and max(one.top, other.top) < min(one.bottom, other.bottom) + APART
    )


def coco(names: Sequence[str], pictures: Sequence[Sequence[BoxedDigit]]) -> dict[str, list[dict[str, Any]]]:
    """Return the digits of pictures in the form of COCO's files of annotations; digit d is category d + 1."""
    annotations = [
        {
            "id": 0,
            "image_id": image,
            "category_id": box.label + 1,
            "bbox": [box.left, box.top, box.right - box.left, box.bottom - box.top],
            "area": (box.right - box.left) * (box.bottom - box.top),
            "iscrowd": 0,
        }
        for image, boxes in enumerate(pictures, 1)
        for box in boxes
    ]
    return {
        "images": [
            {"id": image, "file_name": name, "height": HEIGHT, "width": WIDTH} for image, name in enumerate(names, 1)
        ],
        "annotations": [{**annotation, "id": number} for number, annotation in enumerate(annotations, 1)],
        "categories": [{"id": digit + 1, "name": str(digit)} for digit in range(10)],
    }
