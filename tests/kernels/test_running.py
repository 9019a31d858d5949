"""Running a table: it stays inside its memory, stops for signals, and serves several threads and processes."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai import overlay
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.kernels import device_blobs
from chai.kernels.native import library, order, program as programs
from chai.kernels.native.library import COMPLETE, RunArguments
from chai.kernels.native.program import NativeProgram
from chai.kernels.native.single import Single
from chai.kernels.native.table import FIELDS, Extent, Form, Kind, Operation, Table
from chai.overlay.layout import DeviceBlob, blob_bytes
from chai.overlay.sections import Layout
from chai.overlay.weights import ByteSource, Packed, pack_weights
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.tasks.unfold import Unfold
from chai.tasks.window import Window
from tests.conftest import HANG, examples

from .common import LIBRARY, NAMES, Calls, fork, program, used, with_calls

pytestmark = pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
Shape = tuple[int, int, int, int]
EDGE = 4096  # bytes on either side of a buffer, which nobody may write


def conv(inputs: int, outputs: int, size: int, group: int = 1) -> Conv:
    rng = np.random.default_rng(outputs)
    weights = rng.integers(-127, 128, (outputs, inputs // group, size, size)).astype(np.int8)
    r = Requantization(np.full((outputs, 1, 1), 300), 20, -128, 127)
    return Conv(
        ("x",), "y", ("c",), weights, np.zeros(outputs, np.int64), Window((size,) * 2, (1, 1), (1, 1)), group, r
    )


def tables() -> list[NativeProgram]:
    """A program of every kind of operation."""
    rng, x = np.random.default_rng(0), np.zeros((2, 6, 7, 18), np.int8)
    r = Requantization(np.array(5), 3, -128, 127)
    window = Window((3, 3), (2, 2), (1, 1))
    tasks = [
        (conv(6, 35, 3), (2, 35, 7, 18)),
        (conv(6, 6, 3, group=6), x.shape),
        (Pool(("x",), "y", ("p",), window, (4, 10), None), (2, 6, 4, 10)),
        (Pool(("x",), "y", ("p",), window, (4, 10), Requantization(np.ones((4, 10)), 3, -128, 127)), (2, 6, 4, 10)),
        (Eltwise(("x", "x"), "y", ("e",), (3, -4), None, Requantization(np.array(1), 3, -128, 127), (0, 0)), x.shape),
        (Copy(("x",), "y", ("r",), 0, r), x.shape),
        (Copy(("x",), "y", ("r",), 0, None), x.shape),
    ]
    array, weights = overlay.load().array, rng.integers(-127, 128, (30, 6, 7, 18)).astype(np.int8)
    packed = Packed(ByteSource(pack_weights(weights, 1, array)), 0, weights.shape, 1, array)
    many = Requantization(np.full((30, 1, 1), 300), 20, -128, 127)
    whole = Window((7, 18), (1, 1), (0, 0))
    tasks.append((Conv(("x",), "y", ("f",), packed, np.zeros(30, np.int64), whole, 1, many), (2, 30, 1, 1)))
    with used(NAMES[0]), pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "LARGE", 1)
        parts = [program([task], {"x": x}, {"y": shape}, None, ("y",)).parts[0] for task, shape in tasks]
        tiled = {"x": np.zeros((2, 25, 15, 16), np.int8)}
        parts.append(program([conv(25, 33, 3)], tiled, {"y": (2, 33, 15, 16)}, None, ("y",)).parts[0])
    assert all(isinstance(part, NativeProgram) for part in parts)
    return [part for part in parts if isinstance(part, NativeProgram)]


TABLES = tables() if LIBRARY.variants else []
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(FIELDS[1:]),
        st.one_of(st.integers(-3, 40), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**31, 2**24, 1 << 40])),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(150))
@given(
    table=st.integers(0, len(TABLES) - 1) if TABLES else st.nothing(),
    changes=CHANGES,
    row=st.integers(0, 3),
)
def test_a_table_that_passes_the_check_writes_inside_its_buffers_only(
    table: int, changes: list[tuple[str, int]], row: int
) -> None:
    """Whatever a field says: the check refuses it, or the run leaves the bytes around each buffer as they were."""
    native = TABLES[table]
    files = enumerate((file.mapped for file in native._files), len(native._extents()) - len(native._files))
    changed(native.table, native._extents(), {programs.CONSTANTS: native._packed(), **dict(files)}, changes, row)


SINGLES = [
    (Form(Kind.UNFOLD, window=Window((2, 7), (2, 2), (3, 3))), (2, 3, 9, 20), (2, 42, 8, 10), ()),
    (
        Form(Kind.PRODUCT, window=Window((3, 2), (2, 1), (1, 0)), group=3),
        (2, 6, 9, 20),
        (2, 15, 5, 19),
        (15 * 2 * 6 * 4, 60),
    ),
    (Form(Kind.LARGEST, window=Window((3, 2), (2, 1), (1, 1))), (2, 3, 9, 20), (2, 3, 5, 21), ()),
    (Form(Kind.TOTAL, window=Window((2, 5), (1, 2), (0, 2))), (2, 3, 9, 20), (2, 3, 8, 10), ()),
    (Form(Kind.PRODUCT, window=Window((5, 7), (1, 1), (0, 0))), (3, 2, 5, 7), (3, 9, 1, 1), (9 * 2 * 35 * 4, 36)),
    (Form(Kind.PACK, numbers=(0.37,)), (2, 3, 9, 20), (2, 3, 9, 20), (1,)),
    (Form(Kind.UNPACK, numbers=(0.37,)), (2, 3, 9, 20), (2, 3, 9, 20), ()),
    (Form(Kind.LRN, window=Window((5, 1), (1, 1), (0, 0)), numbers=(1e-4, 1.0)), (2, 7, 9, 20), (2, 7, 9, 20), ()),
    (Form(Kind.PRODUCT, window=Window((3, 2), (2, 1), (1, 0)), group=6), (2, 6, 9, 20), (2, 6, 5, 19), (144, 24)),
    (Form(Kind.SOFTMAX), (2, 7, 9, 20), (2, 7, 9, 20), ()),
    (Form(Kind.SOFTMAX), (5, 37, 1, 1), (5, 37, 1, 1), ()),
    (Form(Kind.PLUS, numbers=(2, 3), rectified=True), (2, 7, 9, 20), (2, 7, 9, 20), (2 * 7 * 9 * 20 * 4,)),
    (Form(Kind.TIMES), (3, 37, 1, 1), (3, 37, 1, 1), (3 * 37 * 4,)),
    (Form(Kind.GREATER), (2, 7, 9, 20), (2, 7, 9, 20), (2 * 7 * 9 * 20 * 4,)),
    (Form(Kind.SCALE), (2, 7, 9, 20), (2, 7, 9, 20), (7 * 4,)),
    (Form(Kind.SCALE, rectified=True), (5, 37, 1, 1), (5, 37, 1, 1), (37 * 4, 37 * 4)),
    (Form(Kind.NORMALISE, numbers=(1e-5,)), (2, 7, 9, 20), (2, 7, 9, 20), (7 * 4, 7 * 4, 4)),
    (Form(Kind.LEAKY), (2, 7, 9, 20), (2, 7, 9, 20), (7 * 4,)),
    (Form(Kind.TABLE), (2, 3, 9, 20), (2, 3, 9, 20), (3 * 256,)),
    (Form(Kind.TABLE, backwards=True), (2, 3, 9, 20), (2, 3, 9, 20), (3 * 256,)),
    (Form(Kind.RESIZE, window=Window((7, 33), (1, 1), (2, 3))), (1, 3, 9, 20), (1, 3, 4, 29), ()),
    (Form(Kind.RESIZE, window=Window((40, 11), (1, 1), (0, 1))), (2, 2, 9, 20), (2, 2, 39, 10), ()),
]


@pytest.mark.skipif(not NAMES, reason=LIBRARY.reason)
@pytest.mark.parametrize(("form", "source", "target", "parameters"), SINGLES)
@settings(max_examples=examples(100))
@given(changes=CHANGES)
def test_a_single_operation_that_passes_the_check_writes_inside_its_buffers_only(
    form: Form,
    source: tuple[int, ...],
    target: tuple[int, ...],
    parameters: tuple[int, ...],
    changes: list[tuple[str, int]],
) -> None:
    single = Single(LIBRARY.variants[0], form, source, target, parameters)
    arrays = {
        i: np.ones(size, np.uint8) if size < 4 else np.ones(size // 4, np.float32)
        for i, size in enumerate(parameters, 2)
    }
    changed(single._table, single._extents(), arrays, changes, 0)


WORDS = [
    (Kind.PACK_WORDS, (2, 11, 9, 20), (2, 11, 9, 20)),
    (Kind.UNPACK_WORDS, (2, 11, 9, 20), (2, 11, 9, 20)),
    (Kind.TO_WORDS, (2, 19, 1, 1), (2, 19, 1, 1)),
    (Kind.FROM_WORDS, (2, 19, 33, 61), (2, 19, 33, 61)),
    (Kind.UNFOLD_WORDS, (2, 3, 9, 20), (2, 42, 8, 10)),
]


@pytest.mark.parametrize("word", [8, 16])
@pytest.mark.parametrize(("kind", "source", "target"), WORDS)
@settings(max_examples=examples(100))
@given(changes=CHANGES)
def test_an_operation_on_words_that_passes_the_check_writes_inside_its_buffers_only(
    kind: int, source: Shape, target: Shape, word: int, changes: list[tuple[str, int]]
) -> None:
    layout, channels = Layout("planes", word, 1, 64), target[1] + 32
    memory = np.zeros(blob_bytes((target[0], channels, *target[2:]), layout), np.uint8)
    unfold = Unfold(Window((7, 7), (2, 2), (3, 3)), 2) if kind == Kind.UNFOLD_WORDS else device_blobs.PLAIN
    with used(NAMES[0]):
        words = device_blobs._words(kind, source, DeviceBlob(memory, layout, channels, target, 16), unfold=unfold)
    assert words is not None
    arrays = {2: np.ones(1, np.uint8)} if kind == Kind.PACK_WORDS else {}
    changed(words._table, words._extents(), arrays, changes, 0)


def test_taps_that_leave_64_bits_are_refused() -> None:
    """2^72 taps; and more than the scratch memory of a kernel holds."""
    layout = Layout("planes", 8, 1, 64)
    target = DeviceBlob(np.zeros(1 << 16, np.uint8), layout, 8, (1, 8, 1, 1))
    with used(NAMES[0]):
        words = device_blobs._words(Kind.UNFOLD_WORDS, (1, 8, 1, 1), target)
    assert words is not None
    operation = words._table[0]
    for sizes, result in (((1 << 24,) * 3, 0), ((8, 1 << 12, 1 << 9), 0), ((8, 1, 1), -1)):
        operation.channels, operation.kernel_h, operation.kernel_w = sizes
        operation.outputs = min(1 << 24, sizes[0] * sizes[1] * sizes[2])
        extents = (Extent * 2)(Extent(1 << 40, 0), Extent(1 << 40, 1 << 40))
        for variant in LIBRARY.variants:
            assert variant.check(words._table, extents) == result


def changed(
    table: Table,
    sizes: ctypes.Array[Extent],
    contents: Mapping[int, np.ndarray],
    changes: Sequence[tuple[str, int]],
    row: int,
    by: library.Library | None = None,
) -> None:
    """Change fields of one row, and run the table if it passes the check."""
    by = by or LIBRARY.variants[0]
    operations = (Operation * len(table))()
    ctypes.memmove(operations, table, ctypes.sizeof(operations))
    for name, value in changes:
        setattr(operations[row % len(operations)], name, value)
    operations[row % len(operations)].task = 0
    if by.check(operations, sizes) >= 0:
        return
    if sum(o.images * o.out_height * o.out_width * max(o.channels, o.outputs) for o in operations) > 1 << 22:
        return  # allowed, and would take long
    lent = [np.full(size.size + 2 * EDGE, 0x5A, np.uint8) for size in sizes]
    for i, content in contents.items():
        lent[i][EDGE:-EDGE] = content.view(np.uint8)
    by.run(operations, RunArguments(operations, 1, [memory[EDGE:-EDGE] for memory in lent]))
    for memory in lent:
        assert (memory[:EDGE] == 0x5A).all()
        assert (memory[len(memory) - EDGE :] == 0x5A).all()
    for i, content in contents.items():
        assert np.array_equal(lent[i][EDGE:-EDGE], content.view(np.uint8))


@pytest.mark.parametrize("variant", NAMES)
def test_copies_at_the_end_of_a_batch_are_computed_once(variant: str) -> None:
    """As a batch of 2 images is filled up to 5; their number does not change the order of packed weights."""
    rng = np.random.default_rng(0)
    first, second = conv(25, 33, 3), conv(33, 7, 3)
    second = replace(second, inputs=("y",), output="z")
    blobs = {"x": rng.integers(-128, 128, (5, 25, 16, 15)).astype(np.int8)}
    shapes = {"y": (5, 33, 16, 15), "z": (5, 7, 16, 15)}
    with used(variant):
        task_program = program([first, second], blobs, shapes, None, ("y", "z"))
        (native,) = task_program.parts
        assert isinstance(native, NativeProgram)
        for images in (5, 2, 1, 5):
            x = blobs["x"].copy()
            x[images:] = x[images - 1]
            memory = {"x": x}
            task_program.run(memory)
            y = first.define(x)
            assert np.array_equal(memory["y"], y)
            assert np.array_equal(memory["z"], second.define(y))
        assert {*native._partial} == {1, 2}


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("different", [6, 5, 4, 1])
def test_images_of_large_blobs_run_some_after_others(
    variant: str, different: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All runs but the last have as many, in less memory; copies at the end are computed once."""
    rng = np.random.default_rng(0)
    first, second = conv(25, 33, 3), conv(33, 7, 3)
    second = replace(second, inputs=("y",), output="z")
    x = rng.integers(-128, 128, (6, 25, 16, 15)).astype(np.int8)
    x[different:] = x[different - 1]
    shapes, sizes = {"y": (6, 33, 16, 15), "z": (6, 7, 16, 15)}, []
    for most, together in ((4, 3), (2, 2)):
        monkeypatch.setattr(programs, "CACHED", (most + 1) * 33 * 16 * 15 - 1)
        ran: list[int] = []
        with used(variant):
            task_program = program([first, second], {"x": x}, shapes, None, ("y", "z"))
            (native,) = task_program.parts
            assert isinstance(native, NativeProgram)
            native._library = with_calls(native._library, Calls(native._library.calls, ran.append))
            memory = {"x": x}
            times = task_program.run(memory).tasks
        assert times is not None
        assert len(times) == 2
        assert ran.count(COMPLETE) == -(-different // together)
        y = first.define(x)
        assert np.array_equal(memory["y"], y)
        assert np.array_equal(memory["z"], second.define(y))
        sizes.append(native.size)
    assert sizes[1] < 0.7 * sizes[0]


@pytest.mark.parametrize(
    ("batch", "blobs", "weights", "images"),
    [
        (64, [150_528, 802_816, 200_704], 1_200_000, 5),  # as of SqueezeNet: 5 have 4 MB
        (8, [150_528, 802_816, 200_704], 1_200_000, 4),
        (10, [150_528, 802_816, 200_704], 1_200_000, 5),
        (7, [150_528, 802_816, 200_704], 1_200_000, 4),
        (64, [3072, 16_384, 16_384], 270_000, 64),  # as of ResNet-20
        (
            8,
            [150_528, 3_211_264, 3_211_264, 8_000_000],
            138_000_000,
            8,
        ),  # as of VGG-16: weights have as much as 9 images
        (64, [10 << 20], 1, 1),
    ],
)
def test_how_many_images_run_together(batch: int, blobs: list[int], weights: int, images: int) -> None:
    assert programs._together(batch, blobs, weights) == images


def test_a_table_that_would_leave_its_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "share", lambda lives, _: (dict.fromkeys(lives, 0), 64))  # less than the blobs take
    x = np.zeros((1, 6, 7, 18), np.int8)
    with (
        used(NAMES[0]),
        pytest.raises(DeviceError, match=r"operation \d+, (load|border) from .*, would leave its memory"),
    ):
        program([conv(6, 35, 3)], {"x": x}, {"y": (1, 35, 7, 18)}, None, ("y",))


@pytest.mark.parametrize("width", [1 << 15, 1 << 16, 1 << 24])
def test_pixels_whose_number_leaves_64_bits_are_refused(width: int) -> None:
    """2^63, 2^64 and 2^72 pixels, all in one place of the memory."""
    native = TABLES[0]
    kinds = [operation.kind for operation in native.table]
    operation = Operation.from_buffer_copy(native.table[kinds.index(Kind.CONVOLUTION)])
    values = {"images": 1 << 24, "out_height": 1 << 24, "out_width": width, "after": 0}
    values |= dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w"), 1) | dict.fromkeys(("pad_h", "pad_w"), 0)
    values |= {f"{place}_{name}": 0 for place in ("input", "output") for name in ("offset", "image", "row", "pixel")}
    calls, buffers = native._library.calls, native._extents()
    for changes, wanted in ((values, 0), ({"images": 1, "out_height": 1, "out_width": 1}, -1)):
        for name, value in changes.items():
            setattr(operation, name, value)
        for variant in LIBRARY.variants:
            arguments = ctypes.byref(operation), ctypes.c_int64(1), buffers, ctypes.c_int64(len(buffers))
            assert calls.chai_check(variant.number, *arguments) == wanted


def test_weights_whose_size_leaves_64_bits_are_refused() -> None:
    """2^24 outputs of 2^40 weights each: their size would be 0."""
    native = TABLES[0]
    kinds = [operation.kind for operation in native.table]
    operation = Operation.from_buffer_copy(native.table[kinds.index(Kind.CONVOLUTION)])
    place = {"offset": 0, "image": 0, "row": 0, "pixel": 1 << 24}
    sizes = {"images": 1, "channels": 1 << 24, "outputs": 1 << 24, "out_height": 1, "out_width": 1}
    window = {"kernel_h": 1 << 10, "kernel_w": 1 << 6, "pad_h": 0, "pad_w": 0}
    tables = dict.fromkeys(("weights", "bias", "scale"), 0)
    for name, value in (sizes | window | tables | {"negative": -1, "after": 0}).items():
        setattr(operation, name, value)
    for name, value in place.items():
        setattr(operation, f"input_{name}", value)
        setattr(operation, f"output_{name}", value)
    extents = (Extent * 2)(Extent(1 << 31, 1 << 31), Extent(1 << 31, 0))
    calls, count = native._library.calls, ctypes.c_int64(1)
    for variant in LIBRARY.variants:
        assert calls.chai_check(variant.number, ctypes.byref(operation), count, extents, ctypes.c_int64(2)) == 0
    operation.kernel_h = operation.kernel_w = operation.channels = 1  # all else is in order
    for variant in LIBRARY.variants:
        assert calls.chai_check(variant.number, ctypes.byref(operation), count, extents, ctypes.c_int64(2)) == -1


@pytest.mark.skipif(not NAMES, reason=LIBRARY.reason)
def test_a_window_whose_codes_leave_64_bits_is_refused() -> None:
    """2^72 codes in one place of the memory."""
    single = Single(LIBRARY.variants[0], Form(Kind.UNFOLD), (1, 1, 1, 1), (1, 1, 1, 1))
    operation = single._table[0]
    operation.kind = Kind.MAXIMUM
    for name in ("input_row", "input_pixel", "output_row", "output_pixel"):
        setattr(operation, name, 0)
    for size, wanted in ((1 << 24, 0), (1, -1)):
        for name in ("channels", "outputs", "height", "width", "kernel_h", "kernel_w"):
            setattr(operation, name, size)
        extents = (Extent * 2)(Extent(1 << 24, 0), Extent(1 << 24, 1 << 24))
        for variant in LIBRARY.variants:
            assert variant.check(single._table, extents) == wanted


def test_a_blob_of_another_size_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"blob 'x': expected int8 \(2, 6, 7, 18\), found int8 \(1, 6, 7, 18\)"):
        TABLES[0].run({"x": np.zeros((1, 6, 7, 18), np.int8)})


def test_control_c_ends_a_long_segment() -> None:
    """A run comes back now and then, so that Python sees the signal, long before its many seconds are over."""
    returned: list[int] = []

    def after(done: int) -> None:
        returned.append(done)
        os.kill(os.getpid(), signal.SIGINT)

    x = np.random.default_rng(0).integers(
        -128, 128, (40, 256, 40, 40), np.int8
    )  # copies of an image would be computed once
    with used("plain"):  # the slowest
        task_program = program([conv(256, 256, 3)], {"x": x}, {"y": x.shape}, None, ("y",))
        (part,) = task_program.parts
        assert isinstance(part, NativeProgram)
        part._library = with_calls(part._library, Calls(part._library.calls, after))
        with pytest.raises(KeyboardInterrupt):
            task_program.run({"x": x})
    assert returned == [0]  # once, and not at its end


def test_several_threads_share_a_program() -> None:
    """Each run has memory of its own."""
    rng = np.random.default_rng(0)
    task = conv(24, 40, 3)
    images = [rng.integers(-128, 128, (1, 24, 15, 17)).astype(np.int8) for _ in range(4)]
    with used(NAMES[0]):
        task_program = program([task], {"x": images[0]}, {"y": (1, 40, 15, 17)}, None, ("y",))
    wrong: list[int] = []

    def work(i: int) -> None:
        wanted = task.define(images[i])
        for _ in range(20):
            blobs = {"x": images[i]}
            task_program.run(blobs)
            if not np.array_equal(blobs["y"], wanted):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(images))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_goes_on() -> None:
    x = np.random.default_rng(0).integers(-128, 128, (2, 6, 7, 18)).astype(np.int8)
    with used(NAMES[0]):
        task_program = program([conv(6, 35, 3)], {"x": x}, {"y": (2, 35, 7, 18)}, None, ("y",))
    blobs = {"x": x}
    task_program.run(blobs)
    child = fork()
    if not child:
        again = {"x": x}
        try:
            task_program.run(again)
            os._exit(not np.array_equal(again["y"], blobs["y"]))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert library.variant(NAMES[0]) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_forked_in_the_middle_of_a_run_goes_on() -> None:
    """A run of one thread has no workers, but another thread may have the lock that each operation takes."""
    single = Single(LIBRARY.variants[0], Form(Kind.UNFOLD), (1, 1, 1, 1), (1, 1, 1, 1))
    table = (Operation * 200)(*[single._table[0]] * 200)
    x, runs, end = np.ones((1, 1, 1, 1), np.int8), threading.Barrier(4), threading.Event()
    assert single._library.check(table, single._extents()) == -1

    def work() -> None:
        out = np.empty_like(x)
        runs.wait(HANG)
        while not end.is_set():
            single._library.run(table, RunArguments(table, 1, (x, out)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    runs.wait(HANG)
    exits = []
    for _ in range(10):
        child = fork()
        if not child:
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(HANG)
                os._exit(not np.array_equal(single.run(x), x))
            finally:
                os._exit(2)
        exits.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    end.set()
    for thread in threads:
        thread.join(HANG)
    assert exits == [0] * 10


@pytest.mark.parametrize("variant", ["sgemm", *NAMES])
@pytest.mark.parametrize("deep", [False, True], ids=["whole", "depthwise"])
def test_sums_beyond_24_bits_are_exact_whatever_runs_them(variant: str, deep: bool) -> None:
    """Only weights that were never trained reach them. Odd ones of that size are no float32."""
    kernel, inputs, width = (33, 1, 33) if deep else (1, 1111, 5)
    x = np.full((1, 3 if deep else inputs, kernel, width), 127, np.int8)
    x[0, slice(None) if deep else 0, 0, 0 if deep else slice(None)] = np.arange(3 if deep else 5)
    weights = np.full((3, inputs, kernel, kernel), 127, np.int8)
    weights[:, 0, 0, 0] = 1  # so sums differ by 1
    full = 127 * 127 * (weights[0].size - 1)
    r = Requantization(np.ones((3, 1, 1), np.int64), 0, -128, 127)
    window, bias = Window((kernel, kernel), (1, 1), (0, 0)), np.full(3, -full, np.int64)
    task = Conv(("x",), "y", ("c",), weights, bias, window, 3 if deep else 1, r)
    wanted = task.define(x)
    with used(variant):
        task_program = program([task], {"x": x}, {"y": wanted.shape}, None, ("y",))
    blobs = {"x": x}
    task_program.run(blobs)
    assert full > 1 << 24
    assert sorted({*wanted.flat}) == list(range(3 if deep else 5))
    assert np.array_equal(blobs["y"], wanted)
