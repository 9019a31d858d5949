"""The pass in which formats are measured: custom layers run once in it, and only what the overlay needs is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.runtime import measuring
from tests.passes.common import network

CONV = "convolution_param { num_output: 16 kernel_size: 3 pad: 1 }"
SHAPE = (2, 3, 5, 7)
X = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
TOP = "xcustom_param { top_dim: 2 top_dim: 16 top_dim: 5 top_dim: 7 }"
MIDDLE = f"a Convolution data -> a : {CONV}\ns mine a -> b : {TOP}\nc Convolution b -> c : {CONV}"
RECTIFIED = f"a Convolution data -> a : {CONV}\ns mine a -> b : {TOP}\nr ReLU b -> b\nc Convolution b -> c : {CONV}"
END = f"a Convolution data -> a : {CONV}\ns mine a -> c : {TOP}"


class Counting:
    """A layer with a state: it adds the number of images that it has seen so far to what it reads."""

    def __init__(self, **options: Any) -> None:
        self.calls = list[int]()
        self.seen = 0
        self.type = chai.custom("mine", jit=False, **options)(lambda x: self.run(x))

    def run(self, x: Any) -> None:
        self.calls.append(len(x.bottom[0]))
        for read, written in zip(x.bottom[0], x.top[0]):
            self.seen += 1
            written[...] = read - 2.0 + self.seen / 4

    def opened(self, folder: Path, lines: str = MIDDLE, device: str = "emulator", **options: Any) -> chai.Net:
        return network(folder, lines, SHAPE, device=device, custom={"mine": self.type}, **options)


def streamed(net: chai.Net, count: int) -> list[np.ndarray]:
    return [out["c"] for out in net.stream([X] * count)]


def forwarded(net: chai.Net, count: int) -> list[np.ndarray]:
    return [net.forward(X)["c"] for _ in range(count)]


@pytest.mark.parametrize("lines", [MIDDLE, RECTIFIED, END], ids=["middle", "with a ReLU", "end"])
@pytest.mark.parametrize("passes", [forwarded, streamed])
@pytest.mark.parametrize("per_image", [False, True])
def test_a_layer_with_a_state_gets_each_batch_once(
    tmp_path: Path, lines: str, passes: Callable[[chai.Net, int], list[np.ndarray]], per_image: bool
) -> None:
    """Float is the oracle: with one pass more or less the state differs, and its error is many times the tolerance."""
    layer, exact = Counting(per_image=per_image), Counting(per_image=per_image)
    net = layer.opened(tmp_path, lines)
    outputs, wanted = passes(net, 3), passes(exact.opened(tmp_path, lines, "float"), 3)
    assert layer.calls == exact.calls == ([1] * 6 if per_image else [2] * 3)
    assert net.partition.engine("a") == "fpga"
    assert lines == END or net.partition.engine("c") == "fpga"
    for got, right in zip(outputs, wanted, strict=True):
        assert np.abs(got - right).max() < 0.1 * np.abs(right).max()


def test_the_first_pass_is_as_every_other_where_nothing_is_measured_after_the_layer(tmp_path: Path) -> None:
    def halve(x: Any) -> None:
        x.top[0][...] = x.bottom[0] / 2

    net = network(tmp_path, END, SHAPE, device="emulator", custom={"mine": chai.custom("mine", jit=False)(halve)})
    first, second = (net.forward(X)["c"] for _ in range(2))
    assert np.array_equal(first, second)
    assert net.partition.engine("a") == "fpga"


def test_an_implementation_on_codes_gets_the_first_batch_once(tmp_path: Path) -> None:
    """While formats are measured there are no codes, so the reference runs; the first pass is as every other."""
    calls = list[str]()
    mine = chai.custom("mine", jit=False)(lambda x: (calls.append("float"), np.copyto(x.top[0], x.bottom[0] / 2))[0])

    @mine.impl("codes", dtype="int8", jit=False, zero_points=True)
    def codes(x: Any) -> None:
        calls.append("codes")
        steps = (x.bottom[0].astype(np.float32) - x.zero_points[0]) * x.float_params[2] / 2 / x.float_params[3]
        x.top[0][...] = np.clip(np.rint(steps) + x.zero_points[1], *x.code_ranges[1])

    net = network(tmp_path, MIDDLE, SHAPE, device="emulator", custom={"mine": mine}, keep="all")
    first, second = (net.forward(X) and net.values["b"] for _ in range(2))
    assert calls == ["float", "codes", "codes"]
    assert np.array_equal(first, second)


def test_its_time_is_that_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass has one row for it, and that time is a part of the whole."""
    net = Counting().opened(tmp_path)
    ran = measuring.measure

    def timed(*args: Any) -> tuple[Any, ...]:
        *measured, shown = ran(*args)
        return *measured, {name: each._replace(ms=5000.0) for name, each in shown.items()}

    monkeypatch.setattr(measuring, "measure", timed)
    net.forward(X)
    assert [(row.name, row.ms) for row in net.perf.custom] == [("s", 5000.0)]
    assert 5000 < net.perf.total_ms <= net.perf.wall_ms


@pytest.mark.parametrize("call", ["calibrate", "forward"])
def test_nothing_is_measured_where_nothing_is_on_the_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    layer = Counting()
    net = layer.opened(tmp_path, engine={"a": "host", "c": "host"})
    monkeypatch.setattr(measuring, "run", None)  # of which a call would fail
    getattr(net, call)(X)
    net.forward(X)
    assert layer.calls == [2] * (1 if call == "calibrate" else 2)
    assert net.calibrated and net.formats == {} and net.basis is None


def test_only_the_layers_before_the_overlay_are_measured(tmp_path: Path) -> None:
    """A detector's end, which computes boxes, or a classifier's Softmax, has no codes."""
    lines = f"{MIDDLE}\np Softmax c -> p\nq Power p -> q : power_param {{ shift: 1 }}"
    net = Counting().opened(tmp_path, lines)
    net.forward(X)
    assert net.formats is not None and {*net.formats} == {"data", "a", "b", "c"}


def test_a_calibration_that_was_asked_for_runs_them(tmp_path: Path) -> None:
    layer = Counting()
    net = layer.opened(tmp_path)
    net.calibrate(X)
    net.forward(X)
    assert layer.calls == [2, 2]
