"""Segments that are cheaper on the host: by a host model, with both figures said, and only where the user asks for it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.cli import main
from chai.codegen import compile
from chai.codegen.compile import executable
from chai.codegen.memory_map import READ, WRITTEN
from chai.errors import UsageError
from chai.offload.cost import SegmentCost, costs
from chai.offload.schedule import Pack
from chai.overlay import host_model
from chai.overlay.host_model import Span
from chai.util.paths import resource
from tests.passes.common import CONV, network

SHAPE = (2, 3, 5, 7)
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
TWO = f"""
    small Convolution data -> s : {CONV}
    relu ReLU s -> s
    abs MVN s -> a
    large Convolution a -> l : convolution_param {{ num_output: 48 kernel_size: 5 pad: 2 }}
    pool Pooling l -> p : pooling_param {{ pool: MAX kernel_size: 2 }}
    """
OF_PIXELS = TWO.replace(CONV, "convolution_param { num_output: 4 kernel_size: 1 }", 1)  # cheap by the manifest's model
BOARD = {  # nanoseconds
    "driver": {"pass": {"call": 0}, "segment": {"call": 200_000}, "flush": {"call": 1000, "element": 2}},
    "conversions": {
        "Pack": {"call": 100, "element": 20},
        "Pack unfolded": {"call": 300, "word": 40},
        "Unpack": {"call": 200, "plane": 50, "row": 7},
    },
    "layers": {"Convolution": {"call": 500, "mac": 2}, "ReLU": {"element": 5}, "others": {"row": 30, "element": 33}},
}


def board(folder: Path, **times: float) -> Path:
    """Write what a board measured: BOARD, with other times of ``segment`` or an unfolded ``word``."""
    measured: dict[str, Any] = copy.deepcopy(BOARD)
    measured["driver"]["segment"]["call"] = times.get("segment", 200_000)
    measured["conversions"]["Pack unfolded"]["word"] = times.get("word", 40)
    for kinds in measured.values():
        for cost in kinds.values():
            cost["source"] = "here"
    words = {"machine": "armv7l", "processor": "Cortex-A9", "board": "PYNQ-Z2", "unit": "nanoseconds"}
    path = folder / "board.json"
    path.write_text(json.dumps({**words, "assumed": [], "sources": {"here": "by hand"}, **measured}))
    return path


def opened(folder: Path, lines: str = TWO, engine: dict[str, str] | None = None, **times: float) -> chai.Net:
    net = network(folder, lines, SHAPE, device="emulator", place=board(folder, **times), engine=engine)
    net.calibrate(DATA)
    return net


def reasons(net: chai.Net) -> dict[str, str]:
    return {k: v for k, v in net.offload.partition.reasons.items() if k != "abs"}


def costs_of(net: chai.Net, model: host_model.HostModel) -> list[SegmentCost]:
    overlay = net.overlay
    assert overlay is not None
    shapes = net.offload.plan.device_shapes
    return [*costs(net.schedule, net.schedule.compiled(overlay, shapes), overlay, shapes, model)]


def test_the_figures_of_each_segment(tmp_path: Path) -> None:
    """By hand. Two images; words hold 8 channels."""
    model = host_model.load(board(tmp_path))
    net = network(tmp_path, TWO, SHAPE, device="emulator", calibrate=DATA)
    first, second = costs_of(net, model)
    assert [[layer.name for layer in cost.layers] for cost in (first, second)] == [["small"], ["large", "pool"]]
    s, a, large = 2 * 4 * 35, 2 * 4 * 35, 2 * 48 * 35
    shapes, views = net.offload.plan.device_shapes, net.schedule.views
    chains = [executable(step.work(net.offload.overlay, shapes, views)) for step in net.schedule.segments]
    crossing = [[size for region, size in chain.sizes.items() if region in (*WRITTEN, *READ)] for chain in chains]
    flushed = [1000 * len(sizes) + 2 * sum(sizes) for sizes in crossing]
    packed = 100 + 20 * 2 * 3 * 35
    assert first.around == pytest.approx([(200_000 + flushed[0] + packed + 200 + 50 * 2 + 7 * 2 * 5) / 1e6] * 2)
    assert first.instead == pytest.approx([(500 + 2 * s * 27 + 5 * s) / 1e6] * 2)  # its ReLU is a pass of its own
    unpacked = 200 + 50 * 12 + 7 * 12 * 4
    assert second.around == pytest.approx([(200_000 + flushed[1] + 100 + 20 * a + unpacked) / 1e6] * 2)
    pooled = 30 * 2 * 48 * 4 + 33 * large
    assert second.instead == pytest.approx([(500 + 2 * large * 100 + pooled) / 1e6] * 2)
    for cost, chain in zip((first, second), chains):
        assert cost.fpga == pytest.approx([chain.cycles / 1e5 + cost.around.least] * 2)


def test_an_unfolded_input_is_packed_by_other_figures(tmp_path: Path) -> None:
    lines = "conv Convolution data -> c : convolution_param { num_output: 8 kernel_size: 7 stride: 2 }"
    net = network(tmp_path, lines, (2, 3, 21, 27), device="emulator")
    net.plan()
    (pack, *_) = net.schedule.conversions
    assert isinstance(pack, Pack) and pack.unfold is not None
    shape = net.offload.plan.device_shapes[pack.result]
    words = 2 * -(-shape[1] // 8) * shape[2] * shape[3]
    (cost,) = costs_of(net, host_model.load(board(tmp_path)))
    (other,) = costs_of(net, host_model.load(board(tmp_path, word=41)))
    assert other.around.least - cost.around.least == pytest.approx(words / 1e6)


def test_a_segment_that_does_not_pay_moves_as_a_whole(tmp_path: Path) -> None:
    """A start alone takes longer than the first segment's layer on the host; the second one's take 1.0 ms there."""
    net = opened(tmp_path)
    assert net.schedule.engines() == [
        *("host:Convolution", "host:MVN", "host:Pack", "fpga:Convolution", "fpga:Pooling", "host:Unpack"),
    ]
    assert [*reasons(net)] == ["small"]
    assert reasons(net)["small"].startswith("cheaper on the host: 0.017 ms against 0.2")
    wanted = network(tmp_path, TWO, SHAPE, keep="all").forward(DATA)["p"]
    top = net.forward(DATA)["p"]
    assert 0 < np.abs(top - wanted).max() < 0.03 * np.abs(wanted).max()


def test_all_of_it_may_move(tmp_path: Path) -> None:
    """Both segments, one after the other: nothing is left on the overlay, and the numbers are Caffe's own."""
    net = opened(tmp_path, segment=1e8)
    assert net.schedule.engines() == ["host:Convolution", "host:MVN", "host:Convolution", "host:Pooling"]
    assert set(reasons(net)) == {"small", "large", "pool"}
    assert len(set(reasons(net).values())) == 2
    assert costs_of(net, host_model.load(board(tmp_path))) == []
    assert np.array_equal(net.forward(DATA)["p"], network(tmp_path, TWO, SHAPE).forward(DATA)["p"])
    again = opened(tmp_path, segment=1e8)
    assert again.schedule.engines() == net.schedule.engines() and reasons(again) == reasons(net)


@pytest.mark.parametrize("chosen", ["pool", "large"])
def test_what_the_user_chose_stays_with_its_segment(tmp_path: Path, chosen: str) -> None:
    net = opened(tmp_path, engine={chosen: "fpga"}, segment=1e8)
    assert net.schedule.engines()[-4:] == ["host:Pack", "fpga:Convolution", "fpga:Pooling", "host:Unpack"]
    assert set(reasons(net)) == {"small"}


def test_a_layer_taken_in_may_be_the_one_that_was_chosen(tmp_path: Path) -> None:
    net = opened(tmp_path, engine={"relu": "fpga"}, segment=1e8)
    assert net.schedule.engines()[:3] == ["host:Pack", "fpga:Convolution", "host:Unpack"]


def test_by_default_nothing_moves(tmp_path: Path) -> None:
    """Whatever the overlay can run, it runs, though its manifest knows what that costs."""
    net = network(tmp_path, OF_PIXELS, SHAPE, device="emulator", calibrate=DATA)
    assert reasons(net) == {} and net.overlay is not None
    model = host_model.of_manifest(net.overlay.path)
    assert model is not None and [cost.pays for cost in costs_of(net, model)] == [False, True]


def test_the_manifests_own_model_decides_where_it_is_asked(tmp_path: Path) -> None:
    """Both ends of its span say so: the cycles of an instruction are assumed, for the overlay's side as for the other."""
    net = network(tmp_path, OF_PIXELS, SHAPE, device="emulator", calibrate=DATA, place="cost")
    assert [*reasons(net)] == ["small"] and " to " in reasons(net)["small"]


def test_a_manifest_without_a_model_cannot_decide(tmp_path: Path) -> None:
    content = json.loads(resource("hw_overlays", "pynq-z2", "overlay.json").read_text())
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps({key: value for key, value in content.items() if key != "host_model"}))
    for place, reason in (("cost", "has no host_model"), ("absent.json", "there is no such file")):
        with pytest.raises(UsageError, match=reason) as error:
            network(tmp_path, TWO, SHAPE, device="emulator", overlay=path, place=place)
        assert "chai devices --measure" in (error.value.hint or "")


def test_a_span_that_overlaps_leaves_the_segment() -> None:
    """Only what is cheaper by the least and by the most figures moves."""

    def cost(around: tuple[float, float], instead: tuple[float, float]) -> SegmentCost:
        return SegmentCost((), 0.5, Span(*around), Span(*instead))

    assert not cost((0.1, 0.3), (0.5, 0.7)).pays
    assert cost((0.1, 0.3), (0.5, 0.9)).pays
    assert cost((0.1, 0.3), (0.7, 0.7)).pays


def test_show_says_what_does_not_pay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network(tmp_path, OF_PIXELS, SHAPE)
    (path,) = tmp_path.glob("*.prototxt")
    command = ["show", str(path), "--overlay", "pynq-z2"]
    assert main(command) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cost")]
    assert "2 segments cost the processor" in lines[0] and "--place cost moves there: small: on the host" in lines[1]
    assert main([*command, "--place", "cost", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["costs"]
    assert row["layers"] == ["large", "pool"] and row["around_ms"][0] < row["fpga_ms"][0] < row["host_ms"][0]


def test_show_compiles_each_segment_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For costs and cycles together; a large network's would take seconds twice."""
    works = []
    chain = compile.chain
    monkeypatch.setattr(compile, "chain", lambda work: works.append(work) or chain(work))
    assert main(["show", "digits", "--overlay", "pynq-z2", "--json", "-q"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(works) == content["segments"] == len(content["costs"]) == 1
