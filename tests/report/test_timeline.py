"""Chrome traces of a pass."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.report import timeline
from chai.runtime.perf import PerfInfo, StepTime

X = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)


def perf(device: str) -> PerfInfo:
    with chai.Net("digits", device=device) as net:
        net.forward(X)
        return net.perf


def steps(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X"]


def lanes(trace: dict[str, Any]) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_trace_has_every_step_with_its_time(tmp_path: Path, device: str) -> None:
    measured = perf(device)
    timeline.save(measured, tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
    assert [(e["name"], e["cat"]) for e in steps(trace)] == [(s.name, s.type) for s in measured.steps]
    for event, step in zip(steps(trace), measured.steps):
        assert event["pid"] == 1
        assert lanes(trace)[event["tid"]] == step.engine
        assert event["dur"] == step.ms * 1000
        assert event["ts"] == pytest.approx(step.begin * 1000, abs=1)
        assert event["args"] == {"type": step.type, "macs": step.macs, "bytes": step.bytes}
    assert sum(e["dur"] for e in steps(trace)) == pytest.approx(1000 * sum(s.ms for s in measured.steps))
    assert trace["otherData"] == {"wall_ms": measured.wall_ms, "batch": 4}
    engines = {"float": {"host", "custom"}, "emulator": {"host", "custom", "fpga"}}[device]
    assert {lanes(trace)[e["tid"]] for e in steps(trace)} == engines


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_steps_of_a_lane_do_not_overlap(device: str) -> None:
    trace = timeline.chrome_trace(perf(device))
    for lane in lanes(trace):
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in steps(trace) if e["tid"] == lane]
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_lanes_overlap_and_touching_clocks_are_pulled_apart() -> None:
    trace = timeline.chrome_trace(
        PerfInfo(
            (
                StepTime("a", "conv", "fpga", 2.0, 7, 3, begin=0.0),
                StepTime("b", "ReLU", "host", 1.0, 0, 4, begin=0.5),
                StepTime("c", "conv", "fpga", 1.0, 0, 5, begin=1.999),
            ),
            3.0,
        )
    )
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in steps(trace)] == [
        ("a", 3, 0.0, 2000.0),
        ("b", 1, 500.0, 1000.0),
        ("c", 3, 2000.0, 1000.0),
    ]


def test_metadata_names_the_process_and_the_lanes() -> None:
    trace = timeline.chrome_trace(PerfInfo())
    assert [(e["ph"], e["name"], e["tid"], e["args"]["name"]) for e in trace["traceEvents"]] == [
        ("M", "process_name", 0, "chai"),
        ("M", "thread_name", 1, "host"),
        ("M", "thread_name", 2, "custom"),
        ("M", "thread_name", 3, "fpga"),
    ]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    (tmp_path / "t.json" / "x").touch()
    with pytest.raises(OSError):
        timeline.save(PerfInfo(), tmp_path / "t.json")
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
