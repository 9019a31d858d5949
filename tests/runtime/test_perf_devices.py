"""Times that devices measure themselves, of Tasks or of a segment as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.devices.base import Program, Ran
from chai.devices.emulator import Emulator
from chai.env import env
from chai.errors import DeviceError
from chai.offload.schedule import DeviceStep
from chai.runtime.steps import segments
from chai.tasks.work import Work
from tests.passes.common import CONV, network

from .timed import CUSTOM, FOUR, Clock, X


class TimedProgram(Program):
    """The emulator's blobs; each run takes 7 ms and reports what it is told to, and ``device`` milliseconds of its own."""

    device: float | None = None

    def __init__(self, program: Program, clock: Clock, report: list[float] | None) -> None:
        self.program, self.clock, self.report = program, clock, report

    def run(self, blobs: dict[str, Any]) -> Ran:
        self.program.run(blobs)
        self.clock.seconds += 0.007
        return Ran(self.report, self.device)


class TimedDevice(Emulator):
    """``report`` says from the Tasks of a Program which times it gives for them."""

    clock: Clock
    report: Callable[[list[str]], list[float] | None]

    def compile(self, work: Work) -> Program:
        inner = super().compile(work)
        return TimedProgram(inner, self.clock, self.report([task.origin[0] for task in work.tasks]))


SEGMENT = f"a Convolution data -> a : {CONV}\nb Convolution a -> b : {CONV}\none twice b -> c : {FOUR}"


def timed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, report: Callable[[list[str]], list[float] | None]
) -> tuple[chai.Net, Clock]:
    device = TimedDevice("timed", "a device of the tests")
    clock = Clock(monkeypatch)
    object.__setattr__(device, "clock", clock)
    object.__setattr__(device, "report", report)
    return network(folder, SEGMENT, device=device, custom=CUSTOM), clock


def fpga(net: chai.Net) -> list[tuple[str, str, float]]:
    return [(s.name, s.type, round(s.ms, 9)) for s in net.perf.steps if s.engine == "fpga"]


def test_what_an_accelerator_counted_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the overlay's 7 ms, 5.5 were its own; the rest moved blobs."""
    monkeypatch.setattr(TimedProgram, "device", 5.5)
    net, _ = timed(tmp_path, monkeypatch, lambda _: None)
    net.forward(X)
    assert [s.device_ms for s in net.perf.steps if s.engine == "fpga"] == [5.5]
    assert "   accelerator 5.500 of 7.000 ms   " in net.perf.throughput() and "5.500 of" in str(net.perf)
    assert [s["device_ms"] for s in net.perf.to_json()["steps"] if s["engine"] == "fpga"] == [5.5]
    net, _ = timed(tmp_path, monkeypatch, lambda names: [3.0] * len(names))
    net.forward(X)  # several Tasks in one run: nobody knows whose they were
    assert {s.device_ms for s in net.perf.steps} == {None} and "accelerator" not in net.perf.throughput()
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    net, _ = timed(tmp_path, monkeypatch, lambda names: [6.0] * len(names))
    net.forward(X)  # each Task on its own
    counted = [(s.ms, s.device_ms) for s in net.perf.steps if s.engine == "fpga"]
    assert counted == [(6.0, 5.5)] * len(counted) and len(counted) == 2


def test_a_segment_timed_as_a_whole_is_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = timed(tmp_path, monkeypatch, lambda _: None)
    net.forward(X)
    assert fpga(net) == [("a .. b", "segment", 7.0)]
    (segment,) = (s for s in net.perf.steps if s.engine == "fpga")
    pixels = 2 * 4 * 5 * 7  # of a's and of b's top
    assert segment.macs == pixels * 3 * 3 * 3 + pixels * 4 * 3 * 3
    assert segment.bytes == 2 * pixels
    assert (segment.reads, segment.writes) == (("data",), ("b",))
    assert net.perf.shares["fpga"] == (1, pytest.approx(7), pytest.approx(100))
    assert net.perf.text().endswith("Pack   layer Latency : 0.000000 ms\n\n")
    assert net.perf.wall_ms == pytest.approx(7)


def test_times_of_tasks_are_reported_as_the_device_gave_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not have to make up the whole."""
    net, _ = timed(tmp_path, monkeypatch, lambda names: [{"a": 1.5, "b": 0.25}[n] for n in names])
    net.forward(X)
    assert fpga(net) == [("a", "conv", 1.5), ("b", "conv", 0.25)]
    assert [s.begin for s in net.perf.steps if s.engine == "fpga"] == [0, 1.5]
    assert net.perf.wall_ms == pytest.approx(7)


def test_one_program_without_times_makes_the_segment_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under CHAI_CHECK every Task is a Program; looking at its codes is no time of the device."""
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    net, clock = timed(tmp_path, monkeypatch, lambda names: None if names == ["b"] else [1.5])

    def check(*_: Any) -> None:
        clock.seconds += 1

    monkeypatch.setattr(segments.DeviceSegment, "check", check)
    net.forward(X)
    assert fpga(net) == [("a .. b", "segment", 14.0)]
    assert net.perf.wall_ms == pytest.approx(2014)


def test_times_that_are_not_one_per_task_are_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = timed(tmp_path, monkeypatch, lambda _: [1.5])
    with pytest.raises(DeviceError, match="timed 1 Task of"):
        net.forward(X)


def test_the_null_device_is_timed_by_segments() -> None:
    net = chai.Net("digits", device="null")
    net.forward(np.zeros((1, 1, 8, 8)))
    segments = [step for step in net.schedule.steps if isinstance(step, DeviceStep)]
    segment_steps = [s for s in net.perf.steps if s.engine == "fpga"]
    assert [s.name for s in segment_steps] == [f"{s.layers[0].name} .. {s.layers[-1].name}" for s in segments]
    assert {s.type for s in segment_steps} == {"segment"}
    measured = chai.Net("digits", device="emulator")
    measured.forward(np.zeros((1, 1, 8, 8)))
    on_device = ([s.bytes for s in n.perf.steps if s.engine == "fpga"] for n in (net, measured))
    assert len({*map(sum, on_device)}) == 1
    assert sum(s.macs for s in segment_steps) == sum(s.macs for s in measured.perf.steps if s.engine == "fpga")
