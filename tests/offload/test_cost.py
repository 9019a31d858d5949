"""Segments that are cheaper on the host: by the manifest's figures, with both of them said, and never by default."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.offload.cost import costs
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
BOARD = {"macs_per_us": 500.0, "elements_per_us": 30.0, "convert_bytes_per_us": 200.0, "call_us": 200.0}


def manifest(folder: Path, **figures: float) -> Path:
    """The default overlay's, of a board with these figures, whose memory is fast enough for both engines at once."""
    content = json.loads(resource("hw_overlays", "pynq-z2", "overlay.json").read_text()) | {"memory_mb_per_s": 4000}
    path = folder / "overlay.json"
    path.write_text(json.dumps({**content, "host": {**BOARD, **figures}, "assumed": [*content["assumed"], "host"]}))
    return path


def opened(folder: Path, lines: str = TWO, engine: dict[str, str] | None = None, **figures: float) -> chai.Net:
    net = network(folder, lines, SHAPE, device="emulator", overlay=manifest(folder, **figures), engine=engine)
    net.calibrate(DATA)
    return net


def reasons(net: chai.Net) -> dict[str, str]:
    return {k: v for k, v in net.offload.partition.reasons.items() if k != "abs"}


def test_the_figures_of_each_segment(tmp_path: Path) -> None:
    """By hand. A cycle is 10 ns; a Task has 64 that are not work, a tile 8."""
    net = opened(tmp_path, macs_per_us=1, elements_per_us=0.5)
    first, second = costs(net.schedule, net.offload.overlay, net.offload.shapes)
    assert [[layer.name for layer in cost.layers] for cost in (first, second)] == [["small"], ["large", "pool"]]
    data, s, a, large, p = 2 * 3 * 35, 2 * 4 * 35, 2 * 4 * 35, 2 * 48 * 35, 2 * 48 * 24
    small = 2 * (9 * 35 + 8) + 64  # two images of 35 pixels, 9 taps
    assert first.fpga_ms * 1000 == pytest.approx(small / 100 + 200 + 4 * (data + s) / 200)
    assert first.host_ms * 1000 == pytest.approx(s * 27 + s / 0.5)  # its ReLU writes every element once more
    computed = 2 * 2 * (25 * 35 + 8) + 64  # two blocks of 24 channels, 25 taps
    assert computed / 2 < (25 * 16 * 48 + 48 * 16) / 8  # the port of constants: image by image would take longer
    pooled = -(-large // 8 * (150 + 16) // (8 * 16)) + 64  # a port reads 8 bursts of 16 beats in 166 cycles
    assert second.fpga_ms * 1000 == pytest.approx((computed + pooled) / 100 + 200 + 4 * (a + p) / 200)
    assert second.host_ms * 1000 == pytest.approx(large * 100 + large / 0.5)


def test_a_segment_that_does_not_pay_moves_as_a_whole(tmp_path: Path) -> None:
    """small takes 0.161 ms on the host, and a call alone 0.2; large and pool take 6.8 ms there."""
    net = opened(tmp_path, macs_per_us=50)
    assert net.schedule.engines() == [
        *("host:Convolution", "host:MVN", "host:Pack", "fpga:Convolution", "fpga:Pooling", "host:Unpack"),
    ]
    assert reasons(net) == {"small": "cheaper on the host: 0.161 ms against 0.217 ms on the overlay"}
    wanted = network(tmp_path, TWO, SHAPE, keep="all").forward(DATA)["p"]
    found = net.forward(DATA)["p"]
    assert 0 < np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()


def test_all_of_it_may_move(tmp_path: Path) -> None:
    """Both segments, one after the other: nothing is left on the overlay, and the numbers are Caffe's own."""
    net = opened(tmp_path, call_us=10_000)
    assert net.schedule.engines() == ["host:Convolution", "host:MVN", "host:Convolution", "host:Pooling"]
    assert set(reasons(net)) == {"small", "large", "pool"}
    assert len(set(reasons(net).values())) == 2
    assert list(costs(net.schedule, net.offload.overlay, net.offload.shapes)) == []
    assert np.array_equal(net.forward(DATA)["p"], network(tmp_path, TWO, SHAPE).forward(DATA)["p"])
    again = opened(tmp_path, call_us=10_000)
    assert again.schedule.engines() == net.schedule.engines() and reasons(again) == reasons(net)


@pytest.mark.parametrize("chosen", ["pool", "large"])
def test_what_the_user_chose_stays_with_its_segment(tmp_path: Path, chosen: str) -> None:
    net = opened(tmp_path, engine={chosen: "fpga"}, call_us=10_000)
    assert net.schedule.engines()[-4:] == ["host:Pack", "fpga:Convolution", "fpga:Pooling", "host:Unpack"]
    assert set(reasons(net)) == {"small"}


def test_a_layer_taken_in_may_be_the_one_that_was_chosen(tmp_path: Path) -> None:
    net = opened(tmp_path, engine={"relu": "fpga"}, call_us=10_000)
    assert net.schedule.engines()[:3] == ["host:Pack", "fpga:Convolution", "host:Unpack"]


def test_without_figures_nothing_moves(tmp_path: Path) -> None:
    """The shipped manifests have none: whatever the overlay can run, it runs."""
    net = network(tmp_path, TWO, SHAPE, device="emulator", calibrate=DATA)
    assert reasons(net) == {}
    assert list(costs(net.schedule, net.offload.overlay, net.offload.shapes)) == []


def test_the_digits_stay_on_a_board_of_such_figures(tmp_path: Path) -> None:
    """Starting the one segment costs more than all its work, and far less than the host would need."""
    net = chai.Net("digits", device="null", overlay=manifest(tmp_path), batch=1)
    net.plan()
    (cost,) = costs(net.schedule, net.offload.overlay, net.offload.shapes)
    assert cost.fpga_ms < 0.5 < 2 < cost.host_ms
    assert "fpga:Convolution" in net.schedule.engines()
