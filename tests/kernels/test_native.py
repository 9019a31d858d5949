"""Every variant of the kernels in C against the Tasks' definitions, at sizes around its vectors, blocks and tiles."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai import overlay
from chai.blob import View
from chai.fixed import Requantization
from chai.kernels.native import library, program as programs, table
from chai.kernels.native.build import FOLDER
from chai.kernels.native.program import NativeProgram
from chai.overlay.weights import ByteSource, Packed, pack_weights
from chai.tasks import Task
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.lrn import FACTOR_BITS, SEGMENTS, LRNTask
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from tests.conftest import examples
from tests.tasks.common import clamps, codes, covering, factors

from .common import LIBRARY, VARIANTS, program, used

EXAMPLES = settings(max_examples=examples(25))
POINT = Window((1, 1), (1, 1), (0, 0))


def requantization(
    rng: np.random.Generator, shape: tuple[int, ...], shift: int, zero: int, leaky: bool
) -> Requantization:
    low, high = clamps(rng, zero)
    negative = factors(rng, shape, shift, int(rng.integers(-1, 1))) if leaky else None
    return Requantization(factors(rng, shape, shift), shift, low, high, negative, zero)


# -- the table


@pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)
def test_python_and_c_agree_on_the_table() -> None:
    assert LIBRARY.variants[0].calls.chai_fields().decode().split() == [*table.FIELDS]
    known = {name: kind for name, kind in vars(table.Kind).items() if name.isupper()}
    header = Path(FOLDER, "chai.h").read_text()
    kinds = re.search(r"enum kind \{(.*?)\};", header, re.S)
    assert kinds is not None
    assert re.findall(r"^ +([A-Z_]+)\b", kinds[1], re.M) == [*known]
    assert [*known.values()] == [*range(1, len(known) + 1)]
    assert [table.Kind.name(kind).upper() for kind in known.values()] == [*known]
    for name in ("STORED_ZERO", "SPARE", "MAX_BLOCK_OUTPUTS"):
        assert f"enum {{ {name} = {getattr(table, name)} }}" in header


# -- moving codes


@pytest.mark.parametrize("variant", VARIANTS)
def test_pictures_are_loaded_in_whole_vectors(variant: str) -> None:
    """Channels of three, of fewer and of more; rows around a vector of 16 and around those that are loaded together."""
    rng = np.random.default_rng(0)
    widths = (1, 15, 16, 17, 31, 33, 227, 600)
    with used(variant):
        for channels, height, width in [(3, h, w) for h in (1, 3) for w in widths] + [
            (2, 3, 35),
            (4, 3, 35),
            (1, 2, 16),
        ]:
            x = codes(rng, 2, channels, height, width)
            for window, out in ((POINT, x.shape), (Window((3, 3), (1, 1), (1, 1)), x.shape)):
                task = Pool(("x",), "y", ("p",), window, (height, width), None)
                blobs = {"x": x}
                program([task], blobs, {"y": out}, None, ("y",)).run(blobs)
                assert np.array_equal(blobs["y"], task.define(x))


# -- convolutions


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    group=st.sampled_from([1, 1, 1, 2, 3]),
    inputs=st.integers(1, 21),
    outputs=st.integers(1, 75),
    kernel=st.sampled_from([(1, 1), (1, 1), (3, 3), (2, 3), (5, 1)]),
    stride=st.sampled_from([(1, 1), (2, 1), (2, 3)]),
    pad=st.sampled_from([(0, 0), (1, 1), (0, 2), (3, 0)]),
    dilation=st.sampled_from([(1, 1), (1, 1), (2, 3)]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 19)),
    batch=st.integers(1, 2),
    shift=st.integers(0, 40),
    zeros=st.tuples(st.sampled_from([0, -128]), st.sampled_from([0, -128])),
    leaky=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_convolution(
    variant: str,
    group: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    batch: int,
    shift: int,
    zeros: tuple[int, int],
    leaky: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    window = Window(kernel, stride, pad, dilation)
    h, w = covering(window, size)
    m = group * outputs
    r = requantization(rng, (m, 1, 1), shift, zeros[1], leaky)
    weights = codes(rng, m, inputs, *kernel, low=-127)
    task = Conv(("x",), "y", ("c",), weights, rng.integers(-(1 << 16), 1 << 16, m), window, group, r, zeros[0])
    x = codes(rng, batch, group * inputs, h, w)
    same(variant, task, x)


def same(variant: str, task: Task, *inputs: np.ndarray) -> None:
    """Run a Task alone, and compare it with its definition."""
    blobs = dict(zip(task.inputs, inputs))
    wanted = task.define(*inputs)
    with used(variant):
        task_program = program([task], blobs, {"y": wanted.shape})
        assert [type(part) for part in task_program.parts] == [NativeProgram]
        for _ in range(2):  # the second run finds the first one's memory
            memory = dict(blobs)
            task_program.run(memory)
            assert np.array_equal(memory["y"], wanted)


def in_tiles(variant: str, channels: int, outputs: int, size: tuple[int, int], group: int = 1) -> bool:
    """Whether a 3 x 3 convolution of two images is computed from tiles: its packed weights are larger then."""
    functions = library.variant(variant)
    assert functions is not None
    form = table.Form(table.Kind.CONVOLUTION, window=Window((3, 3), (1, 1), (1, 1)), group=group)
    place = 0, 0, 0, 0, 0, group * channels
    operation = form.operation((2, group * channels, *size), (2, group * outputs, *size), [place], place)
    return bool(
        functions.calls.chai_packed(functions.number, ctypes.byref(operation))
        > 3 * group * (outputs + 16) * (channels + 4) * 9
    )


TILED = ("avx512vnni", "avxvnni", "avx2")


@pytest.mark.parametrize("variant", VARIANTS)
@settings(EXAMPLES, max_examples=examples(6))
@given(
    group=st.sampled_from([1, 2]),
    inputs=st.sampled_from([24, 25, 33, 64, 66]),
    outputs=st.sampled_from([32, 33, 57, 100]),
    pad=st.sampled_from([(1, 1), (0, 2)]),
    size=st.sampled_from([(15, 20), (16, 16), (23, 18), (14, 31)]),
    shift=st.integers(12, 30),
    zeros=st.tuples(st.sampled_from([0, -128]), st.sampled_from([0, -128])),
    leaky=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_tiles_of_3x3(
    variant: str,
    group: int,
    inputs: int,
    outputs: int,
    pad: tuple[int, int],
    size: tuple[int, int],
    shift: int,
    zeros: tuple[int, int],
    leaky: bool,
    seed: int,
) -> None:
    """Sizes of the output that leave a part of the last tiles, and channels that leave a part of a vector."""
    assert in_tiles(variant, inputs, outputs, size, group) == (variant in TILED)
    rng = np.random.default_rng(seed)
    m, (h, w) = group * outputs, (size[i] + 2 - 2 * pad[i] for i in range(2))
    r = requantization(rng, (m, 1, 1), shift, zeros[1], leaky)
    weights = codes(rng, m, inputs, 3, 3, low=-127)
    window = Window((3, 3), (1, 1), pad)
    task = Conv(("x",), "y", ("c",), weights, rng.integers(-(1 << 16), 1 << 16, m), window, group, r, zeros[0])
    same(variant, task, codes(rng, 2, group * inputs, h, w))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("code", [-128, 127])
def test_the_largest_sums_of_tiles(variant: str, code: int) -> None:
    """Numbers of 16 bits at their limit, and sums of nearly 2^25, of which products modulo 2^32 leave 26 bits."""
    channels, outputs, size = 227, 32, (15, 20)
    assert in_tiles(variant, channels, outputs, size) == (variant in TILED)
    assert not in_tiles(variant, channels + 1, outputs, size)
    weights = np.full((outputs, channels, 3, 3), -127, np.int8)
    weights[1::3], weights[2::3, :, ::2, 1::2] = 127, 127
    x = np.full((2, channels, *size), code, np.int8)
    x[1, :, 3::2, ::2] = -1 - code
    r = Requantization(np.full((outputs, 1, 1), 1), 18, -128, 127)
    same(variant, Conv(("x",), "y", ("c",), weights, np.arange(outputs), Window((3, 3), (1, 1), (1, 1)), 1, r), x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("zero", [0, -128])
def test_all_saturating_codes(variant: str, sign: int, zero: int) -> None:
    """Pairs of products at their limit, in vectors of 16 bits as well; and sums of 2^24 - 1."""
    weights = np.full((33, 1033, 1, 1), 127 * sign, np.int8)
    weights[:, -1] = 7 * sign
    bias = np.full(33, -127 * sign - zero * int(weights[0].sum()))
    for code in (-128, 127, 0):
        x = np.full((1, 1033, 3, 5), code, np.int8)
        for m, shift in (((1 << 17) - 1, 34), (1, 17), (3, 0), (0, 7)):
            r = Requantization(np.full((33, 1, 1), m), shift, -128, 127, None, 0)
            same(variant, Conv(("x",), "y", ("c",), weights, bias, POINT, 1, r, zero), x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("zero", [0, -128])
@pytest.mark.parametrize("shift", [33, 36])
def test_sums_beside_a_half(variant: str, shift: int, zero: int) -> None:
    """Sums of nearly 24 bits, times 17 bits, which float32 rounds to a half if it rounds to the nearest number.

    With a shift of 36 the sums have 27 bits, which float32 does not hold.
    """
    rng = np.random.default_rng(0)
    m = rng.integers(1 << 16, 1 << 17, 203)
    halves = rng.integers(40, 120, 203) + 0.5
    bias = np.rint(halves * 2.0**shift / m).astype(np.int64) * (1 if zero else rng.choice([-1, 1], 203))
    assert (np.abs(bias) < (1 << shift - 9) - 256).all()
    assert (np.abs(np.abs(bias) * m / 2.0**shift - halves) < 2.0**-18).sum() > 50
    x = np.arange(-8, 9).astype(np.int8).reshape(1, 1, 1, 17)
    r = Requantization(m.reshape(-1, 1, 1), shift, -128, 127, None, zero)  # with a zero of -128 as after a ReLU
    same(variant, Conv(("x",), "y", ("c",), np.ones((203, 1, 1, 1), np.int8), bias, POINT, 1, r), x)


@cache  # of eight million products
def odd_sums_that_reach_a_half(shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums at most 381 beyond 2^24 and factors: float32 rounds each sum down to one whose code is less by 1."""
    factors = np.arange(1 << 16, 1 << 17, dtype=np.int64)  # not of 32 bits, as on 32-bit machines
    halves = (2 * np.arange(128, dtype=np.int64)[:, None] + 1) << (shift - 1)
    sums = -(-halves // factors)  # the least that reach a half
    rows, at = np.nonzero((sums > 1 << 24) & (sums <= (1 << 24) + 3 * 127) & (sums % 4 == 1))
    return np.resize(sums[rows, at], 41), np.resize(factors[at], 41)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("way", ["point", "tiles", "depthwise"])
@pytest.mark.parametrize("weight", [3, -3])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_just_beyond_24_bits(variant: str, way: str, weight: int, sign: int) -> None:
    """On one side of 0, and only for the largest or the smallest code; the bias alone has 24 bits."""
    sums, m = odd_sums_that_reach_a_half(34)
    below = np.float32(sums).astype(np.int64)
    assert (below == sums - 1).all() and (2 * sums * m >> 34 != 2 * below * m >> 34).all()
    code = 127 if weight * sign > 0 else -128
    bias = sign * (sums - abs(weight * code))
    assert (np.abs(bias) <= 1 << 24).all()
    kernel = 1 if way == "point" else 3
    window = Window((kernel, kernel), (1, 1), (kernel // 2, kernel // 2))
    weights = np.zeros((len(sums), 1 if way == "depthwise" else 24, kernel, kernel), np.int8)
    weights[:, 0, kernel // 2, kernel // 2] = weight
    x = np.zeros((2, len(sums) if way == "depthwise" else 24, 15, 20), np.int8)
    x[:, :, 2:9, 3:11] = code
    if way == "tiles":
        assert in_tiles(variant, 24, len(sums), (15, 20)) == (variant in TILED)
    r = Requantization(m.reshape(-1, 1, 1), 34, -128, 127)
    same(variant, Conv(("x",), "y", ("c",), weights, bias, window, len(sums) if way == "depthwise" else 1, r), x)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    channels=st.sampled_from(
        [1, 3, 4, 16, 31, 32, 33, 63, 64, 65, 130]
    ),  # of vectors of 32 and 64, and pixels that fill one
    kernel=st.sampled_from([(3, 3), (3, 3), (3, 3), (1, 1), (2, 5), (5, 5)]),
    size=st.tuples(st.integers(1, 6), st.sampled_from([1, 2, 3, 5, 7, 16, 21, 62, 64, 67, 131])),
    stride=st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3), (3, 4)]),
    pad=st.sampled_from([(1, 1), (0, 0), (1, 2)]),
    dilation=st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 3)]),
    shift=st.integers(0, 40),
    zeros=st.tuples(st.sampled_from([0, -128]), st.sampled_from([0, -128])),
    leaky=st.sampled_from([False, False, True]),
    seed=st.integers(0, 2**32 - 1),
)
def test_depthwise(
    variant: str,
    channels: int,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    shift: int,
    zeros: tuple[int, int],
    leaky: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    window = Window(kernel, stride, pad, dilation)
    h, w = covering(window, size)
    r = requantization(rng, (channels, 1, 1), shift, zeros[1], leaky)
    weights = codes(rng, channels, 1, *kernel, low=-127)
    task = Conv(("x",), "y", ("c",), weights, rng.integers(-999, 999, channels), window, channels, r, zeros[0])
    same(variant, task, codes(rng, 2, channels, h, w))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("channels", "width"), [(16, 7), (32, 67), (40, 9), (65, 3)])
def test_depthwise_of_some_channels_of_a_blob(variant: str, channels: int, width: int) -> None:
    """Reads and writes channels beside those of others, which the second Task must leave as they are."""
    rng = np.random.default_rng(channels)
    x = codes(rng, 2, 2 * channels + 3, 5, width)
    tasks, wanted = [], np.empty((2, 2 * channels, 5, width), np.int8)
    for source, target, first in (("right", "b", channels), ("left", "a", 0)):
        r = requantization(rng, (channels, 1, 1), 9, 0, False)
        weights, bias = codes(rng, channels, 1, 3, 3, low=-127), rng.integers(-999, 999, channels)
        task = Conv((source,), target, (target,), weights, bias, Window((3, 3), (1, 1), (1, 1)), channels, r)
        wanted[:, first : first + channels] = task.define(x[:, first + 3 : first + 3 + channels])
        tasks.append(task)
    shapes = dict.fromkeys(("left", "right", "a", "b"), (2, channels, 5, width)) | {"both": wanted.shape}
    views = {"left": View("x", 3), "right": View("x", 3 + channels), "a": View("both", 0), "b": View("both", channels)}
    with used(variant):
        task_program = program(tasks, {"x": x}, shapes, views, ("both",))
        assert [type(part) for part in task_program.parts] == [NativeProgram]
        memory = {"x": x}
        task_program.run(memory)
    assert np.array_equal(memory["both"], wanted)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    name=st.sampled_from(["pynq-z2", "zcu104"]),  # blocks of different sizes
    inputs=st.sampled_from([2, 15, 16, 33, 70]),
    outputs=st.sampled_from([1, 23, 24, 25, 70]),
    kernel=st.sampled_from([(1, 1), (3, 2), (4, 4)]),
    pad=st.sampled_from([(0, 0), (1, 2)]),
    batch=st.integers(1, 3),
    shift=st.integers(0, 40),
    zeros=st.tuples(st.sampled_from([0, -128]), st.sampled_from([0, -128])),
    leaky=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_few_pixels_read_weights_where_they_are(
    variant: str,
    name: str,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    pad: tuple[int, int],
    batch: int,
    shift: int,
    zeros: tuple[int, int],
    leaky: bool,
    seed: int,
) -> None:
    """As a fully connected layer does, whose kernel is the whole map: nothing of them is packed anew."""
    rng = np.random.default_rng(seed)
    array = overlay.load(name).array
    weights = codes(rng, outputs, inputs, *kernel, low=-127)
    packed = Packed(ByteSource(b"?" * 24 + pack_weights(weights, 1, array)), 24, weights.shape, 1, array)
    r = requantization(rng, (outputs, 1, 1), shift, zeros[1], leaky)
    bias = rng.integers(-(1 << 16), 1 << 16, outputs)
    task = Conv(("x",), "y", ("c",), packed, bias, Window(kernel, (4, 4), pad), 1, r, zeros[0])
    x = codes(rng, batch, inputs, *kernel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "FEW", 99)
        patch.setattr(programs, "LARGE", 1)
        patch.setattr(Packed, "blocks", lambda *_: pytest.fail("the weights were read"))
        patch.setattr(Packed, "__array__", lambda *_, **__: weights)
        same(variant, task, x)


# -- everything else


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(
    channels=st.sampled_from([1, 15, 16, 17, 40, 257]),
    size=st.tuples(st.integers(1, 5), st.sampled_from([1, 7, 15, 16, 17, 33])),
    shift=st.integers(0, 40),
    zeros=st.tuples(*[st.sampled_from([0, -128])] * 3),
    leaky=st.booleans(),
    window=st.sampled_from(
        [Window((3, 2), (2, 1), (1, 1)), Window((3, 3), (1, 1), (1, 1)), Window((5, 7), (1, 3), (4, 2))]
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_pools_sums_and_copies(
    variant: str,
    channels: int,
    size: tuple[int, int],
    shift: int,
    zeros: tuple[int, int, int],
    leaky: bool,
    window: Window,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    x, y = codes(rng, 2, channels, *size), codes(rng, 2, channels, *size)
    left = (size[i] + 2 * window.pad[i] - window.kernel[i] for i in range(2))
    out = tuple(max(0, -(-over // stride)) + 1 for over, stride in zip(left, window.stride))  # as in Caffe, rounded up
    same(variant, Pool(("x",), "y", ("p",), window, out, None), x)
    same(variant, Pool(("x",), "y", ("p",), window, out, requantization(rng, out, shift, zeros[2], leaky), zeros[0]), x)
    low, high = clamps(rng, zeros[2])
    one = Requantization(np.array(1), shift, low, high, None, zeros[2])
    pair, below = factors(rng, (2, 2), shift, least=-1).tolist()
    same(variant, Eltwise(("x0", "x1"), "y", ("e",), pair, below if leaky else None, one, zeros[:2]), x, y)
    for vector in (False, True):
        second = y[:, :, :1, :1] if vector else y
        add = Eltwise(("x0", "x1"), "y", ("e",), pair, below if leaky else None, one, zeros[:2], "SUM", vector)
        for task in (add, replace(add, operation="PROD", factors=pair[:1], negative=None)):
            same(variant, task, x, second)
        same(variant, replace(add, operation="MAX", negative=None), x, second)
    same(variant, Copy(("x",), "y", ("r",), 0, requantization(rng, (), shift, zeros[2], leaky), zeros[0]), x)
    same(variant, Copy(("x",), "y", ("r",), 0, None), x)
    for spread in (False, True):
        same(variant, UpsampleTask(("x",), "y", ("u",), window.stride, spread, None, zeros[0] if spread else 0), x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("average", [False, True])
def test_large_windows_are_several_pieces_of_work(variant: str, average: bool) -> None:
    """Of one row: 5 windows by 2 bands of channels, so that a run can stop between them."""
    x = codes(np.random.default_rng(1), 1, 300, 128, 130)
    r = Requantization(np.full((2, 5), 5), 16, -128, 127) if average else None
    task = Pool(("x",), "y", ("p",), Window((127, 126), (1, 1), (0, 0)), (2, 5), r)
    same(variant, task, x)
    with used(variant):
        (part,) = program([task], {"x": x}, {"y": (1, 300, 2, 5)}).parts
    assert isinstance(part, NativeProgram)
    assert [op.items for op in part.table if op.kind in (table.Kind.MAXIMUM, table.Kind.AVERAGE)] == [2 * 5 * 2]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_leaky_copy_looks_at_its_input(variant: str) -> None:
    """Not at the product, which is never negative with a multiplier of 0."""
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 4, 1, 64)
    r = Requantization(np.array(0), 0, -128, 127, np.array(1))
    same(variant, Copy(("x",), "y", ("r",), 0, r), x)
    one = Requantization(np.array(1), 0, -128, 127)
    same(variant, Eltwise(("x", "x"), "y", ("e",), (0, 0), (1, 1), one, (0, 0)), x, x)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kernel", [(2, 2), (2049, 2048)])
def test_averages_of_a_large_image(variant: str, kernel: tuple[int, int]) -> None:
    """More than 2^22 pixels: in C if no window has so many, else in numpy."""
    x = np.full((1, 1, 2049, 2048), 127, np.int8)
    r = Requantization(np.full((1, 1), 1 << 16), 40, -128, 127)
    task = Pool(("x",), "y", ("p",), Window(kernel, kernel, (0, 0)), (1, 1), r)
    with used(variant):
        task_program = program([task], {"x": x}, {"y": (1, 1, 1, 1)}, None, ("y",))
        assert [type(part) is NativeProgram for part in task_program.parts] == [kernel == (2, 2)]
        memory = {"x": x}
        task_program.run(memory)
    assert np.array_equal(memory["y"], task.define(x))


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_in_numpy_and_views_between_parts_in_c(variant: str) -> None:
    """A concat by address, one branch of which is a Task that C lacks, and a slice of it that is read again."""
    rng = np.random.default_rng(5)
    x = codes(rng, 2, 6, 5, 18)
    r = Requantization(np.array(3), 9, -128, 127)

    def conv(source: str, target: str, inputs: int, outputs: int) -> Conv:
        weights = codes(rng, outputs, inputs, 3, 3, low=-127)
        many = Requantization(np.full((outputs, 1, 1), 900), 20, -128, 127)
        return Conv((source,), target, (target,), weights, np.arange(outputs), Window((3, 3), (1, 1), (1, 1)), 1, many)

    three = Eltwise(("a", "a", "x"), "b", ("e",), (1, 2, 3), None, r, (0, 0, 0))
    tasks = [conv("x", "a", 6, 6), three, Copy(("b",), "whole", ("b",), 6, r), conv("part", "y", 7, 17)]
    shapes = {"a": x.shape, "b": x.shape, "whole": (2, 12, 5, 18), "part": (2, 7, 5, 18), "y": (2, 17, 5, 18)}
    views = {"a": View("whole", 0), "part": View("whole", 4)}
    wanted = {"x": x, "whole": np.empty(shapes["whole"], np.int8)}
    wanted |= {"a": wanted["whole"][:, :6], "part": wanted["whole"][:, 4:11]}
    for task in tasks:
        out = wanted.setdefault(task.output, np.empty(shapes[task.output], np.int8))
        task.written(out, shapes)[...] = task.define(*(wanted[b] for b in task.inputs))
    with used(variant):
        task_program = program(tasks, {"x": x}, shapes, views, ("whole", "y"))
        assert [type(part) is NativeProgram for part in task_program.parts] == [True, False, True]
        memory = {"x": x}
        times = task_program.run(memory).tasks
        assert times is not None
        assert len(times) == 4
        for blob in ("whole", "y"):
            assert np.array_equal(memory[blob], wanted[blob])


# -- LRN


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1, 3, 5, 15])
@pytest.mark.parametrize(
    "channels", [1, 5, 63, 64, 65, 71, 130]
)  # of pieces of 64, and windows beyond one and the blob
def test_lrn_of_codes(variant: str, size: int, channels: int) -> None:
    """Steep and flat lines of the table, the largest sums, and shifts that leave nothing."""
    rng = np.random.default_rng(channels)
    most = 1 << FACTOR_BITS
    ends = rng.integers(0, most, (2, SEGMENTS))
    ends[0, ::3], ends[1, ::3] = most // 2, most - 1
    bases, slopes = ends[0], np.clip(ends[1] - ends[0], -(most // 2) + 1, most // 2 - 1)
    x = codes(rng, 2, channels, 3, 5)
    x[0, :, 1], x[0, :, 2] = -128, 0
    for shift, zero in ((0, 0), (19, 0), (18, -128), (27, 0), (28, -128), (40, 0)):
        r = Requantization(np.array(1), shift, *clamps(rng, zero), None, zero)
        same(variant, LRNTask(("x",), "y", ("l",), size, bases, slopes, r, zero), x)
