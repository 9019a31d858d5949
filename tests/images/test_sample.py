"""The made-up photo that the cost of reading pictures is measured on."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from chai.images.sample import sample


def test_a_photo_of_about_two_bits_a_pixel(tmp_path: Path) -> None:
    path = sample(tmp_path, 320, 200)
    with Image.open(path) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (320, 200))
    assert 1 < 8 * path.stat().st_size / (320 * 200) < 4
