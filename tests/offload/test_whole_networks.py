"""Layers between convolutions that overlays run as well: one segment, near the float numbers, and the same in a compiled file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.codegen.compile import chain
from chai.tasks import Task
from tests.passes.common import network

SHAPE = (2, 8, 6, 7)
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
C = "convolution_param { num_output: 16 kernel_size: 3 pad: 1 }"
HEAD, TAIL = f"c Convolution data -> c : {C}\n", f"\ne Convolution d -> y : {C}"
SQUEEZE = (
    "p Pooling c -> p : pooling_param { pool: AVE global_pooling: true }\n"
    "q Convolution p -> q : convolution_param { num_output: 16 kernel_size: 1 }\ns Sigmoid q -> s\n"
)
DECONV = "d Deconvolution c -> d : convolution_param {{ {} }}"
# lines between the convolutions, and the kinds of Task that they become
NETS = {
    "deconvolution": (
        DECONV.format("num_output: 6 kernel_size: 4 stride: 2 pad: 1") + "\nr ReLU d -> d", ["conv", "interleave"]
    ),
    "deconvolution by channel": (
        DECONV.format("num_output: 16 group: 16 kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 2"),
        [*["conv"] * 6, "interleave"],
    ),
    "deconvolution of an odd size": (DECONV.format("num_output: 6 kernel_size: 3 stride: 2 pad: 1"), ["upsample", "conv"]),
    "deconvolution by eight": (
        DECONV.format("num_output: 3 kernel_size: 16 stride: 8 pad: 4"), ["conv", *["interleave"] * 3]
    ),
    "deconvolution without stride": (DECONV.format("num_output: 6 group: 2 kernel_size: 3 pad: 1"), ["conv"]),
    "deconvolution with dilation": (DECONV.format("num_output: 5 kernel_size: 2 dilation: 2 stride: 3"), ["upsample", "conv"]),
    "upsample": ("d Upsample c -> d : upsample_param { scale: 2 }", ["upsample"]),
    "darknet": ("d UpsampleDarknet c -> d : upsample_darknet_param { stride: 3 }", ["upsample"]),
    "nearest": (
        'd ResizeNearestNeighbor c -> d : resize_nearest_neighbor_param { scale_height: 2 scale_width: 3 data_format: "NCHW" }',
        ["upsample"],
    ),
    "resize": (
        "d Resize c -> d : resize_param { size: 0 size: 0 size: 18 size: 14 coordinates: ASYMMETRIC nearest: FLOOR }",
        ["upsample"],
    ),
    "product": (f"b Convolution data -> b : {C}\nd Eltwise b c -> d : eltwise_param {{ operation: PROD }}", ["eltwise"]),
    "maximum": (
        f"b Convolution data -> b : {C}\nd Eltwise b c -> d : eltwise_param {{ operation: MAX }}\nr ReLU d -> d", ["eltwise"]
    ),
    "sum of four": (
        f"a Convolution data -> a : {C}\nb Convolution data -> b : {C}\n"
        "d Eltwise a b c c -> d : eltwise_param { coeff: 1 coeff: -0.5 coeff: 1 coeff: 0.25 }\nr ReLU d -> d",
        ["eltwise"] * 3,
    ),
    "maximum of three": (
        f"a Convolution data -> a : {C}\nb Convolution data -> b : {C}\n"
        "d Eltwise a b c -> d : eltwise_param { operation: MAX }",
        ["eltwise"] * 2,
    ),
    "squares of pixels": (
        "d DepthToSpace c -> d : depth_to_space_param { block_size: 2 data_format: 'DCR' }", ["conv", "interleave"]
    ),
    "squares of words": (f"f Convolution c -> f : {C.replace('16', '32')}\n"
                         "d Reorg f -> d : reorg_param { stride: 2 reverse: true }", ["conv", "interleave"]),
    "squares of 4 pixels": ("d Reshape c -> d : reshape_param { pixelshuffler: 4 }", ["conv", "interleave", "interleave"]),
    "squares of 3 pixels": (f"f Convolution c -> f : {C.replace('16', '18')}\n"
                            "d DepthToSpace f -> d : depth_to_space_param { block_size: 3 data_format: 'CRD' }", None),
    "squeeze and excite": (SQUEEZE + "d Mul c s -> d", ["pool", "conv", "eltwise"]),
    "the vector first": (SQUEEZE + "d Mul s c -> d", ["pool", "conv", "eltwise"]),
    "scale by a vector": (
        "p Pooling c -> p : pooling_param { pool: AVE global_pooling: true }\n"
        "q InnerProduct p -> q : inner_product_param { num_output: 16 }\ns Sigmoid q -> s\n"
        "d Scale c s -> d : scale_param { axis: 0 }",
        ["pool", "conv", "eltwise"],
    ),
    "sum with a vector": (SQUEEZE + "d Add c s -> d", ["pool", "conv", "eltwise"]),
    "shuffle": ("d ShuffleChannel c -> d : shuffle_channel_param { group: 4 }", ["conv"]),
    "crop": (
        "p Pooling c -> p : pooling_param { pool: MAX kernel_size: 3 }\nd Crop c p -> d : crop_param { offset: 1 offset: 0 }",
        ["pool", "depthwise"],
    ),
    "pad": (f"d Pad c -> d : pad_param {{ {' '.join(f'paddings: {n}' for n in (0, 0, 0, 0, 0, 1, 2, 0))} }}", ["conv"]),
    "slices": (
        "s Slice c -> a b g : slice_param { slice_point: 5 slice_point: 8 }\nd Concat b g a -> d",
        ["conv", "copy", "copy", "conv"],
    ),
    "concat": (f"a Convolution data -> a : {C.replace('16', '11')}\nb Convolution data -> b : {C.replace('16', '3')}\n"
               "q Pooling a -> q : pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }\n"
               "d Concat q b c -> d\nr ReLU d -> d", None),
    "bias": ("p Pooling c -> p : pooling_param { pool: MAX kernel_size: 2 }\nd Bias p -> d", ["pool", "affine"]),
}  # fmt: skip


def tasks(net: chai.Net) -> list[Task]:
    return [task for step in net.schedule.segments for task in step.tasks]


@pytest.mark.parametrize("name", NETS)
def test_one_segment(tmp_path: Path, name: str) -> None:
    lines, kinds = HEAD + NETS[name][0] + TAIL, NETS[name][1]
    wanted = network(tmp_path, lines, SHAPE).forward(DATA)["y"]
    net = network(tmp_path, lines, SHAPE, device="emulator")
    top = net.forward(DATA)["y"]
    assert len(net.schedule.segments) == 1 and net.offload.plan.partition.reasons == {}
    assert kinds is None or [task.kind for task in tasks(net)][1:-1] == kinds
    assert top.shape == wanted.shape
    assert np.sqrt(((top - wanted) ** 2).mean() / (wanted**2).mean()) < 0.03
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(DATA)["y"], top)


def without(folder: Path, **changes: Any) -> Path:
    """A manifest with other limits of an eltwise, and without the kinds whose value is None."""
    manifest = json.loads(overlays.load().path.read_text())
    for kind, limits in changes.items():
        if limits is None:
            del manifest["tasks"][kind]
        else:
            manifest["tasks"][kind] |= limits
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("deconvolution of an odd size", {"upsample": None}, "no Deconvolution unit"),
        ("deconvolution by eight", {"interleave": None}, "kernel 23 is more than the overlay's 11"),
        ("upsample", {"upsample": None}, "no Upsample unit"),
        ("upsample", {"upsample": {"factor_max": 1}}, "factor 2 is more than the overlay's 1"),
        ("product", {"eltwise": {"operations": ["SUM"]}}, "the overlay adds; it has no PROD"),
        ("maximum", {"eltwise": {"operations": ["SUM"]}}, "the overlay adds; it has no MAX"),
        ("squeeze and excite", {"eltwise": {"vector": False}}, "the overlay has no vector eltwise"),
        ("squeeze and excite", {"eltwise": {"operations": ["SUM"]}}, "no Mul unit"),
    ],
)
def test_a_manifest_without_the_unit_refuses(tmp_path: Path, name: str, changes: dict[str, Any], reason: str) -> None:
    net = network(tmp_path, HEAD + NETS[name][0] + TAIL, SHAPE, device="emulator", overlay=without(tmp_path, **changes))
    net.forward(DATA)
    assert net.offload.plan.partition.reasons["d"] == reason
    assert len(net.schedule.segments) == 2


UNPOOL = (
    "p Pooling c -> p places : pooling_param { kernel_size: 2 stride: 2 }\n"
    "d Upsample p places -> d : upsample_param { upsample_h: 6 upsample_w: 8 }"
)


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        (NETS["squares of pixels"][0], {"copy": None}),
        (NETS["deconvolution"][0], {"copy": None}),
        (NETS["deconvolution"][0], {"conv": {"channels_max": 24}}),
        (f"a Convolution data -> a : {C.replace('16', '11')}\nd Concat a a c -> d", {"copy": {"channels_max": 40}}),
        (UNPOOL, {"eltwise": {"operations": ["PROD"]}}),
    ],
)
def test_an_overlay_with_less_takes_its_descriptors(tmp_path: Path, lines: str, changes: dict[str, Any]) -> None:
    """Not only the emulator, which has no limits, and the numbers are those of the whole overlay."""
    shape, path = (2, 8, 6, 8), without(tmp_path, **changes)
    data = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    nets = [
        network(tmp_path, HEAD + lines + TAIL, shape, device="emulator", **each) for each in ({}, {"overlay": path})
    ]
    wanted, top = (net.forward(data)["y"] for net in nets)
    assert np.sqrt(((top - wanted) ** 2).mean() / (wanted**2).mean()) < 0.03
    net, overlay = nets[1], overlays.load(path)
    for step in net.schedule.segments:
        segment = chain(step.work(overlay, net.offload.plan.device_shapes, net.schedule.views))
        assert segment.cycles > 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (DECONV.format("num_output: 6 kernel_size: 2 pad: 2"), "padding 2x2 crops more than the kernel adds"),
        (DECONV.format("num_output: 6 kernel_size: 3 dilation: 2 stride: 2"), "stride 2x2 with dilation 2x2"),
        (DECONV.format("num_output: 6 kernel_size: 1 stride: 9"), "factor 9 is more than the overlay's 8"),
        ("d Resize c -> d : resize_param { size: 0 size: 0 size: 9 size: 14 mode: NEAREST }", "it does more than repeat pixels"),
        ("d Resize c -> d : resize_param { size: 0 size: 0 size: 12 size: 14 mode: LINEAR }", "it does more than repeat pixels"),
    ],
)  # fmt: skip
def test_what_stays_on_the_host(tmp_path: Path, line: str, reason: str) -> None:
    net = network(tmp_path, HEAD + line + TAIL, SHAPE, device="emulator")
    net.forward(DATA)
    assert net.offload.plan.partition.reasons["d"] == reason


def test_a_maximum_has_no_table_of_codes(tmp_path: Path) -> None:
    """The codes of both inputs would go through it before the larger is chosen: the function is a Task of its own."""
    lines = HEAD + NETS["maximum"][0].replace("r ReLU d -> d", "r TanH d -> d") + TAIL
    net = network(tmp_path, lines, SHAPE, device="emulator")
    net.forward(DATA)
    assert [(task.kind, task.lookup is not None) for task in tasks(net)[1:-1]] == [("eltwise", False), ("copy", True)]


def test_vta_runs_none_of_them(tmp_path: Path) -> None:
    net = network(tmp_path, HEAD + NETS["upsample"][0] + TAIL, SHAPE, device="emulator", overlay="vta-z7020")
    net.calibrate(DATA)
    net.plan()
    assert net.offload.plan.partition.reasons["d"] == "no Upsample unit"
