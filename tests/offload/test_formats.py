"""Formats of blobs: from what was seen, or from precision_param."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.errors import ModelError
from chai.fixed import Format
from chai.offload.formats import calibrated, from_precision, has_formats
from chai.passes.rewrite import rewrite
from chai.tasks.arithmetic import Arithmetic
from tests.conftest import examples
from tests.passes.common import AFFINE, AVE, CONV, DEEP, MAX, make, network

SHAPE = (2, 3, 5, 7)
POOL = "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }"


# -- from ranges

INCEPTION = f"""
    stem Convolution data -> s : {DEEP}
    left Convolution s -> l : {DEEP}
    pool Pooling s -> p : {POOL}
    right Convolution p -> r : {DEEP}
    both Concat l r -> c
    top Pooling c -> t : {MAX}
    last Convolution t -> y : {CONV}
    """


def test_branches_of_a_concat_share_one_range_with_what_only_picks(tmp_path: Path) -> None:
    seen = {"data": 1.0, "s": 2.0, "l": 3.0, "p": 1.5, "r": 7.0, "c": 7.0, "t": 5.0, "y": 4.0}
    formats = calibrated(make(tmp_path, INCEPTION), seen, 8, "Xilinx")
    assert {blob: f.value for blob, f in formats.items()} == {
        "data": 1.0,
        "s": 2.0,
        "p": 2.0,  # a maximum of s is a value of s
        "l": 7.0,
        "r": 7.0,
        "c": 7.0,
        "t": 7.0,
        "y": 4.0,
    }
    assert {(f.scheme, f.bits) for f in formats.values()} == {("Xilinx", 8)}


def test_a_concat_of_concats_and_a_branch_in_two_of_them(tmp_path: Path) -> None:
    lines = f"""
        a Convolution data -> a : {DEEP}
        b Convolution data -> b : {DEEP}
        c Convolution data -> c : {DEEP}
        ab Concat a b -> ab
        bc Concat b c -> bc
        all Concat ab data -> y
        d AbsVal a -> d
        """
    seen = dict(zip(("data", "a", "b", "c", "ab", "bc", "y", "d"), (1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 3.0, 9.0)))
    formats = calibrated(make(tmp_path, lines), seen, 8, "Xilinx")
    assert {f.value for blob, f in formats.items() if blob != "d"} == {4.0}
    assert formats["d"].value == 9.0  # computed anew from a


def test_the_pieces_of_a_slice_have_the_format_of_the_whole(tmp_path: Path) -> None:
    lines = f"cut Slice data -> a b : slice_param {{ slice_point: 16 }}\nconv Convolution b -> c : {CONV}"
    graph = make(tmp_path, lines, (2, 35, 5, 7))
    formats = calibrated(graph, {"data": 3.0, "a": 3.0, "b": 1.0, "c": 2.0}, 8, "Xilinx")
    assert [formats[b].value for b in ("data", "a", "b", "c")] == [3.0, 3.0, 3.0, 2.0]
    on_host = calibrated(graph, {"data": 3.0, "a": 3.0, "b": 1.0, "c": 2.0}, 8, "Xilinx", ["cut"])
    assert on_host["b"].value == 1.0
    precision_text = (
        "precision_param { bw_layer_in: 8 bw_layer_out: 8 fl_layer_in: 3 fl_layer_out: 5 bw_params: 8 fl_params: 7 }"
    )
    graph = make(tmp_path, f"conv Convolution data -> c : {DEEP} {precision_text}\ncut Slice c -> a b", (2, 3, 5, 7))
    formats = from_precision(graph)
    assert formats["a"] == formats["b"] == formats["c"] == Format("DynamicFixed", 8, 5)


def test_an_average_has_a_range_of_its_own(tmp_path: Path) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}\npool Pooling c -> p : {AVE}")
    formats = calibrated(graph, {"data": 1.0, "c": 8.0, "p": 2.0}, 6, "Xilinx")
    assert (formats["c"].value, formats["p"].value) == (8.0, 2.0)


@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("largest", [1e-20, 0.3, 0.5, 0.99, 1.0, 1.01, 127.0, 128.0, 3e20])
def test_the_step_fits_the_largest_value(tmp_path: Path, scheme: str, bits: int, largest: float) -> None:
    """Nothing saturates by more than one code, and no bit is wasted."""
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}")
    data_format = calibrated(graph, {"data": largest, "c": 1.0}, bits, scheme)["data"]
    assert (data_format.scheme, data_format.bits) == (scheme, bits)
    codes = np.float32(largest) / data_format.step
    assert data_format.largest / 2 < codes <= data_format.largest + 1
    assert (
        abs(data_format.dequantize(data_format.quantize(np.array([largest])))[0] - largest) <= data_format.step * 1.001
    )
    if scheme == "Xilinx":
        assert data_format.value == float(np.float32(largest))
    else:
        assert data_format.value == int(data_format.value)


@pytest.mark.parametrize(("scheme", "value"), [("Xilinx", 1.0), ("DynamicFixed", 7)])
def test_a_blob_of_zeros(tmp_path: Path, scheme: str, value: float) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}")
    assert calibrated(graph, {"data": 0.0, "c": 0.0}, 8, scheme)["c"] == Format(scheme, 8, value)
    net = network(tmp_path, f"conv Convolution data -> c : {CONV}", device="emulator", scheme=scheme)
    for blob in net.params["conv"]:
        blob[...] = 0
    assert not net.forward(np.zeros(SHAPE))["c"].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_ranges_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}\nrelu ReLU c -> c")
    with pytest.raises(chai.ModelError, match=r"blob 'c' has values that are not finite on the calibration images"):
        calibrated(graph, {"data": 1.0, "c": 1.0, "c@relu": value}, 8, "Xilinx")


def test_an_unknown_scheme(tmp_path: Path) -> None:
    graph = make(tmp_path, f"conv Convolution data -> c : {CONV}")
    with pytest.raises(chai.ModelError, match="scheme 'Foo': expected one of Xilinx, DynamicFixed"):
        calibrated(graph, {"data": 1.0, "c": 1.0}, 8, "Foo")


@settings(max_examples=examples(30))
@given(seen=st.lists(st.floats(0, 1e6, width=32), min_size=8, max_size=8), bits=st.sampled_from([8, 6]))
def test_no_range_is_cut(tmp_path_factory: pytest.TempPathFactory, seen: list[float], bits: int) -> None:
    graph = make(tmp_path_factory.mktemp("cut"), INCEPTION)
    values = dict(zip(("data", "s", "l", "p", "r", "c", "t", "y"), seen))
    formats = calibrated(graph, values, bits, "Xilinx")
    assert set(formats) == set(values)
    for group in ("lrct", "sp"):
        assert len({formats[b] for b in group}) == 1
    for blob, format in formats.items():
        assert format.value >= values[blob]


def test_the_first_batch_sets_the_formats_for_good(tmp_path: Path) -> None:
    net = network(tmp_path, INCEPTION, device="emulator", bits=6, scheme="DynamicFixed")
    assert net.formats is None
    net.forward(np.full(SHAPE, 1.5))
    formats = net.formats
    assert formats is not None and formats["data"] == Format("DynamicFixed", 6, 4)
    net.forward(np.full((1, 3, 9, 9), 100.0))
    assert net.formats is formats
    net.calibrate(np.full(SHAPE, 3.0))
    assert net.formats["data"] == Format("DynamicFixed", 6, 3)
    calibrated_net = network(tmp_path, INCEPTION, device="emulator", calibrate={"data": np.full(SHAPE, 3.0)})
    assert calibrated_net.formats is not None and calibrated_net.formats["data"] == Format(
        "Xilinx", 8, 4.5
    )  # of two images, times 1.5


# -- from precision_param


def precision(**fields: object) -> str:
    """A precision_param."""
    text = " ".join(f'{k}: "{v}"' if isinstance(v, str) else f"{k}: {v}" for k, v in fields.items())
    return f"precision_param {{ {text} }}"


FULL = precision(bw_layer_in=8, bw_layer_out=8, bw_params=8, fl_layer_in=6, fl_layer_out=5, fl_params=7)
SIX = precision(bw_layer_in=6, bw_layer_out=6, bw_params=6, fl_layer_in=2, fl_layer_out=3, fl_params=4)
TH = precision(quant_type="Xilinx", bw_layer_in=8, bw_layer_out=8, bw_params=8, th_layer_in=2.5, th_layer_out=3.5)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings about formats."""
    return [r.message for r in caplog.records if r.name == "chai.formats" and r.levelno >= logging.WARNING]


def test_a_blob_has_its_producers_format_and_an_input_its_first_readers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = f"""
        a Convolution data -> a : {CONV} {FULL}
        b Convolution a -> b : {CONV} {SIX}
        c Convolution data -> c : {CONV} {TH}
        """
    assert from_precision(make(tmp_path, lines)) == {
        "data": Format("DynamicFixed", 8, 6),
        "a": Format("DynamicFixed", 8, 5),  # b would read it with 6 bits, but computes with what is there
        "b": Format("DynamicFixed", 6, 3),
        "c": Format("Xilinx", 8, 3.5),
    }
    assert warnings(caplog) == []


def test_max_pool_relu_and_concat_pass_formats_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    coarse = FULL.replace("fl_layer_out: 5", "fl_layer_out: 1")
    lines = f"""
        a Convolution data -> a : {DEEP} {FULL}
        relu ReLU a -> a
        pool Pooling a -> p : {POOL} {SIX}
        b Convolution data -> b : {DEEP} {coarse}
        c Convolution data -> c : {DEEP} {coarse}
        cat Concat p b c -> y : {SIX}
        """
    formats = from_precision(rewrite(make(tmp_path, lines)))
    assert formats["a@relu"] == formats["p"] == Format("DynamicFixed", 8, 5)
    assert formats["y"] == formats["b"] == Format("DynamicFixed", 8, 1)  # the branch with the largest step
    assert warnings(caplog) == []


def test_of_branches_with_one_step_the_first_gives_the_format(tmp_path: Path) -> None:
    threshold = precision(quant_type="Xilinx", bw_layer_in=8, bw_layer_out=8, th_layer_in=2, th_layer_out=127 / 32)
    lines = f"""
        a Convolution data -> a : {DEEP} {FULL}
        b Convolution data -> b : {DEEP} {threshold}
        ab Concat a b -> ab
        ba Concat b a -> ba
        """
    formats = from_precision(make(tmp_path, lines))
    assert formats["a"].step == formats["b"].step
    assert (formats["ab"], formats["ba"]) == (formats["a"], formats["b"])


def test_what_is_missing_comes_from_the_layer_before_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = f"""
        a Convolution data -> a : {CONV} {FULL}
        b Convolution a -> b : {CONV}
        pool Pooling b -> p : {MAX}
        c Convolution p -> c : {CONV} {precision(bw_layer_in=8)}
        """
    formats = from_precision(make(tmp_path, lines))
    assert {formats[blob] for blob in "abpc"} == {Format("DynamicFixed", 8, 5)}
    assert warnings(caplog) == [
        "no complete precision_param: b, c; taken from the layer before, or CHaiDNN's default",
    ]


@pytest.mark.parametrize(
    ("fields", "default"),
    [
        ("", Format("DynamicFixed", 6, 3)),
        (precision(bw_params=8), Format("DynamicFixed", 6, 3)),
        (precision(quant_type="Xilinx"), Format("Xilinx", 6, 16.0)),
    ],
)
def test_without_a_layer_before_the_default_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fields: str, default: Format
) -> None:
    formats = from_precision(make(tmp_path, f"a Convolution data -> a : {CONV} {fields}"))
    assert formats == {"data": default, "a": default}
    assert len(warnings(caplog)) == 1 and " a;" in warnings(caplog)[0]


def test_widths_alone_are_no_formats(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Intel's Caffe has scales in place of fraction lengths: its networks are measured, as those without any format."""
    lines = f"a Convolution data -> a : {CONV} {precision(bw_layer_in=8, bw_layer_out=8, bw_params=8)}"
    image = np.linspace(-500, 700, np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    exact, fixed = (network(tmp_path, lines, device=device).forward(image)["a"] for device in ("float", "emulator"))
    assert not any("no complete precision_param" in text for text in warnings(caplog))
    assert np.abs(fixed - exact).max() < 0.03 * np.abs(exact).max()


@pytest.mark.parametrize("bits", [4, 16])
def test_other_widths_alone_are_refused(tmp_path: Path, bits: int) -> None:
    net = network(tmp_path, f"a Convolution data -> a : {CONV} {precision(bw_params=bits)}", device="emulator")
    with pytest.raises(ModelError, match=f"None and {bits} bits; expected 8 or 6"):
        net.forward(np.ones(SHAPE))


def test_the_warning_names_each_layer_once_per_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = f"a Convolution data -> a : {CONV} {FULL}\nb Convolution a -> b : {CONV}\nc Convolution b -> c : {CONV}"
    net = network(tmp_path, lines, device="emulator")
    for _ in range(2):
        net.forward(np.ones(SHAPE))
    assert warnings(caplog) == ["no complete precision_param: b, c; taken from the layer before, or CHaiDNN's default"]


BITS = {"bw_layer_in": 8, "bw_layer_out": 8, "bw_params": 8, "fl_layer_in": 6, "fl_layer_out": 5, "fl_params": 7}


@pytest.mark.parametrize(
    "fields",
    [
        {**BITS, "bw_layer_in": 7},
        {**BITS, "bw_layer_out": 4},
        {**BITS, "bw_layer_out": 16},
        {**BITS, "bw_params": 7},
        {**BITS, "bw_params": 16},
        {**BITS, "quant_type": "Foo", "th_layer_in": 1, "th_layer_out": 1},
        {**BITS, "quant_type": "Foo"},
        {"quant_type": "Foo"},
        {"quant_type": "Xilinx", "bw_layer_in": 7},
    ],
    ids=str,
)
def test_bits_and_schemes_that_no_overlay_has(tmp_path: Path, fields: dict[str, object]) -> None:
    with pytest.raises(chai.ModelError, match=r"layer 'odd' \(Convolution\)") as caught:
        network(tmp_path, f"odd Convolution data -> a : {CONV} {precision(**fields)}", device="emulator").forward(
            np.ones(SHAPE)
        )
    assert caught.value.layer == "odd"


@pytest.mark.parametrize("side", ["in", "out"])
def test_a_threshold_of_zero(tmp_path: Path, side: str) -> None:
    """CHaiDNN reads it as "all values are 0"; either that or a refusal by name, but no division by zero."""
    fields = {"quant_type": "Xilinx", "bw_layer_in": 8, "bw_layer_out": 8, "th_layer_in": 2, "th_layer_out": 2}
    text = precision(**{**fields, f"th_layer_{side}": 0})
    net = network(tmp_path, f"odd Convolution data -> a : {CONV} {text}", device="emulator")
    try:
        top = net.forward(np.ones(SHAPE))["a"]
    except chai.ModelError as error:
        assert error.layer == "odd"
    else:
        assert np.isfinite(top).all()


# -- which of the two

CUSTOM = "mine twist a -> y : user_defined_layer: true xcustom_param { top_dim: [2, 4, 5, 7] }"


def twist(x: chai.xChangeLayer) -> None:
    x.top[0][...] = -x.bottom[0]


def test_a_precision_param_on_a_custom_layer_alone_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CHaiDNN's examples give one to gemm; what a host layer computes has no fixed-point format."""
    lines = f"conv Convolution data -> a : {CONV}\n{CUSTOM} {FULL}"
    net = network(tmp_path, lines, device="emulator", custom={"twist": twist})
    assert not has_formats(net.graph)
    net.forward(np.full(SHAPE, 0.5))
    assert net.formats is not None and net.formats["data"] == Format("Xilinx", 8, 0.75)  # of two images, times 1.5
    assert warnings(caplog) == []
    both = make(tmp_path, lines.replace(CONV, f"{CONV} {FULL}"), custom={"twist": twist})
    assert has_formats(both)


def test_a_networks_own_formats_need_no_images(tmp_path: Path) -> None:
    net = network(tmp_path, f"conv Convolution data -> c : {CONV} {FULL}", device="emulator")
    net.forward(np.full(SHAPE, 0.01))
    small = net.formats
    net.calibrate(np.full(SHAPE, 100.0))
    assert net.formats == small == {"data": Format("DynamicFixed", 8, 6), "c": Format("DynamicFixed", 8, 5)}


XILINX = precision(quant_type="Xilinx", bw_layer_in=6, bw_layer_out=6, th_layer_in=3.0, th_layer_out=1.5, bw_params=6)
TYPES = {
    "DynamicFixed, then Xilinx": (FULL, XILINX, Format("DynamicFixed", 8, 6), Format("Xilinx", 6, 1.5)),
    "Xilinx, then DynamicFixed": (XILINX, FULL, Format("Xilinx", 6, 3.0), Format("DynamicFixed", 8, 5)),
}


@pytest.mark.parametrize("last", ["Scale", "ReLU"])
@pytest.mark.parametrize("types", TYPES)
def test_two_types_in_one_layer(tmp_path: Path, types: str, last: str) -> None:
    """Input and weights as the convolution says, the output as the layer says that it took in, in its own type."""
    first, second, source, result = TYPES[types]
    fields = AFFINE if last == "Scale" else ""
    lines = f"conv Convolution data -> c : {CONV} {first}\nmore {last} c -> y : {fields} {second}"
    net = network(tmp_path, lines, device="emulator")
    data = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
    top = net.forward(data)["y"]
    assert net.formats == {"data": source, "y": result}
    assert net.schedule.engines() == ["host:Pack", "fpga:Convolution", "host:Unpack"]
    layer = net.offload.graph.layers[-1]
    target = Arithmetic(net.offload.overlay, net.formats, net.offload.shapes)
    weights, _ = target.weight_format(layer.blobs[0], layer.precision, layer.tops[0])
    assert (weights.scheme, weights.bits) == (source.scheme, source.bits)
    wanted = network(tmp_path, lines).forward(data)["y"]
    within = result.largest * result.step
    assert np.abs(top - np.clip(wanted, -within, within)).max() < 0.2 * within
    assert (top != 0).any()


def test_an_incomplete_format_of_the_last_layer_leaves_that_of_the_first(tmp_path: Path) -> None:
    half = precision(quant_type="Xilinx", bw_layer_out=6)
    lines = f"conv Convolution data -> c : {CONV} {FULL}\nrelu ReLU c -> y : {half}"
    assert from_precision(rewrite(make(tmp_path, lines)))["y"] == Format("DynamicFixed", 8, 5)


def test_formats_hold_for_a_folded_scale(tmp_path: Path) -> None:
    lines = f"conv Convolution data -> c : {CONV} {FULL}\nscale Scale c -> s : {AFFINE} {SIX}\nrelu ReLU s -> s"
    net = network(tmp_path, lines, device="emulator")
    net.forward(np.ones(SHAPE))
    assert net.formats == {"data": Format("DynamicFixed", 8, 6), "s@relu": Format("DynamicFixed", 6, 3)}
