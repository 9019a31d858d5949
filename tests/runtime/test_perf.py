"""What the reports say of a pass, against sums made by hand from its steps."""

from __future__ import annotations

import csv
import json
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import net as net_module
from chai.artifact.save import save
from chai.devices import emulator
from chai.devices.base import Program, Ran
from chai.devices.emulator import Emulator
from chai.env import env
from chai.errors import DeviceError
from chai.kernels.native import library
from chai.offload.schedule import DeviceStep
from chai.report import timeline
from chai.runtime import batches, execution, slot
from chai.runtime.host import forward, layer as host_layer, steps as host_steps
from chai.runtime.perf import CSV, KINDS, OUTSIDE, PerfInfo, StepTime, spread, summary
from chai.runtime.steps import conversions, in_c, segments
from chai.runtime.times import Rows, joined
from chai.tasks.work import Work
from chai.text import visible
from tests.conftest import ROOT, examples, need_models
from tests.passes.common import AFFINE, CONV, network

X = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 7)).astype(np.float32)
CLOCKS = (  # modules that read the clock
    *(forward, host_layer, host_steps, execution, slot, conversions, in_c, segments, net_module),
)
FILES = "deploy.prototxt", "weights.caffemodel"
NUMBER = re.compile(r"\d+\.\d+")


def twice(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0] * 2


def mixed(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0] - x.bottom[1] * x.bottom[2]


CUSTOM = {"twice": twice, "mixed": mixed}


def flagged(*shape: int) -> str:
    sizes = " ".join(f"top_dim: {d}" for d in (1, *shape))
    return f"user_defined_layer: true xcustom_param {{ {sizes} }}"


FOUR = flagged(4, 5, 7)  # a top of the convolutions' size
NETS = {  # what each custom layer has to have unpacked and packed
    "three bottoms from the device, a top with three readers": (
        f"a Convolution data -> a : {CONV}\nb Convolution data -> b : {CONV}\nc Convolution data -> c : {CONV}\n"
        f"mix mixed a b c -> m : {FOUR}\n"
        f"d Convolution m -> d : {CONV}\ne Convolution m -> e : {CONV}\nabs AbsVal m -> f",
        {"mix": (["a", "b", "c"], ["m"])},
    ),
    "two in a row": (
        f"a Convolution data -> a : {CONV}\none twice a -> p : {FOUR}\ntwo twice p -> q : {FOUR}\n"
        f"d Convolution q -> d : {CONV}",
        {"one": (["a"], []), "two": ([], ["q"])},
    ),
    "one Unpack for three readers": (
        f"a Convolution data -> a : {CONV}\none twice a -> p : {FOUR}\nmix mixed a p a -> m : {FOUR}\nabs MVN a -> b",
        {"one": (["a"], []), "mix": (["a"], [])},
    ),
    "neither neighbour": (f"one twice data -> p : {flagged(3, 5, 7)}", {"one": ([], [])}),
    "between host layers": (
        f"abs AbsVal data -> b\none twice b -> p : {flagged(3, 5, 7)}\nabs2 AbsVal p -> c",
        {"one": ([], [])},
    ),
    "packed for, not unpacked": (
        f"one twice data -> p : {flagged(3, 5, 7)}\na Convolution p -> a : {CONV}",
        {"one": ([], ["p"])},
    ),
    "none": (f"a Convolution data -> a : {CONV}\nabs AbsVal a -> b", {}),
}
Needs = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def by_hand(perf: PerfInfo, needs: Needs) -> str:
    """CHaiDNN's text, from the steps by their names."""
    ms = {s.name: s.ms for s in perf.steps}
    assert len(ms) == len(perf.steps)
    text = f"[INFOx] Total Number of Custom layers : {len(needs)}\n\n"
    for i, (layer, (unpacked, packed)) in enumerate(needs.items()):
        text += f"[INFOx] Custom Layer - {i + 1} : {layer}\n"
        text += "[PERFM] Unpack layer Latency : %f ms\n" % sum(ms[f"Unpack {blob}"] for blob in unpacked)  # noqa: UP031
        text += "[PERFM] Custom layer Latency : %f ms\n" % ms[layer]  # noqa: UP031
        text += "[PERFM] Pack   layer Latency : %f ms\n\n" % sum(ms[f"Pack {blob}"] for blob in packed)  # noqa: UP031
    return text


def ran(folder: Path, name: str, **options: Any) -> chai.Net:
    net = network(folder, NETS[name][0], device="emulator", custom=CUSTOM, **options)
    net.forward(X)
    return net


# -- CHaiDNN's text


@pytest.mark.parametrize("name", NETS)
def test_text_of_a_network(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    needs = NETS[name][1]
    net = ran(tmp_path, name)
    assert chai.getPerfInfo(net) == net.perf
    captured = capsys.readouterr()
    assert captured.err == by_hand(net.perf, needs)
    assert captured.out == ""
    there = {s.name for s in net.perf.steps}  # the other Packs and Unpacks are no custom layer's
    assert there >= {f"Unpack {b}" for u, _ in needs.values() for b in u} | {
        f"Pack {b}" for _, p in needs.values() for b in p
    }


@pytest.mark.parametrize("name", NETS)
def test_without_an_overlay_nothing_is_converted(tmp_path: Path, name: str) -> None:
    net = network(tmp_path, NETS[name][0], custom=CUSTOM)
    net.forward(X)
    assert net.perf.text() == by_hand(net.perf, {layer: ([], []) for layer in NETS[name][1]})


def test_text_of_each_batch_of_a_stream(tmp_path: Path) -> None:
    name = "three bottoms from the device, a top with three readers"
    net = ran(tmp_path, name)
    for i, _ in enumerate(net.stream([X, -X, X])):
        assert net.perf.text() == by_hand(net.perf, NETS[name][1])
        assert net.perf.batch == 2 * (i + 1)
    assert i == 2


@pytest.mark.parametrize("name", ["digits", "googlenet_gemm"])
def test_text_of_real_networks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "digits":
        net, data = chai.Net(name, device="emulator"), np.random.default_rng(0).random((3, 1, 8, 8))
        needs: Needs = {"classifier": (["pool/4x4"], [])}
    else:
        folder = need_models() / "googlenet"
        net, data = chai.Net(name, folder / "weights.caffemodel", batch=1), np.load(folder / "cases/camel/input.npy")
        needs = {"loss3/classifier": (["pool5/7x7_s1"], [])}
    net.forward(data)
    assert chai.getPerfInfo(net).text() == by_hand(net.perf, needs) == capsys.readouterr().err
    chai.getPerfInfo(net, style="docs")
    lines = capsys.readouterr().err.splitlines()
    (layer,) = needs
    assert [NUMBER.sub("#", line) for line in lines] == [
        "[PERFM] Performance with Batching : # Images/second",
        "[INFOx] Total number of Custom layers : 1",
        f"[PERFM] Custom Layer - 1 : {layer}",
        "[PERFM] Unpack layer Latency : # ms",
        "[PERFM] Custom layer Latency : # ms",
        "[PERFM] Pack layer Latency : # ms",
    ]
    assert lines[-1].endswith(": 0.0 ms")
    assert float(NUMBER.findall(lines[0])[0]) == pytest.approx(1000 * len(data) / net.perf.wall_ms, abs=0.005)


def test_the_sample_of_chaidnns_documentation() -> None:
    steps = (
        StepTime("Unpack pool5/7x7_s1", "Unpack", "host", 0.3108, 0, 8192, ("pool5",), ("pool5",)),
        StepTime("loss3/calssifier", "gemm", "custom", 30.2699, 2048000, 8000, ("pool5",), ("loss3",)),
        StepTime("prob", "Softmax", "host", 1.5, 0, 8000, ("loss3",), ("prob",)),
    )
    assert PerfInfo(steps, 40.371417, 2).text("docs") == (
        "[PERFM] Performance with Batching : 49.54 Images/second\n"
        "[INFOx] Total number of Custom layers : 1\n"
        "[PERFM] Custom Layer - 1 : loss3/calssifier\n"
        "[PERFM] Unpack layer Latency : 0.31 ms\n"
        "[PERFM] Custom layer Latency : 30.27 ms\n"
        "[PERFM] Pack layer Latency : 0.0 ms\n"
    )


def test_forms_without_custom_layers() -> None:
    perf = PerfInfo((StepTime("a", "AbsVal", "host", 1.0, 0, 4),), 8.0, 2)
    assert perf.text() == "[INFOx] Total Number of Custom layers : 0\n\n"
    assert perf.text("docs") == (
        "[PERFM] Performance with Batching : 250.00 Images/second\n[INFOx] Total number of Custom layers : 0\n"
    )


def test_a_custom_type_named_like_a_conversion_is_none() -> None:
    steps = (
        StepTime("one", "Unpack", "custom", 1.0, 0, 4, ("x",), ("y",)),
        StepTime("two", "Pack", "custom", 2.0, 0, 4, ("y",), ("z",)),
    )
    perf = PerfInfo(steps, 4.0)
    assert perf.text() == by_hand(perf, {"one": ([], []), "two": ([], [])})
    assert perf.shares["custom"] == (2, 3.0, 100.0)


def test_a_style_that_is_none() -> None:
    with pytest.raises(chai.UsageError, match="style 'doc': expected chaidnn or docs"):
        PerfInfo().text("doc")


@pytest.mark.parametrize("name", ["two in a row", "none"])
def test_before_any_pass(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The layers are those of the network; that their zeros are no measurement is said."""
    net = network(tmp_path, NETS[name][0], custom=CUSTOM, device="emulator")
    caplog.clear()
    assert chai.getPerfInfo(net) == PerfInfo()
    text = f"[INFOx] Total Number of Custom layers : {len(NETS[name][1])}\n\n"
    for i, layer in enumerate(NETS[name][1], 1):
        text += f"[INFOx] Custom Layer - {i} : {layer}\n[PERFM] Unpack layer Latency : 0.000000 ms\n"
        text += "[PERFM] Custom layer Latency : 0.000000 ms\n[PERFM] Pack   layer Latency : 0.000000 ms\n\n"
    assert capsys.readouterr().err == text
    assert [r.message for r in caplog.records] == ["net: no forward pass was run yet, so nothing was measured"]
    net.forward(X)
    caplog.clear()
    chai.getPerfInfo(net)
    assert not caplog.records


# -- totals


def test_a_conversion_that_layers_share_counts_once_in_the_totals(tmp_path: Path) -> None:
    perf = ran(tmp_path, "one Unpack for three readers").perf
    (unpack,) = (s for s in perf.steps if s.name == "Unpack a")
    one, mix = perf.custom
    assert perf.conversions(one) == perf.conversions(mix) == (unpack.ms, 0)
    assert perf.shares["unpack"][:2] == (1, unpack.ms)
    assert [c["unpack_ms"] for c in perf.to_json()["custom_layers"]] == [unpack.ms, unpack.ms]


def test_blobs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """``s`` works in place, so that what ``one`` reads and what ``two`` reads are both called a."""
    lines = (
        f"a Convolution data -> a : {CONV}\none twice a -> p : {FOUR}\n"
        f"s Scale a -> a : {AFFINE}\ntwo twice a -> q : {FOUR}"
    )
    net = network(tmp_path, lines, device="emulator", custom=CUSTOM)
    net.forward(X)
    first, second = (s for s in net.perf.steps if s.name == "Unpack a")
    one, two = net.perf.custom
    assert net.perf.conversions(one) == (first.ms, 0)
    assert net.perf.conversions(two) == (second.ms, 0)
    assert (first.reads, second.reads) == (("a",), ("a@s",))


def test_shares_of_a_network_by_hand(tmp_path: Path) -> None:
    perf = ran(tmp_path, "three bottoms from the device, a top with three readers").perf
    kinds = {
        "fpga": ["a & b & c", "d", "e"],  # three convolutions of one blob are one Task
        "host": ["abs"],
        "custom": ["mix"],
        "unpack": ["Unpack a", "Unpack b", "Unpack c", "Unpack d", "Unpack e"],
        "pack": ["Pack data", "Pack m"],
    }
    ms = {s.name: s.ms for s in perf.steps}
    assert sorted(ms) == sorted(name for names in kinds.values() for name in names)
    assert list(perf.shares) == [*KINDS, *OUTSIDE]
    assert [perf.shares[kind] for kind in OUTSIDE] == [
        (0, ms, pytest.approx(100 * ms / perf.total_ms)) for ms in (perf.feed_ms, perf.between_ms)
    ]
    for kind, names in kinds.items():
        share = perf.shares[kind]
        assert share.steps == len(names)
        assert share.ms == pytest.approx(sum(ms[n] for n in names))
        assert share.percent == pytest.approx(100 * sum(ms[n] for n in names) / perf.total_ms)
    assert perf.total_ms == pytest.approx(sum(ms.values()) + perf.feed_ms + perf.between_ms)
    for device in (True, False):  # both lanes run at once, each one step after the other
        assert sum(s.ms for s in perf.steps if (s.engine == "fpga") == device) <= perf.wall_ms


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


# -- tables


EXAMPLE = PerfInfo(
    (
        StepTime("Pack data", "Pack", "host", 0.5, 0, 9, ("data",), ("data",)),
        StepTime("conv", "conv", "fpga", 6.0, 12_000_000, 9, ("data",), ("c",), 0.5),
        StepTime("Unpack c", "Unpack", "host", 0.25, 0, 9, ("c",), ("c",), 6.5),
        StepTime('head, "last"', "gemm", "custom", 1.25, 0, 9, ("c",), ("h",), 6.75),
    ),
    10.0,
    3,
)


def test_the_table() -> None:
    assert str(EXAMPLE).splitlines() == [
        "step          type    engine     ms     %  MACs/s",
        "Pack data     Pack    host    0.500   6.2       -",
        "conv          conv    fpga    6.000  75.0   2.0 G",
        "Unpack c      Unpack  host    0.250   3.1       -",
        'head, "last"  gemm    custom  1.250  15.6       -',
        "",
        "time of  steps     ms      %",
        "fpga         1  6.000   75.0",
        "custom       1  1.250   15.6",
        "unpack       1  0.250    3.1",
        "pack         1  0.500    6.2",
        "total        4  8.000  100.0",
        "",
        "wall 10.000 ms   batch 3   3.333 ms/image   300.00 images/second",
    ]


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EXAMPLE.write_csv()
    assert (tmp_path / "layerwise_latency.csv").read_bytes().decode() == (
        "layer_name,latency,type,engine,share,macs,begin\n"
        "Pack data,0.500000,Pack,host,6.250,0,0.000000\n"
        "conv,6.000000,conv,fpga,75.000,12000000,0.500000\n"
        "Unpack c,0.250000,Unpack,host,3.125,0,6.500000\n"
        '"head, ""last""",1.250000,gemm,custom,15.625,0,6.750000\n'
    )
    assert CSV == "layerwise_latency.csv"


def test_the_file_of_a_network_is_read_back(tmp_path: Path) -> None:
    perf = ran(tmp_path, "three bottoms from the device, a top with three readers").perf
    perf.write_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(r["layer_name"], r["type"], r["engine"], int(r["macs"])) for r in rows] == [
        ("feed", "feed", "host", 0),
        *((s.name, s.type, "emulated" if s.engine == "fpga" else s.engine, s.macs) for s in perf.steps),
        ("between", "between", "host", 0),
    ]
    latencies = [perf.feed_ms, *(s.ms for s in perf.steps), perf.between_ms]
    assert [float(r["latency"]) for r in rows] == pytest.approx(latencies, abs=1e-6)
    assert [float(r["begin"]) for r in rows[1:-1]] == pytest.approx([s.begin for s in perf.steps], abs=1e-6)
    assert (rows[0]["begin"], rows[-1]["begin"]) == ("0.000000", "")
    assert sum(float(r["share"]) for r in rows) == pytest.approx(100, abs=1e-3 * len(rows))


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(OSError):
        EXAMPLE.write_csv(tmp_path / "t.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


HOSTILE = 'a\x1b[31m\n[PERFM] <img src=x onerror="x">\u202e,'


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    perf = PerfInfo((StepTime(HOSTILE, HOSTILE, "custom", 1.0, 0, 4),), 2.0)
    shown = r'a\x1b[31m\n[PERFM] <img src=x onerror="x">\u202e,'
    assert f"[INFOx] Custom Layer - 1 : {shown}\n" in perf.text()
    assert f"[PERFM] Custom Layer - 1 : {shown}\n" in perf.text("docs")
    assert str(perf).splitlines()[1].split("  ")[:2] == [shown, shown]
    page = Tags(perf._repr_html_())
    table, drawing = {"table", "thead", "tbody", "tr", "th", "td"}, {"svg", "path", "text", "rect", "title"}
    assert set(page.tags) == {"div", "style", "p"} | table | drawing
    assert page.text.count(shown) == 4  # name and type, in the table and in the timeline
    perf.write_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["layer_name"] == visible(HOSTILE)


def test_the_trace_has_custom_layers_in_a_lane_of_their_own(tmp_path: Path) -> None:
    perf = ran(tmp_path, "two in a row").perf
    events = timeline.chrome_trace(perf)["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [(lanes[e["tid"]], e["cat"], e["name"]) for e in events if e["ph"] == "X"]
    assert spans == [
        ("host", "Pack", "Pack data"),
        ("fpga", "conv", "a"),
        ("host", "Unpack", "Unpack a"),
        ("custom", "twice", "one"),
        ("custom", "twice", "two"),
        ("host", "Pack", "Pack q"),
        ("fpga", "conv", "d"),
        ("host", "Unpack", "Unpack d"),
    ]


# -- devices that time a segment as a whole


class Clock:
    """Time that passes only where a test lets it pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        for module in CLOCKS:
            monkeypatch.setattr(module, "perf_counter", lambda: self.seconds)


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

    monkeypatch.setattr(segments.DeviceCodes, "check", check)
    net.forward(X)
    assert fpga(net) == [("a .. b", "segment", 14.0)]
    assert net.perf.wall_ms == pytest.approx(2014)


def test_times_that_are_not_one_per_task_are_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _ = timed(tmp_path, monkeypatch, lambda _: [1.5])
    with pytest.raises(DeviceError, match="timed 1 Tasks of"):
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


def test_rows_are_made_once_and_keep_nothing_of_the_network() -> None:
    """So that the times of many networks, once looked at, do not hold their weights."""
    weights = np.ones(5)
    freed = weakref.ref(weights)
    rows = Rows(28, lambda weights=weights: [StepTime("ip", "InnerProduct", "host", 0.0, weights.size, 28)])
    del weights
    assert freed() is not None
    assert [row.macs for row in rows.steps] == [5]
    assert freed() is None
    assert rows.steps is rows.steps
    assert rows.bytes == rows.steps[0].bytes


def test_the_docs_page_shows_what_is_printed(tmp_path: Path) -> None:
    """Line for line, but for the numbers and what the page leaves out."""
    page = (ROOT / "docs" / "performance.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    shown, text, documented, table = (block for language, block in blocks if not language)
    folder = need_models() / "googlenet"
    norms = dict.fromkeys(("pool1/norm1", "conv2/norm2"), "host")
    net = chai.Net("googlenet_gemm", folder / "weights.caffemodel", batch=1, engine=norms)
    net.forward(np.load(folder / "cases/camel/input.npy"))
    net.perf.write_csv(tmp_path / "t.csv")

    def masked(text: str) -> list[str]:
        return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]

    first, last = shown[shown.index("step ") :].split("...\n")
    printed = masked(str(net.perf))
    assert printed[: first.count("\n")] == masked(first)
    assert printed[-last.count("\n") :] == masked(last)
    assert masked(net.perf.text()) == masked(text)
    assert masked(net.perf.text("docs")) == masked(documented)
    assert masked((tmp_path / "t.csv").read_text())[:4] == masked(table)
