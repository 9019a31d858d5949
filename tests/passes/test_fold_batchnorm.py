"""fold_batchnorm: BatchNorm and Scale go into the weights before them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.chaidnn_v2.arithmetic import ChaidnnArithmetic
from chai.layers.scale import Scale
from chai.passes.rewrite import fold_batchnorm, fuse_relu, rewrite
from chai.tasks.arithmetic import Arithmetic

from .common import AFFINE, AVE, CONV, GLOBAL, facts, make, network, origins, same, types

FOLDED = 1e-5  # weights are rounded to float32 once more
BARE = "convolution_param { num_output: 4 kernel_size: 3 bias_term: false }"
DEPTH = "convolution_param { num_output: 3 kernel_size: 3 group: 3 }"


@pytest.mark.parametrize(
    ("type", "fields"),
    [
        ("Convolution", CONV),
        ("Convolution", BARE),
        ("DepthwiseConvolution", DEPTH),
    ],
    ids=["bias", "no bias", "depthwise"],
)
@pytest.mark.parametrize("tops", ["ccc", "cbs", "ccs", "cbb"])
def test_convolution_batchnorm_scale(tmp_path: Path, tops: str, type: str, fields: str) -> None:
    c, b, s = tops
    graph = make(
        tmp_path,
        f"""
        conv {type} data -> {c} : {fields}
        bn BatchNorm {c} -> {b} : {GLOBAL}
        scale Scale {b} -> {s} : {AFFINE}
        abs AbsVal {s} -> y
        """,
    )
    known = facts(graph)
    after = fold_batchnorm(graph)
    assert facts(graph) == known
    assert types(after) == [type, "AbsVal"]
    assert origins(after) == [("conv", "bn", "scale"), ("abs",)]
    assert after.layer("conv").params.bias_term
    same(graph, after, FOLDED)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (f"one BatchNorm c -> c : {GLOBAL}", 1),
        ("one BatchNorm c -> c : batch_norm_param { scale_bias: true }", 1),  # NVCaffe's
        ("one BatchNorm c -> c", 1),  # at TEST the stored statistics are used
        ("one Scale c -> c", 1),
        (f"one Scale c -> t : {AFFINE}\ntwo Scale t -> c2\nthree BatchNorm c2 -> c3 : {GLOBAL}", 3),
    ],
    ids=["BatchNorm", "BatchNorm of NVCaffe", "BatchNorm by phase", "Scale", "three"],
)
def test_chains_of_any_length_up_to_the_output(tmp_path: Path, line: str, count: int) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}\n{line}")
    after = fold_batchnorm(graph)
    assert types(after) == ["Convolution"]
    assert len(after.layer("conv").origin) == 1 + count
    assert after.outputs == graph.outputs
    same(graph, after, FOLDED)


@pytest.mark.parametrize(
    "fields", ["bn_param { bn_mode: INFERENCE }", "bn_param { frozen: true }"], ids=["SegNet", "PSPNet"]
)
@pytest.mark.parametrize("type", ["Convolution", "Scale"])
def test_bn_of_forks(tmp_path: Path, type: str, fields: str) -> None:
    graph = make(
        tmp_path,
        f"""
        first {type} data -> c : {CONV if type == "Convolution" else AFFINE}
        bn BN c -> c : {fields}
        abs AbsVal c -> y
        """,
    )
    after = fold_batchnorm(graph)
    assert types(after) == [type, "AbsVal"]
    assert origins(after) == [("first", "bn"), ("abs",)]
    same(graph, after, FOLDED)


def test_distinct_tops_before_an_eltwise(tmp_path: Path) -> None:
    """A residual branch as ResNet writes it; CHaiDNN crashed here."""
    graph = make(
        tmp_path,
        f"""
        stem Convolution data -> x : {CONV}
        conv Convolution x -> c : {CONV}
        bn BatchNorm c -> b : {GLOBAL}
        scale Scale b -> s : {AFFINE}
        sum Eltwise x s -> y
        relu ReLU y -> y
        """,
    )
    after = fold_batchnorm(graph)
    assert types(after) == ["Convolution", "Convolution", "Eltwise", "ReLU"]
    assert after.layer("sum").bottoms == ("x", "s")
    same(graph, after, FOLDED)
    assert origins(rewrite(graph)) == [("stem",), ("conv", "bn", "scale"), ("sum", "relu")]
    same(graph, rewrite(graph), FOLDED)


def test_behind_a_pooling_two_become_one_scale(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        pool Pooling data -> p : {AVE}
        bn BatchNorm p -> b : {GLOBAL}
        scale Scale b -> s : {AFFINE}
        relu ReLU s -> s
        """,
    )
    after = fold_batchnorm(graph)
    assert types(after) == ["Pooling", "Scale", "ReLU"]
    scale = after.layers[-2]
    assert isinstance(scale, Scale)
    assert (scale.origin, scale.bottoms, scale.tops) == (("bn", "scale"), ("p",), ("s",))
    assert scale.place == graph.layer("scale").place
    same(graph, after, FOLDED)


def test_behind_an_inner_product_two_become_one_scale(tmp_path: Path) -> None:
    graph = make(
        tmp_path,
        f"""
        fc InnerProduct data -> f : inner_product_param {{ num_output: 4 }}
        bn BatchNorm f -> f : {GLOBAL}
        scale Scale f -> f : {AFFINE}
        """,
    )
    after = fold_batchnorm(graph)
    assert types(after) == ["InnerProduct", "Scale"]
    same(graph, after, FOLDED)


NEVER = {
    "two readers": f"""
        conv Convolution data -> c : {CONV}
        bn BatchNorm c -> b : {GLOBAL}
        abs AbsVal c -> y
        """,
    "two readers in between": f"""
        pool Pooling data -> p : {AVE}
        bn BatchNorm p -> b : {GLOBAL}
        scale Scale b -> s : {AFFINE}
        abs AbsVal b -> y
        """,
    "statistics of the batch": f"""
        conv Convolution data -> c : {CONV}
        bn BatchNorm c -> c : batch_norm_param {{ use_global_stats: false }}
        """,
    "two bottoms": f"""
        conv Convolution data -> c : {CONV}
        pool Pooling data -> p : pooling_param {{ pool: AVE global_pooling: true }}
        fc InnerProduct p -> f : inner_product_param {{ num_output: 4 }}
        scale Scale c f -> s : scale_param {{ axis: 0 }}
        """,
    "factors along another axis": f"""
        conv Convolution data -> c : {CONV}
        scale Scale c -> c : scale_param {{ axis: 2 }}
        """,
    "factors along two axes": f"""
        conv Convolution data -> c : {CONV}
        scale Scale c -> c : scale_param {{ num_axes: 2 }}
        """,
    "a ReLU in between": f"""
        conv Convolution data -> c : {CONV}
        relu ReLU c -> c
        bn BatchNorm c -> c : {GLOBAL}
        """,
    "before a convolution": f"""
        bn BatchNorm data -> b : {GLOBAL}
        conv Convolution b -> c : {CONV}
        """,
}


@pytest.mark.parametrize("lines", NEVER.values(), ids=NEVER)
def test_what_must_not_match(tmp_path: Path, lines: str) -> None:
    graph = make(tmp_path, lines)
    assert facts(fold_batchnorm(graph)) == facts(graph)
    same(graph, rewrite(graph), FOLDED)


@pytest.mark.parametrize("arithmetic", [Arithmetic, ChaidnnArithmetic])
@pytest.mark.parametrize("shape", [(4, 4, 5), (3, 4, 4, 4, 5), (2, 4, 3, 5)])
@pytest.mark.parametrize("first", [f"BatchNorm data -> b : {GLOBAL}", "Scale data -> b : scale_param { axis: 1 }"])
def test_axes_from_the_end_are_channels_of_four_alone(
    tmp_path: Path, first: str, shape: tuple[int, ...], arithmetic: type[Arithmetic]
) -> None:
    """Both may have as many numbers, so that nothing but the results shows it."""
    second = "scale_param { axis: -3 bias_term: true }"
    graph = make(tmp_path, f"first {first}\nsecond Scale b -> s : {second}\nend AbsVal s -> y", shape)
    same(graph, rewrite(graph, arithmetic), FOLDED)


def test_an_output_in_between_stays(tmp_path: Path) -> None:
    """A blob of the prototxt's outputs has no reader; one that is asked for as an output may have one."""
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}\nbn BatchNorm c -> b : {GLOBAL}")
    graph.outputs = ["c", "b"]
    assert facts(fold_batchnorm(graph)) == facts(graph)


def test_nothing_is_folded_behind_a_fused_relu(tmp_path: Path) -> None:
    """The passes may run in any order and more than once."""
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV}
        relu ReLU c -> c
        scale Scale c -> s : {AFFINE}
        """,
    )
    fused = fuse_relu(graph)
    assert facts(fold_batchnorm(fused)) == facts(fused)
    same(graph, rewrite(rewrite(graph)), FOLDED)


def test_the_formats_of_a_folded_layer(tmp_path: Path) -> None:
    """The input as the convolution says, the output as the last one says."""
    graph = make(
        tmp_path,
        f"""
        conv Convolution data -> c : {CONV} precision_param {{ bw_layer_in: 6 fl_layer_in: 2 bw_layer_out: 6 fl_layer_out: 3 }}
        scale Scale c -> c : {AFFINE} precision_param {{ bw_layer_in: 8 fl_layer_in: 4 bw_layer_out: 8 fl_layer_out: 5 }}
        """,
    )
    precision = fold_batchnorm(graph).layer("conv").precision
    assert precision is not None
    assert (precision.bw_layer_out, precision.fl_layer_out) == (8, 5)
    assert (precision.bw_layer_in, precision.fl_layer_in) == (6, 2)


@pytest.mark.parametrize(
    ("conv", "scale"),
    [
        (
            "bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 fl_layer_in: 6 fl_layer_out: 6 fl_params: 8",
            "bw_layer_in: 8 bw_layer_out: 8 fl_layer_in: 6 fl_layer_out: 2",
        ),
        (
            'quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 '
            "th_layer_in: 2 th_layer_out: 2 th_params: [0.4, 0.4, 0.4, 0.4]",
            'quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 th_layer_in: 2 th_layer_out: 32',
        ),
    ],
    ids=["DynamicFixed", "Xilinx"],
)
@pytest.mark.parametrize("stated", ["both", "convolution"])
def test_a_weight_format_from_before_the_fold_is_not_obeyed(tmp_path: Path, conv: str, scale: str, stated: str) -> None:
    """Factors of 8 make the weights outgrow the format that was chosen for them."""
    if stated == "convolution":
        conv = conv.replace("fl_layer_out: 6", "fl_layer_out: 2").replace("th_layer_out: 2", "th_layer_out: 32")
    lines = f"""
        conv Convolution data -> c : {CONV} precision_param {{ {conv} }}
        scale Scale c -> s : {AFFINE} {f"precision_param {{ {scale} }}" if stated == "both" else ""}
        """
    data = np.random.default_rng(3).uniform(-1, 1, (2, 3, 5, 7))
    outputs = []
    for device in ("float", "emulator"):
        net = network(tmp_path, lines, device=device)
        net.params["scale"][0][...] = 8
        assert np.abs(net.params["conv"][0]).max() < 0.4
        outputs.append(net.forward(data)["s"])
    assert np.abs(outputs[0]).max() < 32
    assert np.abs(outputs[1] - outputs[0]).max() < 0.03 * np.abs(outputs[0]).max()
