"""Every Task: definition and kernels, in numpy and in C, against loops over whole numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

from chai import devices, overlay
from chai.blob import View
from chai.errors import ModelError
from chai.fixed import Format, Requantization
from chai.kernels import codes as kernels
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.interleave import Interleave
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window
from chai.tasks.work import Work
from tests.reference import fixed as reference, window as geometry

from .common import (
    EXAMPLES,
    FORMS,
    Array,
    check,
    check_forms,
    clamps,
    codes,
    covering,
    defined,
    emulated,
    factors,
    kernel_form,
    random_pooling,
    requantized,
    seeds,
    shifts,
    zeros,
)

sizes = st.tuples(st.integers(1, 7), st.integers(1, 8))
kernels_ = st.tuples(st.integers(1, 3), st.integers(1, 4))
strides = st.tuples(st.integers(1, 3), st.integers(1, 2))


def conv(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    window: Window,
    group: int,
    shift: int,
    leaky: bool,
    zero: int = 0,
    zero_out: int = 0,
) -> Conv:
    """A convolution with weights of ``shape``."""
    low, high = clamps(rng, zero_out)
    channels = (shape[0], 1, 1)
    negative = factors(rng, channels, shift, int(rng.integers(-1, 1))) if leaky else None
    low = -high - 1 if leaky and not zero_out else low
    r = Requantization(factors(rng, channels, shift), shift, low, high, negative, zero_out)
    weights = codes(rng, *shape, low=-127)
    bias = rng.integers(-(1 << 16), 1 << 16, shape[0])
    return Conv(("x",), "y", ("probe",), weights, bias, window, group, r, zero)


def reaching(window: Window, size: tuple[int, int]) -> tuple[int, int]:
    """``size``, or what the window needs at least."""
    h, w = covering(window, size)
    return h, w


@EXAMPLES
@given(
    kernel=kernels_,
    stride=strides,
    pad=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    size=sizes,
    split=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    batch=st.integers(1, 2),
    shift=shifts,
    leaky=st.booleans(),
    points=st.tuples(zeros, zeros),
    seed=seeds,
)
def test_conv(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    split: tuple[int, int, int],
    batch: int,
    shift: int,
    leaky: bool,
    points: tuple[int, int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    window = Window(kernel, stride, pad, dilation)
    group, inputs, outputs = split
    task = conv(rng, (group * outputs, inputs, *kernel), window, group, shift, leaky, *points)
    check_forms(task, codes(rng, batch, group * inputs, *reaching(window, size)))


@EXAMPLES
@given(size=st.tuples(st.integers(1, 12), st.integers(1, 13)), looks=st.booleans(), leaky=st.booleans(), seed=seeds)
def test_conv_with_a_pooling_after_it(size: tuple[int, int], looks: bool, leaky: bool, seed: int) -> None:
    """Also equal to the two Tasks, one after the other."""
    rng = np.random.default_rng(seed)
    alone = conv(rng, (5, 3, 2, 1), Window((2, 1), (1, 2), (1, 0)), 1, 7, leaky)
    alone = replace(alone, lookup=rng.integers(-128, 128, 256).astype(np.int8) if looks else None)
    pooling = random_pooling(rng, alone.window.sizes(size))
    assume(pooling is not None)
    x, task = codes(rng, 2, 3, *size), replace(alone, pooling=pooling)
    pool = Pool(("y",), "z", ("pool",), pooling.window, pooling.out, None)
    assert np.array_equal(task.define(x), pool.define(alone.define(x)))
    check_forms(task, x)


@EXAMPLES
@given(
    kernel=kernels_,
    stride=strides,
    size=sizes,
    channels=st.integers(1, 5),
    shift=shifts,
    points=st.tuples(zeros, zeros),
    seed=seeds,
)
def test_depthwise_conv(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    size: tuple[int, int],
    channels: int,
    shift: int,
    points: tuple[int, int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    window = Window(kernel, stride, (1, 0))
    task = conv(rng, (channels, 1, *kernel), window, channels, shift, seed % 2 == 0, *points)
    check_forms(task, codes(rng, 2, channels, *reaching(window, size)))


@pytest.mark.parametrize("sign", [1, -1])
def test_conv_at_the_edge_of_its_accumulator(sign: int) -> None:
    """2^24 - 1, and products that a float32 holds only because nothing larger ever comes up."""
    weights = np.full((1, 1033, 1, 1), -127 * sign, np.int8)
    weights[0, -1] = -7 * sign  # 1032 * 127 + 7 = 2^17 - 1
    x = np.full((1, 1033, 2, 3), -128, np.int8)
    bias = np.array([127 * sign])
    window = Window((1, 1), (1, 1), (0, 0))
    assert set(reference.convolution(x, weights, bias.tolist(), (1, 1), (0, 0)).ravel().tolist()) == {
        sign * ((1 << 24) - 1)
    }
    for m, shift in (((1 << 17) - 1, 34), (1 << 16, 34), (1, 17), (3, 19)):
        r = Requantization(np.full((1, 1, 1), m), shift, -128, 127)
        check_forms(Conv(("x",), "y", ("probe",), weights, bias, window, 1, r), x)


@cache  # the reference's loops take seconds
def extreme(kernel: tuple[int, int], size: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Return weights, biases, multipliers, and codes whose sums reach 2^31 - 1 with their bias, and these sums without it.

    Those of some end in a half.
    """
    rng = np.random.default_rng(kernel[0])
    shape = 16, 512, *kernel
    weights = rng.choice([-127, 127, 5], shape).astype(np.int8)
    weights[0], weights[1] = 127, -127
    most = np.abs(weights.astype(np.int64)).sum((1, 2, 3)) * 128
    room = (1 << 31) - 1 - most
    bias = rng.integers(-room, room + 1)
    bias[:6] = -room[0], room[1], room[2], -room[3], 0, 0
    m = rng.integers(40 << 9, 1 << 17, (16, 1, 1))  # codes up to 256, with a shift of 40
    weights[8:], m[8:] = 0, 1 << 16
    halves = (1 << 23) + (rng.integers(0, 60, 8) << 24)  # times 2^-24
    bias[8:] = rng.choice([-1, 1], 8) * halves
    x = codes(rng, 2, 512, *size)
    x[0] = -128
    products = reference.convolution(x, weights, [0] * 16, (1, 1), (0, 0))
    sums = products + bias[:, None, None]
    assert sums.max() == (1 << 31) - 1 and sums.min() == 1 - (1 << 31)
    return weights, bias, m, x, products


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize(("kernel", "size"), [((3, 3), (4, 5)), ((7, 7), (7, 7)), ((7, 7), (8, 7))])
def test_wide_sums(kernel: tuple[int, int], size: tuple[int, int], leaky: bool) -> None:
    """Of 4,608 and 25,088 products, up to 2^31 - 1 with their bias, among them some whose codes end in a half."""
    weights, bias, m, x, products = extreme(kernel, size)
    r = Requantization(m, 40, -128, 127, m // 3 if leaky else None, 0)
    task = Conv(("x",), "y", ("probe",), weights, bias, Window(kernel, (1, 1), (0, 0)), 1, r)
    for added in (bias, bias // 3):  # less than C refuses
        check_forms(replace(task, bias=added), x, wanted=requantized(products + added[:, None, None], r))


@EXAMPLES
@given(
    size=sizes,
    channels=st.integers(1, 5),
    shift=shifts,
    leaky=st.booleans(),
    points=st.tuples(zeros, zeros),
    seed=seeds,
)
def test_affine(
    size: tuple[int, int], channels: int, shift: int, leaky: bool, points: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    c = conv(rng, (channels, 1, 1, 1), Window((1, 1), (1, 1), (0, 0)), channels, shift, leaky, *points)
    weights = rng.choice([-127, 127, 64, 0], (channels, 1, 1, 1)).astype(np.int8)
    task = Affine(c.inputs, c.output, c.origin, weights, c.bias, c.window, channels, c.requantization, c.zero)
    check_forms(task, codes(rng, 2, channels, *size))


@pytest.mark.parametrize("maximum", [True, False], ids=["MAX", "AVE"])
@EXAMPLES
@given(
    kernel=kernels_,
    stride=strides,
    pad=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    size=sizes,
    up=st.booleans(),
    shift=shifts,
    points=st.tuples(zeros, zeros),
    seed=seeds,
)
def test_pool(
    maximum: bool,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    size: tuple[int, int],
    up: bool,
    shift: int,
    points: tuple[int, int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    pad = (min(pad[0], kernel[0] - 1), min(pad[1], kernel[1] - 1))
    stride = (min(stride[0], kernel[0]), min(stride[1], kernel[1]))  # no window lies behind the image
    window = Window(kernel, stride, pad)
    size = reaching(window, size)
    h, w = (geometry.pooled(size[i], kernel[i], stride[i], pad[i], any(pad), up) for i in range(2))
    zero, out = points
    r = None if maximum else Requantization(factors(rng, (h, w), shift), shift, *clamps(rng, out), zero=out)
    check(Pool(("x",), "y", ("probe",), window, (h, w), r, zero), codes(rng, 2, 3, *size))


def test_padding_never_wins_a_maximum() -> None:
    x = np.full((1, 1, 3, 3), -128, np.int8)
    task = Pool(("x",), "y", ("probe",), Window((3, 3), (2, 2), (1, 1)), (2, 2), None)
    check(task, x)
    assert set(task.define(x).ravel().tolist()) == {-128}


def test_a_maximum_over_no_pixel_is_the_smallest_code() -> None:
    """Stride 3, kernel 1, 5 pixels: Caffe rounds up to a third window, which begins behind the image."""
    x = np.full((1, 1, 5, 5), 7, np.int8)
    task = Pool(("x",), "y", ("probe",), Window((1, 1), (3, 3), (0, 0)), (3, 3), None)
    kernel = emulated([task], {"x": x}, {"y": (1, 1, 3, 3)})["y"]
    assert kernel[0, 0].tolist() == [[7, 7, -128], [7, 7, -128], [-128, -128, -128]]
    assert np.array_equal(task.define(x), kernel)


@EXAMPLES
@given(
    count=st.sampled_from([2, 2, 3]),
    leaky=st.booleans(),
    size=sizes,
    shift=shifts,
    points=st.tuples(zeros, zeros, zeros, zeros),
    seed=seeds,
)
def test_eltwise(
    count: int,
    leaky: bool,
    size: tuple[int, int],
    shift: int,
    points: tuple[int, int, int, int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    zero = points[-1]
    low, high = clamps(rng, zero)
    r = Requantization(np.array(1), shift, -high - 1 if leaky and not zero else low, high, zero=zero)
    multipliers = tuple(factors(rng, (count,), shift, -1).tolist())
    negative = tuple(factors(rng, (count,), shift, -1).tolist()) if leaky else None
    names = tuple(f"x{i}" for i in range(count))
    task = Eltwise(names, "y", ("probe",), multipliers, negative, r, points[:count])
    check_forms(task, *(codes(rng, 2, 3, *size) for _ in names))


@EXAMPLES
@given(
    operation=st.sampled_from(["SUM", "PROD", "MAX"]),
    vector=st.booleans(),
    size=sizes,
    shift=shifts,
    points=st.tuples(zeros, zeros, zeros),
    seed=seeds,
)
def test_two_blobs(
    operation: str, vector: bool, size: tuple[int, int], shift: int, points: tuple[int, int, int], seed: int
) -> None:
    """Products and maxima of two maps, and any operation of a map and a number for each of its channels."""
    rng = np.random.default_rng(seed)
    r = Requantization(np.array(1), shift, *clamps(rng, points[2]), zero=points[2])
    multipliers = tuple(factors(rng, (1 if operation == "PROD" else 2,), shift, -1).tolist())
    task = Eltwise(("x", "z"), "y", ("probe",), multipliers, None, r, points[:2], operation, vector)
    check_forms(task, codes(rng, 2, 11, *size), codes(rng, 2, 11, *((1, 1) if vector else size)))


@EXAMPLES
@given(
    size=sizes,
    times=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    spread=st.booleans(),
    rescaled=st.booleans(),
    shift=shifts,
    points=st.tuples(zeros, zeros),
    seed=seeds,
)
def test_upsample(
    size: tuple[int, int],
    times: tuple[int, int],
    spread: bool,
    rescaled: bool,
    shift: int,
    points: tuple[int, int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    zero, out = points
    factor = np.array(int(factors(rng, (), shift)))
    r = Requantization(factor, shift, *clamps(rng, out), zero=out) if rescaled else None
    task = UpsampleTask(("x",), "y", ("probe",), times, spread, r, zero if spread or rescaled else 0)
    check_forms(task, codes(rng, 2, 11, *size))


@EXAMPLES
@given(size=sizes, rows=st.integers(1, 4), words=st.integers(1, 2), channels=st.integers(1, 8), seed=seeds)
def test_interleave(size: tuple[int, int], rows: int, words: int, channels: int, seed: int) -> None:
    apart = 8 * words
    task = Interleave(("x",), "y", ("probe",), rows, apart)
    check_forms(task, codes(np.random.default_rng(seed), 2, (2 * rows - 1) * apart + channels, *size))


@EXAMPLES
@given(size=sizes, rescaled=st.booleans(), shift=shifts, points=st.tuples(zeros, zeros), seed=seeds)
def test_copy(size: tuple[int, int], rescaled: bool, shift: int, points: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    zero, out = points
    factor = np.array(int(factors(rng, (), shift)))
    r = Requantization(factor, shift, *clamps(rng, out), zero=out) if rescaled else None
    task = Copy(("x",), "y", ("probe",), 0, r, zero)
    check(task, codes(rng, 2, 3, *size))


# -- parts of a blob


@EXAMPLES
@given(first=st.integers(0, 3), behind=st.integers(0, 2), shift=shifts, rescaled=st.booleans(), seed=seeds)
def test_copy_writes_its_part_and_no_other(first: int, behind: int, shift: int, rescaled: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r = Requantization(np.array(int(factors(rng, (), shift))), shift, *clamps(rng)) if rescaled else None
    x, before = codes(rng, 2, 3, 4, 5), codes(rng, 2, first + 3 + behind, 4, 5)
    task = Copy(("x",), "y", ("probe",), first, r)
    whole = before.copy()
    blobs = {"x": x, "y": whole}
    shapes = {name: values.shape for name, values in blobs.items()}
    devices.open("emulator").compile(Work(overlay.load(), [task], shapes)).run(blobs)
    wanted = before.copy()
    wanted[:, first : first + 3] = defined(task, x)
    assert np.array_equal(whole, wanted)


def branches(
    rng: np.random.Generator,
) -> tuple[list[Conv | Pool | Eltwise | Copy], dict[str, Array], dict[str, tuple[int, ...]]]:
    """conv -> a, pool -> b, add -> c and a rescaled input, in one concat of 2 + 3 + 3 + 4 channels."""
    window = Window((3, 3), (1, 1), (1, 1))
    first = conv(rng, (2, 3, 3, 3), window, 1, 20, True)
    a = Conv(("x",), "a", ("a",), first.weights, first.bias, window, 1, first.requantization)
    b = Pool(("x",), "b", ("b",), window, (5, 6), None)
    c = Eltwise(("x", "x1"), "c", ("c",), (700, -900), None, Requantization(np.array(1), 10, -128, 127), (0, 0))
    d = Copy(("x2",), "y", ("y",), 8, Requantization(np.array(40000), 17, -128, 127))
    blobs = {"x": codes(rng, 2, 3, 5, 6), "x1": codes(rng, 2, 3, 5, 6), "x2": codes(rng, 2, 4, 5, 6)}
    return [a, b, c, d], blobs, {"a": (2, 2, 5, 6), "b": (2, 3, 5, 6), "c": (2, 3, 5, 6), "y": (2, 12, 5, 6)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_concat_by_address(form: str, seed: int) -> None:
    """Branches are written into their places of the concat, and read from there."""
    rng = np.random.default_rng(seed)
    tasks, blobs, shapes = branches(rng)
    reader = Eltwise(("b", "c"), "z", ("z",), (300, 500), None, Requantization(np.array(1), 9, 0, 127), (0, 0))
    last = conv(rng, (3, 12, 1, 1), Window((1, 1), (1, 1), (0, 0)), 1, 22, False)
    last = Conv(("y",), "out", ("out",), last.weights, last.bias, last.window, 1, last.requantization)
    with kernel_form(form):
        all_blobs = emulated(
            [*tasks, reader, last],
            blobs,
            {**shapes, "z": (2, 3, 5, 6), "out": (2, 3, 5, 6)},
            {"a": View("y", 0), "b": View("y", 2), "c": View("y", 5)},
        )
    wanted = {t.output: defined(t, *(blobs[i] for i in t.inputs)) for t in tasks[:3]}
    wanted["y"] = np.concatenate([wanted["a"], wanted["b"], wanted["c"], defined(tasks[3], blobs["x2"])], 1)
    wanted["z"] = defined(reader, wanted["b"], wanted["c"])
    wanted["out"] = defined(last, wanted["y"])
    assert all(np.array_equal(all_blobs[name], codes_) for name, codes_ in wanted.items())
    assert all(np.shares_memory(all_blobs[name], all_blobs["y"]) for name in "abc")


def test_places_may_lie_in_one_another() -> None:
    rng = np.random.default_rng(0)
    task = Copy(("x",), "a", ("probe",), 0, None)
    x = codes(rng, 2, 2, 3, 4)
    shapes = {"a": (2, 2, 3, 4), "b": (2, 5, 3, 4), "c": (2, 9, 3, 4)}
    all_blobs = emulated([task], {"x": x}, shapes, {"a": View("b", 3), "b": View("c", 1)})
    assert np.array_equal(all_blobs["c"][:, 4:6], x)


# -- conversions


@pytest.mark.parametrize("form", FORMS)
@EXAMPLES
@given(
    scheme=st.sampled_from([("Xilinx", 2.3), ("Xilinx", 77.7), ("DynamicFixed", 5), ("DynamicFixed", -2)]),
    width=st.tuples(st.sampled_from([8, 6]), st.booleans()),
    halves=st.lists(st.integers(-300, 300), max_size=20),
    others=st.lists(st.floats(width=32, allow_nan=False), max_size=5),
)
def test_pack_and_unpack(
    form: str, scheme: tuple[str, float], width: tuple[int, bool], halves: list[int], others: list[float]
) -> None:
    bits, unsigned = width
    numbers = reference.Form(scheme[0], bits, scheme[1], unsigned)
    ties = [h / 2 * float(numbers.step) for h in halves]
    x = np.array([*ties, *others, np.nextafter(np.float32(0.5), np.float32(0)) * numbers.step, 0.0, np.inf], np.float32)
    every = np.arange(numbers.smallest, numbers.largest + 1).astype(np.int8)
    with kernel_form(form), np.errstate(over="ignore"):
        packed = kernels.pack(x.reshape(1, -1, 1, 1), Format(*numbers))
        unpacked = kernels.unpack(every.reshape(1, 1, 1, -1), Format(*numbers))
        with pytest.raises(ModelError, match="NaN"):
            kernels.pack(np.array([[1.0, np.nan]], np.float32), Format(*numbers))
        turned = x[::-1]  # not one run of memory
        assert np.array_equal(kernels.pack(turned, Format(*numbers)), packed.ravel()[::-1])
        assert np.array_equal(kernels.unpack(every[::-1], Format(*numbers)), unpacked.ravel()[::-1])
    assert packed.dtype == np.int8 and packed.shape == (1, len(x), 1, 1)
    assert packed.ravel().tolist() == [numbers.quantize(v) for v in x.tolist()]
    assert unpacked.dtype == np.float32
    assert unpacked.ravel().tolist() == [float(numbers.dequantize(c)) for c in every.tolist()]


steps = st.builds(lambda mantissa, exponent: mantissa * 2.0**exponent, st.floats(1, 2), st.integers(-40, 40))
formats = st.builds(
    Format,
    st.just("Xilinx"),
    st.sampled_from([8, 6]),
    st.one_of(steps.map(lambda s: 127 * s), st.sampled_from([1e-45, 1e-44, 1e-38, 3e38])),
    st.booleans(),
) | st.builds(Format, st.just("DynamicFixed"), st.sampled_from([8, 6]), st.integers(-40, 40), st.booleans())


@pytest.mark.parametrize("form", FORMS)
@EXAMPLES
@given(
    format=formats,
    others=st.lists(st.floats(width=32, allow_nan=False), max_size=9),
    strange=st.sampled_from([None, None, np.nan]),
    fill=st.integers(0, 67),
)
@example(Format("Xilinx", 8, 1e-45), [], None, 5)
@example(Format("DynamicFixed", 8, 40), [1e-45, -1e-39], np.nan, 33)
def test_pack_is_quantize(form: str, format: Format, others: list[float], strange: float | None, fill: int) -> None:
    """Bit for bit at every tie, three neighbours on either side of it, and wherever a vector of numbers may end."""
    with kernel_form(form), np.errstate(all="ignore"):
        tie = (np.arange(-300, 601) / 2 * format.step).astype(np.float32)
        near = [tie]
        for side in (-np.inf, np.inf):
            neighbour = tie
            for _ in range(3):
                neighbour = np.nextafter(neighbour, np.float32(side))
                near.append(neighbour)
        x = np.array([*np.concatenate(near), *others, np.inf, -np.inf, 1e-45, -1e-40, *[0.3 * format.step] * fill])
        x = x.astype(np.float32)
        if strange is not None:
            x[len(x) // 2] = strange
        if np.isnan(x).any():
            for way in (kernels.pack, lambda x, f: f.quantize(x)):
                with pytest.raises(ModelError, match="NaN"):
                    way(x, format)
        else:
            assert kernels.pack(x, format).tobytes() == format.quantize(x).tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_pack_with_a_threshold_of_zero(form: str) -> None:
    with kernel_form(form), np.errstate(all="ignore"):
        x = np.array([[0.0, 1.0, -1.0]], np.float32)
        assert kernels.pack(x, Format("Xilinx", 8, 0.0)).tolist() == [[0, 0, 0]]
        assert kernels.pack(x, Format("Xilinx", 8, 0.0, True)).tolist() == [[-128, -128, -128]]
