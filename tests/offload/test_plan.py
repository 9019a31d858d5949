"""A network split between overlay and host: random ones to the bit, real ones by what they answer, wrong ones by name."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import chai
from chai.images.files import find, read
from chai.offload.schedule import HostStep, Pack, Unpack
from chai.tasks.arithmetic import Arithmetic
from chai.util.paths import resource
from chai.zoo.card_file import read_card
from tests.conftest import examples, need_models, report
from tests.passes.common import AFFINE, CONV, GLOBAL, Array, network, origins, source, train
from tests.reference import fixed as reference

EXAMPLES = settings(
    max_examples=examples(45),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


# -- random networks


def flip(x: chai.xChangeLayer) -> None:
    """A custom layer that no other layer could stand in for."""
    x.top[0][...] = 0.5 * x.bottom[0][:, ::-1] + 0.125


class Sketch:
    """A network in the making: prototxt text, and shape (C, H, W) of every blob by name."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.shapes: dict[str, tuple[int, int, int]] = {}
        self.own = draw(st.sampled_from(["", "", "", "DynamicFixed", "Xilinx", "both"]))  # precision_param
        channels = draw(st.sampled_from([1, 3, 16]))
        size = draw(st.integers(3, 9)), draw(st.integers(3, 9))
        self.shapes["data"] = (channels, *size)
        self.text = source("data", (1, channels, *size))

    def pick(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def blob(self) -> str:
        """One that is there, the last ones more often."""
        names = list(self.shapes)
        return names[-1 - self.draw(st.integers(0, min(len(names) - 1, 3)))]

    def add(self, type: str, bottoms: str, shape: tuple[int, int, int], fields: str = "", top: str = "") -> str:
        """A layer; its top, by default a new one."""
        name = f"l{len(self.lines)}"
        top = top or f"b{len(self.lines)}"
        wires = " ".join(f'bottom: "{b}"' for b in bottoms.split()) + f' top: "{top}"'
        self.lines.append(f'layer {{ name: "{name}" type: "{type}" {wires} {fields} }}\n')
        self.text += self.lines[-1]
        self.shapes[top] = shape
        return top

    def precision(self) -> str:
        """Formats of one layer, some wide, some narrow, some missing."""
        if not self.own or self.pick(False, False, True):
            return ""
        scheme = self.pick("DynamicFixed", "Xilinx") if self.own == "both" else self.own
        bits = f"bw_layer_in: {self.pick(8, 6)} bw_layer_out: {self.pick(8, 6)} bw_params: {self.pick(8, 6)}"
        if scheme == "Xilinx":
            rest = f'quant_type: "Xilinx" th_layer_in: {self.pick(1, 2.5)} th_layer_out: {self.pick(0.75, 3, 20)}'
        else:
            rest = f"fl_layer_in: {self.pick(3, 6)} fl_layer_out: {self.pick(2, 4, 6)} fl_params: {self.pick(4, 7)}"
        return f"precision_param {{ {bits} {rest} }}"

    # one method per kind of layer

    def conv(self, bottom: str, outputs: int = 0, same: bool = False) -> str:
        c, h, w = self.shapes[bottom]
        kernel = (3, 3) if same else tuple(self.pick(1, 2, 3) for _ in "hw")
        pad = 1 if same else self.pick(0, 1)
        stride, dilation = (1, 1) if same else (self.pick(1, 1, 2), self.pick(1, 1, 2))
        out = [(s + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for s, k in zip((h, w), kernel)]
        if min(out) < 1:
            return self.conv(bottom, outputs, same=True)
        outputs = outputs or self.pick(1, 4, 16, c)
        group = self.pick(*(g for g in {1, 2, c} if not c % g and not outputs % g))
        bias = self.pick("true", "false")
        fields = (
            f"num_output: {outputs} kernel_h: {kernel[0]} kernel_w: {kernel[1]} pad: {pad} stride: {stride} "
            f"dilation: {dilation} group: {group} bias_term: {bias}"
        )
        shape = (outputs, out[0], out[1])
        return self.add("Convolution", bottom, shape, f"convolution_param {{ {fields} }} {self.precision()}")

    def pool(self, bottom: str) -> str:
        c, h, w = self.shapes[bottom]
        method = self.pick("MAX", "AVE")
        if min(h, w) < 3 or self.pick(False, False, True):
            fields = f"pool: {method} global_pooling: true"
            return self.add("Pooling", bottom, (c, 1, 1), f"pooling_param {{ {fields} }} {self.precision()}")
        kernel = self.pick(2, 3)
        pad, stride = self.draw(st.integers(0, kernel - 1)), self.draw(st.integers(1, kernel))
        out = []
        for size in (h, w):  # Caffe: up, then without a window that begins behind the padded image
            steps = -(-(size + 2 * pad - kernel) // stride)
            out.append(steps + 1 - (pad > 0 and steps * stride >= size + pad))
        fields = f"pool: {method} kernel_size: {kernel} pad: {pad} stride: {stride}"
        return self.add("Pooling", bottom, (c, out[0], out[1]), f"pooling_param {{ {fields} }} {self.precision()}")

    def relu(self, bottom: str) -> str:
        top = "" if bottom == "data" or self.pick(False, False, True) else bottom
        slope = self.pick(0, 0, 0.1, 0.75, 1, 1.5)
        return self.add("ReLU", bottom, self.shapes[bottom], f"relu_param {{ negative_slope: {slope} }}", top)

    def affine(self, bottom: str) -> str:
        shape = self.shapes[bottom]
        for type, fields in self.pick(
            [("BatchNorm", GLOBAL), ("Scale", AFFINE)], [("Scale", "")], [("BatchNorm", GLOBAL)]
        ):
            top = "" if bottom == "data" or self.pick(False, True) else bottom
            bottom = self.add(type, bottom, shape, f"{fields} {self.precision()}", top)
        return bottom

    def sum(self, bottom: str) -> str:
        other = self.pick(bottom, *(b for b, s in self.shapes.items() if s == self.shapes[bottom]))
        if other == bottom:
            other = self.conv(bottom, self.shapes[bottom][0], same=True)
        operation = self.pick("SUM", "SUM", "SUM", "PROD", "MAX")
        coeff = self.pick("", "coeff: 1 coeff: -0.5", "coeff: 0.3 coeff: 2") if operation == "SUM" else ""
        fields = f"eltwise_param {{ operation: {operation} {coeff} }} {self.precision()}"
        return self.add("Eltwise", f"{bottom} {other}", self.shapes[bottom], fields)

    def concat(self, bottom: str) -> str:
        _, h, w = self.shapes[bottom]
        branches = [bottom] if self.pick(False, True) else []
        for _ in range(self.pick(1, 2, 3)):
            branch = self.conv(bottom, self.pick(16, 32, 48, 16, 32, 5), same=True)
            branches.append(self.relu(branch) if self.pick(False, True) else branch)
        branches += [b for b, s in self.shapes.items() if s[1:] == (h, w) and b not in branches][: self.pick(0, 0, 1)]
        if self.pick(False, False, True):
            branches.append(branches[0])
        total = sum(self.shapes[b][0] for b in branches)
        return self.add("Concat", " ".join(branches), (total, h, w))

    def slice(self, bottom: str) -> str:
        """At multiples of the overlay's step, or anywhere; what comes of it is a blob more to choose from."""
        c, h, w = self.shapes[bottom]
        at = self.pick(*{16, 32, c // 2, 5} & set(range(1, c))) if c > 1 else 0
        tops = [f"b{len(self.lines)}", f"c{len(self.lines)}"] if at else [f"b{len(self.lines)}"]
        fields = f"slice_param {{ slice_point: {at} }}" if at else ""
        self.add("Slice", bottom, (at or c, h, w), fields, '" top: "'.join(tops))
        del self.shapes['" top: "'.join(tops)]
        self.shapes.update(zip(tops, [(at or c, h, w), (c - at, h, w)]))
        return tops[-1]

    def fork(self, bottom: str) -> str:
        """Two or three convolutions alike but for their channels; where their shifts agree they are one Task."""
        last = bottom
        for outputs in self.draw(st.lists(st.sampled_from([1, 6, 16, 20]), min_size=2, max_size=3)):
            last = self.conv(bottom, outputs, same=True)
        return last

    def custom(self, bottom: str) -> str:
        c, h, w = self.shapes[bottom]
        fields = f"user_defined_layer: true xcustom_param {{ top_dim: [1, {c}, {h}, {w}] }}"
        return self.add("flip", bottom, (c, h, w), fields)

    def identity(self, bottom: str) -> str:
        return self.add("Dropout", bottom, self.shapes[bottom], top="" if bottom == "data" else self.pick("", bottom))


KINDS = (
    "conv",
    "conv",
    "conv",
    "relu",
    "relu",
    "pool",
    "affine",
    "sum",
    "concat",
    "slice",
    "fork",
    "custom",
    "identity",
)


@st.composite
def sketches(draw: st.DrawFn) -> tuple[str, dict[str, Any], int]:
    """Prototxt text, options of the Net, and a batch."""
    sketch = Sketch(draw)
    sketch.conv("data")
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8)):
        getattr(sketch, kind)(sketch.blob())
    options = {"bits": draw(st.sampled_from([8, 8, 6])), "scheme": draw(st.sampled_from(["Xilinx", "DynamicFixed"]))}
    return sketch.text, options, draw(st.integers(1, 5))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "net.prototxt"


def build(file: Path, text: str, **options: Any) -> chai.Net:
    """The network on the emulator."""
    file.write_text(text)
    net = chai.Net(file, device="emulator", custom={"flip": flip}, **options)
    train(net.graph)
    return net


def images(net: chai.Net, batch: int) -> Array:
    """Seeded images."""
    shape = (batch, *net.shapes["data"][1:])
    return np.random.default_rng([7, *shape]).uniform(-2, 2, shape).astype(np.float32)


def by_definition(net: chai.Net, data: Array) -> dict[str, Array]:
    """The schedule's steps one by one: every Task by ``define``, every blob in an array of its own."""
    offload = net.offload
    target = Arithmetic(offload.overlay, offload.formats, offload.shapes)
    host: dict[str, Array] = {"data": data}
    codes: dict[str, Array] = {}
    for step in offload.schedule.steps:
        if isinstance(step, Pack):
            codes[step.blob] = step.format.quantize(host[step.blob])
        elif isinstance(step, Unpack):
            zero = reference.Form(*astuple(step.format)).zero
            host[step.blob] = (codes[step.blob].astype(np.float32) - zero) * np.float32(step.format.step)
        elif isinstance(step, HostStep):
            tops = step.layer.forward(*(host[b] for b in step.layer.bottoms))
            if step.layer.slope is not None:
                tops = tuple(np.where(t < 0, np.float32(step.layer.slope) * t, t) for t in tops)
            host.update(zip(step.layer.tops, tops))
        else:
            for layer in step.layers:
                if layer.type == "Slice":
                    codes.update(zip(layer.tops, layer.forward(codes[layer.bottoms[0]])))
                fused = [t for t in step.tasks if t.lookup is not None and t.output == layer.tops[0]]
                for task in fused or layer.lower(target):
                    output = task.define(*(codes[b] for b in task.inputs))
                    assert output.dtype == np.int8
                    if task.kind == "copy":
                        whole = codes.setdefault(task.output, np.full(target.shapes[task.output], 99, np.int8))
                        whole[:, task.first : task.first + output.shape[1]] = output
                    else:
                        codes[task.output] = output
    return {name: host[offload.graph.latest[name]] for name in net.outputs}


def equal(first: dict[str, Array], second: dict[str, Array]) -> None:
    """The same blobs to the bit."""
    assert first.keys() == second.keys()
    for name, wanted in second.items():
        assert np.array_equal(first[name], wanted, equal_nan=True), name


@EXAMPLES
@given(sketch=sketches())
def test_every_schedule_gives_the_bits_of_its_tasks(file: Path, sketch: tuple[str, dict[str, Any], int]) -> None:
    """Also: a second pass gives what the first gave, and a batch what its images give one by one."""
    text, options, batch = sketch
    net = build(file, text, **options)
    data = images(net, batch)
    net.calibrate(data)
    first = net.forward(data)
    assert list(first) == net.outputs
    equal(first, by_definition(net, data))
    saved = {name: blob.copy() for name, blob in first.items()}
    net.forward(-data)  # nothing of another pass may show up in the next one
    equal(first, saved)
    equal(net.forward(data), saved)
    for i in range(batch):
        equal(net.forward(data[i : i + 1]), {name: blob[i : i + 1] for name, blob in saved.items()})


@EXAMPLES
@given(sketch=sketches())
def test_keeping_changes_no_bits(file: Path, sketch: tuple[str, dict[str, Any], int]) -> None:
    text, options, batch = sketch
    plain, kept = build(file, text, **options), build(file, text, keep="all", **options)
    assert origins(plain.offload.graph) == origins(kept.offload.graph)
    data = images(plain, batch)
    equal(kept.forward(data), plain.forward(data))
    assert set(kept.blobs) == set(kept.graph.latest)


# -- real networks


@pytest.mark.parametrize("name", ["googlenet", "squeezenet_v1.1"])
def test_eight_bits_answer_as_float_does(name: str) -> None:
    """Top-1 where float is sure of it, and float's answer always among the first three."""
    folder = need_models() / name
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    cases = sorted((folder / "cases").iterdir())
    assert len(cases) == 9
    sure = right = 0
    with chai.Net(*files, device="float") as exact, chai.Net(*files, device="emulator") as fixed:
        fixed.calibrate(np.load(cases[0] / "input.npy"))
        for case in cases:
            data = np.load(case / "input.npy")
            wanted = exact.forward(data)["prob"].ravel()
            ranking = np.argsort(-fixed.forward(data)["prob"].ravel())
            best = np.argsort(-wanted)[:2]
            right += bool(ranking[0] == best[0])
            if wanted[best[0]] >= 1.5 * wanted[best[1]]:
                sure += 1
                assert ranking[0] == best[0], case.name
            assert best[0] in ranking[:3], case.name
    assert sure >= 6
    report(f"{name}: 8-bit top-1 is float's for {right} of {len(cases)} images")


def test_digits_on_the_emulator() -> None:
    net = chai.Net("digits", device="emulator")
    files = find([resource("prototxt", "digits_images")])
    card = read_card(resource("prototxt", "digits.prototxt"))
    data = np.stack([card.preprocess(read(f), net.shapes["data"]) for f in files])
    truth = np.array([int(f.stem.rpartition("_")[2]) for f in files])
    right = int((net.forward(data)["prob"].argmax(1) == truth).sum())
    report(f"digits: {right} of {len(files)} right with 8 bits")
    assert len(files) == 360
    assert right >= 0.98 * len(files)


def test_get_perf_info_of_the_gemm_network(capsys: pytest.CaptureFixture[str]) -> None:
    """What CHaiDNN's tutorial shows: the custom layer is unpacked for, and its result is not packed again."""
    folder = need_models() / "googlenet"
    with chai.Net("googlenet_gemm", folder / "weights.caffemodel", device="emulator", batch=1) as net:
        net.forward(np.load(folder / "cases" / "camel" / "input.npy"))
        assert net.schedule.engines()[-3:] == ["host:Unpack", "host:gemm", "host:Softmax"]
        perf = chai.getPerfInfo(net)
    lines = capsys.readouterr().err.splitlines()
    assert [s.name for s in perf.custom] == ["loss3/classifier"]
    unpack, pack = perf.conversions(perf.custom[0])
    assert unpack > 0 and pack == 0
    assert lines[0] == "[INFOx] Total Number of Custom layers : 1"
    assert lines[2:6] == [
        "[INFOx] Custom Layer - 1 : loss3/classifier",
        f"[PERFM] Unpack layer Latency : {unpack:f} ms",
        f"[PERFM] Custom layer Latency : {perf.custom[0].ms:f} ms",
        "[PERFM] Pack   layer Latency : 0.000000 ms",
    ]


def test_a_fused_relu_on_the_host_is_caffes(tmp_path: Path) -> None:
    """A convolution that the overlay refuses still has its ReLU."""
    lines = f"conv Convolution data -> c : {CONV}\nrelu ReLU c -> c : relu_param {{ negative_slope: 0.1 }}"
    data = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5, 7)).astype(np.float32)
    wanted = network(tmp_path, lines).forward(data)["c"]
    net = network(tmp_path, lines, device="emulator", engine={"conv": "host"})
    top = net.forward(data)["c"]
    assert wanted.min() < 0
    assert np.array_equal(top, wanted)
    assert net.schedule.engines() == ["host:Convolution"]


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_a_window_behind_the_image(tmp_path: Path, pool: str) -> None:
    """Caffe rounds up: with a stride above the kernel the last window may hold no pixel at all; its average is NaN."""
    text = source("data", (1, 2, 3, 4)) + (
        f'layer {{ name: "conv" type: "Convolution" bottom: "data" top: "c" {CONV} }}\n'
        f'layer {{ name: "pool" type: "Pooling" bottom: "c" top: "p" pooling_param {{ pool: {pool} '
        "kernel_size: 1 stride: 3 } }\n"
    )
    net = build(tmp_path / "net.prototxt", text)
    data = images(net, 1)
    outputs = net.forward(data)
    assert outputs["p"].shape == (1, 4, 2, 2)
    assert np.isnan(outputs["p"][..., 1, :]).all() == (pool == "AVE")
    with np.errstate(over="ignore"):
        equal(outputs, by_definition(net, data))
    exact = chai.Net(tmp_path / "net.prototxt", device="float")
    train(exact.graph)
    wanted = exact.forward(data)["p"]
    assert np.abs(outputs["p"][..., 0, 0] - wanted[..., 0, 0]).max() < 0.03 * np.abs(wanted[..., 0, 0]).max()


# -- bad input

CHAIN = f"""
    first Convolution data -> a : {CONV}
    relu ReLU a -> a
    odd Convolution a -> c : {CONV}
    last Convolution c -> y : {CONV}
    abs MVN y -> z
    """
GIVEN = "precision_param { bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 fl_layer_in: 6 fl_layer_out: 5 fl_params: 7 }"
DATA = np.ones((2, 3, 5, 7), np.float32)


@pytest.mark.parametrize("lines", [CHAIN, CHAIN.replace(CONV, f"{CONV} {GIVEN}")], ids=["calibrated", "given"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("blob", [0, 1])
def test_a_weight_that_is_no_number(tmp_path: Path, lines: str, value: float, blob: int) -> None:
    """The layer that has it is named, not one that only shows it."""
    net = network(tmp_path, lines, device="emulator")
    net.params["odd"][blob].flat[0] = value
    with pytest.raises(chai.ModelError, match="'odd'"):
        net.forward(DATA)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("blob", [0, 1])
@pytest.mark.parametrize("formats", [GIVEN, ""], ids=["given", "calibrated"])
def test_a_factor_that_is_no_number(tmp_path: Path, value: float, blob: int, formats: str) -> None:
    """A Scale that nothing took in."""
    pool = "pooling_param { pool: AVE kernel_size: 2 stride: 1 }"
    lines = f"pool Pooling data -> p : {pool} {formats}\nodd Scale p -> s : {AFFINE} {formats}"
    net = network(tmp_path, lines, device="emulator")
    net.params["odd"][blob].flat[0] = value
    with pytest.raises(chai.ModelError, match="'odd'"):
        net.forward(DATA)


@pytest.mark.parametrize("when", ["before calibration", "after calibration", "given"])
def test_an_image_that_is_no_number(tmp_path: Path, when: str) -> None:
    net = network(tmp_path, CHAIN.replace(CONV, f"{CONV} {GIVEN}") if when == "given" else CHAIN, device="emulator")
    if when == "after calibration":
        net.calibrate(DATA)
    data = DATA.copy()
    data[1, 2, 3, 4] = np.nan
    with pytest.raises(chai.ModelError, match="'data'"):
        net.forward(data)
    assert np.isfinite(net.forward(DATA)["z"]).all()  # a refused image leaves the network as it was


def test_a_custom_layer_that_writes_nan(tmp_path: Path) -> None:
    """CHaiDNN's users could not find such a layer."""

    def bad(x: chai.xChangeLayer) -> None:
        x.top[0][...] = np.nan if x.bottom[0].max() > 50 else 0.5

    lines = f"""
        conv Convolution data -> a : {CONV}
        mine bad a -> b : user_defined_layer: true xcustom_param {{ top_dim: [2, 4, 5, 7] }}
        last Convolution b -> y : {CONV}
        """
    net = network(tmp_path, lines, device="emulator", custom={"bad": bad}, engine={"conv": "host"})
    net.forward(DATA)
    with pytest.raises(
        chai.PluginError, match=r"layer 'mine' .*it wrote NaN into top 0, first at \(0, 0, 0, 0\), 280 in all"
    ):
        net.forward(1000 * DATA)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bits": 7}, chai.UsageError, "bits 7: expected 8 or 6"),
        ({"scheme": "xilinx"}, chai.UsageError, "scheme 'xilinx': expected Xilinx or DynamicFixed"),
        ({"overlay": "pynqz2"}, chai.DeviceError, "there is no overlay 'pynqz2' (hint: did you mean 'pynq-z2'?"),
        ({"device": "emulater"}, chai.DeviceError, "there is no device 'emulater' (hint: did you mean 'emulator'?"),
        ({"engine": {"ood": "host"}}, chai.UsageError, "engine: there is no layer 'ood' (hint: did you mean 'odd'?)"),
        ({"engine": {"abs": "fpga"}}, chai.UsageError, "layer 'abs' cannot run on the overlay: no MVN unit"),
        ({"calibrate": np.ones((2, 4, 5, 7))}, chai.ShapeError, "layer 'first' (Convolution)"),
        ({"calibrate": {"dat": DATA}}, chai.UsageError, "input 'data' is missing"),
    ],
    ids=["bits", "scheme", "overlay", "device", "engine of nothing", "engine refused", "sizes", "blobs"],
)
def test_options_that_cannot_be_followed(
    tmp_path: Path, options: dict[str, Any], error: type[chai.ChaiError], message: str
) -> None:
    with pytest.raises(error) as caught:
        network(tmp_path, CHAIN, **{"device": "emulator", **options}).forward(DATA)
    assert message in str(caught.value)


def test_a_manifest_with_a_typo(tmp_path: Path) -> None:
    text = resource("hw_overlays", "pynq-z2", "overlay.json").read_text()
    path = tmp_path / "mine.json"
    path.write_text(text.replace('"clock_mhz"', '"clok_mhz"'))
    line = text[: text.index('"clock_mhz"')].count("\n") + 1
    with pytest.raises(chai.ParseError) as caught:
        network(tmp_path, CHAIN, device="emulator", overlay=path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert "did you mean 'clock_mhz'?" in str(caught.value)


def test_a_precision_that_cannot_be_met_is_computed_on_the_host(tmp_path: Path) -> None:
    """Exactly the one layer, with a reason; the rest stays where it was."""
    fine = GIVEN.replace("fl_layer_out: 5", "fl_layer_out: 40")
    lines = f"first Convolution data -> a : {CONV} {GIVEN}\nodd Convolution a -> y : {CONV} {fine}"
    net = network(tmp_path, lines, device="emulator")
    top = net.forward(DATA)["y"]
    assert net.schedule.engines() == ["host:Pack", "fpga:Convolution", "host:Unpack", "host:Convolution"]
    assert net.offload.partition.reasons == {
        "odd": "its output steps (DynamicFixed(8, fl 40)) are too fine for 17-bit multipliers"
    }
    wanted = network(tmp_path, lines).forward(DATA)["y"]
    assert np.abs(top - wanted).max() < 0.1 * np.abs(wanted).max()


def test_a_plan_without_input_sizes(tmp_path: Path) -> None:
    """What is missing is said, by whatever asks first."""
    path = tmp_path / "net.prototxt"
    path.write_text('input: "data" layer { name: "r" type: "ReLU" bottom: "data" top: "r" }')
    net = chai.Net(path, device="null")
    for ask in (net.plan, lambda: net.schedule, lambda: net.offload):
        with pytest.raises(chai.ChaiError, match="does not say the size of input 'data'"):
            ask()
    net.reshape(data=(1, 2, 3, 4))
    net.plan()
    assert net.shapes["r"] == (1, 2, 3, 4)
