"""CHaiDNN's calls that read images and fill buffers, against loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from chai.chaidnn import (
    inputNormalization,
    io_layer_info,
    kernel_type_e,
    outputWrite,
    xiInputRead,
    xiUnpackOutput,
)

from .common import RNG, floats, image_file


@pytest.mark.parametrize("inp_mode", [False, True])
def test_normalisation_by_loops(tmp_path: Path, inp_mode: bool) -> None:
    """An image that needs no resizing, 9x12, cut to 5x7 from its centre; OpenCV's order of channels."""
    path, pixels = image_file(tmp_path, 9, 12)
    mean, var = ([0.4, 0.5, 0.6], [0.2, 0.25, 0.3]) if inp_mode else ([104.0, 117.5, 123.0], None)
    info = io_layer_info(in_channel=3, in_height=5, in_width=7)
    buffers = [bytearray(3 * 5 * 7 * 4), np.empty((3, 5, 7), np.float32)]
    assert inputNormalization(buffers, 9, 12, path, path, inp_mode, mean, var, 2, info) == 0
    for c in range(3):
        for h in range(5):
            for w in range(7):
                pixel = float(pixels[h + 2, w + 2, 2 - c])
                wanted = (pixel / 255 - mean[c]) / var[c] if var else pixel - mean[c]
                assert floats(buffers[0])[(c * 5 + h) * 7 + w] == pytest.approx(wanted, abs=2e-6 if inp_mode else 1e-4)
    assert np.array_equal(floats(buffers[0]), buffers[1].ravel())


def test_a_mean_image_and_no_mean(tmp_path: Path) -> None:
    path, pixels = image_file(tmp_path, 5, 7)
    info = io_layer_info(in_channel=3, in_height=5, in_width=7)
    bgr = pixels[..., ::-1].transpose(2, 0, 1).astype(np.float32)
    mean = RNG.random((3, 5, 7)).astype(np.float32)
    buffer = np.empty((3, 5, 7), np.float32)
    inputNormalization([buffer], 5, 7, path, None, False, mean, None, 1, info)
    assert np.array_equal(buffer, bgr - mean)
    inputNormalization([buffer], 5, 7, path, None, False, None, None, 1, info)
    assert np.array_equal(buffer, bgr)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7))
def test_input_read_puts_image_behind_image(images: int, c: int, h: int, w: int) -> None:
    info = io_layer_info(inlayer_sizebytes=images * c * h * w * 4, in_channel=c, in_height=h, in_width=w)
    parts = [RNG.random((c, h, w)).astype(np.float32) for _ in range(images)]
    whole = bytearray(info.inlayer_sizebytes)
    assert xiInputRead(parts, [whole], images, info) == 0
    assert np.array_equal(floats(whole).reshape(images, c, h, w), np.stack(parts))


def test_unpacking_by_hand() -> None:
    rows = np.arange(100, 121, dtype=np.float32)
    packed = np.concatenate([[2], rows[:14], [0], [1], rows[14:]]).astype(np.float32)
    parts = [np.zeros(1 + 7 * 2, np.float32) for _ in range(3)]
    assert xiUnpackOutput([packed], parts, kernel_type_e.NMS, 1 + 7 * 2, 3) == 0
    assert np.array_equal(parts[0], [2, *rows[:14]])
    assert parts[1][0] == 0
    assert np.array_equal(parts[2][:8], [1, *rows[14:]])
    even = [bytearray(4 * 3) for _ in range(2)]
    xiUnpackOutput([rows[:6].copy()], even, kernel_type_e.XCUSTOM, 3, 2)
    assert np.array_equal(floats(even[0]), rows[:3])
    assert np.array_equal(floats(even[1]), rows[3:6])


def test_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = np.array([0.05, 0.5, 0.125, 0.2, 0.0625, 0.0625], np.float32)
    info = io_layer_info(out_size=6, out_kerType=kernel_type_e.SOFTMAX)
    assert outputWrite(tmp_path, "x.jpg", [scores], 1, info, 1) == 0
    path = tmp_path / "out" / "out_0_1.txt"
    assert path.read_text() == "0.050000\n0.500000\n0.125000\n0.200000\n0.062500\n0.062500\n"
    assert capsys.readouterr().err.splitlines() == [
        f"[OUTWR] Write Path : {path}",
        "",
        "[INFOx] Classification Output for batch : 0",
        "[INFOx] classId : 1, score : 0.500000",
        "[INFOx] classId : 3, score : 0.200000",
        "[INFOx] classId : 2, score : 0.125000",
        "[INFOx] classId : 4, score : 0.062500",
        "[INFOx] classId : 5, score : 0.062500",
        "",
    ]
    labels = io_layer_info(out_size=3, out_kerType=kernel_type_e.CROP)
    outputWrite(tmp_path, "x.jpg", [np.array([3, 0, 20], np.float32)], 1, labels)
    assert (tmp_path / "out" / "out_0_0.txt").read_text() == "3\n0\n20\n"
    outputWrite(tmp_path, "x.jpg", [np.array([3, 0.5, 20], np.float32)], 1, labels)
    assert (tmp_path / "out" / "out_0_0.txt").read_text() == "3.000000\n0.500000\n20.000000\n"
    boxes = io_layer_info(out_size=15, out_kerType=kernel_type_e.NMS)
    outputWrite(tmp_path, "x.jpg", [np.array([1, *range(14)], np.float32)], 1, boxes)
    assert (tmp_path / "out" / "out_0_0.txt").read_text().split() == [f"{v:f}" for v in [1, *range(7)]]
