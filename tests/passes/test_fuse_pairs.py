"""fuse_pairs: the formats of a BatchNorm with its Scale before a convolution, which CHaiDNN computes in one operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from chai.chaidnn_v2.arithmetic import ChaidnnArithmetic
from chai.graph import Graph
from chai.passes.rewrite import rewrite
from chai.tasks.precision import Precision

from .common import AFFINE, CONV, GLOBAL, facts, make, origins, same

PAIR = f"bn BatchNorm data -> b : {GLOBAL}\nscale Scale b -> s : {AFFINE}"


def tied(graph: Graph) -> list[str]:
    return [layer.name for layer in graph.layers if layer.tied]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"c Convolution s -> c : {CONV}", ["scale", "c"]),
        (f"r ReLU s -> s\nc Convolution s -> c : {CONV}\nq ReLU c -> c", ["scale", "c"]),
        (f"c Convolution s -> c : {CONV}\np TanH s -> p", []),
        (f"c Convolution s -> c : {CONV}\nn Power c -> n : power_param {{ scale: -1 }}", []),
        ("c Convolution s -> c : convolution_param { num_output: 3 kernel_size: 1 group: 3 }", []),
        ("p Pooling s -> p : pooling_param { kernel_size: 2 }", []),
    ],
    ids=["convolution", "rectified", "other reader", "CReLU", "depthwise", "pooling"],
)
def test_which_layers_are_one_operation(tmp_path: Path, lines: str, expected: list[str]) -> None:
    graph = make(tmp_path, f"{PAIR}\n{lines}")
    known = facts(graph)
    after = rewrite(graph, ChaidnnArithmetic)
    assert facts(graph) == known and not tied(graph)
    assert tied(after) == expected
    assert origins(after)[0][:2] == ("bn", "scale")
    same(graph, after, 1e-5)


@pytest.mark.parametrize("scheme", ["DynamicFixed", "Xilinx"])
def test_they_share_what_is_stated(tmp_path: Path, scheme: str) -> None:
    """In DynamicFixed formats; the thresholds of others stay, since the BatchNorm runs on the host."""
    graph = make(tmp_path, f"{PAIR}\nc Convolution s -> c : {CONV}")
    fractions = [{"fl_layer_in": n, "fl_layer_out": n + 1} for n in (1, 3, 5)]
    thresholds = [{name.replace("fl", "th"): float(value) for name, value in each.items()} for each in fractions]
    for name, fields in zip(("bn", "scale", "c"), thresholds if scheme == "Xilinx" else fractions):
        graph.layer(name).precision = Precision(scheme, 8, 8, 8, **fields)
    after = rewrite(graph, ChaidnnArithmetic)
    sides = [
        [p.side(side)[2] for side in ("in", "out")]
        for p in (after.layer("scale").precision, after.layer("c").precision)
    ]
    assert sides == ([[1.0, 4.0], [5.0, 6.0]] if scheme == "Xilinx" else [[1, 6], [1, 6]])
