"""What the reports say of a pass, against sums made by hand from its steps."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.runtime.perf import KINDS, OUTSIDE, PerfInfo, StepTime
from tests.conftest import ROOT, need_models
from tests.passes.common import AFFINE, CONV, network

from .timed import CUSTOM, FOUR, NETS, NUMBER, Needs, X, by_hand, ran

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
