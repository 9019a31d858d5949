"""Formats chosen by the error behind a layer, against a grid over all thresholds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.fixed import Format
from chai.overlay import load
from chai.passes.drop_identity import drop_identity
from chai.passes.fuse_relu import fuse_relu
from chai.quantizer import PLAIN, Recipe
from chai.quantizer.build import Builder
from chai.quantizer.observe import observe
from tests.passes.common import CONV, DEEP, network

LRN = "lrn_param { local_size: 3 alpha: 3 beta: 0.75 }"
MEAN = "pooling_param { pool: AVE global_pooling: true }"


def builder(folder: Path, lines: str, bits: int, scheme: str) -> Builder:
    net = network(folder, lines, (4, 3, 12, 14))
    graph = fuse_relu(drop_identity(net.graph, set()), set())
    data = np.random.default_rng(0).standard_t(3, (4, 3, 12, 14)).astype(np.float32) * 4
    placed = {x.name for x in graph.layers if x.type in ("Convolution", "Pooling")}
    return Builder(graph, net.graph, observe(graph, [{"data": data}]), load(), placed, bits, scheme)


@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("reader", [f"r LRN a -> r : {LRN}", f"r Pooling a -> r : {MEAN}"])
def test_the_error_behind_is_the_least_there_is(tmp_path: Path, reader: str, bits: int, scheme: str) -> None:
    lines = f"a Convolution data -> a : {DEEP}\nra ReLU a -> a\n{reader}\nb Convolution r -> b : {CONV}"
    made = builder(tmp_path, lines, bits, scheme)
    found = made.build(Recipe("mse", "max"))
    format = found.formats["a@ra"]
    assert found.chosen["a@ra"] == f"error behind {reader.split()[1]}"
    layer = made.graph.layer("r")
    x = made.observed.in_front["r"][0]
    wanted = layer.forward(x)[0].astype(float)

    def error(f: Format) -> float:
        return float(((layer.forward(f.dequantize(f.quantize(x)))[0] - wanted) ** 2).sum())

    largest = made.observed.seen["a@ra"].largest
    if scheme == "Xilinx":
        others = [Format(scheme, 8, largest * i / 60) for i in range(4, 61)]
    else:
        others = [Format(scheme, 8, format.value + i) for i in range(-3, 4)]
    assert format.bits == 8  # no convolution reads it
    assert error(format) <= 1.1 * min(map(error, others))
    assert made.build(PLAIN).formats["a@ra"].value >= format.value or scheme == "DynamicFixed"


def test_another_reader_or_an_output_counts_as_well(tmp_path: Path) -> None:
    lines = f"""
        a Convolution data -> a : {DEEP}
        r Pooling a -> r : {MEAN}
        b Convolution a -> b : {CONV}
        c Pooling b -> c : {MEAN}
        """
    made = builder(tmp_path, lines, 8, "Xilinx").build(Recipe("mse", "max"))
    assert made.chosen["a"] == "mse"  # a convolution reads it too
    assert made.chosen["b"] == "error behind Pooling"
    assert made.chosen["c"] == "mse"  # an output
