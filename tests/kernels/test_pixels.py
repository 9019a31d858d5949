"""Pixels of pictures, in C by every variant and in numpy, against loops over single bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.errors import DeviceError
from chai.kernels import pixels as kernels
from chai.kernels.native import library
from chai.kernels.native.single import Single
from chai.kernels.native.table import Form, Kind
from chai.tasks.window import Window
from tests.conftest import examples

from .common import VARIANTS, computed_in_c, several, used

EVERY = [*VARIANTS, "sgemm"]


def naive_codes(pixels: np.ndarray, codes: np.ndarray, backwards: bool) -> np.ndarray:
    n, h, w, c = pixels.shape
    out = np.zeros((n, c, h, w), np.int8)
    for i, k, y, x in np.ndindex(out.shape):
        out[i, k, y, x] = codes[k, pixels[i, y, x, c - 1 - k if backwards else k]]
    return out


def naive_resize(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """First between rows, then between columns, each step rounded to float32; an axis that keeps its size stays as it is."""

    def source(at: int, old: int, new: int) -> tuple[int, int, np.float32]:
        if old == new:
            return at, at, np.float32(0)
        centre = min(max((at + 0.5) * (old / new) - 0.5, 0.0), old - 1.0)
        first = min(int(centre), max(old - 2, 0))
        return first, min(first + 1, old - 1), np.float32(centre - first)

    h, w, c = pixels.shape
    out = np.zeros((*size, c), np.uint8)
    rows, columns = ([source(i, old, new) for i in range(new)] for old, new in ((h, size[0]), (w, size[1])))
    values = pixels.astype(np.float32)
    for y, (top, bottom, low) in enumerate(rows):
        line = values[top] + (values[bottom] - values[top]) * low
        for x, (left, next, right) in enumerate(columns):
            exact = line[left] + (line[next] - line[left]) * right
            for k in range(c):
                out[y, x, k] = round(float(exact[k]))  # half to even
    return out


def bytes_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Any bytes, or the smallest and the largest alone."""
    return (
        rng.choice([0, 1, 254, 255], shape).astype(np.uint8)
        if rng.random() < 0.3
        else rng.integers(0, 256, shape, np.uint8)
    )


sizes = st.integers(1, 40)


@pytest.mark.parametrize("variant", EVERY)
@settings(max_examples=examples(60))
@given(
    n=st.integers(1, 3),
    h=sizes,
    w=sizes,
    c=st.sampled_from([1, 2, 3, 4]),
    backwards=st.booleans(),
    seed=st.integers(0, 99),
)
def test_codes_are_those_of_the_table(variant: str, n: int, h: int, w: int, c: int, backwards: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pixels, codes = bytes_of(rng, n, h, w, c), rng.integers(-128, 128, (c, 256)).astype(np.int8)
    with used(variant):
        output = kernels.look_up(pixels[..., 0] if c == 1 and seed % 2 else pixels, codes, backwards)
        assert output.dtype == np.int8
        assert np.array_equal(output, naive_codes(pixels, codes, backwards))


@pytest.mark.parametrize("variant", EVERY)
@settings(max_examples=examples(60))
@given(h=sizes, w=sizes, height=sizes, width=sizes, c=st.sampled_from([1, 2, 3, 4]), seed=st.integers(0, 99))
def test_resizing_has_the_bytes_of_single_pixels(
    variant: str, h: int, w: int, height: int, width: int, c: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pixels = bytes_of(rng, h, w, c)
    crop = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    wanted = naive_resize(pixels, (height, width))[top : top + crop[0], left : left + crop[1]]
    gray = c == 1 and seed % 2
    with used(variant):
        picture = kernels.resized(pixels[..., 0] if gray else pixels, (height, width), crop)
        assert picture.dtype == np.uint8
        assert picture.shape == (wanted[..., 0] if gray else wanted).shape
        assert np.array_equal(picture.reshape(wanted.shape), wanted)
        assert np.array_equal(
            wanted, kernels.bilinear(pixels, (height, width))[top : top + crop[0], left : left + crop[1]]
        )


@pytest.mark.parametrize("variant", EVERY)
@pytest.mark.parametrize("old", [1, 2, 3, 639, 640])
@pytest.mark.parametrize("new", [1, 2, 227, 256, 640, 1001])
def test_halves_of_pictures_as_large_as_photos(variant: str, old: int, new: int) -> None:
    """Each pair of neighbouring bytes in turn, at many shares; halves are rounded to even."""
    row = np.arange(old * 3, dtype=np.uint32) * 2654435761 >> 24
    pixels = np.stack([row, row[::-1], row * 0 + 255], 1).astype(np.uint8).reshape(3, old, 3)
    with used(variant):
        assert np.array_equal(kernels.resized(pixels, (2, new), (2, new)), kernels.bilinear(pixels, (2, new)))
        turned = np.ascontiguousarray(pixels.transpose(1, 0, 2))
        assert np.array_equal(kernels.resized(turned, (new, 3), (new, 3)), kernels.bilinear(turned, (new, 3)))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [1, 3])
def test_pieces_in_several_threads(variant: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a picture that is not contiguous, and with more columns than are determined together."""
    threads, ran, rng = several(monkeypatch, count), computed_in_c(monkeypatch), np.random.default_rng(1)
    pixels = rng.integers(0, 256, (3, 97, 61, 6), np.uint8)[..., ::2]
    codes = rng.integers(-128, 128, (3, 256)).astype(np.int8)
    with used(variant):
        assert np.array_equal(kernels.look_up(pixels, codes, True), naive_codes(pixels, codes, True))
        assert np.array_equal(
            kernels.resized(pixels[1], (71, 301), (67, 297)), naive_resize(pixels[1], (71, 301))[2:69, 2:299]
        )
    assert threads == [count, count]
    assert ran() == 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_part_beyond_the_picture_is_refused(variant: str) -> None:
    known = library.variant(variant)
    assert known is not None
    shape, target = (1, 3, 5, 7), (1, 3, 4, 6)
    Single(known, Form(Kind.RESIZE, window=Window((6, 9), (1, 1), (2, 3))), shape, target)
    for begin in ((3, 3), (2, 4)):
        with pytest.raises(DeviceError, match=r"resize .* would leave its memory"):
            Single(known, Form(Kind.RESIZE, window=Window((6, 9), (1, 1), begin)), shape, target)
    Single(known, Form(Kind.TABLE), shape, shape, (3 * 256,))
    with pytest.raises(DeviceError, match=r"table .* would leave its memory"):
        Single(known, Form(Kind.TABLE), shape, shape, (3 * 256 - 1,))
