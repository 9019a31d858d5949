"""Layer by layer is what a schedule runs, in float and in fixed point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.passes.rewrite import drop_identity, fold_batchnorm, fuse_relu
from chai.quantizer.observe import at_places, batches_of, cost, measured, observe, patches, places
from chai.quantizer.walk import Emulation, in_float, shapes_of
from chai.runtime.steps import forward
from chai.tasks.window import Window
from tests.passes.common import CONV, MAX, network
from tests.quantizer.test_writeback import NET, SHAPE, batches
from tests.tasks.common import narrow


def test_float_is_the_executors(tmp_path: Path) -> None:
    net = network(tmp_path, NET, SHAPE)
    feeds = {"data": batches()[0]}
    blobs = {b: v for layer, _, tops in in_float(net.graph, feeds) for b, v in zip(layer.tops, tops)}
    wanted, _ = forward.run(net.graph, shapes_of(net.graph, feeds), feeds, set(blobs))
    for blob, value in blobs.items():
        np.testing.assert_array_equal(value, wanted[blob])


@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_fixed_point_is_the_schedules(tmp_path: Path, bits: int, scheme: str) -> None:
    """Two batches of different sizes at once, against each of them through a Net."""
    net = network(tmp_path, NET, SHAPE, device="emulator", bits=bits, scheme=scheme)
    data = [batches()[0], batches()[1][:3]]
    net.calibrate(data[0])
    graph = net.graph
    for step in (drop_identity, fold_batchnorm, fuse_relu):
        graph = step(graph)
    assert net.formats is not None
    placed = {x.name for x in graph.layers if not x.source and net.offload.partition.engine(x.name) == "fpga"}
    emulation = Emulation(graph, net.formats, net.overlay, placed)  # type: ignore[arg-type]
    states = emulation.run([{"data": d} for d in data], graph.output_blobs)
    assert not emulation.refused
    for batch, state in zip(data, states):
        assert sorted({*state.host, *state.codes}) == sorted(graph.output_blobs)  # all else was dropped
        wanted = net.forward(batch)
        for name in graph.outputs:
            np.testing.assert_array_equal(state.value(graph.latest[name]), wanted[name])


def test_images_of_different_sizes(tmp_path: Path) -> None:
    """The Tasks of a pool depend on the size of its input."""
    lines = f"a Convolution data -> a : {CONV}\nra ReLU a -> a\np Pooling a -> p : {MAX}\nb Convolution p -> b : {CONV}"
    net = network(tmp_path, lines, SHAPE, device="emulator")
    draw = np.random.default_rng(6)
    data = [draw.standard_normal((n, 3, h, w)).astype(np.float32) for n, h, w in ((2, 9, 11), (1, 14, 8), (3, 9, 11))]
    net.calibrate(data[0])
    graph = fuse_relu(net.graph)
    assert net.formats is not None and net.overlay is not None
    emulation = Emulation(graph, net.formats, net.overlay, {"a", "p", "b"})
    for batch, state in zip(data, emulation.run([{"data": d} for d in data], ["b"])):
        assert not state.host  # it ran on the overlay
        np.testing.assert_array_equal(state.value("b"), net.forward(batch)["b"])


def test_a_layer_whose_numbers_do_not_fit_runs_on_the_host(tmp_path: Path) -> None:
    big = "convolution_param { num_output: 2 kernel_size: 9 pad: 4 }"
    net = network(
        tmp_path, f"a Convolution data -> a : {big}", (1, 240, 9, 9), device="emulator", overlay=narrow(tmp_path)
    )
    net.graph.layer("a").blobs[0][...] = 1  # 240 * 81 * 127 * 128 is beyond 8 times 2^24
    data = np.random.default_rng(0).standard_normal((1, 240, 9, 9)).astype(np.float32)
    net.calibrate(data)
    assert net.formats is not None and net.overlay is not None
    emulation = Emulation(net.graph, net.formats, net.overlay, {"a"})
    top = emulation.run([{"data": data}], ["a"])[0].value("a")
    assert "beyond the accumulator's 16,777,216" in emulation.refused["a"]
    np.testing.assert_array_equal(top, net.graph.layer("a").forward(data)[0])


def test_patches_times_weights_is_the_convolution(tmp_path: Path) -> None:
    fields = "num_output: 6 kernel_h: 3 kernel_w: 2 stride_h: 2 pad_h: 1 pad_w: 0 dilation: 1 group: 2"
    net = network(
        tmp_path, f"a Convolution data -> a : convolution_param {{ {fields} bias_term: false }}", (2, 4, 7, 9)
    )
    layer = net.graph.layer("a")
    codes = np.random.default_rng(0).integers(-128, 128, (2, 4, 7, 9)).astype(np.int8)
    out = layer.forward(codes.astype(np.float32))[0]
    at = np.random.default_rng(1).integers(0, out.shape[2] * out.shape[3], (2, 11))
    rows = patches(codes, Window((3, 2), (2, 1), (1, 0)), 2, out.shape[2:], at)
    assert rows.shape == (2, 22, 2 * 3 * 2)
    sums = np.matmul(rows, layer.blobs[0].reshape(2, 3, -1).transpose(0, 2, 1))
    np.testing.assert_allclose(np.concatenate(sums, 1), at_places(out, at), rtol=1e-5, atol=1e-3)


def test_places_are_those_of_the_seed(tmp_path: Path) -> None:
    net = network(tmp_path, f"a Convolution data -> a : {CONV}\nb Convolution a -> b : {CONV}", (2, 3, 40, 50))
    a, b = net.graph.layer("a"), net.graph.layer("b")
    first = places(a, (40, 50), 2, 0, 0)
    assert first.shape == (2, 128)
    np.testing.assert_array_equal(first, places(a, (40, 50), 2, 0, 0))
    for other in (places(a, (40, 50), 2, 0, 1), places(a, (40, 50), 2, 1, 0), places(b, (40, 50), 2, 0, 0)):
        assert (other != first).any()
    assert places(a, (5, 7), 2, 0, 0).tolist() == [list(range(35))] * 2  # all there are


def test_what_is_observed(tmp_path: Path) -> None:
    net = network(tmp_path, NET, SHAPE)
    data = [{"data": b} for b in batches(count=3)]
    statistics = observe(net.graph, data)
    whole = np.concatenate([b["data"] for b in data])
    assert statistics.images == 12 and len(statistics.batches) == 3
    assert statistics.seen["data"].largest == np.abs(whole).max()
    np.testing.assert_array_equal(statistics.largest["data"], np.abs(whole).max((0, 2, 3)))
    assert statistics.measured == measured(net.graph)
    few = list(batches_of(data, 7))
    assert [len(b["data"]) for b in few] == [4, 3]


def test_statistics_run_on_while_images_are_no_longer_kept(tmp_path: Path) -> None:
    net = network(tmp_path, f"a Convolution data -> a : {CONV}", (40, 3, 5, 7))
    data = [{"data": b} for b in batches((40, 3, 5, 7), 4)]
    data[3]["data"][0, 0, 0, 0] = 99.0
    statistics = observe(net.graph, data)
    assert (statistics.images, len(statistics.batches), len(statistics.wanted), len(statistics.rows["a"])) == (
        160,
        2,
        2,
        2,
    )
    assert statistics.seen["data"].largest == 99.0


def test_cost_of_probabilities_is_kl_and_of_anything_else_relative_energy(tmp_path: Path) -> None:
    net = network(
        tmp_path, f"a Convolution data -> a : {CONV}\np Softmax data -> p : softmax_param {{ axis: 1 }}", SHAPE
    )
    draw = np.random.default_rng(0)
    p, q = (v / v.sum(1, keepdims=True) for v in draw.uniform(0.1, 1, (2, 4, 3, 9, 11)))
    nats = [
        sum(
            p[n, c, y, x] * np.log(p[n, c, y, x] / q[n, c, y, x]) for c in range(3) for y in range(9) for x in range(11)
        )
        / 99
        for n in range(4)
    ]
    np.testing.assert_allclose(cost(net.graph, "p", p, q), nats)
    soft = [v**0.5 / (v**0.5).sum(1, keepdims=True) for v in (p, q)]
    nats = [(soft[0][n] * np.log(soft[0][n] / soft[1][n])).sum() / 99 for n in range(4)]
    np.testing.assert_allclose(cost(net.graph, "p", p, q, 2.0), nats)
    wrong = [((p[n] - q[n]) ** 2).sum() / (p[n] ** 2).sum() for n in range(4)]
    np.testing.assert_allclose(cost(net.graph, "a", p, q), wrong)
    assert cost(net.graph, "a", np.zeros((2, 3)), np.full((2, 3), np.nan)).tolist() == [1e6, 1e6]  # never NaN
    q[2, 1, 3, 4] = np.nan
    costs = cost(net.graph, "p", p, q, 2.0)
    np.testing.assert_allclose(costs[[0, 1, 3]], np.delete(nats, 2))
    assert costs[2] == 1e6
