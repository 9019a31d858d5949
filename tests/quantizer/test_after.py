"""Formats chosen by the error of the reading layer's output, against a grid over all thresholds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.fixed import Format
from chai.overlay import load
from chai.passes.rewrite import drop_identity, fuse_relu
from chai.quantizer import PLAIN, Recipe
from chai.quantizer.build import RecipeBuilder
from chai.quantizer.groups import Codes
from chai.quantizer.observe import observe
from chai.quantizer.walk import in_float
from tests.passes.common import CONV, DEEP, network

LRN = "lrn_param { local_size: 3 alpha: 3 beta: 0.75 }"
MEAN = "pooling_param { pool: AVE global_pooling: true }"


def builder(folder: Path, lines: str, bits: int, scheme: str) -> RecipeBuilder:
    net = network(folder, lines, (4, 3, 12, 14))
    graph = fuse_relu(drop_identity(net.graph))
    data = np.random.default_rng(0).standard_t(3, (4, 3, 12, 14)).astype(np.float32) * 4
    placed = {x.name for x in graph.layers if x.type in ("Convolution", "Pooling")}
    return RecipeBuilder(graph, net.graph, observe(graph, [{"data": data}]), Codes(load(), scheme, bits), placed)


@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("reader", [f"r LRN a -> r : {LRN}", f"r Pooling a -> r : {MEAN}"])
def test_the_error_after_is_the_least_there_is(tmp_path: Path, reader: str, bits: int, scheme: str) -> None:
    lines = f"a Convolution data -> a : {DEEP}\nra ReLU a -> a\n{reader}\nb Convolution r -> b : {CONV}"
    recipe_builder = builder(tmp_path, lines, bits, scheme)
    solution = recipe_builder.build(Recipe("mse", "max"))
    format = solution.formats["a@ra"]
    assert solution.chosen["a@ra"] == f"error after {reader.split()[1]}"
    layer = recipe_builder.graph.layer("r")
    x = recipe_builder.observed.in_front["r"][0]
    wanted = layer.forward(x)[0].astype(float)

    def error(f: Format) -> float:
        return float(((layer.forward(f.dequantize(f.quantize(x)))[0] - wanted) ** 2).sum())

    largest = recipe_builder.observed.seen["a@ra"].largest
    if scheme == "Xilinx":
        others = [Format(scheme, 8, largest * i / 60) for i in range(4, 61)]
    else:
        others = [Format(scheme, 8, format.value + i) for i in range(-3, 4)]
    assert format.bits == 8  # no convolution reads it
    assert error(format) <= 1.1 * min(map(error, others))
    assert recipe_builder.build(PLAIN).formats["a@ra"].value >= format.value or scheme == "DynamicFixed"


def test_another_reader_or_an_output_counts_as_well(tmp_path: Path) -> None:
    lines = f"""
        a Convolution data -> a : {DEEP}
        r Pooling a -> r : {MEAN}
        b Convolution a -> b : {CONV}
        c Pooling b -> c : {MEAN}
        """
    solution = builder(tmp_path, lines, 8, "Xilinx").build(Recipe("mse", "max"))
    assert solution.chosen["data"] == "mse"  # asked for by Recipe("after") alone, where a convolution reads it
    assert solution.chosen["a"] == "error after Pooling"  # and after the convolution that reads it too
    assert solution.chosen["b"] == "error after Pooling"
    assert solution.chosen["c"] == "mse"  # an output


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_the_error_after_convolutions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, bits: int, share: float
) -> None:
    """Two readers, one of them with groups, against whole convolutions of the whole blob, when no place is left out."""
    monkeypatch.setattr("chai.quantizer.observe.ROWS", 12 * 14)
    monkeypatch.setattr("chai.quantizer.observe.READ", 12 * 14)
    lines = f"""
        a Convolution data -> a : {DEEP}
        ra ReLU a -> a
        b Convolution a -> b : convolution_param {{ num_output: 6 kernel_size: 3 group: 2 stride: 2 }}
        rb ReLU b -> b
        c Convolution a -> c : {CONV}
        """
    make = builder(tmp_path, lines, bits, scheme)
    solution = make.build(Recipe("after", "max", share))
    assert solution.chosen["a@ra"] == "error after Convolution"
    format = solution.formats["a@ra"]
    graph, observed, factors = make._equalised[share]
    assert ("a@ra" in factors) == (share > 0)
    exact: dict[str, np.ndarray] = {}
    for layer, _, tops in in_float(graph, observed.batches[0]):
        exact.update(zip(layer.tops, tops))
    largest = observed.greatest("a@ra")
    assert largest == pytest.approx(float(np.abs(exact["a@ra"]).max()))
    assert ("a@ra" in observed.seen) == (share == 0)  # a float pass that nothing asked for was not run
    assert observed.histogram(["a@ra"]).largest == pytest.approx(largest)

    def error(f: Format) -> float:
        codes = f.dequantize(f.quantize(exact["a@ra"]))
        total = 0.0
        for layer in (graph.layer("b"), graph.layer("c")):
            wanted = exact[layer.tops[0]].astype(float)
            y = layer.forward(codes)[0]
            if layer.slope is not None:
                y = np.maximum(y, 0)
            total += float(((y - wanted) ** 2).sum() / (wanted**2).sum())
        return total

    if scheme == "Xilinx":
        others = [Format(scheme, bits, largest * i / 60) for i in range(4, 61)]
    else:
        others = [Format(scheme, bits, format.value + i) for i in range(-3, 4)]
    assert format.bits == bits
    assert error(format) <= 1.1 * min(map(error, others))
