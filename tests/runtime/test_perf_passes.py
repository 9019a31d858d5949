"""Times of a pass and its rows, by a clock of our own, and of several passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.artifact.save import save
from chai.devices import emulator
from chai.kernels.native import library
from chai.runtime import batches
from chai.runtime.perf import KINDS, OUTSIDE, PerfInfo, StepTime, spread, summary
from chai.runtime.times import joined
from tests.conftest import examples, need_models

from .timed import CLOCKS, Clock

FILES = "deploy.prototxt", "weights.caffemodel"


# -- a pass and its rows, by a clock that ticks once whenever it is read


def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a millisecond: what is between two looks counts the same everywhere."""
    ticks = count()
    for module in (*CLOCKS, emulator, batches):
        monkeypatch.setattr(module, "perf_counter", lambda: next(ticks) / 1000)


@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize("name", ["digits", "cifar_resnet20"])
def test_the_rows_are_the_pass(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row by looks of its own at the clock, none twice; what no row has are the first and the last look."""
    monkeypatch.setattr(
        library, "state", lambda: library.LibraryState((), "", None)
    )  # Tasks in C have a clock of their own
    net = chai.Net(*((need_models() / name / f for f in FILES) if name != "digits" else [name]), device=device, batch=1)
    (blob,) = net.inputs
    data = np.random.default_rng(0).random(net.shapes[blob], np.float32)
    net.forward(data)
    ticking(monkeypatch)
    net.forward(data)
    perf = net.perf
    assert perf.feed_ms >= 1 and perf.between_ms >= (len(net.schedule.steps) if net.overlay else len(perf.steps))
    assert perf.rows == (perf.rows[0], *perf.steps, perf.rows[-1])
    assert perf.total_ms == pytest.approx(sum(row.ms for row in perf.rows))
    assert perf.total_ms == pytest.approx(sum(share.ms for share in perf.shares.values()))
    looks = 2 * len(net.schedule.steps) if net.overlay else 0
    assert perf.wall_ms - looks - 3 <= perf.total_ms <= perf.wall_ms


def test_what_is_prepared_once_is_no_part_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    net = chai.Net("digits")
    clock = Clock(monkeypatch)

    def slow(*_: Any, **__: Any) -> Any:
        clock.seconds += 5
        return calibrate(*_, **__)

    calibrate = net._source.calibrate
    monkeypatch.setattr(net._source, "calibrate", slow)
    net.forward(np.zeros((1, 1, 8, 8), np.float32))
    assert (clock.seconds, net.perf.wall_ms) == (5, 0)

    feeds = net._feeds
    monkeypatch.setattr(net, "_feeds", lambda *a: (setattr(clock, "seconds", clock.seconds + 1), feeds(*a))[1])
    net.forward(np.zeros((1, 1, 8, 8), np.float32))  # checking the inputs is
    assert (net.perf.feed_ms, net.perf.wall_ms) == (pytest.approx(1000), pytest.approx(1000))
    assert net.perf.rows[0].name == "feed" and net.perf.shares["feed"].percent == pytest.approx(100)


def test_a_compiled_network_of_several_runs_is_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        library, "state", lambda: library.LibraryState((), "", None)
    )  # Tasks in C have a clock of their own
    net = chai.Net("digits", batch=2)
    data = np.random.default_rng(0).random((5, 1, 8, 8)).astype(np.float32)
    net.calibrate(data)
    net.forward(data[:2])
    save(net, tmp_path / "d.chai")
    loaded = chai.Net(tmp_path / "d.chai")
    loaded.forward(data[:2])
    once = loaded.perf
    ticking(monkeypatch)
    loaded.forward(data)
    perf = loaded.perf
    assert [(s.name, s.macs, s.bytes) for s in perf.steps] == [(s.name, 3 * s.macs, 3 * s.bytes) for s in once.steps]
    assert perf.blob_bytes == 3 * once.blob_bytes == 6 * 8 * 8 * 4 + sum(s.bytes for s in perf.steps)  # with the inputs
    assert perf.peak_bytes == once.peak_bytes
    assert perf.batch == 5 and perf.wall_ms * 0.8 < perf.total_ms <= perf.wall_ms


# -- several passes


def test_spread() -> None:
    assert spread([3.0]) == (3, 3, 3)
    assert spread([4.0, 1.0, 2.0]) == (2, 1, 4)
    assert spread([float(n) for n in range(20, 0, -1)]) == (10.5, 1, 18)


def one_of(times: Sequence[float], wall: float, turned: bool = False) -> PerfInfo:
    """A pass of two Tasks of one layer and a custom layer; ``turned``: its lanes ended the other way round."""
    steps = (
        StepTime("a", "conv", "fpga", times[1], 2_000_000, 4, begin=1.0),
        StepTime("a", "conv", "fpga", times[2], 0, 4, begin=2.0),
        StepTime("c", "gemm", "custom", times[3], 0, 4, begin=3.0),
    )
    return PerfInfo(steps[2:] + steps[:2] if turned else steps, wall, 2, 0, 0, times[0], times[4])


PASSES = [one_of(t, w, w == 40) for t, w in (([1, 8, 3, 5, 2], 20.0), ([2, 6, 4, 9, 1], 24.0), ([9, 7, 2, 1, 3], 40.0))]


def test_several_passes_have_a_spread_for_every_row_and_for_all(tmp_path: Path) -> None:
    perf = summary(PASSES)
    assert str(perf).splitlines() == [
        "step     type  engine     ms    min    p90     %  MACs/s",
        "feed     -     host    2.000  1.000  9.000  10.5       -",
        "c        gemm  custom  5.000  1.000  9.000  26.3       -",
        "a        conv  fpga    7.000  6.000  8.000  36.8   0.3 G",
        "a        conv  fpga    3.000  2.000  4.000  15.8       -",
        "between  -     host    2.000  1.000  3.000  10.5       -",
        "",
        "time of  steps      ms     min     p90      %",
        "fpga         2  10.000   9.000  11.000   52.6",
        "custom       1   5.000   1.000   9.000   26.3",
        "feed         -   2.000   1.000   9.000   10.5",
        "between      -   2.000   1.000   3.000   10.5",
        "total        3  22.000  19.000  22.000  100.0",
        "",
        "wall 24.000 ms (median of 3 passes, min 20.000, p90 40.000)   batch 2   12.000 ms/image   83.33 images/second",
    ]
    assert "Custom layer Latency : 5.000000 ms" in perf.text()
    perf.write_csv(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines() == [
        "layer_name,latency,type,engine,share,macs,begin,min,p90",
        "feed,2.000000,feed,host,10.526,0,0.000000,1.000000,9.000000",
        "c,5.000000,gemm,custom,26.316,0,3.000000,1.000000,9.000000",
        "a,7.000000,conv,fpga,36.842,2000000,1.000000,6.000000,8.000000",
        "a,3.000000,conv,fpga,15.789,0,2.000000,2.000000,4.000000",
        "between,2.000000,between,host,10.526,0,,1.000000,3.000000",
    ]
    report = json.loads(json.dumps(perf.to_json(), allow_nan=False))
    assert (report["passes"], report["total_ms"], report["ms_per_image"]) == (3, 22, 12)
    assert report["wall"] == {"median": 24, "min": 20, "p90": 40}
    assert report["rows"][1] == {"name": "c", "median": 5, "min": 1, "p90": 9}
    assert "median of 3 passes" in perf._repr_html_()


def test_one_pass_is_its_own_summary() -> None:
    assert summary(PASSES[:1]) is PASSES[0]
    assert "min" not in str(PASSES[0]) and PASSES[0].to_json()["passes"] == 1


def test_runs_joined_have_the_sums() -> None:
    perf = joined(PASSES[:2], 3, 50.0)
    assert [(s.ms, s.macs, s.begin) for s in perf.steps] == [(14, 4_000_000, 1), (7, 0, 2), (14, 0, 3)]
    assert (perf.feed_ms, perf.between_ms, perf.wall_ms, perf.batch, perf.passes) == (3, 3, 50, 3, ())


TIME = st.just(0.0) | st.floats(1e-6, 1e6)  # milliseconds; clocks tick in nanoseconds
STEPS = st.lists(
    st.builds(
        StepTime,
        name=st.text(max_size=5),
        type=st.sampled_from(["Pack", "Unpack", "conv", "gemm"]),
        engine=st.sampled_from(["host", "custom", "fpga"]),
        ms=TIME,
        macs=st.integers(0, 10**12),
        bytes=st.integers(0, 10**9),
        begin=TIME,
    ),
    max_size=9,
)


@settings(max_examples=examples(50))
@given(STEPS, TIME, st.integers(1, 9))
def test_every_step_is_in_one_share_and_all_forms_hold(steps: list[StepTime], wall: float, batch: int) -> None:
    perf = PerfInfo(tuple(steps), wall, batch)
    total = sum(s.ms for s in steps)
    assert sum(share.steps for share in perf.shares.values()) == len(steps)
    assert sum(share.ms for share in perf.shares.values()) == pytest.approx(total)
    if total:
        assert sum(share.percent for share in perf.shares.values()) == pytest.approx(100)
    report = json.loads(json.dumps(perf.to_json(), allow_nan=False))
    assert [s["name"] for s in report["steps"]] == [s.name for s in steps]
    assert report["images_per_second"] == pytest.approx(1000 * batch / wall if wall else 0)
    assert len(str(perf).splitlines()) == 1 + len(steps) + 2 + len({s.kind for s in steps}) + bool(steps) + 2
    lines = 3 + len(steps) + len({s.kind for s in steps}) if steps else 0
    assert perf._repr_html_().count("<tr>") == lines


def test_json_before_any_pass() -> None:
    report = json.loads(json.dumps(PerfInfo().to_json()))
    assert (report["steps"], report["custom_layers"], report["steps_ms"], report["images_per_second"]) == ([], [], 0, 0)
    assert report["shares"] == {kind: {"steps": 0, "ms": 0, "percent": 0} for kind in (*KINDS, *OUTSIDE)}
    assert (report["passes"], report["rows"], report["total_ms"], report["ms_per_image"]) == (0, [], 0, 0)
