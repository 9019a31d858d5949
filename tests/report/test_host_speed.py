"""Images a second of host and overlay: steps with their sizes, and sums that are reckoned here by hand."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.kernels.native.table import Kind
from chai.overlay import host_model
from chai.report.host_speed import PARTS, host_speed
from chai.report.host_work import HostWork, host_work
from tests.overlay.test_host_model import MEASURED, MODEL, changed, file

WORK = [
    HostWork("driver", "pass", "", {"call": 1, "conversion": 3, "step": 4}),
    HostWork("conversions", "Pack unfolded", "Pack a", {"call": 1, "plane": 2, "row": 6, "word": 30, "element": 200}),
    HostWork("conversions", "Unpack", "Unpack b", {"call": 1, "element": 400}),
    HostWork("driver", "segment", "c", {"call": 1}),
    HostWork("driver", "flush", "c", {"call": 2, "element": 4096}),
    HostWork("driver", "store", "1x2x3x4", {"call": 1, "element": 24}),
    HostWork("layers", "LRN", "n", {"call": 1, "blob": 2, "row": 5, "element": 70}),
    HostWork("layers", "Mish", "m", {"call": 1, "element": 10}),
    HostWork("layers", "mine", "own", {"call": 1, "element": 10}, custom=True),
]
AMOUNTS = {
    "Pack": 500 + 22 + 30 + 60 + 100,
    "Unpack": 600 + 100,
    "host layers": 40 + 14 + 15 + 700 + 60 + 90,
    "store, load": 13 + 72,
    "driver": 7000,
    "between": 1000 + 60 + 1200,
}
NET = """
name: "net"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 20 dim: 26 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 12 kernel_size: 5 stride: 2 pad: 1 } }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { norm_region: WITHIN_CHANNEL } }
layer { name: "next" type: "Convolution" bottom: "norm" top: "next" convolution_param { num_output: 7 kernel_size: 1 } }
layer { name: "fc" type: "InnerProduct" bottom: "next" top: "fc" inner_product_param { num_output: 11 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


def model(folder: Path, **changes: object) -> host_model.HostModel:
    content = MODEL
    for place, value in changes.items():
        content = changed(content, place.replace("__", "."), value)
    return host_model.load(file(folder, content))


# -- sums


def test_parts_are_the_sums_of_their_steps(tmp_path: Path) -> None:
    speed = host_speed(model(tmp_path), WORK, 1, 5.0, False)
    assert speed["parts"] == AMOUNTS and [*AMOUNTS] == [*PARTS]
    assert speed["alone"]["amount"] == sum(AMOUNTS.values())
    assert (speed["guessed"], speed["left_out"], speed["picture"]) == (["m"], ["own"], None)
    assert (speed["measured"], speed["machine"], speed["cycles"]) == (False, "armv7l", [1.5, 4])


def test_a_layers_type_may_be_called_as_the_driver_s_steps(tmp_path: Path) -> None:
    named = [HostWork("layers", kind, kind, {"call": 1}) for kind in ("lanes", "store", "pass")]
    speed = host_speed(model(tmp_path), [*WORK, *named], 1, 5.0, False)
    assert speed["parts"] == {**AMOUNTS, "host layers": AMOUNTS["host layers"] + 3 * 60}
    assert speed["alone"]["overlapping"][1] == pytest.approx(1000 / (5 + 7085 * 1.5 / 500_000))


def test_in_turn_both_take_their_time_and_overlapping_the_slower_one(tmp_path: Path) -> None:
    of_model, images, fpga_ms = model(tmp_path, driver__lanes={"source": "guess", "call": 9e6, "step": 50}), 5, 0.1
    speed = host_speed(of_model, WORK, images, fpga_ms, False)
    whole, overlay = sum(AMOUNTS.values()), AMOUNTS["driver"] + AMOUNTS["store, load"]
    for i, cycles in enumerate((4, 1.5)):  # the least images a second with the most cycles
        ms = cycles / 500_000
        assert speed["alone"]["ms"][1 - i] == pytest.approx(whole * ms / images)
        assert speed["alone"]["images_per_second"][i] == pytest.approx(images * 1000 / (whole * ms + fpga_ms))
        host, device = (whole - overlay + 4 * 50) * ms, overlay * ms + fpga_ms
        assert device > host
        assert speed["alone"]["overlapping"][i] == pytest.approx(images * 1000 / device)
    fast = host_speed(of_model, [one for one in WORK if one.kind != "segment"], images, 0.0, False)
    assert fast["alone"]["overlapping"][0] == pytest.approx(images * 1000 / ((whole - overlay + 200) * 4 / 500_000))


def test_a_pass_in_two_threads_pays_for_them(tmp_path: Path) -> None:
    of_model = model(tmp_path, driver__lanes={"source": "guess", "call": 9000, "step": 50})
    work = [*WORK, HostWork("driver", "lanes", "", WORK[0].counts)]
    one, two = (host_speed(of_model, some, 1, 1.0, False) for some in (WORK, work))
    assert two["alone"]["amount"] - one["alone"]["amount"] == 9200
    assert two["parts"]["between"] == AMOUNTS["between"] + 9200


def test_a_picture_is_read_for_each_image(tmp_path: Path) -> None:
    of_model = model(tmp_path, driver__picture={"source": "counted", "call": 2_000_000})
    speed = host_speed(of_model, WORK, 3, 2.0, True)
    assert speed["picture"] is not None
    assert speed["picture"]["amount"] == pytest.approx(sum(AMOUNTS.values()) / 3 + 2_000_000, abs=1)
    assert speed["picture"]["ms"][0] - speed["alone"]["ms"][0] == pytest.approx(2e6 * 1.5 / 500_000)
    assert host_speed(model(tmp_path), WORK, 3, 2.0, True)["picture"] is None


def test_measured_times_are_times_already(tmp_path: Path) -> None:
    of_model = host_model.load(file(tmp_path, MEASURED))
    speed = host_speed(of_model, WORK, 1, 0.25, False)
    ms = sum(AMOUNTS.values()) / 1e6
    assert speed["alone"]["ms"] == pytest.approx([ms, ms]) and speed["cycles"] is None
    assert speed["alone"]["images_per_second"] == pytest.approx([1000 / (ms + 0.25)] * 2)
    assert (speed["measured"], speed["board"], speed["unit"]) == (True, "Digilent Pynq-Z2", "nanoseconds")


def test_nothing_takes_no_time(tmp_path: Path) -> None:
    free = model(tmp_path, driver__pass={"source": "guess"})
    speed = host_speed(free, WORK[:1], 1, 0.0, False)
    assert speed["alone"]["images_per_second"] == speed["alone"]["overlapping"] == [0.0, 0.0]


# -- steps


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> list[HostWork]:
    path = tmp_path_factory.mktemp("net") / "net.prototxt"
    path.write_text(NET)
    feed = np.random.default_rng(0).normal(size=(2, 3, 20, 26)).astype(np.float32)
    with chai.Net(path, device="null", overlay="pynq-z2", calibrate=feed) as net:
        assert net.schedule.engines()[:2] == ["host:Pack", "fpga:Convolution"]
        return host_work(net.offload)


def test_steps_have_the_sizes_of_their_blobs(planned: list[HostWork]) -> None:
    work = {(one.kind, one.name): one.counts for one in planned}
    high, wide = (20 + 2 - 5) // 2 + 1, (26 + 2 - 5) // 2 + 1  # of the convolution's output
    unpacked = work["Unpack", "Unpack conv"]
    assert unpacked == {
        "call": 1,
        "plane": 2 * 2,
        "row": 4 * high,
        "word": 4 * high * wide,
        "element": 2 * 12 * high * wide,
    }
    unfolded = work["Pack unfolded", "Pack data"]
    assert unfolded["element"] == 2 * 3 * 20 * 26 and unfolded["plane"] in (2 * ceil(30 / 8), 2 * ceil(75 / 8))
    assert unfolded["word"] % (unfolded["row"] * 1) == 0 and unfolded["word"] / unfolded["row"] == wide
    norm = work["LRN", "norm"]
    assert norm == {"call": 1, "blob": 2, "row": 2 * 12 * high, "element": 2 * 12 * high * wide, "mac": 0}
    inputs = 7 * high * wide
    assert work["InnerProduct", "fc"] == {"call": 1, "blob": 2, "row": 2, "element": 2 * inputs, "mac": 2 * inputs * 11}
    assert work["Softmax", "prob"]["row"] == 2


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ("num_output: 17 kernel_size: 3 pad: 1", "Convolution in tiles"),
        ("num_output: 15 kernel_size: 3 pad: 1", "Convolution"),
        ("num_output: 20 kernel_size: 3 pad: 1 group: 2", "Convolution"),
        ("num_output: 17 kernel_size: 3 stride: 2", "Convolution"),
        ("num_output: 17 kernel_size: 5", "Convolution"),
        ("num_output: 17 kernel_size: 1 stride: 2", "Convolution 1x1"),
        ("num_output: 40 kernel_size: 3 group: 20", "Convolution depthwise"),
    ],
)
def test_convolutions_are_told_apart_as_the_kernels_do(tmp_path: Path, sizes: str, kind: str) -> None:
    path = tmp_path / "net.prototxt"
    lines = f'layer {{ name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param {{ {sizes} }} }}'
    path.write_text('input: "x" input_shape { dim: 2 dim: 20 dim: 12 dim: 13 }\n' + lines)
    with chai.Net(path, device="null", overlay="pynq-z2", engine={"c": "host"}) as net:
        net.plan()
        (step,) = (one for one in host_work(net.offload) if one.group == "layers")
        layer = net.graph.layer("c")
        native = layer.native((net.shapes["x"],), False)
        outputs, channels = layer.blobs[0].shape[:2]
    assert step.kind == kind
    assert step.counts["tap"] == step.counts["mac"] / outputs * int(20 / channels)
    if native is not None:  # where the kernels are in C
        assert (native.single.operation.kind == Kind.TILED) == (kind == "Convolution in tiles")


def test_a_pass_counts_its_conversions_and_other_steps(planned: list[HostWork]) -> None:
    first = planned[0]
    assert (first.kind, dict(first.counts)) == ("pass", {"call": 1, "conversion": 4, "step": 5})
    kinds = [one.kind for one in planned]
    assert kinds.count("segment") == kinds.count("flush") == 2 and "lanes" not in kinds


def test_caches_of_a_coherent_overlay_are_not_flushed(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    with chai.Net(tmp_path / "net.prototxt", device="null", overlay="vta-z7020", bits=8) as net:
        net.plan()
        assert "flush" not in {one.kind for one in host_work(net.offload)}


def test_codes_that_another_segment_reads_are_moved(tmp_path: Path) -> None:
    """A blob that a host layer and a later segment read is unpacked, stored and loaded as codes."""
    between = 'layer { name: "sum" type: "Eltwise" bottom: "conv" bottom: "norm" top: "sum" }\nlayer { name: "next"'
    text = NET.replace('layer { name: "next"', between).replace(
        'bottom: "norm" top: "next"', 'bottom: "sum" top: "next"'
    )
    (tmp_path / "net.prototxt").write_text(text)
    with chai.Net(tmp_path / "net.prototxt", device="null", overlay="pynq-z2") as net:
        net.plan()
        moved = {(one.kind, one.name) for one in host_work(net.offload) if one.kind in ("store", "load")}
    assert moved == {("store", "2x12x9x12"), ("load", "2x12x9x12")}
