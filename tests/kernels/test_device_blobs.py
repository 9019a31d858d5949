"""Conversions into and out of a device's memory by every variant of the kernels in C, against their definitions in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai.errors import DeviceError, ModelError
from chai.fixed import Format
from chai.kernels import device_blobs
from chai.kernels.codes import _unfolded_in_numpy
from chai.kernels.native.build import machine
from chai.kernels.native.library import NONE
from chai.kernels.native.single import Prepared
from chai.overlay.layout import DeviceBlob, blob_bytes
from chai.overlay.sections import Layout
from chai.tasks.unfold import Unfold
from chai.tasks.window import Window
from tests.conftest import examples
from tests.tasks.common import codes

from .common import NAMES, VARIANTS, nearest, products, several, used

NUMPY = [] if machine() == "armv7l" else [NONE]  # whose own division is approximate there
FORMATS = [
    Format("DynamicFixed", 8, 2),
    Format("Xilinx", 8, 100.0),
    Format("Xilinx", 8, 47.0, True),
    Format("Xilinx", 6, 31.7),
    Format("DynamicFixed", 6, -1, True),
    Format("Xilinx", 8, 1e-38),
    Format("Xilinx", 8, 0.0),
]
WORDS = st.sampled_from([8, 16, 8, 16, 1, 3, 12, 24, 40])
LAYOUTS = st.builds(Layout, st.just("planes"), WORDS, st.just(1), st.sampled_from([1, 64, 256]))
SIDES = st.one_of(st.integers(1, 9), st.integers(1, 40))
SEEDS = st.integers(0, 2**32 - 1)
Shape = tuple[int, int, int, int]


def blob(rng: np.random.Generator, shape: Shape, layout: Layout, before: int = 0, after: int = 0) -> DeviceBlob:
    """A part of a blob in memory that is not 0: planes of words ``before`` it, and channels ``after`` it."""
    n, c, h, w = shape
    first = before * layout.channels_per_word
    channels = first + c + after
    memory = rng.integers(0, 256, blob_bytes((n, channels, h, w), layout) + 70, np.uint8)
    return DeviceBlob(memory, layout, channels, shape, first)


def copied(source: DeviceBlob) -> DeviceBlob:
    return DeviceBlob(source.memory.copy(), source.layout, source.channels, source.shape, source.first)


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many operations the library has run since the last call."""
    calls: list[object] = []
    write = Prepared.write

    def counted(self: Prepared, *arrays: np.ndarray) -> None:
        calls.append(self)
        write(self, *arrays)

    def since() -> int:
        count = len(calls)
        calls.clear()
        return count

    monkeypatch.setattr(Prepared, "write", counted)
    return since


def same_as_defined(shape: Shape, layout: Layout, format: Format, around: tuple[int, int], seed: int) -> None:
    """Compare all bytes of the memory, also those between images and beyond the blob."""
    rng = np.random.default_rng(seed)
    x, step = (rng.normal(0, 70, shape) * (format.step or 1)).astype(np.float32), float(np.float32(format.step))
    target = blob(rng, shape, layout, *around)
    expected = copied(target)
    device_blobs.pack_into(x, format, target)
    clamp = (*format.packed, format.zero)
    expected.store((nearest(x, step, clamp) if step else np.full(shape, format.zero)).astype(np.int8))
    assert np.array_equal(target.memory, expected.memory)

    every = codes(rng, *shape)
    device_blobs.store(every, target)
    expected.store(every)
    assert np.array_equal(target.memory, expected.memory)

    out = np.empty(shape, np.int8)
    device_blobs.fetch(target, out)
    assert np.array_equal(out, every)
    values, defined = device_blobs.unpack_from(target, format), products(every, step, format.zero)
    assert np.array_equal(values.view(np.uint32), defined.view(np.uint32))
    assert np.array_equal(target.memory, expected.memory)


@pytest.mark.parametrize("variant", [*NAMES, *NUMPY])
@settings(max_examples=examples(100))
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 70), SIDES, SIDES),
    layout=LAYOUTS,
    format=st.sampled_from(FORMATS),
    around=st.tuples(st.integers(0, 2), st.integers(0, 20)),
    seed=SEEDS,
)
def test_words_are_as_defined(
    variant: str, shape: Shape, layout: Layout, format: Format, around: tuple[int, int], seed: int
) -> None:
    with used(variant):
        same_as_defined(shape, layout, format, around, seed)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=10_000)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 70), SIDES, SIDES),
    layout=LAYOUTS,
    format=st.sampled_from(FORMATS),
    around=st.tuples(st.integers(0, 2), st.integers(0, 20)),
    seed=SEEDS,
)
def test_many_words_are_as_defined(
    variant: str, shape: Shape, layout: Layout, format: Format, around: tuple[int, int], seed: int
) -> None:
    with used(variant):
        same_as_defined(shape, layout, format, around, seed)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(2, 3, 224, 227), (1, 83, 33, 61), (2, 1030, 1, 1), (3, 17, 1, 2)])
@pytest.mark.parametrize("word", [8, 16])
def test_large_blobs_in_pieces_and_threads(
    variant: str, shape: Shape, word: int, monkeypatch: pytest.MonkeyPatch, operations: Callable[[], int]
) -> None:
    """Planes that are cut, several planes of a piece, and one pixel of each: all in one call of C."""
    rng, format, threads = np.random.default_rng(0), Format("DynamicFixed", 8, 2), several(monkeypatch, 3)
    with used(variant):
        target = blob(rng, shape, Layout("planes", word, 1, 64), 1, 1)
        expected, x = copied(target), rng.normal(0, 12, shape).astype(np.float32)
        device_blobs.pack_into(x, format, target)
        expected.store(format.quantize(x))
        assert np.array_equal(target.memory, expected.memory)
        values = device_blobs.unpack_from(target, format)
        assert np.array_equal(values, format.dequantize(format.quantize(x)))
        out = np.empty(shape, np.int8)
        device_blobs.fetch(target, out)
        device_blobs.store(out, target)
        assert np.array_equal(target.memory, expected.memory)
    assert operations() == 4
    assert threads == [3] * 4


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("place", [0, 8 * 35, -1])
def test_nan_is_refused(variant: str, place: int) -> None:
    """In any piece; a later call writes the target whole."""
    rng, format, shape = np.random.default_rng(0), Format("DynamicFixed", 8, 2), (2, 19, 40, 30)
    with used(variant):
        target = blob(rng, shape, Layout("planes", 8, 1, 64))
        expected, x = copied(target), np.ones(shape, np.float32)
        x.flat[place] = np.nan
        with pytest.raises(ModelError, match="NaN"):
            device_blobs.pack_into(x, format, target)
        x.flat[place] = 1
        device_blobs.pack_into(x, format, target)
        expected.store(format.quantize(x))
        assert np.array_equal(target.memory, expected.memory)


@pytest.mark.parametrize("variant", VARIANTS)
def test_codes_that_are_not_contiguous_are_moved_by_one_operation(variant: str, operations: Callable[[], int]) -> None:
    """Those of parts of a Concat, whose images are, and of other arrays."""
    rng, shape = np.random.default_rng(0), (3, 11, 5, 7)
    with used(variant):
        concat = codes(rng, 3, 30, 5, 7)
        target = blob(rng, shape, Layout("planes", 16, 1, 256), 1, 30)
        for part in (concat[:, 5:16], concat.transpose(0, 1, 3, 2)[:, :11].reshape(3, 11, 5, 7)):
            expected, out = copied(target), np.zeros_like(concat)
            device_blobs.store(part, target)
            expected.store(part)
            assert np.array_equal(target.memory, expected.memory)
            assert operations() == 1
            device_blobs.fetch(target, out[:, 5:16])
            assert np.array_equal(out[:, 5:16], part)
            assert not out[:, :5].any() and not out[:, 16:].any()
            assert operations() == 1
        apart = np.zeros((3, 11, 5, 14), np.int8)[..., ::2]
        device_blobs.fetch(target, apart)
        device_blobs.store(apart, target)
        assert np.array_equal(apart, part)
        assert np.array_equal(target.memory, expected.memory)
        assert operations() == 2
        x = np.asfortranarray(rng.normal(0, 9, shape).astype(np.float32))
        device_blobs.pack_into(x, FORMATS[0], target)
        expected.store(FORMATS[0].quantize(x))
        assert np.array_equal(target.memory, expected.memory)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_blob_of_another_shape_or_in_too_small_memory_is_refused(variant: str) -> None:
    shape, format = (2, 9, 5, 7), FORMATS[0]
    x, q = np.zeros(shape, np.float32), np.zeros(shape, np.int8)
    layout = Layout("planes", 8, 1, 64)
    size = blob_bytes(shape, layout)
    with used(variant):
        for memory, codes_shape in (
            (np.zeros(size - 1, np.uint8), shape),
            (np.zeros(2 * size, np.uint8)[::2], shape),
            (np.zeros(2 * size, np.uint8), (2, 9, 7, 5)),
        ):
            target = DeviceBlob(memory, layout, 9, codes_shape)
            calls: list[Callable[[], object]] = [
                lambda target=target: device_blobs.pack_into(x, format, target),
                lambda target=target: device_blobs.store(q, target),
                lambda target=target: device_blobs.fetch(target, q),
            ]
            if codes_shape == shape:
                calls.append(lambda target=target: device_blobs.unpack_from(target, format))
            for call in calls:
                with pytest.raises(DeviceError, match="for a blob"):
                    call()
            assert not memory.any()


# -- unfolding


WINDOWS = st.builds(
    Window,
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([(1, 1), (2, 2), (2, 2), (3, 1), (4, 4), (1, 5)]),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.just((1, 1)),
)


def unfolded_as_defined(shape: Shape, window: Window, layout: Layout, zero: int, seed: int) -> None:
    """The image is as large as the kernel at least, and the padding narrower than it."""
    rng = np.random.default_rng(seed)
    pad = tuple(min(window.pad[i], window.kernel[i] - 1) for i in range(2))
    window = window._replace(pad=(pad[0], pad[1]))
    every = codes(rng, *shape[:2], *(max(shape[2 + i], window.kernel[i]) for i in range(2)))
    for rows in Unfold.choices(window):
        unfold = Unfold(window, rows)
        n, c, h, w = unfold.shape(every.shape)
        target = blob(rng, (n, c, h, w), layout, 1, 3)
        expected = copied(target)
        device_blobs.unfold_into(every, unfold, zero, target)
        expected.store(_unfolded_in_numpy(every, unfold, zero))
        assert np.array_equal(target.memory, expected.memory)


@pytest.mark.parametrize("variant", [*NAMES, NONE])
@settings(max_examples=examples(100))
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 30), st.integers(1, 90)),
    window=WINDOWS,
    layout=LAYOUTS,
    zero=st.sampled_from([0, -128, 5]),
    seed=SEEDS,
)
def test_unfolded_words_are_as_defined(
    variant: str, shape: Shape, window: Window, layout: Layout, zero: int, seed: int
) -> None:
    with used(variant):
        unfolded_as_defined(shape, window, layout, zero, seed)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=10_000)
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 30), st.integers(1, 90)),
    window=WINDOWS,
    layout=LAYOUTS,
    zero=st.sampled_from([0, -128, 5]),
    seed=SEEDS,
)
def test_many_unfolded_words_are_as_defined(
    variant: str, shape: Shape, window: Window, layout: Layout, zero: int, seed: int
) -> None:
    with used(variant):
        unfolded_as_defined(shape, window, layout, zero, seed)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("shape", "window", "calls"),
    [
        ((2, 3, 37, 1600), Window((7, 7), (2, 2), (3, 3)), 1),  # columns in parts
        ((1, 3, 227, 227), Window((11, 11), (4, 4), (0, 0)), 1),  # rows in bands
        ((1, 1, 40, 90), Window((3, 3), (1, 1), (1, 1)), 1),  # a word of the taps of several rows
        ((1, 200, 9, 31), Window((9, 9), (1, 1), (4, 4)), 2),  # too many taps: two operations, and a copy between them
    ],
)
def test_large_windows_in_bands_and_parts(
    variant: str,
    shape: Shape,
    window: Window,
    calls: int,
    monkeypatch: pytest.MonkeyPatch,
    operations: Callable[[], int],
) -> None:
    several(monkeypatch, 3)
    rng, unfold = np.random.default_rng(0), Unfold(window, window.kernel[0])
    with used(variant):
        every = codes(rng, *shape)
        n, c, h, w = unfold.shape(shape)
        target = blob(rng, (n, c, h, w), Layout("planes", 8, 1, 64))
        expected = copied(target)
        device_blobs.unfold_into(every, unfold, -3, target)
        assert operations() == calls
        expected.store(_unfolded_in_numpy(every, unfold, -3))
        assert np.array_equal(target.memory, expected.memory)
