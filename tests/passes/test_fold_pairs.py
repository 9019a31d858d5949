"""fold_pairs: CHaiDNN's folding of a BatchNorm with its Scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.chaidnn_v2.arithmetic import ChaidnnArithmetic
from chai.layers.batch_norm import BN
from chai.passes.fold_pairs import fold_pairs
from chai.passes.rewrite import rewrite
from chai.tasks.precision import Precision

from .common import AFFINE, CONV, GLOBAL, facts, make, origins, same, types

BARE = "convolution_param { num_output: 4 kernel_size: 3 bias_term: false }"


@pytest.mark.parametrize("fields", [CONV, BARE], ids=["bias", "no bias"])
@pytest.mark.parametrize("tops", ["ccc", "cbs", "ccs", "cbb"])
def test_a_pair_goes_into_the_convolution(tmp_path: Path, tops: str, fields: str) -> None:
    c, b, s = tops
    lines = f"""
        first Pooling data -> p : pooling_param {{ kernel_size: 1 }}
        conv Convolution p -> {c} : {fields}
        bn BatchNorm {c} -> {b} : {GLOBAL}
        scale Scale {b} -> {s} : {AFFINE}
        relu ReLU {s} -> y
        other Convolution y -> z : {CONV}
        """
    graph = make(tmp_path, lines)
    known = facts(graph)
    after = rewrite(graph, ChaidnnArithmetic)
    assert facts(graph) == known
    assert types(after) == ["Pooling", "Convolution", "Convolution"]
    assert origins(after)[1] == ("conv", "bn", "scale", "relu")
    same(graph, after, 1e-5)


def test_the_numbers_are_float32_in_its_order(tmp_path: Path) -> None:
    graph = make(
        tmp_path, f"conv Convolution data -> c : {CONV}\nbn BatchNorm c -> b : {GLOBAL}\nscale Scale b -> s : {AFFINE}"
    )
    conv, bn, scale = (graph.layer(name) for name in ("conv", "bn", "scale"))
    (folded,) = [layer for layer in fold_pairs(graph).layers if layer.type == "Convolution"]
    total, squares, divisor = bn.blobs
    one = np.float32(1)
    for m in range(len(total)):
        mean, variance = total[m] / divisor[0], squares[m] / divisor[0]
        factor = scale.blobs[0][m] * (one / np.sqrt(variance + np.float32(1e-5)))
        direct = scale.blobs[0][m] / np.sqrt(variance + np.float32(1e-5))
        assert abs(factor - direct) <= abs(direct) * 2e-7
        assert np.array_equal(folded.blobs[0][m], conv.blobs[0][m] * direct)
        assert folded.blobs[1][m] == direct * (conv.blobs[1][m] - mean) + scale.blobs[1][m]


def test_other_pairs_become_one_layer_and_single_ones_stay(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        bn BatchNorm c -> b : {GLOBAL}
        scale Scale b -> s : {AFFINE}
        sum Eltwise c s -> t
        alone BatchNorm t -> u : {GLOBAL}
        last Scale data -> v : {AFFINE}
        """,
    )
    after = fold_pairs(graph)
    assert types(after) == ["Convolution", "BN", "Eltwise", "BatchNorm", "Scale"]
    pair = after.layer("scale")
    assert isinstance(pair, BN) and pair.origin == ("bn", "scale")
    same(graph, after, 1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 5), (2, 4, 4), (2, 3, 2, 5, 3)])
def test_a_pair_of_a_blob_of_other_axes_than_four(tmp_path: Path, shape: tuple[int, ...]) -> None:
    graph = make(tmp_path, f"bn BatchNorm data -> b : {GLOBAL}\nscale Scale b -> s : {AFFINE}\nrelu ReLU s -> y", shape)
    after = rewrite(graph, ChaidnnArithmetic)
    assert types(after)[0] == "BN"
    same(graph, after, 1e-5)


def test_formats_of_a_folded_convolution(tmp_path: Path) -> None:
    """Its weights have lost theirs, and a threshold its fraction."""
    graph = make(
        tmp_path, f"conv Convolution data -> c : {CONV}\nbn BatchNorm c -> b : {GLOBAL}\nscale Scale b -> s : {AFFINE}"
    )
    graph.layer("conv").precision = Precision("Xilinx", 8, 8, 8, th_layer_in=2.5, th_layer_out=9.0, th_params=(1.0,))
    graph.layer("scale").precision = Precision("Xilinx", 8, 8, th_layer_in=9.0, th_layer_out=7.8)
    p = fold_pairs(graph).layer("conv").precision
    assert p is not None
    assert (p.th_layer_in, p.th_layer_out, p.th_params, p.fl_params) == (2.5, 7.0, (), None)
