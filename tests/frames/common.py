"""A clip of moving squares, and a network that finds them: its answer is known for every frame."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.parser.caffemodel import write_caffemodel

HEIGHT, WIDTH, SIDE = 24, 40, 8
RED, GREEN = 0, 1  # classes of the detector, whose label 0 is the background
COLOURS = {RED: (250, 10, 10), GREEN: (10, 250, 10)}
RNG = np.random.default_rng(11)
Truth = set[tuple[int, int, int]]  # class, left, top

# Two convolutions take the means of red and green of each square of 8 x 8 pixels, on the overlay; the rest is SSD's head.
DETECTOR = f"""
name: "squares"
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 3 dim: {HEIGHT} dim: {WIDTH} }} }} }}
layer {{ name: "mean" type: "Convolution" bottom: "data" top: "mean"
  convolution_param {{ num_output: 3 kernel_size: 4 stride: 4 }} }}
layer {{ name: "conf" type: "Convolution" bottom: "mean" top: "conf"
  convolution_param {{ num_output: 3 kernel_size: 2 stride: 2 }} }}
layer {{ name: "conf_perm" type: "Permute" bottom: "conf" top: "conf_perm" permute_param {{ order: [0, 2, 3, 1] }} }}
layer {{ name: "conf_flat" type: "Flatten" bottom: "conf_perm" top: "conf_flat" }}
layer {{ name: "loc" type: "Convolution" bottom: "mean" top: "loc"
  convolution_param {{ num_output: 4 kernel_size: 2 stride: 2 }} }}
layer {{ name: "loc_perm" type: "Permute" bottom: "loc" top: "loc_perm" permute_param {{ order: [0, 2, 3, 1] }} }}
layer {{ name: "loc_flat" type: "Flatten" bottom: "loc_perm" top: "loc_flat" }}
layer {{ name: "prior" type: "PriorBox" bottom: "conf" bottom: "data" top: "prior"
  prior_box_param {{ min_size: {SIDE} step: {SIDE} offset: 0.5 variance: [0.1, 0.1, 0.2, 0.2] }} }}
layer {{ name: "boxes" type: "DetectionOutput" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior" top: "boxes"
  detection_output_param {{ num_classes: 3 code_type: CENTER_SIZE confidence_threshold: 0.5 keep_top_k: 20
  nms_param {{ nms_threshold: 0.3 }} }} }}
"""
CARD = "[preprocess]\nchannels = 'RGB'\nscale = 0.00392156862745098\n"


def detector_files(folder: Path) -> tuple[Path, Path]:
    """The network's files, with a .toml."""
    (folder / "squares.prototxt").write_text(DETECTOR)
    (folder / "squares.toml").write_text(CARD)
    each = np.eye(3, dtype=np.float32)[:, :, None, None]  # red, green and blue on their own
    shifted = np.roll(each, 1, 0)  # red to label 1, green to 2
    shifted[0] = 0  # blue, to the background
    layers = [
        ("mean", "Convolution", [each.repeat(4, 2).repeat(4, 3) / 16, np.zeros(3, np.float32)]),
        ("conf", "Convolution", [shifted.repeat(2, 2).repeat(2, 3) / 4, np.zeros(3, np.float32)]),
        ("loc", "Convolution", [np.zeros((4, 3, 2, 2), np.float32), np.zeros(4, np.float32)]),
    ]
    write_caffemodel(folder / "squares.caffemodel", "squares", layers)
    return folder / "squares.prototxt", folder / "squares.caffemodel"


def detector(folder: Path, device: str = "emulator") -> chai.Net:
    return chai.Net(*detector_files(folder), device=device)


def clip(count: int) -> Iterator[tuple[np.ndarray[Any, Any], Truth]]:
    """Frames of one to three squares that move by one place, uint8 (H, W, 3), and what is in each."""
    rng = np.random.default_rng(5)
    down, across = HEIGHT // SIDE, WIDTH // SIDE
    places = {
        (int(y), int(x)): int(label) for y, x, label in zip([0, 1, 2], rng.permutation(across), [RED, GREEN, RED])
    }
    for number in range(count):
        frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        truth: Truth = set()
        for (y, x), label in list(places.items())[: 1 + number % 3]:
            left, top = (x + number) % across * SIDE, (y + number // 2) % down * SIDE
            if (left, top) not in {place[1:] for place in truth}:
                frame[top : top + SIDE, left : left + SIDE] = COLOURS[label]
                truth.add((label, left, top))
        yield frame, truth


def jpeg(frame: np.ndarray[Any, Any], quality: int = 95) -> bytes:
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "JPEG", quality=quality)
    return data.getvalue()


def mjpeg(path: Path, count: int) -> list[Truth]:
    """Write a clip; return what is in its frames."""
    frames = list(clip(count))
    path.write_bytes(b"".join(jpeg(frame) for frame, _ in frames))
    return [truth for _, truth in frames]


def found(boxes: Any) -> Truth:
    """Class, left and top of boxes whose corners are within a pixel of a square's."""
    rows = boxes[boxes[:, 2] >= 0.5]
    corners = np.rint(rows[:, 3:] / SIDE) * SIDE
    assert np.abs(corners - rows[:, 3:]).max(initial=0) < 1
    assert ((corners[:, 2:] - corners[:, :2]) == SIDE).all()
    return {(int(row[1]), int(left), int(top)) for row, (left, top) in zip(rows, corners[:, :2])}


def pyav() -> Any:
    """PyAV, or skip the test."""
    return pytest.importorskip("av", reason="PyAV is not installed: pip install -e '.[video]'")
