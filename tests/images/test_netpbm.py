"""PBM, PGM and PPM pictures, value by value, within bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai import ParseError
from chai.images import files

RNG = np.random.default_rng(0)


def as_text(values: np.ndarray) -> bytes:
    return b" ".join(b"%d" % value for value in values.ravel())


@pytest.mark.parametrize("most", [1, 7, 100, 255, 256, 4095, 65535])
@pytest.mark.parametrize("kind", [2, 3, 5, 6])
def test_the_largest_value_is_white(tmp_path: Path, kind: int, most: int) -> None:
    values = RNG.integers(0, most + 1, (5, 7, 3)[: 3 if kind in (3, 6) else 2])
    body = as_text(values) if kind < 4 else values.astype(">u2" if most > 255 else np.uint8).tobytes()
    (tmp_path / "x.ppm").write_bytes(b"P%d # by hand\n7\t5#\n\n%d\n" % (kind, most) + body + b"\n")
    if kind in (2, 5) and most > 255:  # the upper half, as of a PNG of 16 bits
        wanted = [round(value / most * 65535) >> 8 for value in values.ravel().tolist()]
    else:
        wanted = [round(value / most * 255) for value in values.ravel().tolist()]
    assert np.array_equal(np.asarray(files.read(tmp_path / "x.ppm")), np.reshape(wanted, values.shape))


@pytest.mark.parametrize("width", [3, 8, 13])
@pytest.mark.parametrize("kind", [1, 4])
def test_bits_are_black(tmp_path: Path, kind: int, width: int) -> None:
    bits = RNG.integers(0, 2, (5, width), np.uint8)
    body = b"".join(b"%d" % bit for bit in bits.ravel()) if kind == 1 else np.packbits(bits, axis=1).tobytes()
    (tmp_path / "x.ppm").write_bytes(b"P%d %d 5\n" % (kind, width) + body)
    assert np.array_equal(np.asarray(files.read(tmp_path / "x.ppm")), 255 * (1 - bits))


def test_comments_between_pixels_as_text(tmp_path: Path) -> None:
    """Thousands of them, for each of which Pillow copies the rest of the file."""
    (tmp_path / "x.pgm").write_bytes(b"P2\n3 2\n9\n" + b"#\n" * (1 << 18) + b"0 9# one\n3 #\n#\n1 2 9")
    assert np.asarray(files.read(tmp_path / "x.pgm")).tolist() == [[0, 255, 85], [28, 57, 255]]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"P6\n#" + b"x" * 5000 + b"\n1 1 255\n...", "no width, height and largest value in its first 4096 bytes"),
        (b"P6\n" + b"#\n" * 5000 + b"1 1 255\n...", "no width, height and largest value in its first 4096 bytes"),
        (b"P5 3 2 255\n12345", "5 numbers for 2x3"),
        (b"P5 3 2 256\n12345678901", "5 numbers for 2x3"),
        (b"P4 9 2\n123", "9 numbers for 2x9"),
        (b"P2 3 2 255\n1 2 3 4 5", "5 numbers for 2x3"),
        (b"P2 1 1 255\n-1", "its pixels are no numbers"),
        (b"P1 2 1 02", "its pixels are neither 0 nor 1"),
        (b"P2 2 1 100 7 101", "a value of 101 where the largest is 100"),
        (b"P5 2 1 300 \1\0\2\0", "a value of 512 where the largest is 300"),
        (b"P5 0 3 255\n", "0x3 pixels up to 255"),
        (b"P5 1 1 65536\n12", "1x1 pixels up to 65536"),
        (b"P2 1 1 255\n" + b"1 " * (8 << 20), "pixels as text: 16,777,216"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason.startswith("pixels as text"):
        data += b"1"
        reason = "pixels as text: 16,777,217 exceeds the limit text_bytes=16,777,216"
    (tmp_path / "x.ppm").write_bytes(data)
    with pytest.raises(ParseError) as caught:
        files.read(tmp_path / "x.ppm")
    assert "x.ppm: " in str(caught.value)
    assert reason in str(caught.value)
