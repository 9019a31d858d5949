"""Filters of 3 x 3 for each channel: on which engine they run, and how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.fixed import Requantization
from chai.offload.schedule import DeviceStep
from chai.tasks.conv import Conv
from chai.tasks.depthwise import NARROW, Depthwise, in_window_engine
from chai.tasks.window import Window

Z2 = overlays.load("pynq-z2")


def conv(channels: int, size: tuple[int, int], window: Window, group: int = 0, **changes: Any) -> tuple[Conv, dict]:
    group = group or channels
    weights = np.ones((channels, channels // group, *window.kernel), np.int8)
    r = Requantization(np.ones((channels, 1, 1), np.int64), 3, -128, 127)
    task = Conv(("x",), "y", ("c",), weights, np.zeros(channels, np.int64), window, group, r, **changes)
    return task, {"x": (2, channels, *size), "y": (2, channels, *window.sizes(size))}


CLOSE = Window((3, 3), (1, 1), (1, 1))


def test_the_window_engine_computes_what_the_convolution_is() -> None:
    task, shapes = conv(19, (9, 12), Window((3, 3), (2, 1), (1, 2)), lookup=np.arange(-128, 128, dtype=np.int8)[::-1])
    filters = in_window_engine(task, Z2, shapes)
    assert isinstance(filters, Depthwise) and filters.engine == "window"
    x = np.random.default_rng(0).integers(-128, 128, shapes["x"]).astype(np.int8)
    assert np.array_equal(filters.define(x), task.define(x))
    assert filters.macs(x.shape) == task.macs(x.shape)


@pytest.mark.parametrize(
    ("channels", "size", "window", "changes"),
    [
        (16, (9, 12), CLOSE._replace(kernel=(3, 5)), {}),
        (16, (9, 12), CLOSE._replace(dilation=(2, 2)), {}),
        (16, (9, NARROW - 1), CLOSE, {}),
        (16, (9, 513), CLOSE, {}),
        (16, (9, 12), CLOSE, {"group": 2}),
        (16, (9, 12), CLOSE._replace(pad=(3, 1)), {}),
        (16, (9, 12), CLOSE, {"wide": True}),
    ],
    ids=["kernel", "dilation", "narrow", "columns", "groups", "pad", "wide"],
)
def test_the_array_keeps_what_the_window_engine_cannot_do(
    channels: int, size: tuple[int, int], window: Window, changes: dict[str, Any]
) -> None:
    task, shapes = conv(channels, size, window, **changes)
    assert in_window_engine(task, Z2, shapes) is task
    whole, shapes = conv(16, (9, 12), CLOSE)
    assert in_window_engine(whole, Z2, shapes) is not whole


def test_an_overlay_without_the_unit_keeps_them_on_the_array() -> None:
    task, shapes = conv(16, (9, 12), CLOSE)
    lacking = replace(Z2, tasks=tuple(section for section in Z2.tasks if section.kind != "depthwise"))
    assert in_window_engine(task, lacking, shapes) is task


@pytest.mark.parametrize(("name", "strides"), [("pynq-z2", {1, 2}), ("ultra96", {1, 2}), ("kv260", {1})])
def test_mobilenet_has_both_engines_at_work(name: str, strides: set[int]) -> None:
    """Those of stride 2 write a word for four that they read: where the array has several lanes, it is twice as fast."""
    (step,) = [s for s in _mobilenet(name).schedule.steps if isinstance(s, DeviceStep) and s.tasks]
    ways = {(type(t), t.window.stride[0]) for t in step.tasks if isinstance(t, (Conv, Depthwise)) and t.is_depthwise}
    assert {stride for kind, stride in ways if kind is Depthwise} == strides
    assert {stride for kind, stride in ways if kind is Conv} == {1, 2} - strides


def _mobilenet(overlay: str) -> chai.Net:
    net = chai.Net("mobilenet_v1", overlay=overlay)
    net.calibrate(np.ones(net.shapes[net.inputs[0]], np.float32))
    return net


def test_a_small_plane_takes_as_long_as_its_numbers() -> None:
    """A plane of 5 x 5 is 25 words, 36 positions with padding; its filters and records are 25 words more of the port."""
    task, shapes = conv(32, (5, 5), CLOSE)
    filters = in_window_engine(task, Z2, shapes)
    large, others = conv(32, (14, 20), CLOSE)
    assert filters.working_cycles(Z2, shapes) == 2 * 4 * (25 + 9 + 16)
    wide = replace(Z2, ports=Z2.ports._replace(bytes=16, window=2))
    assert filters.working_cycles(wide, shapes) == 2 * 4 * 38
    assert in_window_engine(large, Z2, others).working_cycles(Z2, others) == 2 * 4 * (15 * 21 + 2)


def test_weights_and_records_come_for_each_image() -> None:
    task, shapes = conv(20, (9, 12), CLOSE)
    filters = in_window_engine(task, Z2, shapes)
    weights, records = 3 * 9 * 8, 20 * 16
    assert filters.constant_traffic(Z2, shapes) == 2 * (weights + records)
    words = 2 * 3 * 9 * 12 * 8
    assert filters.reads(Z2, shapes) == (0, 0, 0, words + 2 * (weights + records))
    kv260 = overlays.load("kv260")
    assert filters.reads(kv260, shapes) == (2 * weights, 0, 0, words + 2 * records)
