"""A made-up photo, for figures of how long reading one takes."""

from __future__ import annotations

from pathlib import Path

from ..util.lazy_numpy import np

_BICUBIC = 3  # PIL.Image.BICUBIC, which moved to Resampling in Pillow 9.1


def sample(folder: Path, width: int, height: int) -> Path:
    """Write a JPEG of shapes and noise with about 2 bits a pixel, and return its path."""
    from PIL import Image

    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (height // 32 + 2, width // 32 + 2, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), _BICUBIC), np.int16)
    noisy = smooth + random.normal(0, 6, smooth.shape).astype(np.int16)
    path = folder / f"{width}x{height}.jpg"
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return path
