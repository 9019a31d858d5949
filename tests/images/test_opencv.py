"""chai's blobs from images against OpenCV's, on the same pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.images.opencv import blob_of, resize, sized
from tests.conftest import examples

cv2 = pytest.importorskip("cv2", reason='OpenCV is not installed: pip install -e ".[bench]"')
SIDES = st.integers(1, 40)
MEANS = st.one_of(st.just(()), st.tuples(*[st.floats(-200, 200)] * 3), st.floats(0, 9))


def image(height: int, width: int, channels: int, dtype: Any = np.uint8) -> np.ndarray:
    pixels = np.random.default_rng(height * width + channels).integers(0, 256, (height, width, channels)).astype(dtype)
    return pixels[..., 0] if channels == 1 else pixels


@settings(max_examples=examples(400))
@given(
    height=SIDES, width=SIDES, channels=st.sampled_from([1, 3, 4]), high=SIDES, wide=SIDES, mean=MEANS,
    scale=st.sampled_from([1.0, 1 / 255, 0.017, 2.5, -1.0]), swap=st.booleans(), crop=st.booleans(), keep=st.booleans(),
)  # fmt: skip
def test_every_bit_of_a_picture(
    height: int,
    width: int,
    channels: int,
    high: int,
    wide: int,
    mean: Any,
    scale: float,
    swap: bool,
    crop: bool,
    keep: bool,
) -> None:
    pixels, size = image(height, width, channels), (0, 0) if keep else (wide, high)
    wanted = cv2.dnn.blobFromImage(pixels, scale, size, mean, swap, crop)
    blob = blob_of([sized(pixels, size, crop)], scale, mean, swap)
    assert blob.dtype == wanted.dtype == np.float32
    assert np.array_equal(blob, wanted)


@pytest.mark.parametrize(("height", "width", "high", "wide"), [(18, 27, 23, 19), (39, 26, 8, 33), (55, 30, 12, 27)])
def test_the_factor_before_a_crop_has_32_bits(height: int, width: int, high: int, wide: int) -> None:
    """In 64 bits a side is 34.5 pixels long, which is rounded to another number."""
    pixels = image(height, width, 3)
    wanted = cv2.dnn.blobFromImage(pixels, 1, (wide, high), crop=True)
    assert np.array_equal(blob_of([sized(pixels, (wide, high), True)]), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("crop", [False, True])
def test_floats(dtype: Any, crop: bool) -> None:
    """To rounding: OpenCV may add in another order."""
    pixels = image(13, 17, 3, dtype) / 7
    wanted = cv2.dnn.blobFromImage(pixels, 0.5, (9, 8), (1, 2, 3), True, crop)
    blob = blob_of([sized(pixels, (9, 8), crop)], 0.5, (1, 2, 3), True)
    assert blob.dtype == np.float32
    assert np.allclose(blob, wanted, rtol=0, atol=1e-5)


def test_several_images_and_bytes() -> None:
    pictures = [image(h, w, 3) for h, w in ((7, 5), (11, 3))]
    wanted = cv2.dnn.blobFromImages(pictures, 1, (6, 9), ddepth=cv2.CV_8U, swapRB=True)
    blob = blob_of([sized(each, (6, 9), False) for each in pictures], swap=True, bytes_wanted=True)
    assert blob.dtype == wanted.dtype == np.uint8
    assert np.array_equal(blob, wanted)


def test_a_resized_picture_by_hand() -> None:
    """Halves of neighbours, rounded up: (0 + 2 + 4 + 7 + 2) >> 2."""
    pixels = np.array([[0, 2], [4, 7]], np.uint8)[..., None]
    assert resize(pixels, 1, 1).tolist() == [[[3]]]
    assert resize(pixels, 2, 2).tolist() == pixels.tolist()


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ([None], {}, r"expected an image \(H, W\) or \(H, W, 3\) of uint8 or float32, found scalar of object"),
        ([np.zeros((4, 5, 2), np.uint8)], {}, "found 4x5x2 of uint8"),
        ([np.zeros((4, 5, 3), np.int32)], {}, "found 4x5x3 of int32"),
        ([np.zeros((0, 5, 3), np.uint8)], {}, "found 0x5x3"),
        ([], {}, "there is no image"),
        ([image(4, 5, 3), image(5, 4, 3)], {}, "images of 3x4x5 and 3x5x4"),
        ([image(4, 5, 3)], {"size": (0, 7)}, r"size \(0, 7\): expected width and height in pixels"),
        ([image(4, 5, 3)], {"size": (2.5, 7)}, "expected width and height in pixels"),
        ([image(4, 5, 3)], {"size": (65_535, 65_535)}, "blob_elements"),
        ([image(4, 5, 3)], {"mean": (1, 2, 3, 4, 5)}, "mean of 5 numbers"),
        ([image(4, 5, 3)], {"mean": "red"}, "blobFromImage: mean 'red': expected a number, or one per channel"),
        ([image(4, 5, 3)], {"mean": 1, "bytes_wanted": True}, "without mean and scale"),
    ],
)
def test_refusals(images: list[Any], options: dict[str, Any], message: str) -> None:
    size, numbers = options.get("size", (0, 0)), {k: v for k, v in options.items() if k != "size"}
    with pytest.raises(chai.UsageError, match=message):
        blob_of([sized(each, size, False) for each in images], **numbers)
