"""The overlays of CHaiDNN-v2's arithmetic as users meet them: what runs where and why, formats, files, and no hardware."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai
from chai import devices, overlay
from chai.artifact.save import save
from chai.bitstream.project import target
from chai.chaidnn.estimate import estimate
from chai.chaidnn_v2.argmax import ChaidnnArgMax
from chai.chaidnn_v2.conv import ChaidnnConv
from chai.chaidnn_v2.registers import Converted
from chai.cli import main
from chai.errors import DeviceError, UsageError
from chai.fixed import Format
from chai.offload.schedule import DeviceStep, HostStep, Pack
from chai.parser.caffemodel import write_caffemodel
from chai.quantizer import quantize
from chai.tasks.work import Work
from tests.passes.common import prototxt
from tests.reference import chaidnn as reference

FULL, DIET = "chaidnn-zcu102", "chaidnn-diet"
BITS = "bw_layer_in: 8 bw_layer_out: 8 bw_params: 8"
DYNAMIC = f'precision_param {{ quant_type: "DynamicFixed" {BITS} fl_layer_in: 5 fl_layer_out: %s }}'
XILINX = f'precision_param {{ quant_type: "Xilinx" {BITS} th_layer_in: %s th_layer_out: %s }}'
COARSE = DYNAMIC.replace("fl_layer", "fl_params: -1 fl_layer", 1) % -3
CONV = "convolution_param { num_output: 16 kernel_size: %s }"


def made(
    folder: Path, lines: str, name: str = FULL, shape: tuple[int, ...] = (3, 16, 7, 9), **options: object
) -> chai.Net:
    path = folder / "net.prototxt"
    path.write_text(prototxt(lines, shape))
    net = chai.Net(path, overlay=name, **options)
    rng = np.random.default_rng(7)
    for arrays in net.params.values():
        for array in arrays:
            array[...] = rng.uniform(-0.3, 0.3, array.shape)
    return net


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("y Convolution data -> y : convolution_param { num_output: 16 kernel_h: 3 kernel_w: 1 }", "the same in both directions"),
        ("y Convolution data -> y : " + CONV.replace("}", "pad: 1 }") % 9, "a kernel above 8x8 with more than 4 input channels"),
        ("y Convolution data -> y : " + CONV % 1 + XILINX % (900.0, 0.01), "a multiplier would be 4 or more"),
        ("y Convolution data -> y : " + CONV % 1 + XILINX % (1.0, 1e-35), "a multiplier would be 4 or more"),  # than int64
        ("y Convolution data -> y : " + CONV % 1 + XILINX % (1.0, 1e-42), "a multiplier would be 4 or more"),  # than float32
        ("y Convolution data -> y : " + CONV % 1 + DYNAMIC % 30, "is a shift by"),
        ("y Convolution data -> y : " + CONV % 1 + XILINX % (1.0, 0.0), "every value is 0"),
        ("y Convolution data -> y : convolution_param { num_output: 32 kernel_size: 1 group: 2 }", "not multiples of 16"),
        ("y Convolution data -> y : convolution_param { num_output: 16 kernel_size: 1 group: 16 }", "group 16 is more"),
        ("y InnerProduct data -> y : inner_product_param { num_output: 3 }\nz Sigmoid y -> z", "on the host, in float32"),
        ("y Pooling data -> y : pooling_param { pool: AVE kernel_size: 3 pad: 1 }" + DYNAMIC % 14, "is a shift by -1"),
        ("y Pooling data -> y : pooling_param { kernel_size: 2 stride: 2 round_mode: FLOOR }", "it rounds sizes up"),
        ("y Pooling data -> y : pooling_param { pool: AVE_EXC_PAD kernel_size: 3 pad: 1 }", "averages count the padding"),
        ("y Convolution data -> y : " + CONV % 1 + COARSE, "shifts weights and bias to the left"),
        ("y Eltwise data data -> y : eltwise_param { coeff: 1 coeff: -1 }", "without coefficients"),
        ("y Bias data data -> y : bias_param { axis: 0 }", "adds blobs in an Eltwise alone"),
        ("y Scale data -> y", "have no thresholds"),
        ("y Convolution data -> y : " + CONV % 1 + (DYNAMIC % 3).replace("}", "chai_unsigned_in: true }"), "no unsigned codes"),
        ("y LRN data -> y", "no LRN unit"),
    ],
)  # fmt: skip
def test_what_runs_on_the_host_and_why(tmp_path: Path, line: str, reason: str) -> None:
    net = made(tmp_path, line)
    net.forward(np.random.default_rng(1).normal(size=(3, 16, 7, 9)).astype(np.float32))
    assert reason in net.partition.reasons["y"]


def test_leaky_and_limited_rectifiers_are_refused(tmp_path: Path) -> None:
    for relu in ("relu_param { negative_slope: 0.1 }", "relu_param { relu6: true }"):
        net = made(tmp_path, f"y Convolution data -> y : {CONV % 1}\nr ReLU y -> y : {relu}")
        net.forward(np.ones((3, 16, 7, 9), np.float32))
        assert net.partition.reasons


def test_a_pack_between_layers_truncates_and_that_of_the_network_rounds(tmp_path: Path) -> None:
    lines = f"""a Convolution data -> a : {CONV % 1} {DYNAMIC % 4}
                n LRN a -> n
                b Convolution n -> b : {CONV % 1} {DYNAMIC % 4}"""
    net = made(tmp_path, lines, keep="all")
    x = np.random.default_rng(2).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net.forward(x)
    packs = [step for step in net.schedule.steps if isinstance(step, Pack)]
    assert [(pack.blob, type(pack.format)) for pack in packs] == [("data", Format), ("n", Converted)]
    values = np.array([0.06, -0.06, 0.031, 4.0], np.float32)
    assert packs[0].format.quantize(values).tolist() == [2, -2, 1, 127]
    assert packs[1].format.quantize(values).tolist() == [0, 0, 0, 64]
    with pytest.raises(chai.ModelError, match="NaN"):
        packs[1].format.quantize(np.array([np.nan], np.float32))


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_chosen_formats_are_those_that_nothing_rescales(tmp_path: Path, scheme: str) -> None:
    lines = f"""a Convolution data -> a : {CONV % 1}
                b Convolution data -> b : {CONV % 1}
                s Eltwise a b -> s
                p Pooling s -> p : pooling_param {{ pool: AVE kernel_size: 7 }}
                c Convolution p -> c : {CONV % 1}"""
    x = np.random.default_rng(3).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = made(tmp_path, lines, calibrate=x, scheme=scheme)
    net.forward(x)
    formats = net.formats
    assert formats is not None and not net.partition.reasons
    assert formats["a"] == formats["b"] == formats["s"]
    assert (formats["p"] == formats["s"]) == (scheme == "Xilinx")
    whole = made(tmp_path, lines, device="float").forward(x)["c"]
    assert np.abs(net.forward(x)["c"] - whole).max() < 0.1 * np.abs(whole).max()


def test_a_layer_reads_in_its_own_layer_in(tmp_path: Path) -> None:
    """Codes move as they are: what a layer takes them for is its own matter."""
    lines = f"""a Convolution data -> a : {CONV % 1} {XILINX % (2.0, 3.0)}
                b Convolution a -> b : {CONV % 1} {XILINX % (6.0, 3.0)}"""
    net = made(tmp_path, lines)
    net.plan()
    first, second = (task for step in net.schedule.steps if isinstance(step, DeviceStep) for task in step.tasks)
    assert isinstance(first, ChaidnnConv) and isinstance(second, ChaidnnConv)
    weights = net.params["b"][0]
    steps = (np.abs(weights).max((1, 2, 3)).astype(np.float64) / 127).astype(np.float32)
    exact = steps * (np.float32(6.0 / 127) / np.float32(3.0 / 127)) * (1 << 22)
    assert np.abs(second.requantization.multiplier.ravel() - exact).max() < 2


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_a_compiled_network_gives_the_same_codes(tmp_path: Path, scheme: str) -> None:
    lines = f"""a Convolution data -> a : {CONV % 3}
                p Pooling a -> p : pooling_param {{ kernel_size: 3 stride: 2 }}
                n LRN p -> n
                b Convolution n -> b : {CONV % 1}
                d Convolution n -> d : {CONV % 1}
                s Eltwise b d -> s
                c Concat s b -> c
                m Pooling c -> m : pooling_param {{ pool: AVE kernel_size: 2 }}"""
    x = np.random.default_rng(4).normal(size=(3, 16, 7, 9)).astype(np.float32)
    for name in (FULL, DIET):
        net = made(tmp_path, lines, name, calibrate=x, scheme=scheme)
        expected = net.forward(x)
        assert {*net.partition.reasons} == {"n"}
        save(net, tmp_path / "net.chai")
        compiled = chai.Net(tmp_path / "net.chai")
        assert compiled.overlay is not None and compiled.overlay.name == name
        answers = compiled.forward(x)
        assert all(np.array_equal(answers[blob], expected[blob]) for blob in expected)
        tasks = [task for step in compiled.schedule.segments for task in step.tasks]
        pools = [task for task in tasks if task.kind == "pool"]
        assert [task.standalone for task in pools] == [name == FULL, False]


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_formats_are_measured_for_a_normalize_on_codes(tmp_path: Path, scheme: str) -> None:
    lines = f"""a Convolution data -> a : {CONV % 3}
                n Normalize a -> n : norm_param {{ across_spatial: false channel_shared: false }}
                y AbsVal n -> y"""
    x = np.random.default_rng(6).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = made(tmp_path, lines, calibrate=x, scheme=scheme)
    answer, exact = net.forward(x)["y"], made(tmp_path, lines, device="float").forward(x)["y"]
    (step,) = (step for step in net.schedule.steps if isinstance(step, HostStep) and step.layer.name == "n")
    assert step.codes and np.abs(answer - exact).max() < 0.2 * exact.max()  # its codes are cut, not rounded
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["y"], answer)


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_the_second_half_of_a_crelu_saturates(tmp_path: Path, scheme: str) -> None:
    """The smallest code becomes the largest one, also in a file; a Power that does more runs on the host."""
    stated = XILINX % (4.0, 2.0) if scheme == "Xilinx" else DYNAMIC % 5
    lines = f"""c Convolution data -> c : {CONV % 3} {stated}
                n Power c -> n : power_param {{ scale: -1 }}
                y Concat c n -> y
                r ReLU y -> y"""
    net = made(tmp_path, lines, keep="all")
    x = np.random.default_rng(6).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net.forward(x)
    blobs = net.blobs
    codes = np.rint(blobs["c"] / np.float32(2.0 / 127 if scheme == "Xilinx" else 1 / 32))
    assert (codes == -128).any() and (codes == 127).any() and (abs(codes) < 100).any()
    expected = np.concatenate([codes, np.minimum(-codes, 127)], 1).clip(0) * (
        2.0 / 127 if scheme == "Xilinx" else 1 / 32
    )
    assert np.allclose(blobs["y"], expected, rtol=1e-6)
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["y"], blobs["y"])
    other = made(tmp_path, lines.replace("scale: -1", "scale: -1 shift: 1"))
    other.forward(x)
    assert other.partition.reasons["n"] == "no Power unit"


def test_calibration_gives_a_crelu_one_format(tmp_path: Path) -> None:
    lines = f"""c Convolution data -> c : {CONV % 3}
                n Power c -> n : power_param {{ scale: -1 }}
                y Concat c n -> y
                r ReLU y -> y"""
    x = np.random.default_rng(6).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = made(tmp_path, lines, calibrate=x)
    net.forward(x)
    assert net.formats is not None and {*net.partition.reasons} == {"r"}
    assert net.formats["c"] == net.formats["n"]


def test_a_softmax_is_that_of_the_table(tmp_path: Path) -> None:
    """Also in a file; without the overlay it is Caffe's."""
    lines = f"""a Convolution data -> a : {CONV % 7}
                s Softmax a -> s"""
    x = np.random.default_rng(4).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = made(tmp_path, lines, calibrate=x, keep="all")
    net.forward(x)
    scores, shares = net.blobs["a"], net.blobs["s"]
    exact = np.exp(scores - scores.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    assert not np.array_equal(shares, exact) and np.allclose(shares, exact, rtol=0.02, atol=1e-5)
    (layer,) = (step.layer for step in net.schedule.steps if isinstance(step, HostStep))
    assert np.array_equal(layer.forward(scores)[0], shares) and layer.type == "Softmax"
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["s"], shares)


NORMS = f"""a Convolution data -> a : {CONV % 3}
            n Normalize a -> n : norm_param {{ across_spatial: false channel_shared: %s }}
            b Convolution n -> b : {CONV % 1}
            p Pooling b -> p : pooling_param {{ pool: MAX global_pooling: true }}
            s Softmax p -> s"""


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_a_normalize_works_on_codes(tmp_path: Path, scheme: str) -> None:
    """Also in a file; behind a layer in float32, or over pixels as well, it is Caffe's."""
    x = np.random.default_rng(4).normal(size=(3, 16, 7, 9)).astype(np.float32)
    for shared in ("true", "false"):
        net = made(tmp_path, NORMS % shared, calibrate=x, scheme=scheme, keep="all")
        expected = net.forward(x)
        (step,) = (step for step in net.schedule.steps if isinstance(step, HostStep) and step.layer.name == "n")
        assert step.codes and not any(isinstance(step, Pack) and step.blob == "n" for step in net.schedule.steps)
        values, gamma = net.blobs["a"].astype(np.float64), net.params["n"][0].reshape(1, -1, 1, 1)
        exact = values / np.sqrt((values**2).sum(1, keepdims=True)) * gamma
        assert np.abs(net.blobs["n"] - exact).max() < 0.3 * np.abs(exact).max()
        save(net, tmp_path / "net.chai")
        assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["s"], expected["s"])
    for text in (
        (NORMS % "true").replace("across_spatial: false", "across_spatial: true"),
        (NORMS % "true").replace("n Normalize a", "l LRN a -> l\n n Normalize l"),
    ):
        net = made(tmp_path, text, calibrate=x, scheme=scheme)
        net.forward(x)
        assert not any(isinstance(step, HostStep) and step.codes for step in net.schedule.steps)


def test_an_odd_batch_equals_pairs(tmp_path: Path) -> None:
    x = np.random.default_rng(5).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = made(tmp_path, f"a Convolution data -> a : {CONV % 3}", calibrate=x, bits=6)
    every = net.forward(x)["a"]
    one = net.forward(x[2:])["a"]
    assert np.array_equal(one, every[2:])


@pytest.mark.parametrize("name", [FULL, DIET])
def test_there_is_no_hardware_of_it(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = overlay.load(name)
    assert known.emulated and name in overlay.names() and name not in overlay.names("array")
    for device in ("rtlsim", "pynq"):
        if devices.open(device).status()[0] or device == "pynq":
            with pytest.raises(DeviceError, match="emulator alone"):
                devices.open(device).compile(Work(known, (), {}))
    with pytest.raises(DeviceError, match="emulator alone"):
        target(name)
    (tmp_path / "layers.csv").write_text("CONV,8,8,3,3,3,1,1,1,1,8,8,16,1,1\n")
    with pytest.raises(UsageError, match="not modelled"):
        estimate(tmp_path / "layers.csv", known)
    assert main(["show", "digits", "--overlay", name]) == 0
    assert "not modelled" in capsys.readouterr().out


@pytest.mark.parametrize(("largest", "bits"), [(0.3, 1), (0.01, 1), (1.0, 2), (1.5, 2), (2.0, 2), (3.0, 3), (9.0, 5)])
def test_weights_of_a_folded_convolution(tmp_path: Path, largest: float, bits: int) -> None:
    """Their fraction length follows the largest magnitude, however small it is."""
    lines = f"""a Convolution data -> a : {CONV % 1} {DYNAMIC % 4}
                b BatchNorm a -> b : batch_norm_param {{ eps: 0 }}
                s Scale b -> s : {(DYNAMIC % 4).replace("bw_params: 8", "")}"""
    net = made(tmp_path, lines)
    weights = net.params["a"][0]
    weights[...] = np.random.default_rng(1).uniform(-0.5, 0.5, weights.shape) * largest
    weights[0, 0] = largest
    for array, value in zip((*net.params["b"], *net.params["s"]), (0, 1, 1, 1)):
        array[...] = value
    net.plan()
    (task,) = (task for step in net.schedule.segments for task in step.tasks)
    assert task.requantization.shift == 5 + (8 - bits) - 4


FUSED = """b BatchNorm data -> b : batch_norm_param {{ use_global_stats: true }} {}
           s Scale b -> s : scale_param {{ bias_term: true }} {}
           c Convolution s -> c : convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 }} {}"""


def trained(net: chai.Net) -> chai.Net:
    """Statistics of a BatchNorm ``b`` of 16 channels."""
    rng = np.random.default_rng(8)
    mean, variance, divisor = net.params["b"]
    mean[...], variance[...], divisor[...] = rng.normal(size=16), rng.uniform(0.5, 2, 16), 1
    return net


def test_a_batchnorm_before_a_convolution_has_one_layer_in_and_one_layer_out(tmp_path: Path) -> None:
    """The pair's codes are the convolution's layer_out, which reads them in the pair's layer_in; by the model of registers."""
    stated = [
        DYNAMIC.replace("fl_layer_in: 5", f"fl_layer_in: {read}") % written
        for read, written in ((2, 3), (1, 5), (6, 4))
    ]
    stated[1] = stated[1].replace("}", "scale_gamma_by_std_fl: 4 scale_beta_fl: 5 }")
    stated[2] = stated[2].replace("bw_params: 8", "bw_params: 8 fl_params: 7")
    net = trained(made(tmp_path, FUSED.format(*stated), keep="all"))
    x = np.random.default_rng(3).normal(scale=12, size=(3, 16, 7, 9)).astype(np.float32)
    y = net.forward(x)["c"]
    assert not net.partition.reasons
    read, written = 2, 4  # the pair's layer_in, the convolution's layer_out
    codes = Format("DynamicFixed", 8, read).quantize(x)
    mean, variance, _ = net.params["b"]
    gamma, beta = net.params["s"]
    factor = gamma / np.sqrt(variance + np.float32(1e-5))
    tables = np.trunc(mean * 2 ** (read + 8)), np.rint(factor * 2**12), np.trunc(beta * 2**13)
    means, factors, betas = (table.astype(int).tolist() for table in tables)
    left, right = read + 8 + 4 - 5, read + 8 + 4 + 8 - written
    middle, _ = reference.normalised(codes, means, factors, betas, left, right, False)
    weights, bias = net.params["c"]
    shift = read + 7 - written
    added = [int(np.rint(b * 2**written)) << shift for b in bias]
    rounded = np.clip(np.rint(weights * 2.0**7), -128, 127).astype(int)
    expected, _ = reference.convolution(middle, rounded, added, [1] * 4, shift, 1, 1, 1, 1, False, False)
    assert len({*expected.ravel()}) > 50 and np.array_equal(y * 2**written, expected)


def test_without_its_unit_such_a_pair_takes_the_convolution_to_the_host(tmp_path: Path) -> None:
    """DietChai has none: codes of one layer_out would be read in another layer_in."""
    stated = DYNAMIC % 3
    net = trained(made(tmp_path, FUSED.format(stated, stated, stated), DIET))
    x = np.random.default_rng(3).normal(size=(3, 16, 7, 9)).astype(np.float32)
    y = net.forward(x)["c"]
    assert net.partition.reasons == {"s": "no affine unit", "c": "its input is on the host, in float32"}
    exact = chai.Net(tmp_path / "net.prototxt", device="float")
    for name, arrays in net.params.items():
        for blob, values in zip(exact.params[name], arrays, strict=True):
            blob[...] = values
    assert np.allclose(exact.forward(x)["c"], y, atol=1e-5)


@pytest.mark.parametrize("scheme", ["DynamicFixed", "Xilinx"])
def test_chosen_formats_of_such_a_pair(tmp_path: Path, scheme: str) -> None:
    """One for all its blobs; thresholds, which its tables do not have, leave it on the host."""
    x = np.random.default_rng(3).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = trained(made(tmp_path, FUSED.format("", "", ""), calibrate=x, scheme=scheme))
    y = net.forward(x)["c"]
    formats = net.formats
    assert formats is not None
    if scheme == "Xilinx":
        assert "no thresholds" in net.partition.reasons["s"] and formats["s"] != formats["c"]
    else:
        assert not net.partition.reasons and formats["data"] == formats["s"] == formats["c"]
    before = chai.Net(tmp_path / "net.prototxt", device="float")
    for name, arrays in net.params.items():
        for blob, values in zip(before.params[name], arrays, strict=True):
            blob[...] = values
    rectified = FUSED.format("", "", "").replace("c Convolution", "r ReLU s -> s\nc Convolution")
    (tmp_path / "net.prototxt").write_text(prototxt(rectified, (3, 16, 7, 9)))
    whole = chai.Net(tmp_path / "net.prototxt", device="float")
    for name, arrays in net.params.items():
        for blob, values in zip(whole.params[name], arrays, strict=True):
            blob[...] = values
    exact = (before if scheme == "Xilinx" else whole).forward(x)["c"]  # the unit has a ReLU
    assert np.abs(y - exact).max() < 4 * formats["c"].step


def test_quantising_keeps_what_the_file_says(tmp_path: Path) -> None:
    """Formats that nothing rescales are one, thresholds of folded layers whole: the file means what was judged."""
    lines = f"""a Convolution data -> a : {CONV % 3}
                b BatchNorm a -> b
                s Scale b -> s : scale_param {{ bias_term: true }}
                r ReLU s -> s
                c Convolution s -> c : {CONV.replace("}", "pad: 1 }") % 3}
                e Eltwise s c -> e
                p Pooling e -> p : pooling_param {{ pool: AVE kernel_size: 5 }}
                d Convolution p -> d : {CONV % 1}"""
    net = made(tmp_path, lines)
    rng = np.random.default_rng(8)
    total, squares, divisor = net.params["b"]
    total[...], squares[...], divisor[...] = rng.normal(size=16), rng.uniform(0.5, 2, 16), 1
    layers = [(name, net.graph.layer(name).type, blobs) for name, blobs in net.params.items()]
    write_caffemodel(tmp_path / "net.caffemodel", "net", layers)
    x = rng.normal(size=(3, 16, 7, 9)).astype(np.float32)
    out = tmp_path / "q.prototxt"
    options = {"overlay": FULL, "scheme": "Xilinx", "effort": "fast", "chaidnn": True}
    result = quantize(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", [x], out, **options)
    written = chai.Net(out, out.with_suffix(".caffemodel"), overlay=FULL)
    written.forward(x)
    assert not written.partition.reasons and written.formats is not None
    judged = {blob: str(format) for blob, format in result.built.formats.items()}
    assert {blob: str(written.formats[blob]) for blob in judged} == judged
    tied = [written.formats[written.graph.latest[blob]] for blob in "scep"]
    assert len({*tied}) == 1 and tied[0].value.is_integer()


@pytest.mark.parametrize("layer", ["LRN a -> n", "Normalize a -> n : norm_param { across_spatial: false }"])
def test_quantising_computes_on_the_host_what_the_file_does(tmp_path: Path, layer: str) -> None:
    """The cost that was judged is that of the file, with a Pack between layers or with a layer on codes."""
    lines = f"""a Convolution data -> a : {CONV % 3}
                n {layer}
                b Convolution n -> b : {CONV % 1}
                p Pooling b -> p : pooling_param {{ pool: MAX global_pooling: true }}
                f Softmax p -> f"""
    net = made(tmp_path, lines)
    layers = [(name, net.graph.layer(name).type, blobs) for name, blobs in net.params.items()]
    write_caffemodel(tmp_path / "net.caffemodel", "net", layers)
    x = np.random.default_rng(9).normal(size=(3, 16, 7, 9)).astype(np.float32)
    out = tmp_path / "q.prototxt"
    options = {"overlay": FULL, "scheme": "DynamicFixed", "effort": "fast", "chaidnn": True}
    result = quantize(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", [x], out, **options)
    exact = chai.Net(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", device="float").forward(x)["f"]
    fixed = chai.Net(out, out.with_suffix(".caffemodel"), overlay=FULL).forward(x)["f"]
    divergence = (exact * np.log(exact / fixed)).sum((1, 2, 3))
    assert np.allclose(result.built.costs, divergence, rtol=1e-3, atol=1e-6)


SCORES = """a Convolution data -> a : convolution_param {{ num_output: 5 kernel_size: 3 }}
            d Deconvolution a -> d : convolution_param {{ num_output: 5 group: 5 kernel_size: {kernel} stride: {stride} {more} }}
            m ArgMax d -> m : argmax_param {{ {argmax} }}"""
PLAIN = {"kernel": 4, "stride": 2, "more": "", "argmax": "axis: 1"}


def argmax_of(net: chai.Net) -> ChaidnnArgMax:
    (task,) = (task for step in net.schedule.segments for task in step.tasks if task.kind == "argmax")
    assert isinstance(task, ChaidnnArgMax)
    return task


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("bits", [8, 6])
def test_scores_have_the_kernel_of_the_first_class(tmp_path: Path, scheme: str, bits: int) -> None:
    """Its codes follow from the floats; the classes are whole numbers, in a file too, and through a Crop."""
    x = np.random.default_rng(4).normal(size=(3, 16, 7, 9)).astype(np.float32)
    lines = SCORES.format(**PLAIN)
    net = made(tmp_path, lines, calibrate=x, scheme=scheme, bits=bits, keep="all")
    y = net.forward(x)["m"]
    assert not net.partition.reasons and y.shape == (3, 1, 12, 16)
    kernel, bias = net.params["d"][0][0, 0], net.params["d"][1]
    task = argmax_of(net)
    if scheme == "Xilinx":
        high = (1 << bits - 1) - 1
        step = np.float32(np.abs(kernel).max()) / np.float32(high)
        assert np.abs(task.weights - kernel / step).max() < 0.501 and np.abs(task.weights).max() == high
        assert np.array_equal(task.bias, np.rint(bias))  # in steps of the output
    else:
        assert np.array_equal(task.weights, np.trunc(kernel * 2.0**15))
        assert np.array_equal(task.bias, np.trunc(bias * 2.0**15))
    assert net.formats is not None and net.formats["m"].step == 1
    codes = np.rint(net.blobs["a"] / net.formats["a"].step).astype(np.int8)
    for image, classes in zip(codes, y):
        expected, _ = reference.best_class(image, task.weights, task.bias.tolist(), 2)
        assert np.array_equal(classes[0], expected)
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["m"], y)
    cropping = lines.replace("m ArgMax d", "k Crop d s -> k : crop_param { axis: 2 offset: 3 offset: 5 }\nm ArgMax k")
    cropping = "s Pooling data -> s : pooling_param { kernel_size: 1 }\n" + cropping
    cropped = made(tmp_path, cropping, calibrate=x, scheme=scheme, bits=bits)
    assert np.array_equal(cropped.forward(x)["m"], y[:, :, 3:10, 5:14])
    assert argmax_of(cropped).origin == ("d", "k", "m")


def test_a_weight_of_one_changes_its_sign(tmp_path: Path) -> None:
    """The middle of an odd kernel that interpolates, in DynamicFixed: its code has 16 bits, 15 of them below the point."""
    for scheme, middle, beside in (("DynamicFixed", -(1 << 15), 3 << 13), ("Xilinx", 127, 95)):
        lines = SCORES.format(**{**PLAIN, "kernel": 7, "stride": 4})
        net = made(tmp_path, lines, scheme=scheme, calibrate=np.ones((3, 16, 7, 9), np.float32))
        line = 1 - np.abs(np.arange(7) - 3) / 4
        net.params["d"][0][...] = np.multiply.outer(line, line)
        net.plan()
        weights = argmax_of(net).weights
        assert (weights[3, 3], weights[3, 2]) == (middle, beside)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"argmax": ""}, "an ArgMax with axis 1"),
        ({"argmax": "axis: 1 top_k: 2"}, "an ArgMax with axis 1"),
        ({"argmax": "axis: 1 out_max_val: true"}, "an ArgMax with axis 1"),
        ({"kernel": 5}, "stride 2 with a 5x5 kernel"),
        ({"kernel": 6, "stride": 3}, "powers of two from 2 to 32"),
        ({"more": "pad: 1"}, "no padding"),
        ({"more": "dilation: 2"}, "no dilation"),
        ({"group": 1}, "one number for all three"),
        ({"kernel": 2, "stride": 1}, "powers of two from 2 to 32"),
        ({"kernel": 64, "stride": 32, "outputs": 25}, "channels 25 is more than the overlay's 24"),
    ],
)
def test_scores_that_chaidnn_could_not_compute(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    """They are Caffe's, on the host."""
    fields = {**PLAIN, **change}
    outputs, group = fields.pop("outputs", 5), fields.pop("group", None)
    lines = SCORES.format(**fields).replace("num_output: 5", f"num_output: {outputs}")
    lines = lines.replace("group: 5", f"group: {outputs if group is None else group}")
    x = np.random.default_rng(4).normal(size=(3, 16, 7, 9)).astype(np.float32)
    net = made(tmp_path, lines, calibrate=x, keep="all")
    y = net.forward(x)["m"]
    assert reason in net.partition.reasons["d"] and net.partition.reasons["m"] == net.partition.reasons["d"]
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["m"], y)
    path = tmp_path / "rest.prototxt"
    path.write_text(prototxt(lines.split("\n", 1)[1].replace(" a -> d", " data -> d"), net.blobs["a"].shape))
    rest = chai.Net(path, device="float")
    for blob, values in zip(rest.params["d"], net.params["d"], strict=True):
        blob[...] = values
    assert np.array_equal(rest.forward(net.blobs["a"])["m"], y)


def test_dietchai_has_no_unit_for_scores(tmp_path: Path) -> None:
    net = made(tmp_path, SCORES.format(**PLAIN), DIET)
    net.forward(np.ones((3, 16, 7, 9), np.float32))
    assert net.partition.reasons["d"] == "no Deconvolution unit"


WHOLE = """a Convolution data -> a : {conv} {stated}
           p Pooling a -> p : pooling_param {{ pool: {method} kernel_size: {kernel} stride: {stride} pad: 1 }} {stated}
           b Convolution p -> b : {conv} {stated}"""


@pytest.mark.parametrize("name", [FULL, DIET])
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (2, 3), (3, 3)])
def test_windows_in_the_padding(tmp_path: Path, name: str, method: str, kernel: int, stride: int) -> None:
    """Caffe drops a last window that begins after the image; here the blobs behind it are larger, in a file too."""
    lines = WHOLE.format(conv=CONV % 1, stated=DYNAMIC % 5, method=method, kernel=kernel, stride=stride)
    shape = (3, 16, 8, 9) if stride == 3 else (3, 16, 7, 9)
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    net = made(tmp_path, lines, name, shape, keep="all")
    net.forward(x)
    out = tuple(-(-(n + 2 - kernel) // stride) + 1 for n in shape[2:])
    assert not net.partition.reasons and net.shapes["p"][2:] == net.shapes["b"][2:] == out
    codes = np.rint(net.blobs["a"] * 32).astype(int)
    if method == "MAX":
        expected = reference.maximum(codes, kernel, stride, 1, out, name == FULL)
    else:
        expected, _ = reference.average(codes, kernel, stride, 1, out, 256 // kernel**2, 8)
    assert np.array_equal(np.rint(net.blobs["p"] * 32), expected)
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["b"], net.blobs["b"])
    caffe = chai.Net(tmp_path / "net.prototxt", device="float")
    caffe.forward(x)
    assert caffe.shapes["p"][2:] != out


@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_windows_of_padding_alone_are_0_on_the_host(tmp_path: Path, method: str) -> None:
    """Formats are measured on such numbers, and a pooling that the overlay cannot run has them."""
    lines = WHOLE.format(conv=CONV % 1, stated="", method=method, kernel=2, stride=3)
    x = np.random.default_rng(5).normal(size=(3, 16, 8, 9)).astype(np.float32)
    net = made(tmp_path, lines, FULL, x.shape, calibrate=x, engine={"p": "host"}, keep="all")
    net.forward(x)
    pooled, blob = net.blobs["p"], net.blobs["a"]
    assert net.partition.reasons == {"p": "chosen by the user"} and pooled.shape[2:] == (4, 4)
    assert (pooled[:, :, 3] == 0).all() and (pooled[:, :, :3] != 0).any((0, 1)).all()
    save(net, tmp_path / "net.chai")
    assert np.array_equal(chai.Net(tmp_path / "net.chai").forward(x)["b"], net.blobs["b"])
    reduce = np.max if method == "MAX" else np.mean
    assert np.allclose(pooled[:, :, 1, 1], reduce(blob[:, :, 2:4, 2:4], (2, 3)), rtol=1e-6)


def test_other_sizes_than_caffes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """show and check name the layer; evaluate refuses outputs of other sizes, and compares what is behind a global pooling."""
    lines = WHOLE.format(conv=CONV % 1, stated="", method="MAX", kernel=2, stride=2)
    net = made(tmp_path, lines, shape=(1, 16, 7, 9))
    layers = [(name, net.graph.layer(name).type, blobs) for name, blobs in net.params.items()]
    write_caffemodel(tmp_path / "net.caffemodel", "net", layers)
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(1).normal(size=(2, 16, 7, 9)).astype(np.float32))
    files = [str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel")]
    text = "layer 'p' (Pooling) is 5x6, in Caffe 4x5: no window in the padding is dropped"
    assert main(["show", *files, "--overlay", FULL]) == 0 and text in capsys.readouterr().out
    assert main(["show", *files, "--overlay", "pynq-z2"]) == 0 and "in Caffe" not in capsys.readouterr().out
    assert main(["check", *files, "-i", str(x), "--overlay", FULL]) == 0
    printed = capsys.readouterr()
    assert f"{text}; blobs of other sizes are not compared" in printed.err and "\na " in printed.out
    common = ["--images", str(x), "--overlay", FULL, "--calibration", str(x)]
    assert main(["evaluate", *files, *common]) != 0
    printed = capsys.readouterr()
    assert "output 'b' is 2x16x5x6 on emulator and 2x16x4x5 on float" in printed.err and text in printed.err
    behind = "g Pooling b -> g : pooling_param { pool: AVE global_pooling: true }\ns Softmax g -> s"
    (tmp_path / "net.prototxt").write_text(prototxt(f"{lines}\n{behind}", (1, 16, 7, 9)))
    assert main(["evaluate", *files, *common]) == 0 and "same best class" in capsys.readouterr().out
