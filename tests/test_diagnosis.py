"""CHAI_CHECK, CHAI_DUMP, the null device and the cycle model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.env import env
from chai.fixed import Requantization
from chai.offload.schedule import DeviceStep
from chai.overlay import load, names
from chai.tasks.conv import Conv
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from tests.passes.common import DEEP, network

DATA = np.random.default_rng(0).random((2, 1, 8, 8)).astype(np.float32)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()


def test_a_check_finds_nothing_wrong_and_changes_nothing(checked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_check = chai.Net("digits", device="emulator").forward(DATA)["prob"]
    monkeypatch.delenv("CHAI_CHECK")
    env.cache_clear()
    assert np.array_equal(with_check, chai.Net("digits", device="emulator").forward(DATA)["prob"])


def test_a_check_stops_at_the_first_code_that_differs(checked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    define = Conv.define

    def wrong(task: Conv, *codes: Any) -> Any:
        top = define(task, *codes)
        if task.origin[0] == "inception_a/3x3":
            top[1, 2, 3, 4] ^= 1
        return top

    monkeypatch.setattr(Conv, "define", wrong)
    with pytest.raises(
        chai.DeviceError, match=r"layer 'inception_a/3x3': the device's code at \(1, 2, 3, 4\) is .* by definition"
    ) as caught:
        chai.Net("digits", device="emulator").forward(DATA)
    assert "1 of" in str(caught.value)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_dump_has_every_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    net = chai.Net("digits", device=device, keep="all")
    net.calibrate(DATA)
    monkeypatch.setenv("CHAI_DUMP", str(tmp_path / "blobs"))
    env.cache_clear()
    net.forward(DATA)
    dumps = {p.stem: np.load(p) for p in (tmp_path / "blobs").glob("*.npy")}
    assert np.array_equal(dumps["prob.prob"], net.blobs["prob"])
    assert all("/" not in name for name in dumps)
    assert "inception_a_output.inception_a_output" in dumps  # written by its branches alone
    if device == "float":
        assert np.array_equal(dumps["conv1_3x3.conv1_3x3"], net.tops("conv1/3x3")[0])
    else:
        assert dumps["conv1_3x3.conv1_3x3"].dtype == np.int8


def test_the_null_device_plans_and_computes_nothing() -> None:
    net = chai.Net("digits", device="null")
    out = net.forward(DATA)["prob"]
    assert np.allclose(out, out[0])  # the classifier saw zeros
    real = chai.Net("digits", device="emulator")
    real.forward(DATA)
    assert net.schedule.engines() == real.schedule.engines()
    assert "fpga:Convolution" in net.schedule.engines()
    assert not any(s.type == "conv" for s in net.perf.steps)  # a segment is timed as a whole


@pytest.mark.parametrize("last", ["both Concat a b -> y", "both Concat a b -> c\ncut Slice c -> y z"])
def test_on_the_null_device_a_whole_and_a_part_come_out_too(tmp_path: Path, last: str) -> None:
    net = network(
        tmp_path, f"a Convolution data -> a : {DEEP}\nb Convolution data -> b : {DEEP}\n{last}", device="null"
    )
    out = net.forward(np.ones((2, 3, 5, 7)))
    assert out["y"].shape == net.shapes["y"] and not out["y"].any()


def conv(m: int, c: int, kernel: int, group: int = 1) -> Conv:
    r = Requantization(np.ones((m, 1, 1), np.int64), 1, -128, 127)
    window = Window((kernel, kernel), (1, 1), (kernel // 2, kernel // 2))
    return Conv(
        ("x",), "y", ("c",), np.ones((m, c // group, kernel, kernel), np.int8), np.zeros(m, np.int64), window, group, r
    )


def test_cycles_by_hand() -> None:
    """16 x 24 array, 512 accumulators, one lane: 48 outputs are two blocks; 9 taps of 2 input blocks; 20 x 20 pixels."""
    overlay = load("pynq-z2")
    shapes = {"x": (1, 32, 20, 20), "y": (1, 48, 20, 20)}
    tile = 9 * 2 * 400
    assert (
        conv(48, 32, 3).cycles(overlay, shapes)
        == 2 * (tile + overlay.overhead.tile_cycles) + overlay.overhead.task_cycles
    )


def test_one_input_channel_is_no_depthwise_convolution() -> None:
    """Its 25 taps are as many passes for each of four blocks of 24 outputs.

    With four outputs a channel it is no depthwise one either: each of 16 groups is a block of its own.
    """
    overlay = load("pynq-z2")
    over = overlay.overhead
    shapes = {"x": (1, 1, 20, 20), "y": (1, 96, 20, 20)}
    assert conv(96, 1, 5).cycles(overlay, shapes) == 4 * (25 * 400 + over.tile_cycles) + over.task_cycles
    shapes = {"x": (1, 16, 20, 20), "y": (1, 64, 20, 20)}
    assert conv(64, 16, 5, 16).cycles(overlay, shapes) == 16 * (25 * 400 + over.tile_cycles) + over.task_cycles


def test_cycles_grow_with_the_work_and_shrink_with_the_array() -> None:
    shapes = {"x": (1, 64, 28, 28), "y": (1, 96, 28, 28)}
    times = {name: conv(96, 64, 3).cycles(load(name), shapes) / load(name).clock_mhz for name in names()}
    assert times["pynq-z2"] > times["ultra96"] > times["kv260"] > times["zcu102"]
    overlay = load("pynq-z2")
    assert conv(96, 64, 5).cycles(overlay, shapes) > 2 * conv(96, 64, 3).cycles(overlay, shapes)
    pool = Pool(("x",), "x2", ("p",), Window((2, 2), (2, 2), (0, 0)), (14, 14), None)
    assert pool.cycles(overlay, {**shapes, "x2": (1, 64, 14, 14)}) < conv(96, 64, 1).cycles(overlay, shapes)


def test_googlenet_keeps_the_array_busy() -> None:
    """The model's efficiency on the XC7Z020: useful MACs per MAC slot."""
    net = chai.Net("googlenet", device="null")
    net.plan()
    assert net.overlay is not None
    total = macs = 0
    for step in net.schedule.steps:
        for task in step.tasks if isinstance(step, DeviceStep) else ():
            total += task.cycles(net.overlay, net.offload.shapes)
            macs += task.macs(*(net.offload.shapes[b] for b in task.inputs))
    assert macs == 1_581_647_872
    assert 0.6 < macs / (total * net.overlay.macs) < 1


def test_formats_of_the_first_batch_are_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    net = chai.Net("digits", device="emulator")
    with caplog.at_level(logging.WARNING, "chai"):
        net.forward(DATA)
        net.forward(DATA[:1])
    words = "digits-inception brings no formats: 8-bit Xilinx formats from the largest values of 2 images times 1.5"
    cure = "8 or more are better: net.calibrate(images), --calibration FOLDER or chai quantize"
    assert [r.message for r in caplog.records] == [f"{words}; {cure}"]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "chai"):
        chai.Net("digits", device="emulator", calibrate=DATA).forward(DATA)
    assert caplog.records == []
