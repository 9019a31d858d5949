"""Boxes in pixels of pictures, from the rows of layers."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from chai.images.boxes import class_names, detections
from chai.images.preprocess import PictureWindow, Preprocess, whole

NONE = [-1.0] * 6


def test_boxes_of_a_batch() -> None:
    """By image, then by score; in pixels of each picture and inside it; classes from 0."""
    rows = [
        [0, 1, 0.3, 0.1, 0.2, 0.5, 0.4],
        [1, 2, 0.9, -0.5, 0, 0.5, 2],
        [0, 3, 0.8, 0, 0, 1, 1],
        [2, 1, 0.5, 0, 0, 1, 1],  # of a picture that was not asked for
    ]
    value = np.array(rows, np.float32).reshape(1, 1, -1, 7)
    boxes = detections(value, {0: whole(40, 30), 1: PictureWindow(10, 0, 50, 30, 60, 30)}, 1)
    wanted = [
        [0, 2, 0.8, 0, 0, 40, 30],
        [0, 0, 0.3, 4, 6, 20, 12],
        [1, 1, 0.9, 0, 0, 30, 30],
    ]
    assert boxes.dtype == np.float32 and np.allclose(boxes, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "row",
    [
        [0, *NONE],
        [0, 0, 0.9, 0, 0, 1, 1],
        [0, 1, nan, 0, 0, 1, 1],
        [0, 1, 0.9, 0, nan, 1, 1],
        [0, 1, 0.9, 1, 0, 2, 1],
        [0, 1, 0.9, 0.6, 0, 0.4, 1],
    ],
    ids=["none", "background", "score", "corner", "outside", "empty"],
)
def test_rows_without_a_box(row: list[float]) -> None:
    boxes = detections(np.array([row], np.float32), {0: whole(4, 3)}, 1)
    assert boxes.shape == (0, 7)


def test_infinite_corners_are_those_of_the_picture() -> None:
    boxes = detections(np.array([[0, 1, 0.9, -inf, 0, inf, 1]], np.float32), {0: whole(4, 3)}, 1)
    assert boxes.tolist() == [[0, 0, np.float32(0.9), 0, 0, 4, 3]]


def test_names_begin_with_the_first_class() -> None:
    assert class_names(["background", "cat", "dog"], 1, 2) == ["cat", "dog"]
    assert class_names(["cat", "dog"], 1, 2) == ["cat", "dog"]
    assert class_names(["cat", "dog"], 0, None) == ["cat", "dog"]


# -- letterbox


def letterboxed(pixels: Any, height: int, width: int) -> Any:
    """Pixel by pixel: the picture in its proportions, resized as OpenCV does, in the middle of gray."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    scale = min(height / pixels.shape[0], width / pixels.shape[1])
    inner = cv2.resize(pixels, (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale))))
    top, left = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
    out = np.full((height, width, *pixels.shape[2:]), 114, np.uint8)
    for row in range(inner.shape[0]):
        for column in range(inner.shape[1]):
            out[top + row, left + column] = inner[row, column]
    return out


@pytest.mark.parametrize("size", [(30, 40), (40, 30), (97, 31), (12, 200), (24, 36), (1, 90)])
@pytest.mark.parametrize("channels", [3, 1])
def test_letterbox(size: tuple[int, int], channels: int) -> None:
    pixels = np.random.default_rng(size[0]).integers(0, 256, (*size, 3)[: 2 + (channels == 3)], np.uint8)
    resized = Preprocess(resize="letterbox").resized(Image.fromarray(pixels), (1, channels, 24, 36))
    assert np.abs(resized.astype(int) - letterboxed(pixels, 24, 36)).max() <= 1


@given(st.integers(1, 300), st.integers(1, 300), st.integers(8, 90), st.integers(8, 90))
def test_a_box_in_a_letterbox_is_where_its_pixels_came_from(width: int, height: int, high: int, wide: int) -> None:
    """A picture's corners in the input, by its size there and its borders, are its corners again."""
    window = Preprocess(resize="letterbox").window((width, height), (1, 3, high, wide))
    scale = min(high / height, wide / width)
    inner = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = (high - inner[0]) // 2, (wide - inner[1]) // 2
    corners = [left / wide, top / high, (left + inner[1]) / wide, (top + inner[0]) / high]
    row = np.array([[0, 0, 0.5, *corners]], np.float32)
    box = detections(row, {0: window})[0, 3:]
    assert box.tolist() == pytest.approx([0, 0, width, height], abs=1e-3 * max(width, height))


@pytest.mark.parametrize(
    "options", [{"resize": "letter"}, {"crop": "letterbox"}, {"resize": "letterbox", "crop": (3, 4)}], ids=str
)
def test_what_is_no_letterbox(options: dict[str, Any]) -> None:
    from chai.errors import UsageError

    with pytest.raises(UsageError, match=r"resize|crop"):
        Preprocess().with_options(**options)
