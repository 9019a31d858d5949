"""Images that were resized before, and the views of them that ranges are chosen on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chai import Preprocess
from chai.images.resized import resized, views
from tests.images.test_preprocess import naive_bilinear


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8))


def naive_smooth(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Each new pixel is the mean of the old ones under a triangle of twice its own width."""
    for axis, new in enumerate(size):
        old = pixels.shape[axis]
        ratio = old / new
        rows = []
        for i in range(new):
            centre = (i + 0.5) * ratio
            weight = np.array([max(0.0, 1 - abs(j + 0.5 - centre) / ratio) for j in range(old)])
            rows.append(np.tensordot(weight / weight.sum(), pixels, (0, axis)))
        pixels = np.stack(rows, axis)
    return pixels


def test_two_views_of_a_slightly_larger_crop() -> None:
    how = Preprocess(resize=(101, 103), crop=(56, 63), channels="RGB", mean=(3, 4, 5), scale=0.5)
    image = picture(101, 103)
    items = views(image, how, (1, 3, 56, 63))
    part = np.asarray(image, float)[18 : 18 + 64, 15 : 15 + 72]  # 8/7 of the input
    for item, way in zip(items, (naive_bilinear, naive_smooth)):
        wanted = (way(part, (56, 63)) - [3, 4, 5]) * 0.5
        assert item.dtype == np.float32 and item.shape == (3, 56, 63)
        assert np.abs(item - wanted.transpose(2, 0, 1)).max() <= 0.51  # rounded to whole values once, or for each axis
    assert np.abs(items[0] - items[1]).max() > 5
    assert items[0].std() > 1.1 * items[1].std()


def test_an_image_without_a_margin_is_seen_as_it_is() -> None:
    how = Preprocess(resize=(99, 97), channels="gray")
    image = picture(99, 97)
    for view in views(image, how, (1, 1, 99, 97)):
        np.testing.assert_array_equal(view[0], np.asarray(image.convert("L"), np.float32))


@pytest.mark.parametrize(
    ("size", "resize", "shown"),
    [
        ((120, 130), (120, 130), True),
        ((130, 120), (120, 130), False),
        ((120, 130), None, False),
        ((32, 32), (32, 32), False),
    ],
)
def test_images_of_exactly_that_size(
    tmp_path: Path, size: tuple[int, int], resize: tuple[int, int] | None, shown: bool
) -> None:
    picture(*size).save(tmp_path / "a.png")
    (tmp_path / "bad.png").write_bytes(b"none")
    np.save(tmp_path / "a.npy", np.zeros((3, 120, 130), np.float32))
    files = [tmp_path / name for name in ("a.png", "bad.png", "a.npy")]
    assert resized(files, Preprocess(resize=resize)) == files[:1] * shown
