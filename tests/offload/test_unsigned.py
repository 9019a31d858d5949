"""Blobs with unsigned codes: which ones, in what files, and what the overlay computes with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay
from chai.fixed import Format
from chai.offload import scheduling
from chai.offload.formats import calibrated, covering, from_precision, unsigned_blobs
from chai.offload.schedule import DeviceStep
from chai.passes.rewrite import rewrite
from chai.report.layer_rows import placed
from chai.tasks.conv import Conv
from chai.tasks.copy import Copy
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.util.paths import resource
from tests.passes.common import AFFINE, AVE, CONV, DEEP, GLOBAL, MAX, Array, make, network, train, values

Z2 = overlay.load("pynq-z2")
SHAPE = (2, 3, 5, 7)
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
POOL = "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }"
SAME = "convolution_param { num_output: 3 kernel_size: 1 }"
TOP = "xcustom_param { top_dim: [2, 3, 5, 7] }"


def unsigned(folder: Path, lines: str, shape: tuple[int, ...] = SHAPE, **options: Any) -> set[str]:
    """The unsigned blobs of a network, by name."""
    graph = rewrite(make(folder, lines, shape, **options))
    blobs = unsigned_blobs(graph, Z2)
    seen = values(graph) if not options else {}
    assert all(seen[blob].min() >= 0 for blob in blobs if blob in seen), "the rule calls a negative blob unsigned"
    return {graph.caffe_name(blob) for blob in blobs}


# -- which blobs


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"a Convolution data -> y : {SAME}", ""),
        (f"a Convolution data -> y : {SAME}\nr ReLU y -> y", "y"),
        (f"a Convolution data -> y : {SAME}\nr ReLU y -> y : relu_param {{ negative_slope: 0.1 }}", ""),
        (f"a Convolution data -> y : {SAME}\nr ReLU6 y -> y", "y"),
        ("r ReLU data -> y", "y"),
        ("r ReLU data -> y : relu_param { negative_slope: 0.1 }", ""),
        ("r ReLU data -> a\nl ReLU a -> y : relu_param { negative_slope: 0.1 }", "a y"),
        ("r ReLU6 data -> y", "y"),
        ("s Sigmoid data -> y", "y"),
        ("s Softmax data -> y", "y"),
        ("s AbsVal data -> y", "y"),
        ("s TanH data -> y", ""),
        ("s ELU data -> y", ""),
        ("s Power data -> y : power_param { power: 2 }", ""),  # of some types only is this known
        (f"p Pooling data -> y : {POOL}", ""),
        (f"r AbsVal data -> a\np Pooling a -> y : {POOL}", "a y"),
        (f"r AbsVal data -> a\np Pooling a -> y : {AVE}", "a y"),
        ("r AbsVal data -> a\nl LRN a -> y", "a y"),
        ("l LRN data -> y", ""),
        ("r AbsVal data -> a\nf Flatten a -> y", "a y"),
        ("r AbsVal data -> a\nd Dropout a -> b\nt TanH b -> y", "a"),  # drop_identity drops b
        ("r AbsVal data -> a\nu Upsample a -> y : upsample_param { scale: 2 }", "a y"),
        ("u Upsample data -> y : upsample_param { scale: 2 }", ""),
        ("r AbsVal data -> a\nu UpsampleDarknet a -> y : upsample_darknet_param { stride: 2 }", "a y"),
        ("r AbsVal data -> a\nc Slice a -> y z w", "a y z w"),
        ("c Slice data -> y z w", ""),
        ("r AbsVal data -> a\ns Sigmoid data -> b\ne Eltwise a b -> y", "a b y"),
        ("r AbsVal data -> a\ne Eltwise a data -> y", "a"),
        ("r AbsVal data -> a\ne Eltwise a data -> y\nr2 ReLU y -> y", "a y"),
        ("r AbsVal data -> a\ns Sigmoid data -> b\ne Eltwise a b -> y : eltwise_param { coeff: 2 coeff: 0 }", "a b y"),
        ("r AbsVal data -> a\ns Sigmoid data -> b\ne Eltwise a b -> y : eltwise_param { coeff: 2 coeff: -1 }", "a b"),
        (f"r AbsVal data -> a\ns Scale a -> y : {AFFINE}", "a"),
        ("r AbsVal data -> a\ns Sigmoid data -> b\nc Concat a b -> y", "a b y"),
        ("r AbsVal data -> a\nc Concat a data -> y", ""),  # one format
        (f"r AbsVal data -> a\np Pooling a -> b : {POOL}\nc Concat b data -> y", ""),
        ("r AbsVal data -> a\ni InnerProduct a -> y : inner_product_param { num_output: 2 }", "a"),
    ],
)
def test_what_cannot_be_negative(tmp_path: Path, lines: str, expected: str) -> None:
    assert unsigned(tmp_path, lines) == set(expected.split())


def test_blobs_of_layers_on_the_host_share_no_format(tmp_path: Path) -> None:
    graph = make(tmp_path, "r AbsVal data -> a\nc Concat a data -> y\nt TanH a -> z")
    assert unsigned_blobs(graph, Z2) == set()
    assert unsigned_blobs(graph, Z2, host=["c"]) == {"a"}
    graph = make(tmp_path, f"r AbsVal data -> a\np Pooling a -> y z : {MAX}")  # z has indices, and -1 for no pixel
    assert unsigned_blobs(graph, Z2, host=["p"]) == {"a"}


def test_an_overlay_without_unsigned_codes(tmp_path: Path) -> None:
    graph = make(tmp_path, "r AbsVal data -> a")
    assert unsigned_blobs(graph, replace(Z2, unsigned=False)) == set()


def test_part_of_a_network(tmp_path: Path) -> None:
    """Without the ReLU nothing is known of the convolution's output, nor of what a part reads."""
    lines = f"a Convolution data -> a : {CONV}\nr ReLU a -> a\nb Pooling a -> b : {MAX}\nc Convolution b -> c : {CONV}"
    assert unsigned(tmp_path, lines) == {"a", "b"}
    assert unsigned(tmp_path, lines, end_layer="a") == set()
    assert unsigned(tmp_path, lines, end_layer="r") == {"a"}
    assert unsigned(tmp_path, lines, start_layer="b") == set()


def halve(x: chai.xChangeLayer) -> None:
    x.top[0][...] = x.bottom[0] * 0.5


def test_custom_layers(tmp_path: Path) -> None:
    """Nobody knows what they write; a ReLU behind one is taken in, and known."""
    line = f"r AbsVal data -> a\nc halve a -> y : user_defined_layer: true {TOP}"
    assert unsigned(tmp_path, line, custom={"halve": halve}) == {"a"}
    assert unsigned(tmp_path, f"{line}\nr2 ReLU y -> y", custom={"halve": halve}) == {"a", "y"}


def codes(zero_points: bool) -> Any:
    """A custom type with an implementation on codes."""

    @chai.custom("halve", jit=False)
    def ref(x: chai.xChangeLayer) -> None:
        x.top[0][...] = x.bottom[0] * 0.5

    @ref.impl("codes", dtype="int8", jit=False, zero_points=zero_points)
    def on_codes(x: chai.xChangeLayer) -> None:
        x.top[0][...] = x.bottom[0]

    return ref


@pytest.mark.parametrize(("zero_points", "expected"), [(True, {"a", "p", "y"}), (False, set())])
def test_custom_layers_on_codes(tmp_path: Path, zero_points: bool, expected: set[str]) -> None:
    """Blobs of one that ignores zero points stay signed, and so do those that share their format."""
    lines = f"""
        r AbsVal data -> a
        p Pooling a -> p : {POOL}
        c halve p -> y : user_defined_layer: true {TOP}
        r2 ReLU y -> y
        """
    assert unsigned(tmp_path, lines, custom=codes(zero_points)) == expected


# -- formats of the calibrator


@pytest.mark.parametrize(
    ("scheme", "bits", "known", "plain"),
    [
        ("Xilinx", 8, 3.0, 3.0),
        ("Xilinx", 6, 3.0, 3.0),
        ("DynamicFixed", 8, 6, 5),
        ("DynamicFixed", 6, 4, 3),
    ],
)
def test_the_calibrator_gives_one_range_to_both_kinds(scheme: str, bits: int, known: float, plain: float) -> None:
    fine, coarse = covering(3.0, bits, scheme, True), covering(3.0, bits, scheme)
    assert (fine, coarse) == (Format(scheme, bits, known, True), Format(scheme, bits, plain))
    assert fine.signed == coarse


def test_a_network_without_formats_has_unsigned_codes_where_it_can(tmp_path: Path) -> None:
    lines = f"a Convolution data -> a : {CONV}\nr ReLU a -> a\nb Convolution a -> b : {CONV}"
    net = network(tmp_path, lines, device="emulator")
    net.calibrate(DATA)
    assert net.formats is not None
    assert {blob: f.unsigned for blob, f in net.formats.items()} == {"data": False, "a@r": True, "b": False}
    manifest = json.loads(resource("hw_overlays", "pynq-z2", "overlay.json").read_text())
    del manifest["unsigned"]
    (tmp_path / "overlay.json").write_text(json.dumps(manifest))
    old = network(tmp_path, lines, device="emulator", overlay=tmp_path / "overlay.json")
    old.calibrate(DATA)
    assert old.formats == {blob: f.signed for blob, f in net.formats.items()}
    wanted = network(tmp_path, lines).forward(DATA)["b"]
    errors = [float(np.abs(n.forward(DATA)["b"] - wanted).mean()) for n in (net, old)]
    assert errors[0] < errors[1]


def test_calibrated_formats_by_hand(tmp_path: Path) -> None:
    graph = make(tmp_path, "r AbsVal data -> a\nc Concat a a -> y")
    formats = calibrated(graph, {"data": 1.0, "a": 2.0, "y": 2.0}, 8, "Xilinx", unsigned=("a", "y"))
    assert formats == {"data": Format("Xilinx", 8, 1.0), **dict.fromkeys("ay", Format("Xilinx", 8, 2.0, True))}


# -- formats of a file


def precision(**fields: object) -> str:
    """A precision_param; True as prototxt writes it."""
    words = {True: "true", False: "false"}
    text = " ".join(f"{k}: {words[v] if isinstance(v, bool) else v}" for k, v in fields.items())
    return f"precision_param {{ {text} }}"


def xilinx(into: float, out: float, **marks: bool) -> str:
    return precision(
        quant_type='"Xilinx"', bw_layer_in=8, bw_layer_out=8, bw_params=8, th_layer_in=into, th_layer_out=out, **marks
    )


def fixed(into: int, out: int, **marks: bool) -> str:
    return precision(bw_layer_in=8, bw_layer_out=8, bw_params=8, fl_layer_in=into, fl_layer_out=out, **marks)


@pytest.mark.parametrize("form", [xilinx, fixed])
def test_a_mark_is_obeyed_where_the_graph_proves_it(tmp_path: Path, form: Any) -> None:
    marked = form(3, 5, chai_unsigned_out=True)
    scheme = "Xilinx" if form is xilinx else "DynamicFixed"
    lines = f"a Convolution data -> a : {CONV} {marked}\nr ReLU a -> a\np Pooling a -> p : {MAX}"

    def formats_of(**options: Any) -> dict[str, Format]:
        graph = rewrite(make(tmp_path, lines, **options))
        return from_precision(graph, unsigned_blobs(graph, Z2))

    assert formats_of()["a@r"] == formats_of()["p"] == Format(scheme, 8, 5, True)
    assert formats_of(end_layer="a")["a"] == Format(scheme, 8, 5 if form is xilinx else 4)  # the same range
    graph = rewrite(make(tmp_path, lines))
    assert from_precision(graph)["a@r"] == Format(scheme, 8, 5, True).signed


def test_a_file_without_marks_is_signed(tmp_path: Path) -> None:
    lines = f"a Convolution data -> a : {CONV} {xilinx(3, 5)}\nr ReLU a -> a"
    net = network(tmp_path, lines, device="emulator")
    net.forward(DATA)
    assert net.formats == {"data": Format("Xilinx", 8, 3.0), "a@r": Format("Xilinx", 8, 5.0)}


def test_a_network_input_is_signed_whatever_the_file_says(tmp_path: Path) -> None:
    lines = f"a Convolution data -> a : {CONV} {fixed(6, 5, chai_unsigned_in=True)}"
    assert from_precision(make(tmp_path, lines), ["a"])["data"] == Format("DynamicFixed", 8, 5)


def test_an_inherited_format_loses_the_mark_where_the_heir_can_be_negative(tmp_path: Path) -> None:
    marked = fixed(3, 6, chai_unsigned_out=True)
    lines = f"a Convolution data -> a : {CONV} {marked}\nr ReLU a -> a\nb Convolution a -> b : {CONV}"
    graph = rewrite(make(tmp_path, lines))
    formats = from_precision(graph, unsigned_blobs(graph, Z2))
    assert (formats["a@r"], formats["b"]) == (Format("DynamicFixed", 8, 6, True), Format("DynamicFixed", 8, 5))


@pytest.mark.parametrize("into", [False, True])
def test_a_layer_in_is_compared_by_range(tmp_path: Path, into: bool) -> None:
    """th 5 is th 5, and fl 6 unsigned is fl 5 signed."""
    first, second = fixed(3, 6, chai_unsigned_out=True), fixed(6 if into else 5, 4, chai_unsigned_in=into)
    lines = f"a Convolution data -> a : {CONV} {first}\nr ReLU a -> a\nb Convolution a -> b : {CONV} {second}"
    net = network(tmp_path, lines, device="emulator")
    net.forward(DATA)
    assert [row.layer_in for row in placed(net)] == [None] * 4
    net = network(tmp_path, lines.replace(second, fixed(3, 4, chai_unsigned_in=into)), device="emulator")
    net.forward(DATA)
    assert net.formats is not None and net.formats["a@r"] == Format("DynamicFixed", 8, 6, True)
    shown = "DynamicFixed(u8, fl 3)" if into else "DynamicFixed(8, fl 3)"
    assert [row.layer_in for row in placed(net)] == [None, None, None, shown]


# -- Tasks


def tasks(net: chai.Net) -> dict[str, Any]:
    """The Tasks by the first layer they are for."""
    steps = [step for step in net.schedule.steps if isinstance(step, DeviceStep)]
    return {task.origin[0]: task for step in steps for task in step.tasks}


def test_every_kind_carries_the_zero_points_of_its_blobs(tmp_path: Path) -> None:
    """One network with both kinds of codes, all on the overlay."""
    lines = f"""
        a Convolution data -> a : {DEEP}
        ra ReLU a -> a
        b Convolution data -> b : {DEEP}
        m Pooling a -> m : {POOL}
        v Pooling a -> v : {AVE}
        s Eltwise v b -> s
        t Eltwise m v -> t
        c Concat a t -> c
        f Scale c -> f : {AFFINE}
        g Convolution c -> g : {CONV}
        rg ReLU6 g -> g
        """
    net = network(tmp_path, lines, device="emulator")
    net.calibrate(DATA)
    assert {*net.schedule.engines()} == {
        f"fpga:{t}" for t in ("Convolution", "Pooling", "Eltwise", "Concat", "Scale")
    } | {
        "host:Pack",
        "host:Unpack",
    }
    assert net.formats is not None
    assert {b for b, f in net.formats.items() if f.zero} == {"a@ra", "m", "v", "t", "c", "g@rg"}
    task_of = tasks(net)
    conv, pool, average, one, two, scale, last = (task_of[name] for name in "amvstfg")
    assert isinstance(conv, Conv) and (conv.zero, conv.requantization.zero, conv.requantization.low) == (0, -128, -128)
    assert isinstance(pool, Pool) and (pool.requantization, pool.zero) == (None, 0)
    assert isinstance(average, Pool) and average.requantization is not None
    assert (average.zero, average.requantization.zero) == (-128, -128)
    assert isinstance(one, Eltwise) and (one.zeros, one.requantization.zero) == ((-128, 0), 0)
    assert isinstance(two, Eltwise) and (two.zeros, two.requantization.zero) == ((-128, -128), -128)
    assert isinstance(scale, Conv) and (scale.zero, scale.requantization.zero) == (-128, 0)
    assert isinstance(last, Conv) and (last.zero, last.requantization.zero) == (-128, -128)
    ceiling = -128 + round(6 / net.formats["g@rg"].step)
    assert last.requantization.high == min(127, ceiling)
    # the table's bias: what an image of zeros adds up to
    weights = np.asarray(last.weights).astype(int).reshape(len(last.weights), -1).sum(1)
    steps = net.formats["c"].step
    true = last.bias - 128 * weights
    assert steps > 0 and np.abs(true).max() < np.abs(last.bias).max() + 128 * np.abs(weights).max()


def unmerged(patch: pytest.MonkeyPatch) -> None:
    """Every convolution a Task of its own, every branch of a concat copied into it."""
    patch.setattr(scheduling, "merge_parallel", lambda tasks, *_: tasks)
    patch.setattr(scheduling, "_views", lambda *_: {})


def compare(build: Callable[[], chai.Net], data: Array) -> tuple[Any, Any]:
    """Run a network whole and unmerged; the outputs are equal to the bit. Return the Tasks of both."""
    runs = []
    for patched in (False, True):
        with pytest.MonkeyPatch.context() as patch, build() as net:
            if patched:
                unmerged(patch)
            net.calibrate(data)
            runs.append((net.forward(data), tasks(net), {f.unsigned for f in (net.formats or {}).values()}))
    (whole, merged, signs), (apart, single, _) = runs
    assert signs == {True, False}
    for blob, wanted in apart.items():
        assert np.array_equal(whole[blob], wanted), blob
        assert wanted.std() > 0
    return merged, single


def block(stride: int) -> str:
    """A residual block: branch1 without a ReLU, branch2a with one, both of the same input; then parts in a concat."""
    wide = f"convolution_param {{ num_output: 16 kernel_size: 1 stride: {stride} bias_term: false }}"
    return f"""
        stem Convolution data -> s : {DEEP}
        rs ReLU s -> s
        branch1 Convolution s -> b1 : {wide}
        branch2a Convolution s -> b2 : {wide}
        bn BatchNorm b2 -> b2 : {GLOBAL}
        r2 ReLU b2 -> b2
        branch2b Convolution b2 -> b3 : {DEEP}
        sum Eltwise b1 b3 -> e
        re ReLU e -> e
        left Convolution e -> l : {DEEP}
        rl ReLU l -> l
        right Convolution e -> r : {DEEP}
        rr ReLU r -> r
        cat Concat l r e -> y
        last Convolution y -> z : {CONV}
        """


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_residual_block_whole_and_unmerged(tmp_path: Path, scheme: str, stride: int) -> None:
    def build() -> chai.Net:
        return network(tmp_path, block(stride), device="emulator", scheme=scheme)

    merged, single = compare(build, DATA)
    assert {task.output for task in merged.values()} >= {"b1", "b2@r2"}  # of different signs: never one Task
    assert "cat" in single and single["left"].output == "l@rl"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "last", "shape"),
    [("resnet50", "res5c_relu", (1, 3, 224, 224)), ("mobilenet_ssd", "detection_out", (2, 3, 128, 128))],
)
def test_a_network_whole_and_unmerged(name: str, last: str, shape: tuple[int, ...]) -> None:
    def build() -> chai.Net:
        net = chai.Net(name, device="emulator", end_layer=last, shapes={"data": shape})
        train(net.graph)
        return net

    compare(build, np.random.default_rng(3).uniform(-1, 1, shape).astype(np.float32))


def test_branches_of_other_formats_are_rescaled_without_their_zero_point(tmp_path: Path) -> None:
    """a is unsigned, b could be but is not marked: the coarser b gives the format, a Copy brings a into it."""
    lines = f"""
        a Convolution data -> a : {DEEP} {xilinx(3, 5, chai_unsigned_out=True)}
        ra ReLU a -> a
        b Convolution data -> b : {DEEP} {xilinx(3, 5)}
        rb ReLU b -> b
        c Concat a b -> c
        """
    net = network(tmp_path, lines, device="emulator")
    top = net.forward(DATA)["c"]
    assert net.formats is not None and [net.formats[b].unsigned for b in ("a@ra", "b@rb", "c")] == [True, False, False]
    copy = tasks(net)["c"]
    assert isinstance(copy, Copy) and copy.zero == -128 and copy.requantization is not None
    assert (copy.inputs, copy.requantization.zero) == (("a@ra",), 0)
    wanted = network(tmp_path, lines).forward(DATA)["c"]
    assert np.abs(top - np.clip(wanted, 0, 5)).max() < 0.1
