"""Networks and numbers for CHaiDNN's calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from chai.util.paths import resource

DIGITS = resource("prototxt")
RNG = np.random.default_rng(0)


def write(folder: Path, text: str) -> Path:
    (folder / "deploy.prototxt").write_text(text)
    return folder


def floats(buffer: Any) -> np.ndarray:
    return np.frombuffer(buffer, np.float32)


def image_file(folder: Path, *size: int) -> tuple[Path, np.ndarray]:
    pixels = RNG.integers(0, 256, (*size, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    return folder / "image.png", pixels
