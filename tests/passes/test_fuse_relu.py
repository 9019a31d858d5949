"""fuse_relu: a ReLU becomes a flag of the layer before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chai.passes.rewrite import fuse_relu, rewrite

from .common import AFFINE, AVE, CONV, GLOBAL, MAX, facts, make, origins, same, types

FIRST = {
    "Convolution": CONV,
    "DepthwiseConvolution": "convolution_param { num_output: 3 kernel_size: 3 group: 3 }",
    "ConvolutionDepthwise": "convolution_param { num_output: 3 kernel_size: 3 }",
    "BatchNorm": GLOBAL,
    "Scale": AFFINE,
}


@pytest.mark.parametrize("slope", [0, 0.1, 1])
@pytest.mark.parametrize("top", ["c", "r"], ids=["in place", "distinct"])
@pytest.mark.parametrize("type", FIRST)
def test_plain_and_leaky(tmp_path: Path, type: str, top: str, slope: float) -> None:
    graph = make(
        tmp_path,
        f"""
        first {type} data -> c : {FIRST[type]}
        relu ReLU c -> {top} : relu_param {{ negative_slope: {slope} }}
        abs AbsVal {top} -> y
        tanh TanH {top} -> z
        """,
    )
    known = facts(graph)
    after = fuse_relu(graph)
    assert facts(graph) == known
    assert types(after) == [type, "AbsVal", "TanH"]
    assert origins(after) == [("first", "relu"), ("abs",), ("tanh",)]
    assert after.layer("first").slope == slope
    assert graph.layer("first").slope is None
    same(graph, after)


@pytest.mark.parametrize(
    ("relu", "slope"), [("ReLU : relu_param { relu6: true negative_slope: 0.25 }", 0.25), ("ReLU6", 0)]
)
@pytest.mark.parametrize("type", FIRST)
def test_relu6(tmp_path: Path, type: str, relu: str, slope: float) -> None:
    kind, _, params = relu.partition(" : ")
    graph = make(
        tmp_path,
        f"""
        first {type} data -> c : {FIRST[type]}
        large Power c -> p : power_param {{ scale: 9 }}
        second Scale p -> s : {AFFINE}
        relu {kind} s -> r{params and " : " + params}
        """,
    )
    after = fuse_relu(graph)
    assert types(after) == [type, "Power", "Scale"]
    assert (after.layer("second").slope, after.layer("second").ceiling) == (slope, 6)
    same(graph, after)


def test_a_sum_takes_a_relu(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        a Convolution data -> a : {CONV}
        b Convolution data -> b : {CONV}
        sum Eltwise a b -> s : eltwise_param {{ coeff: 1 coeff: -0.5 }}
        relu ReLU s -> y
        """,
    )
    after = fuse_relu(graph)
    assert origins(after) == [("a",), ("b",), ("sum", "relu")]
    assert after.outputs == ["y"]
    same(graph, after)


def test_the_second_relu_stays(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        leaky ReLU c -> c : relu_param {{ negative_slope: 0.5 }}
        relu ReLU c -> c
        """,
    )
    after = fuse_relu(graph)
    assert origins(after) == [("conv", "leaky"), ("relu",)]
    assert after.layer("conv").slope == 0.5
    same(graph, after)


NEVER = {
    "two readers": f"""
        conv Convolution data -> c : {CONV}
        relu ReLU c -> r
        abs AbsVal c -> y
        """,
    "a slope above 1": f"""
        conv Convolution data -> c : {CONV}
        relu ReLU c -> c : relu_param {{ negative_slope: 1.5 }}
        """,
    "a slope below 0": f"""
        conv Convolution data -> c : {CONV}
        relu ReLU c -> c : relu_param {{ negative_slope: -0.1 }}
        """,
    "behind a max pooling": f"pool Pooling data -> p : {MAX}\nrelu ReLU p -> p",
    "behind an average": f"pool Pooling data -> p : {AVE}\nrelu ReLU p -> r",
    "behind a concat": "both Concat data data -> c\nrelu ReLU c -> c",
    "behind another activation": "t TanH data -> f\nrelu ReLU f -> f",
    "behind an input": "relu ReLU data -> r",
    "behind a convolution of two blobs": f"""
        conv Convolution data data -> c d : {CONV}
        relu ReLU c -> c
        relu2 ReLU d -> d
        """,
    "another activation": f"conv Convolution data -> c : {CONV}\nprelu PReLU c -> c",
}


@pytest.mark.parametrize("lines", NEVER.values(), ids=NEVER)
def test_what_must_not_match(tmp_path: Path, lines: str) -> None:
    graph = make(tmp_path, lines)
    assert facts(fuse_relu(graph)) == facts(graph)
    same(graph, rewrite(graph))


def test_an_output_in_between_stays(tmp_path: Path) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}\nrelu ReLU c -> r")
    graph.outputs = ["c", "r"]
    assert facts(fuse_relu(graph)) == facts(graph)


def test_two_bottoms_and_batch_statistics_take_a_relu_on_the_host(tmp_path: Path) -> None:
    """They are no unit of an overlay, but the flag is obeyed wherever a layer runs."""
    graph = make(
        tmp_path,
        """
        bn BatchNorm data -> b : batch_norm_param { use_global_stats: false }
        relu ReLU b -> b
        fc InnerProduct data -> f : inner_product_param { num_output: 3 }
        scale Scale b f -> s : scale_param { axis: 0 }
        leaky ReLU s -> s : relu_param { negative_slope: 0.25 }
        """,
    )
    same(graph, fuse_relu(graph))


def test_the_output_has_the_relus_format(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV} precision_param {{ bw_layer_in: 6 fl_layer_in: 2 bw_layer_out: 6 fl_layer_out: 3 }}
        relu ReLU c -> c : precision_param {{ bw_layer_in: 8 fl_layer_in: 4 bw_layer_out: 8 fl_layer_out: 5 }}
        """,
    )
    precision = fuse_relu(graph).layer("conv").precision
    assert precision is not None
    assert (precision.bw_layer_out, precision.fl_layer_out) == (8, 5)
    assert (precision.bw_layer_in, precision.fl_layer_in) == (6, 2)


def test_a_resnet_block_through_all_passes(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        c1 Convolution data -> c1 : {CONV}
        b1 BatchNorm c1 -> c1 : {GLOBAL}
        s1 Scale c1 -> c1 : {AFFINE}
        r1 ReLU c1 -> c1
        d1 Dropout c1 -> c1
        c2 Convolution c1 -> c2 : {CONV}
        b2 BatchNorm c2 -> b2 : {GLOBAL}
        s2 Scale b2 -> s2 : {AFFINE}
        sum Eltwise c1 s2 -> e
        r2 ReLU e -> r2 : relu_param {{ negative_slope: 0.1 }}
        """,
    )
    after = rewrite(graph)
    assert origins(after) == [("c1", "b1", "s1", "r1"), ("c2", "b2", "s2"), ("sum", "r2")]
    same(graph, after, 1e-5)
    assert facts(rewrite(after)) == facts(after)
