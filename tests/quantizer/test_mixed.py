"""Widths by layer: 8 bits where 6 cost most, within a share of the multiply-accumulates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UsageError
from chai.fixed import Format
from chai.graph import Graph, Layer
from chai.overlay import load
from chai.passes.rewrite import fuse_relu
from chai.quantizer import Recipe, alone, quantize
from chai.quantizer.build import RecipeBuilder
from chai.quantizer.groups import Codes
from chai.quantizer.observe import observe
from tests.passes.common import MAX, network
from tests.quantizer.test_writeback import save

SHAPE = (4, 3, 13, 11)
LINES = f"""
    a Convolution data -> a : convolution_param {{ num_output: 9 kernel_size: 3 }}
    ra ReLU a -> a
    pool Pooling a -> p : {MAX}
    b Convolution p -> b : convolution_param {{ num_output: 7 kernel_size: 1 }}
    rb ReLU b -> b
    b3 Convolution p -> b3 : convolution_param {{ num_output: 5 kernel_size: 3 pad: 1 }}
    rb3 ReLU b3 -> b3
    c Convolution b -> c : convolution_param {{ num_output: 16 kernel_size: 1 }}
    rc ReLU c -> c
    d Convolution b3 -> d : convolution_param {{ num_output: 6 kernel_size: 1 }}
    cat Concat c d -> cat
    e Convolution cat -> e : convolution_param {{ num_output: 4 kernel_size: 3 }}
    """
SETS = [("b", "b3"), ("c",), ("d",), ("e",)]  # read one blob each; a reads the input, which keeps 8 bits
SIZE = {"a": 9 * 27, "b": 7 * 9, "b3": 5 * 81, "c": 16 * 7, "d": 6 * 5, "e": 4 * 22 * 9}  # products per position
AREA = {"a": 11 * 9, "b": 5 * 4, "b3": 5 * 4, "c": 5 * 4, "d": 5 * 4, "e": 3 * 2}


def data() -> np.ndarray:
    return np.random.default_rng(3).standard_t(3, (2, *SHAPE)).astype(np.float32)


def builders(folder: Path, scheme: str) -> tuple[RecipeBuilder, RecipeBuilder]:
    net = network(folder, LINES, SHAPE)
    graph = fuse_relu(net.graph)
    seen = observe(graph, [{"data": d} for d in data()])
    placed = {x.name for x in graph.layers if not x.source}
    narrow, wide = (RecipeBuilder(graph, net.graph, seen, Codes(load(), scheme, bits), placed) for bits in (6, 8))
    return narrow, wide


def rounded(values: np.ndarray, step: np.ndarray | float, high: int) -> np.ndarray:
    return np.clip(np.rint(values / step), -high, high) * step


def run(graph: Graph, feeds: np.ndarray, names: tuple[str, ...], formats: dict[str, Format], bits: int) -> np.ndarray:
    """The network in float; the layers ``names`` read codes and have weights of ``bits``."""
    values = {"data": feeds}
    for layer in graph.layers:
        if layer.source:
            continue
        bottoms = [values[b] for b in layer.bottoms]
        blobs = layer.blobs
        if layer.name in names:
            f = formats[layer.bottoms[0]]
            bottoms = [f.dequantize(f.quantize(bottoms[0]))]
            layer = copy_with(layer, bits, f.scheme)
        top = layer.forward(*bottoms)[0]
        values[layer.tops[0]] = top if layer.slope is None else np.maximum(top, 0)
        layer.blobs = blobs
    return values["e"]


def copy_with(layer: Layer, bits: int, scheme: str) -> Layer:
    weights, high = layer.blobs[0], 2 ** (bits - 1) - 1
    if scheme == "Xilinx":
        best = np.empty_like(weights)
        for i, row in enumerate(weights):
            steps = [np.abs(row).max() * share / high for share in np.arange(1, 0.3, -0.02)]
            best[i] = rounded(row, min(steps, key=lambda s: float(((rounded(row, s, high) - row) ** 2).sum())), high)
    else:
        first = np.floor(np.log2(high / np.abs(weights).max()))
        steps = [2.0 ** -(first + i) for i in range(4)]
        best = rounded(
            weights, min(steps, key=lambda s: float(((rounded(weights, s, high) - weights) ** 2).sum())), high
        )
    layer.blobs = [best.astype(np.float32), *layer.blobs[1:]]
    return layer


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_the_dearest_products_get_8_bits(tmp_path: Path, scheme: str) -> None:
    """By the cost of each set alone, from a float network with rounded inputs and weights."""
    narrow, wide = builders(tmp_path, scheme)
    formats = narrow.formatted(Recipe("after", "mse"))[1]
    feeds = np.concatenate(data())[: alone.COMPARED]
    exact = run(narrow.graph, feeds, (), formats, 6).astype(float)
    cost: dict[tuple[str, ...], float] = {}
    for names in SETS:
        wrong = run(narrow.graph, feeds, names, formats, 6) - exact
        cost[names] = float(((wrong**2).sum((1, 2, 3)) / (exact**2).sum((1, 2, 3))).mean())
    total = sum(SIZE[n] * AREA[n] for n in SIZE)
    share = {names: sum(SIZE[n] * AREA[n] for n in names) / total for names in SETS}
    order = sorted(SETS, key=lambda names: -cost[names] / share[names])
    assert len({round(cost[names] / share[names], 6) for names in SETS}) == 4
    for budget in (0.0, share[order[0]] * 1.001, 0.05, 0.1, 0.5, 1.0):
        left, wanted = budget, {}
        for names in order:
            if share[names] <= left:
                left -= share[names]
                wanted.update({n: SIZE[n] * AREA[n] / total for n in names})
        assert alone.widened(narrow, wide, budget, set()) == pytest.approx(wanted)
    left_out = alone.widened(narrow, wide, 1.0, {"c", "b3"})
    assert left_out.keys() == {"d", "e"}  # b reads what b3 reads


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_the_file_has_them(tmp_path: Path, scheme: str) -> None:
    save(network(tmp_path, LINES, SHAPE), tmp_path / "net.caffemodel")
    files = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    options: dict[str, Any] = {"bits": "mixed", "budget": 0.3, "scheme": scheme, "effort": "fast", "wider": {"d": 6}}
    result = quantize(*files, data(), tmp_path / "q.prototxt", journal=tmp_path / "j", **options)
    assert 0 < sum(result.widened.values()) <= 0.3 and "d" not in result.widened
    with chai.Net(result.prototxt, result.caffemodel, "emulator") as net:
        params = {x.name: x.precision for x in net.graph.layers if x.type == "Convolution"}
        widths = {name: p.bw_params for name, p in params.items() if p is not None}
        assert widths == {n: 8 if n == "a" or n in result.widened else 6 for n in SIZE}
        read = {name: p.bw_layer_in for name, p in params.items() if p is not None}
        assert read == widths
        assert np.isfinite(net.forward(data()[0])["e"]).all()
        assert net.schedule.engines().count("fpga:Convolution") == 6
    text, lines = result.prototxt.read_bytes(), (tmp_path / "j").read_bytes()
    assert b"6- and 8-bit" in text.splitlines()[0]
    again = quantize(*files, data(), tmp_path / "q.prototxt", journal=tmp_path / "j", **options)
    assert again.prototxt.read_bytes() == text and (tmp_path / "j").read_bytes() == lines  # nothing was judged twice
    with pytest.raises(UsageError, match="its options differ"):
        quantize(*files, data(), tmp_path / "q.prototxt", journal=tmp_path / "j", **{**options, "budget": 0.0})


@pytest.mark.parametrize("budget", [-0.1, 1.5, float("nan")])
def test_a_budget_is_a_share(tmp_path: Path, budget: float) -> None:
    with pytest.raises(UsageError, match="expected a share of the multiply-accumulates, 0 to 1"):
        quantize("net.prototxt", None, [], tmp_path / "q.prototxt", bits="mixed", budget=budget)
