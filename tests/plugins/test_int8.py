"""int8 implementations: the overlay's codes go in and come out, with no conversion around them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.fixed import Format
from chai.parser.caffemodel import write_caffemodel
from chai.quantizer import quantize
from tests.passes.common import network

from .common import DATA, SHAPE, compiles, flagged

CONV = "convolution_param { num_output: 16 kernel_size: 3 pad: 1 }"
MIDDLE = (2, 16, 5, 7)
BETWEEN = (
    f"first Convolution data -> a : {CONV}\nmine mine a -> b : {flagged(MIDDLE)}\nlast Convolution b -> y : {CONV}"
)
DYNAMIC = 'precision_param { quant_type: "DynamicFixed" bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 %s }'


def halve(x: Any) -> None:
    """Minus a half of the input, in float32."""
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * -0.5


def halve_codes(x: Any) -> None:
    """The same on codes: rescaled from the input's step to the output's, rounded half away from zero, saturated."""
    factor = -0.5 * x.float_params[2] / x.float_params[3]
    for i in range(x.in_ptrs[0].size):
        value = x.in_ptrs[0][i] * factor
        whole = np.floor(abs(value) + 0.5)
        x.out_ptrs[0][i] = np.int8(max(-127, min(127, whole if value > 0 else -whole)))


def define(jit: bool = True, **options: Any) -> Any:
    """A type with both."""
    custom = chai.custom("mine", jit=jit, **options)(halve)
    custom.impl("codes", dtype="int8", jit=jit)(halve_codes)
    return custom


def oracle(codes: np.ndarray, into: Format, out: Format) -> np.ndarray:
    """``halve_codes`` in whole numbers and float64, element by element."""
    factor = float(-np.float32(0.5) * np.float32(into.step) / np.float32(out.step))
    halves = np.empty(codes.shape, np.int8)
    for index in np.ndindex(codes.shape):
        value = int(codes[index]) * factor
        halves[index] = max(-127, min(127, int(np.sign(value)) * int(abs(value) + 0.5)))
    return halves


def codes(net: chai.Net, blob: str) -> np.ndarray:
    """The codes that the blob of the last pass had."""
    return net.formats[blob].quantize(net.blobs[blob])


@compiles
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("jit", [True, False])
def test_between_two_convolutions_nothing_is_converted(tmp_path: Path, jit: bool, scheme: str) -> None:
    define(jit)
    net = network(tmp_path, BETWEEN, SHAPE, device="emulator", keep="all", scheme=scheme)
    streamed = [out["y"] for out in net.stream([DATA, -DATA, DATA])]
    answer = net.forward(DATA)["y"]
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "host:mine", "fpga:Convolution", "host:Unpack"),
    ]
    into, out = net.formats["a"], net.formats["b"]
    assert np.array_equal(codes(net, "b"), oracle(codes(net, "a"), into, out))
    assert len(set(codes(net, "b").ravel().tolist())) > 50
    assert [step.name for step in net.perf.custom] == ["mine"]
    assert net.perf.conversions(net.perf.custom[0]) == (0.0, 0.0)
    assert np.array_equal(streamed[0], answer) and np.array_equal(streamed[2], answer)
    exact = network(tmp_path, BETWEEN, SHAPE).forward(DATA)["y"]
    assert np.abs(answer - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("jit", [True, False])
def test_calibration_runs_custom_layers_like_any_other(tmp_path: Path, jit: bool) -> None:
    """The quantiser has no list of types of its own: what the layer writes in float sets the format of its top."""
    if jit:
        pytest.importorskip("numba")
    define(jit)
    net = network(tmp_path, BETWEEN, SHAPE, device="emulator")
    exact = network(tmp_path, BETWEEN, SHAPE, keep="all")
    for factor in (3, 0.5):
        net.calibrate(factor * DATA)
        exact.forward(factor * DATA)
        margin = 1.5  # of two images
        assert net.formats["b"].value == pytest.approx(margin * float(np.abs(exact.blobs["b"]).max()), rel=1e-6)
        assert net.formats["b"].value == pytest.approx(margin * float(np.abs(exact.blobs["a"]).max()) / 2, rel=1e-6)


def test_the_quantiser_searches_formats_around_a_custom_layer(tmp_path: Path) -> None:
    """It needs the layer's function to see the ranges after it, and its output runs with the same function."""
    define(jit=False)
    source = network(tmp_path, BETWEEN, SHAPE)
    trained = [(name, "Convolution", blobs) for name, blobs in source.params.items()]
    write_caffemodel(tmp_path / "net.caffemodel", "net", trained)
    (tmp_path / "out").mkdir()
    quantize(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", [DATA], tmp_path / "out" / "net.prototxt", bits=6)
    net = chai.Net(tmp_path / "out" / "net.prototxt", tmp_path / "out" / "net.caffemodel", device="emulator")
    answer = net.forward(DATA)["y"]
    assert [step.name for step in net.perf.custom] == ["mine"]
    assert net.formats["b"].bits == 6  # of what the layer wrote; a calibration would give 8
    assert net.formats["b"].value == pytest.approx(net.formats["a"].value / 2, rel=0.5)
    exact = source.forward(DATA)["y"]
    assert np.abs(answer - exact).max() < 0.25 * np.abs(exact).max()


@pytest.mark.parametrize("own", [True, False])
def test_what_it_is_told_about_formats(tmp_path: Path, own: bool) -> None:
    seen = []

    @chai.custom("mine", jit=False)
    def mine(x: Any) -> None:
        raise AssertionError("codes were there")

    @mine.impl("codes", dtype="int8", jit=False)
    def look(x: Any) -> None:
        seen.append(x)
        assert x.in_ptrs[0].dtype == x.out_ptrs[0].dtype == x.bottom[0].dtype == np.int8

    lines = BETWEEN
    if own:
        first_formats = DYNAMIC % "fl_layer_in: 6 fl_layer_out: 5 fl_params: 7"
        mine_formats = DYNAMIC % "fl_layer_in: 5 fl_layer_out: 3 fl_params: 7"
        lines = lines.replace(" : " + CONV, f" : {CONV} {first_formats}").replace(
            flagged(MIDDLE), f"{flagged(MIDDLE)} {mine_formats}"
        )
    # its float32 form is asked for a calibration only
    mine.implementations[0] = replace(mine.implementations[0], function=halve, jit=False)
    net = network(tmp_path, lines, SHAPE, device="emulator")
    net.forward(DATA)
    x, into, out = seen[-1], net.formats["a"], net.formats["b"]
    if own:
        assert (into, out) == (Format("DynamicFixed", 8, 5), Format("DynamicFixed", 8, 3))
        assert x.qf_format == (8, 5, 8, 3, 0, 0, 0, 0)
        assert (x.qf_format.ip_bw, x.qf_format.ip_fbits, x.qf_format.op_bw, x.qf_format.op_fbits) == (8, 5, 8, 3)
        assert x.float_params.tolist() == [0, 0, 2**-5, 2**-3]
        assert (x.kernMode, x.prev_kernMode) == (1, 1)
    else:
        assert x.qf_format == (8, 0, 8, 0, 0, 0, 0, 0)
        thresholds = [into.value, out.value]
        assert x.float_params.tolist() == [*thresholds, *(np.float32(np.float32(t) / 127) for t in thresholds)]
        assert (x.kernMode, x.prev_kernMode) == (0, 0)


BOTH = f"""
first Convolution data -> a : {CONV}
mine mine a -> b : {flagged(MIDDLE)}
"""


@compiles
@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (f"mine mine data -> b : {flagged()}\nlast Convolution b -> y : {CONV}",
         ["host:mine", "host:Pack", "fpga:Convolution", "host:Unpack"]),  # from the host: float32
        (f"first Convolution data -> a : {CONV}\nabs MVN a -> h\nmine mine h -> y : {flagged(MIDDLE)}",
         ["host:Pack", "fpga:Convolution", "host:Unpack", "host:MVN", "host:mine"]),
        (f"{BOTH}abs MVN b -> y",  # codes in, read by the host
         ["host:Pack", "fpga:Convolution", "host:mine", "host:Unpack", "host:MVN"]),
        (f"{BOTH}two mine b -> c : {flagged(MIDDLE)}\nlast Convolution c -> y : {CONV}",  # one after the other
         ["host:Pack", "fpga:Convolution", "host:mine", "host:mine", "fpga:Convolution", "host:Unpack"]),
    ],
)  # fmt: skip
def test_codes_where_they_are_and_floats_where_not(tmp_path: Path, lines: str, steps: list[str]) -> None:
    define()
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all")
    outputs = net.forward(DATA)
    assert net.schedule.engines() == steps
    exact = network(tmp_path, lines, SHAPE).forward(DATA)["y"]
    assert np.abs(outputs["y"] - exact).max() < 0.05 * np.abs(exact).max()


@compiles
def test_a_second_bottom_from_the_host_makes_all_of_them_floats(tmp_path: Path) -> None:
    seen = []
    custom = define(jit=False)

    @custom.impl("both", priority=30, jit=False)
    def both(x: Any) -> None:
        seen.append([b.dtype for b in x.bottom])
        x.top[0][...] = x.bottom[0] + x.bottom[1]

    custom.impl("both codes", dtype="int8", priority=40, jit=False)(lambda x: 1 / 0)
    lines = f"first Convolution data -> a : {CONV}\nabs AbsVal a -> h\nmine mine a h -> y : {flagged(MIDDLE)}"
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all", engine={"abs": "host"})
    net.calibrate(DATA)  # else the layer would run on floats in the first pass
    top = net.forward(DATA)["y"]
    assert seen[-1] == [np.float32, np.float32]
    assert np.array_equal(top, net.blobs["a"] + np.abs(net.blobs["a"]))


@pytest.mark.parametrize("priority", [-1, 0, 10])
def test_a_float_implementation_of_higher_priority_is_taken(tmp_path: Path, priority: int) -> None:
    custom = chai.custom("mine", jit=False)(halve)
    custom.impl("codes", dtype="int8", jit=False, priority=priority)(halve_codes)
    net = network(tmp_path, BETWEEN, SHAPE, device="emulator")
    net.forward(DATA)
    assert ("host:Unpack" in net.schedule.engines()[:-1]) == (priority < 0)


def test_a_condition_decides_about_codes_too(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(halve)
    custom.impl("codes", dtype="int8", jit=False, when=lambda x: x.input_dims[0][0] == 1)(halve_codes)
    net = network(tmp_path, BETWEEN, SHAPE, device="emulator")
    net.calibrate(DATA)
    for data, steps in ((DATA, 7), (DATA[:1], 5)):
        net.forward(data)
        assert len(net.schedule.steps) == steps


# -- unsigned codes

AFTER_RELU = BETWEEN.replace("mine mine", "relu ReLU a -> a\nmine mine")


def scale_codes(x: Any) -> None:
    """x / 2 - 1/8 on codes of either kind."""
    low, high = x.code_ranges[1, 0], x.code_ranges[1, 1]
    for i in range(x.in_ptrs[0].size):
        value = (x.in_ptrs[0][i] - x.zero_points[0]) * x.float_params[2] * 0.5 - 0.125
        steps = np.rint(value / x.float_params[3]) + x.zero_points[1]
        x.out_ptrs[0][i] = np.int8(max(low, min(high, steps)))


def scaled(x: Any) -> None:
    """The same on values."""
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * 0.5 - 0.125


def define_scaled(jit: bool = False, zero_points: bool = True) -> Any:
    custom = chai.custom("mine", jit=jit)(scaled)
    custom.shape(lambda x: [x.input_dims[0]])
    custom.impl("codes", dtype="int8", jit=jit, zero_points=zero_points)(scale_codes)
    return custom


@compiles
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("relu", [True, False])
def test_an_implementation_with_zero_points_gets_unsigned_codes(
    tmp_path: Path, jit: bool, bits: int, scheme: str, relu: bool
) -> None:
    """Its input is behind a ReLU; its output is where one follows, which is applied at its zero point."""
    define_scaled(jit)
    lines = AFTER_RELU.replace("last", "two ReLU b -> b\nlast") if relu else AFTER_RELU
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all", scheme=scheme, bits=bits)
    net.calibrate(iter([DATA] * 16))  # so many images have no margin
    net.forward(DATA)
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "host:mine", "fpga:Convolution", "host:Unpack"),
    ]
    ids = net.graph.latest
    into, out = net.formats[ids["a"]], net.formats[ids["b"]]
    assert (into.unsigned, out.unsigned, into.zero) == (True, relu, -128 if bits == 8 else 0)
    a, b = net.blobs["a"], net.blobs["b"]
    wanted = (a * 0.5 - 0.125) / out.step
    low = 0 if relu else out.range[0]
    wanted = np.clip(wanted, low, out.largest)
    assert np.abs(b / out.step - wanted).max() <= 0.501
    assert a.max() > 0.45 * into.step * into.largest and (b < 0).any() != relu


def test_without_zero_points_its_blobs_are_signed(tmp_path: Path) -> None:
    define_scaled(zero_points=False)
    net = network(tmp_path, AFTER_RELU, SHAPE, device="emulator", calibrate=DATA)
    assert net.schedule.engines().count("host:mine") == 1 and "host:Unpack" not in net.schedule.engines()[:-1]
    assert net.formats is not None and not any(f.unsigned for f in net.formats.values())


def test_zero_points_belong_to_codes() -> None:
    custom = chai.custom("mine", jit=False)(scaled)
    with pytest.raises(chai.PluginError, match="zero_points belongs to dtype 'int8', this has 'float32'"):
        custom.impl("codes", zero_points=True)(scale_codes)


def test_outputs_hold_the_value_zero_before_the_call(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(lambda x: None)
    custom.impl("codes", dtype="int8", jit=False, zero_points=True)(lambda x: None)
    lines = AFTER_RELU.replace("last", "two ReLU b -> b\nlast")
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all", calibrate=DATA)
    net.forward(DATA)
    assert net.formats is not None and net.formats[net.graph.latest["b"]].unsigned
    assert not net.blobs["b"].any()


def test_a_compiled_network_with_unsigned_codes_needs_an_implementation_that_takes_them(tmp_path: Path) -> None:
    net = network(tmp_path, AFTER_RELU, SHAPE, device="emulator", custom=define_scaled(), calibrate=DATA)
    net.calibrate(DATA)
    wanted = net.forward(DATA)["y"]
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator", custom=define_scaled())
    assert np.array_equal(again.forward(DATA)["y"], wanted)
    assert again.formats is not None and again.formats["a@relu"].unsigned
    with pytest.raises(chai.PluginError, match="layer 'mine': its blobs have unsigned codes, but custom type 'mine'"):
        chai.Net(tmp_path / "net.chai", device="emulator", custom=define_scaled(zero_points=False))


def test_the_check_of_a_custom_layer_tries_both_kinds_of_codes() -> None:
    rows = {row.way: row for row in chai.check_custom(define_scaled(), [SHAPE]).rows}
    assert rows["codes (python)"].ok and rows["codes (python), unsigned"].ok
    wrong = chai.custom("mine", jit=False)(scaled)
    wrong.shape(lambda x: [x.input_dims[0]])
    wrong.impl("codes", dtype="int8", jit=False, zero_points=True)(_without_zero_points)
    rows = {row.way: row for row in chai.check_custom(wrong, [SHAPE]).rows}
    assert rows["codes (python)"].ok and not rows["codes (python), unsigned"].ok


def _without_zero_points(x: Any) -> None:
    """Right for signed codes only."""
    value = x.bottom[0] * x.float_params[2] * 0.5 - 0.125
    x.top[0][...] = np.clip(np.rint(value / x.float_params[3]), -128, 127)


# -- several blobs, concats, layouts


def add_codes(x: Any) -> None:
    """Sums of values, as codes of the outputs' steps, which two numbers per bottom and top tell."""
    first, second = x.bottom[0] * x.float_params[2], x.bottom[1] * x.float_params[4]
    x.top[0][...] = np.clip(np.rint((first + 2 * second) / x.float_params[3]), -127, 127)


def test_steps_of_further_bottoms_follow(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(lambda x: np.add(x.bottom[0], 2 * x.bottom[1], out=x.top[0]))
    custom.impl("codes", dtype="int8", jit=False)(add_codes)
    lines = f"""
        one Convolution data -> a : {CONV}
        two Convolution data -> b : {CONV}
        mine mine a b -> c : {flagged(MIDDLE)}
        last Convolution c -> y : {CONV}
        """
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all")
    net.forward(DATA)
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "fpga:Convolution", "host:mine", "fpga:Convolution", "host:Unpack"),
    ]
    wanted = net.blobs["a"] + 2 * net.blobs["b"]
    assert net.formats["a"].step != net.formats["b"].step
    assert np.abs(net.blobs["c"] - wanted).max() <= 0.502 * net.formats["c"].step


JOINED = f"""
first Convolution data -> a : {CONV}
other Convolution data -> b : {CONV}
join Concat a b -> j
mine mine b -> m : {flagged(MIDDLE)}
deep Convolution m -> d : {CONV}
wide Convolution j -> w : {CONV}
sum Eltwise d w -> y
"""


@compiles
def test_a_bottom_that_lies_inside_a_concat(tmp_path: Path) -> None:
    """On the device, b is the second half of j: its codes are not one piece of memory."""
    define()
    net = network(tmp_path, JOINED, SHAPE, device="emulator", keep="all")
    net.forward(DATA)
    assert net.schedule.views["b"] == ("j", 16)
    assert net.schedule.engines().count("host:Pack") == 1 and net.schedule.engines().count("host:Unpack") == 1
    assert np.array_equal(codes(net, "m"), oracle(codes(net, "b"), net.formats["b"], net.formats["m"]))
    assert np.array_equal(net.blobs["j"][:, 16:], net.blobs["b"])


@compiles
def test_a_top_that_goes_into_a_concat(tmp_path: Path) -> None:
    define()
    lines = f"{BOTH}other Convolution data -> c : {CONV}\njoin Concat b c -> j\nlast Convolution j -> y : {CONV}"
    net = network(tmp_path, lines, SHAPE, device="emulator", keep="all")
    top = net.forward(DATA)["y"]
    assert "host:Unpack" not in net.schedule.engines()[:-1]
    assert np.array_equal(codes(net, "b"), oracle(codes(net, "a"), net.formats["a"], net.formats["b"]))
    assert np.array_equal(net.blobs["j"][:, :16], net.blobs["b"])
    exact = network(tmp_path, lines, SHAPE).forward(DATA)["y"]
    assert np.abs(top - exact).max() < 0.05 * np.abs(exact).max()


def test_layout_and_single_images(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False, per_image=True, inplace=True)(lambda x: None)

    @custom.impl("codes", dtype="int8", layout="NHWC", jit=False)
    def shuffle(x: Any) -> None:
        assert x.bottom[0].shape == (1, 5, 7, 16)
        assert np.array_equal(x.top[0], x.bottom[0])  # in place
        x.top[0][...] = x.top[0][..., ::-1]

    net = network(tmp_path, BETWEEN, SHAPE, device="emulator", keep="all")
    net.forward(DATA)
    assert np.array_equal(codes(net, "b"), codes(net, "a")[:, ::-1])


@pytest.mark.parametrize("fuse", [(), ("ReLU",)])
def test_a_relu_on_codes(tmp_path: Path, fuse: tuple[str, ...]) -> None:
    custom = define(jit=False, fuse=fuse)
    flags = []

    @custom.impl("own", dtype="int8", jit=False, priority=20)
    def own(x: Any) -> None:
        flags.append(x.custom_reluflag)
        halve_codes(x)
        if x.custom_reluflag:
            np.maximum(x.top[0], 0, out=x.top[0])

    lines = BETWEEN.replace("last", "relu ReLU b -> b\nlast")
    net = network(tmp_path, lines, SHAPE, device="emulator", keep=["a", "b"])
    net.calibrate(iter([DATA] * 16))  # so many images have no margin
    net.forward(DATA)
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "host:mine", "fpga:Convolution", "host:Unpack"),
    ]
    assert set(flags) == {int(bool(fuse))}
    into, out = net.formats["a"], net.formats["b@relu"]
    halves = out.quantize(net.blobs["b"])
    assert np.array_equal(halves, np.maximum(oracle(codes(net, "a"), into, out), 0))
    assert halves.max() == 127  # the format is that of the ReLU's output


def test_a_leaky_relu_behind_it_is_computed_in_float(tmp_path: Path) -> None:
    define(jit=False)
    lines = BETWEEN.replace("last", "relu ReLU b -> b : relu_param { negative_slope: 0.25 }\nlast")
    net = network(tmp_path, lines, SHAPE, device="emulator", keep=["a", "b"])
    net.calibrate(DATA)  # else the layer would run on floats in the first pass
    net.forward(DATA)
    assert net.schedule.engines()[2:5] == ["host:Unpack", "host:mine", "host:Pack"]
    half = net.blobs["a"] * np.float32(-0.5)
    assert np.allclose(net.blobs["b"], np.where(half < 0, half / 4, half), atol=1e-6)


def test_codes_past_the_end(tmp_path: Path) -> None:
    custom = define(jit=False)

    def far(x: Any) -> None:
        top = x.out_ptrs[0]
        np.lib.stride_tricks.as_strided(top, (top.size + 1,))[-1] = 1

    custom.impl("far", dtype="int8", jit=False, priority=30)(far)
    net = network(tmp_path, BETWEEN, SHAPE, device="emulator")
    with pytest.raises(chai.PluginError, match=r"layer 'mine' .*it wrote outside of its top"):
        net.forward(DATA)
    custom.implementations.pop()
    assert np.isfinite(network(tmp_path, BETWEEN, SHAPE, device="emulator").forward(DATA)["y"]).all()
