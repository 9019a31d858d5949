"""Formats from many images: one image at a time, so that neither memory nor numbers depend on how many there are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UsageError
from chai.runtime import measuring
from tests.passes.common import GLOBAL, dims, network

SIZE = 48
IMAGES = np.random.default_rng(0).standard_normal((24, 3, SIZE, SIZE)).astype(np.float32)
SHAPE = (24, 3, SIZE, SIZE)
WIDE = "convolution_param { num_output: 16 kernel_size: 3 pad: 1 }"
LINES = f"""
a Convolution data -> a : {WIDE}
b ReLU a -> a
c Convolution a -> c : {WIDE}
d LRN c -> d
e InnerProduct d -> e : inner_product_param {{ num_output: 7 }}
"""


TO_MAPS = "reshape_param { shape { dim: -1 dim: 16 dim: 48 dim: 48 } }"


def formats(net: chai.Net, *data: Any) -> Mapping[str, Any]:
    net.calibrate(*data)
    assert net.formats is not None
    assert "fpga:Convolution" in net.schedule.engines()
    return dict(net.formats)


def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The images of each float pass."""
    counts: list[int] = []
    run = measuring.run

    def counted(graph: Any, shapes: Any, feeds: Any, *args: Any, **options: Any) -> Any:
        counts.append(next(iter(feeds.values())).shape[0])
        return run(graph, shapes, feeds, *args, **options)

    monkeypatch.setattr(measuring, "run", counted)
    return counts


def test_ranges_are_the_largest_magnitudes_of_all_images(tmp_path: Path) -> None:
    net = network(tmp_path, LINES, SHAPE, device="emulator")
    ranges = formats(net, IMAGES)
    exact = network(tmp_path, LINES, SHAPE, keep="all")
    exact.forward(IMAGES)
    for blob in ("data", "a@b", "c"):  # the others are on the host only
        assert ranges[blob].value == pytest.approx(1.25 * float(np.abs(exact.values[blob]).max()), rel=1e-6)


@pytest.mark.parametrize("sizes", [[24], [1] * 24, [4] * 6, [5, 5, 5, 5, 4]])
def test_numbers_do_not_depend_on_the_batch(tmp_path: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = formats(network(tmp_path, LINES, SHAPE, device="emulator"), IMAGES)
    counts = passes(monkeypatch)
    ends = np.cumsum(sizes)
    net = network(tmp_path, LINES, SHAPE, device="emulator")
    batches = (IMAGES[end - size : end] for end, size in zip(ends, sizes))
    assert formats(net, batches) == wanted
    assert counts == [1] * 24


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    """Beyond the images themselves, which exist before."""
    net = network(tmp_path, LINES, SHAPE, device="emulator")
    peaks = []
    for count in (2, 2, 24):  # the first one also fills caches
        images = np.ascontiguousarray(IMAGES[:count])
        net.reshape(data=images.shape)
        _ = net.offload
        tracemalloc.start()
        try:
            net.calibrate(images)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    blob = 4 * 16 * SIZE * SIZE
    assert peaks[2] < peaks[1] + 2 * blob  # all images at once would be 24 blobs, each of several layers


@pytest.mark.parametrize(
    "lines",
    [
        "n BatchNorm a -> n : batch_norm_param { use_global_stats: false }",
        "n Softmax a -> n : softmax_param { axis: 0 }",
        "n Reshape a -> n : reshape_param { shape { dim: 24 dim: -1 } }",
        "n Permute a -> n : permute_param { order: 1 order: 0 order: 2 order: 3 }",
    ],
)
def test_images_that_a_layer_mixes_stay_together(tmp_path: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the last layer on the overlay is not measured, so another one follows."""
    lines = f"a Convolution data -> a : {WIDE}\n{lines}\nr Reshape n -> r : {TO_MAPS}\nz Convolution r -> z : {WIDE}"
    net = network(tmp_path, lines, SHAPE, device="emulator")
    counts = passes(monkeypatch)
    formats(net, IMAGES)
    assert counts == [24]


REGIONS = [[1, 0, 0, 5, 5], [0, 0, 0, 5, 5]]


@pytest.mark.parametrize(
    ("line", "inputs"),
    [
        ("m ROIPooling data r -> m : roi_pooling_param { pooled_h: 2 pooled_w: 3 }", {"r": REGIONS}),
        ("m RoiAlign data r i -> m", {"r": [[0, 0, 5, 5]] * 2, "i": [1, 0]}),
        ("m BatchReindex data i -> m", {"i": [1, 0]}),
        ("m BN data -> m : bn_param { bn_mode: LEARN }", {}),
    ],
)
def test_images_that_are_read_by_number_stay_together(
    tmp_path: Path, line: str, inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = {"data": IMAGES[:2], **{blob: np.array(values, np.float32) for blob, values in inputs.items()}}
    sources = "".join(f"{blob} Input -> {blob} : {dims(values.shape)}\n" for blob, values in feeds.items())
    lines = f"{sources}{line}\nz Convolution m -> z : {WIDE}"
    counts = passes(monkeypatch)
    formats(network(tmp_path, lines, device="emulator"), feeds)
    assert counts == [2]


@pytest.mark.parametrize("sizes", ["dim: 0 dim: -1", "dim: -1 dim: 16 dim: 2304 dim: 1"])
def test_a_reshape_that_keeps_the_batch_mixes_none(tmp_path: Path, sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f"a Convolution data -> a : {WIDE}\nb Reshape a -> b : reshape_param {{ shape {{ {sizes} }} }}\n"
    lines += f"r Reshape b -> r : {TO_MAPS}\nz Convolution r -> z : {WIDE}"
    net = network(tmp_path, lines, SHAPE, device="emulator")
    counts = passes(monkeypatch)
    formats(net, IMAGES[:3])
    assert counts == [1] * 3


def test_a_batch_norm_with_trained_statistics_mixes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f"a Convolution data -> a : {WIDE}\nn BatchNorm a -> n : {GLOBAL}"
    net = network(tmp_path, lines, SHAPE, device="emulator")
    counts = passes(monkeypatch)
    formats(net, IMAGES[:3])
    assert counts == [1] * 3


@pytest.mark.parametrize("alone", [False, True])
def test_a_custom_layer_gets_single_images_if_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    def same(x: Any) -> None:
        x.top[0][...] = x.bottom[0]

    custom = {"same": chai.custom("same", jit=False, per_image=alone)(same)}
    top = "xcustom_param { top_dim: 3 top_dim: 16 top_dim: 8 top_dim: 9 }"
    lines = f"a Convolution data -> a : {WIDE}\ns same a -> s : {top}\nz Convolution s -> z : {WIDE}"
    net = network(tmp_path, lines, (3, 3, 8, 9), device="emulator", custom=custom)
    counts = passes(monkeypatch)
    formats(net, np.ascontiguousarray(IMAGES[:3, :, :8, :9]))
    assert counts == ([1] * 3 if alone else [3])


def test_no_batch_at_all(tmp_path: Path) -> None:
    net = network(tmp_path, LINES, SHAPE, device="emulator")
    with pytest.raises(UsageError, match="calibrate: there is no batch"):
        net.calibrate(iter(()))


def test_one_rewrite_for_all_plans(tmp_path: Path) -> None:
    """Calibration and other input sizes keep the folded weights; parameters that may have changed are folded again."""
    lines = f"a Convolution data -> a : {WIDE}\nb BatchNorm a -> a : {GLOBAL}"
    net = network(tmp_path, lines, (1, 3, 5, 7), device="emulator")
    net.reshape()
    graph = net.offload.plan.graph
    assert [layer.origin for layer in graph.layers if layer.blobs] == [("a", "b")]
    x = IMAGES[:1, :, :5, :7]
    before = net.forward(x)["a"]
    assert net.offload.plan.graph is graph and net.offload.partition.engine("a") == "fpga"
    net.forward(IMAGES[:1])
    assert net.offload.plan.graph is graph
    net.params["a"][0][...] *= 3
    net.params["a"][1][...] = 0
    net.calibrate(x)
    assert net.offload.plan.graph is not graph
    exact = network(tmp_path, lines, (1, 3, 5, 7))
    for name, arrays in net.params.items():
        for own, array in zip(exact.params[name], arrays):
            own[...] = array
    wanted = exact.forward(x)["a"]
    net.calibrate(x)
    assert np.abs(net.forward(x)["a"] - wanted).max() < 0.02 * np.abs(wanted).max() < np.abs(before - wanted).max()


def test_parameters_that_were_given_away_are_folded_for_each_size(tmp_path: Path) -> None:
    """Whoever holds the arrays of ``params`` may change them at any time, and need not ask for them again."""
    lines = f"a Convolution data -> a : {WIDE}\nb BatchNorm a -> a : {GLOBAL}"
    net = network(tmp_path, lines, (1, 3, 5, 7), device="emulator")
    arrays = net.params["a"]
    net.calibrate(IMAGES[:1])
    before = net.forward(IMAGES[:1, :, :5, :7])["a"]
    arrays[0][...] = 0
    after = net.forward(IMAGES[:1, :, :9, :11])["a"]
    assert np.ptp(before, (2, 3)).any()
    assert not np.ptp(after, (2, 3)).any()  # each channel is what the BatchNorm makes of the bias
