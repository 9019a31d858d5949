"""Tasks equal an independent model that steps through every register, also where registers saturate and wrap."""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import sha256
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings

from chai.chaidnn_v2.affine import ChaidnnAffine
from chai.chaidnn_v2.argmax import ChaidnnArgMax
from chai.chaidnn_v2.conv import ChaidnnConv
from chai.chaidnn_v2.host import normalize, softmax, table
from chai.chaidnn_v2.pool import ChaidnnPool
from chai.fixed import Format, Requantization
from chai.tasks import Task
from chai.tasks.window import Window
from tests.conftest import examples
from tests.reference import chaidnn as reference
from tests.tasks.common import Array, emulated, seeds

EXAMPLES = settings(max_examples=examples(30))


def square(kernel: int, stride: int, pad: int, dilation: int = 1) -> Window:
    return Window((kernel,) * 2, (stride,) * 2, (pad,) * 2, (dilation,) * 2)


def codes(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int, extreme: float) -> Array:
    """Any codes, of which a share is at an end of the range, most of them at the same one."""
    values = rng.integers(low, high + 1, shape)
    ends = np.where(rng.random(shape) < 0.05, low, high) if rng.random() < 0.85 else rng.choice([low, high], shape)
    return np.where(rng.random(shape) < extreme, ends, values).astype(np.int8)


def example(seed: int) -> tuple[ChaidnnConv, Array, Array, Counter[str]]:
    """A Task, its input, its codes by the model, and what happened in registers there."""
    rng = np.random.default_rng(seed)
    six, extreme = bool(rng.integers(2)), float(rng.choice([0.0, 0.2, 1.0, 1.0]))
    kernel = int(rng.choice([1, 2, 3, 5]))
    deep = rng.random() < 0.5  # channels for two chunks or more, and sums beyond 18 bits
    words = 4 * int(rng.integers(175, 256)) if deep else 0  # of two chunks that nearly fill their addresses
    channels = 4 * max(4, words // kernel**2 // 4 * 4) if deep else int(rng.integers(1, 40))
    outputs, stride, dilation = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    pad = 0 if deep else int(rng.integers(0, kernel))
    extent = dilation * (kernel - 1) + 1
    height, width = (int(rng.integers(max(1, extent - 2 * pad), max(1, extent - 2 * pad) + 2)) for _ in range(2))
    high = 31 if six else 127
    x = codes(rng, (int(rng.integers(1, 4)), channels, height, width), -high - 1, high, extreme)
    weights = codes(rng, (outputs, channels, kernel, kernel), -high, high, extreme)
    if rng.random() < 0.5:  # Xilinx
        shift = 22
        multipliers = rng.integers(0, 1 << int(rng.integers(8, 25)), outputs)
        bias = rng.integers(-high, high + 1, outputs) << 22
    else:
        shift = int(rng.integers(1, 14))
        multipliers, bias = np.ones(outputs, np.int64), rng.integers(-(1 << 15), 1 << 15, outputs)
    relu = bool(rng.integers(2))
    r = Requantization(multipliers.reshape(-1, 1, 1), shift, 0 if relu else -high - 1, high)
    task = ChaidnnConv(("x",), "y", ("y",), weights, bias, square(kernel, stride, pad, dilation), 1, r)
    y, events = reference.convolution(
        x, weights, bias.tolist(), multipliers.tolist(), shift, stride, pad, dilation, 1, six, relu
    )
    return task, x, y, events


def agree(task: Task, x: Array, y: Array) -> None:
    assert np.array_equal(task.define(x), y)
    assert np.array_equal(emulated([task], {"x": x}, {"y": y.shape})["y"], y)


def test_convolutions() -> None:
    """In a tenth of the examples or more sums saturate, stay at an end, wrap in a lane, and products lose bits."""
    cases: Counter[str] = Counter()

    @settings(max_examples=examples(60))
    @given(seeds)
    def equal(seed: int) -> None:
        task, x, y, events = example(seed)
        agree(task, x, y)
        cases.update(["every", *(name for name, times in events.items() if times)])

    equal()
    assert min(cases[name] for name in ("saturated", "sticky", "lane", "product")) >= cases["every"] / 10, cases
    assert cases["every"] >= 60 and cases["pair"]  # of two images in 6 bits: the sum of both lanes, too


@EXAMPLES
@given(seeds)
def test_maxima(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel, stride, standalone = int(rng.integers(1, 5)), int(rng.integers(1, 4)), bool(rng.integers(2))
    pad = int(rng.integers(0, kernel))
    size = int(rng.integers(kernel, 9)), int(rng.choice([kernel, kernel + 3, 700]))  # of the last, some bands
    out = tuple(ceil((n + 2 * pad - kernel) / stride) + 1 for n in size)
    x = rng.integers(-128, 100, (1, 2, *size)).astype(np.int8)
    task = ChaidnnPool(("x",), "y", ("y",), square(kernel, stride, pad), (out[0], out[1]), None, standalone=standalone)
    agree(task, x, reference.maximum(x, kernel, stride, pad, (out[0], out[1]), standalone))


def test_averages() -> None:
    wraps, count = 0, 60
    for seed in range(count):
        rng = np.random.default_rng(seed)
        kernel, stride = int(rng.integers(1, 8)), int(rng.integers(1, 4))
        pad = int(rng.integers(0, kernel))
        size = int(rng.integers(kernel, 11)), int(rng.integers(kernel, 12))
        out = ceil((size[0] + 2 * pad - kernel) / stride) + 1, ceil((size[1] + 2 * pad - kernel) / stride) + 1
        x = codes(rng, (2, 3, *size), -128, 127, float(rng.choice([0.0, 0.9])))
        xilinx = bool(rng.integers(2))
        multiplier, shift = (65536 // kernel**2, 16) if xilinx else (256 // kernel**2 % 256, int(rng.integers(5, 10)))
        y, events = reference.average(x, kernel, stride, pad, out, multiplier, shift)
        r = Requantization(np.array(multiplier), shift, -128, 127)
        agree(ChaidnnPool(("x",), "y", ("y",), square(kernel, stride, pad), out, r), x, y)
        wraps += bool(events)
    assert wraps >= count / 10


def test_batchnorm_with_scale() -> None:
    cases, count = Counter[str](), 60
    for seed in range(count):
        rng = np.random.default_rng(seed)
        wide = int(rng.integers(8, 16))
        mean, factor, addend = (rng.integers(-(1 << wide), 1 << wide, 5) for _ in range(3))
        left, shift, six = int(rng.integers(0, 26)), int(rng.integers(4, 24)), bool(rng.integers(2))
        high = 31 if six else 127
        x = rng.integers(-high - 1, high + 1, (2, 5, 3, 4)).astype(np.int8)
        y, events = reference.normalised(x, mean.tolist(), factor.tolist(), addend.tolist(), left, shift, six)
        r = Requantization((np.abs(factor) << 8).reshape(-1, 1, 1), shift, 0, high)
        signs = np.where(factor < 0, -1, 1).astype(np.int8).reshape(-1, 1, 1, 1)
        bias = (addend << left) - mean * factor
        agree(ChaidnnAffine(("x",), "y", ("y",), signs, bias, square(1, 1, 0), 5, r), x, y)
        cases.update(name for name, times in events.items() if times)
    assert min(cases["product"], cases["result"]) >= count / 10, cases


def test_best_classes() -> None:
    """Also where no class has a score beyond the lowest one, where classes are equal, and through a Crop."""
    none, count = 0, 60
    for seed in range(count):
        rng = np.random.default_rng(seed)
        classes, stride = int(rng.integers(1, 25)), int(rng.choice([2, 4, 8]))
        kernel = 2 * stride - int(rng.integers(2))
        x = rng.integers(-4, 5, (2, classes, int(rng.integers(1, 4)), int(rng.integers(1, 5)))).astype(np.int8)
        weights = rng.integers(-(1 << 12), 1 << 12, (kernel, kernel)).astype(np.int16)
        bias = rng.integers(-14000, int(rng.choice([-9000, 4000])), classes).astype(np.int16)
        pairs = [reference.best_class(image, weights, bias.tolist(), stride) for image in x]
        y = np.stack([classes_of for classes_of, _ in pairs])[:, None]
        top, left = int(rng.integers(2)), int(rng.integers(3))
        out = y.shape[2] - top - 1, y.shape[3] - left - 1
        cropped = y[:, :, top : top + out[0], left : left + out[1]]
        agree(ChaidnnArgMax(("x",), "y", ("y",), weights, bias, stride, (top, left), out), x, cropped)
        none += any(events["none"] for _, events in pairs)
    assert count / 10 <= none < count


def test_softmax() -> None:
    """Along any axis, with distances of 0, below 0.01, of exactly 10 and beyond, and scores below the first maximum."""
    rng = np.random.default_rng(3)
    for axis, shape in ((1, (3, 17)), (1, (2, 40, 3, 5)), (2, (2, 3, 29)), (-1, (1, 2, 3, 600))):
        x = (rng.normal(size=shape) * rng.choice([0.005, 3.0, 40.0], shape)).astype(np.float32)
        columns = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
        columns[1], columns[2], columns[3, :] = columns[0], columns[0] - 10, columns[0] - np.float32(0.004)
        columns[:, 0] -= 250
        x = np.moveaxis(columns.reshape(np.moveaxis(x, axis, 0).shape), 0, axis)
        y = np.moveaxis(softmax(np.ascontiguousarray(x), axis), axis, 0).reshape(columns.shape)
        expected = np.transpose([reference.softmax(column) for column in columns.T])
        assert expected.dtype == np.float32 and (expected == 0).any() and np.array_equal(y, expected)


def test_the_table_of_a_softmax() -> None:
    """By the digest of the 1000 numbers in CHaiDNN's source, as it prints them."""
    text = "\n".join(f"{entry:.6f}" for entry in table()[:-1].tolist())
    assert (
        sha256(text.encode()).hexdigest() == "e175b8fe4c5c8d1527ae0130ef4c3551b84458fd53a4de92b1dd9c989ce0efcd"
        and table()[-1] == 1
    )


@pytest.mark.parametrize("scheme", ["DynamicFixed", "Xilinx"])
def test_normalisations(scheme: str) -> None:
    """With pixels of zeros, squares that lose all their bits, and scales and results beyond their registers."""
    ends = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        channels = int(rng.integers(1, 40))
        largest = int(rng.choice([1, 3, 127]))
        x = rng.integers(-largest - 1, largest + 1, (2, channels, 3, 2)).astype(np.int8)
        x[0, :, 1, 1] = 0
        gamma = rng.uniform(-1, 1, channels).astype(np.float32) * np.float32(rng.choice([1.0, 9.0, 70.0]))
        if scheme == "Xilinx":
            source, target = (Format(scheme, 8, float(rng.uniform(0.5, 9))) for _ in range(2))
            compute = partial(reference.unit_length_by_thresholds, step=source.step, new=target.step)
        else:
            source, target = (Format(scheme, 8, int(rng.integers(0, 7))) for _ in range(2))
            compute = partial(reference.unit_length, read=int(source.value), written=int(target.value))
        expected = np.empty(x.shape, np.int64)
        for n, i, j in np.ndindex(2, 3, 2):
            expected[n, :, i, j] = compute(x[n, :, i, j].tolist(), gamma)
        y = normalize(x, gamma, source, target)
        assert y.dtype == np.int8 and np.array_equal(y, expected)
        ends += bool((abs(expected) == 127).any() or (abs(gamma) * 2.0**target.value > 128).any())
    assert ends >= 3
