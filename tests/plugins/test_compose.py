"""``@chai.custom.compose``: layers made of other layers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.cli import main
from chai.parser.caffemodel import Weights, write_caffemodel
from chai.plugins.registry import REGISTRY
from chai.quantizer import quantize
from chai.util.paths import resource
from tests.conftest import need_models
from tests.passes.common import CONV, DEEP, network, prototxt

from .common import python, untrained

Array = np.ndarray
FILES = "deploy.prototxt", "weights.caffemodel"
RANDOM = np.random.default_rng(3)
CODE = """
import chai

@chai.custom.compose("RNNCell", args={"hidden": int})
def cell(g, x, h, hidden):
    return g.tanh(g.inner_product(g.concat(x, h), num_output=hidden, blobs=(0, 1)))
"""


def drawn(*shape: int) -> Array:
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def composed(type: str, lines: str = "", args: str = "") -> str:
    """A network of one composed layer ``mine``, after the layers of ``lines`` or right after ``data``."""
    bottom = lines.split("->")[-1].split()[0] if lines else "data"
    return f"{lines}\nmine {type} {bottom} -> y : user_defined_layer: true {args}"


def parts(net: chai.Net) -> dict[str, str]:
    return {layer.name: layer.type for layer in net.graph.layers if not layer.source}


# -- what it is made of


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A file with a composed type, loaded."""
    path = tmp_path / "cells.py"
    path.write_text(CODE)
    chai.load_custom(path)
    return path


def test_a_cell_is_a_loop_over_its_units(tmp_path: Path, cell: Path) -> None:
    x, h, weights, bias = drawn(2, 5), drawn(2, 3), drawn(3, 8), drawn(3)
    net = _cell(tmp_path, [("rnn", "RNNCell", [weights, bias])])
    top = net.forward(x=x, h=h)["y"]
    for n in range(2):
        for unit in range(3):
            total = float(bias[unit])
            for k, value in enumerate([*x[n], *h[n]]):
                total += float(value) * float(weights[unit, k])
            assert top[n, unit] == pytest.approx(np.tanh(total), abs=1e-6)
    assert parts(net) == {"rnn/concat": "Concat", "rnn/inner_product": "InnerProduct", "rnn/tanh": "TanH"}


PLAIN = (
    f"a Convolution data -> a : {DEEP}\nb Convolution data -> b : {CONV.replace('3 pad: 1', '1')}\n"
    "rnn/concat Concat a b -> c\n"
    "rnn/convolution Convolution c -> i : convolution_param { num_output: 6 kernel_size: 1 }\n"
    "rnn/tanh TanH i -> y"
)
WITH_CELL = PLAIN.partition("rnn/")[0] + "rnn Cell a b -> y : user_defined_layer: true"


def cell_on_the_overlay(g: Any, x: Any, h: Any) -> Any:
    return g.tanh(g.convolution(g.concat(x, h), num_output=6, kernel_size=1, blobs=[0, 1]))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a network that has a composed layer, the same one written out, and weights for both."""
    plain = network(tmp_path, PLAIN)
    (tmp_path / "net.prototxt").rename(tmp_path / "plain.prototxt")
    blobs = {layer.name: layer.blobs for layer in plain.graph.layers if layer.blobs}
    write_caffemodel(tmp_path / "plain.caffemodel", "plain", [(n, "Convolution", b) for n, b in blobs.items()])
    blobs["rnn"] = blobs.pop("rnn/convolution")
    write_caffemodel(tmp_path / "net.caffemodel", "net", [(n, "Cell", b) for n, b in blobs.items()])
    (tmp_path / "net.prototxt").write_text(prototxt(WITH_CELL))
    return tmp_path


def test_its_parts_run_on_the_overlay_with_the_bits_of_the_plain_network(trained: Path) -> None:
    chai.custom.compose("Cell")(cell_on_the_overlay)
    images = drawn(2, 3, 5, 7)
    runs = []
    for name in ("plain", "net"):
        net = chai.Net(trained / f"{name}.prototxt", trained / f"{name}.caffemodel", "emulator")
        out = net.forward(images)["y"]
        assert net.partition.engine("rnn/convolution") == net.partition.engine("rnn/concat") == "fpga"
        runs.append((out, net.schedule.engines()))
    (plain, plain_engines), (own, own_engines) = runs
    assert np.array_equal(plain, own)
    assert plain_engines == own_engines
    moved = chai.Net(trained / "net.prototxt", trained / "net.caffemodel", "emulator", engine={"rnn": "host"})
    moved.forward(images)
    assert moved.partition.engine("rnn/convolution") == moved.partition.engine("rnn/concat") == "host"
    assert moved.partition.engine("a") == "fpga"


def test_the_quantised_network_needs_no_function(trained: Path) -> None:
    chai.custom.compose("Cell")(cell_on_the_overlay)
    images = [drawn(2, 3, 5, 7) for _ in range(2)]
    out = trained / "out.prototxt"
    quantize(trained / "net.prototxt", trained / "net.caffemodel", images, out, effort="fast")
    REGISTRY.unregister("Cell")
    text = out.read_text()
    assert "Cell" not in text and text.count("precision_param") >= 3
    assert set(Weights(out.with_suffix(".caffemodel")).layers) == {"a", "b", "rnn/convolution"}
    own = chai.Net(out, out.with_suffix(".caffemodel"), "emulator")
    assert own.partition.engine("rnn/convolution") == "fpga"
    plain = trained / "plain_out.prototxt"
    quantize(trained / "plain.prototxt", trained / "plain.caffemodel", images, plain, effort="fast")
    other = chai.Net(plain, plain.with_suffix(".caffemodel"), "emulator")
    assert np.array_equal(own.forward(images[0])["y"], other.forward(images[0])["y"])
    message = chai_message(out)
    assert [x.type for x in message.layer] == ["Input", "Convolution", "Convolution", "Concat", "Convolution", "TanH"]


def chai_message(path: Path) -> Any:
    """The network as protobuf reads it."""
    from google.protobuf import text_format

    from chai.parser.schema import message_class

    return text_format.Parse(path.read_text(), message_class("NetParameter")())


def test_a_compiled_network_needs_no_function(trained: Path) -> None:
    chai.custom.compose("Cell")(cell_on_the_overlay)
    net = chai.Net(trained / "net.prototxt", trained / "net.caffemodel", "emulator")
    images = drawn(2, 3, 5, 7)
    expected = net.forward(images)["y"]
    save(net, trained / "net.chai")
    REGISTRY.unregister("Cell")
    compiled = chai.Net(trained / "net.chai", device="emulator")
    assert np.array_equal(compiled.forward(images)["y"], expected)
    assert [entry.name for entry in compiled.perf.entries] == ["rnn"]


def test_an_engine_of_a_composed_layer_is_that_of_its_parts_that_run(tmp_path: Path) -> None:
    @chai.custom.compose("mine")
    def _(g: Any, x: Any) -> Any:
        return g.tanh(g.convolution(g.dropout(x), num_output=4, kernel_size=1))

    lines = f"a Convolution data -> a : {CONV}\nmine mine a -> y\nb Convolution y -> b : {CONV}"
    net = network(tmp_path, lines, device="emulator", engine={"mine": "host"})
    net.calibrate(drawn(2, 3, 5, 7))
    assert net.partition.engines == {"a": "fpga", "mine/convolution": "host", "mine/tanh": "host", "b": "fpga"}
    save(net, tmp_path / "net.chai")
    for name in ("mine", "mine/tanh", "mine/dropout"):
        assert chai.Net(tmp_path / "net.chai", engine={name: "host"}).partition.engines == net.partition.engines
    with pytest.raises(chai.UsageError, match="layer 'mine/convolution' runs on host, not on fpga"):
        chai.Net(tmp_path / "net.chai", engine={"mine": "fpga"})


def test_a_classifier_of_its_own_has_the_bits_of_the_plain_one(tmp_path: Path) -> None:
    files = resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")
    image = np.random.default_rng(0).uniform(0, 16, (5, 1, 8, 8)).astype(np.float32)
    _same_bits(tmp_path, files, "classifier", 10, image)


@pytest.mark.slow
def test_googlenets_classifier_has_the_bits_of_the_plain_one(tmp_path: Path) -> None:
    folder = need_models() / "googlenet"
    image = np.random.default_rng(0).uniform(-100, 100, (1, 3, 224, 224)).astype(np.float32)
    _same_bits(tmp_path, (folder / FILES[0], folder / FILES[1]), "loss3/classifier", 1000, image)


def _same_bits(folder: Path, files: tuple[Path, Path], classifier: str, outputs: int, images: Array) -> None:
    """Compare a network with an InnerProduct as its classifier with the same one whose classifier is a composed type."""
    original = chai.Net(*files, "emulator", batch=len(images))
    layer = original.graph.layer(classifier)
    text = files[0].read_text()
    start = text.rindex("layer", 0, text.index(f'"{classifier}"'))
    bottom, top = (original.graph.caffe_name(blob) for blob in (layer.bottoms[0], layer.tops[0]))
    types = {
        "plain": f'"InnerProduct" inner_product_param {{ num_output: {outputs} }}',
        "net": '"Classifier" user_defined_layer: true',
    }
    for name, type in types.items():
        new = f'layer {{ name: "{classifier}" bottom: "{bottom}" top: "{top}" type: {type} }}\n'
        (folder / f"{name}.prototxt").write_text(text[:start] + new + text[_closed(text, start) :])
    classifier_type = chai.custom.compose("Classifier")(
        lambda g, x: g.inner_product(x, num_output=outputs, blobs=(0, 1))
    )
    plain = chai.Net(folder / "plain.prototxt", files[1], "emulator", batch=len(images))
    net = chai.Net(folder / "net.prototxt", files[1], "emulator", batch=len(images), custom=classifier_type)
    assert np.array_equal(net.forward(images)["prob"], plain.forward(images)["prob"])
    assert net.graph.layer(f"{classifier}/inner_product").type == "InnerProduct"


def _closed(text: str, start: int) -> int:
    """Return the offset after the closing brace of the message that begins at ``start``."""
    depth = 0
    for i in range(text.index("{", start), len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if not depth:
            return i + 1
    raise AssertionError("no closing brace")


# -- arguments, bottoms, tops, blobs


def test_arguments_by_name_from_any_message(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    @chai.custom.compose("mine", args={"num_output": int, "mode": "AVE", "factor": 2.0, "rest": (), "flag": True})
    def _(g: Any, x: Any, mode: str, num_output: int, rest: Array, factor: float, flag: bool) -> Any:
        seen.update(mode=mode, num_output=num_output, rest=rest.tolist(), factor=factor, flag=flag)
        return g.power(x, scale=factor)

    net = untrained(tmp_path, composed("mine", args="other_param { num_output: 7 flag: false }"))
    assert seen == {"mode": "AVE", "num_output": 7, "rest": [], "factor": 2.0, "flag": False}
    data = drawn(2, 3, 5, 7)
    assert np.array_equal(net.forward(data)["y"], 2 * data)
    message = 'xcustom_param { float_args: [5, 3, 11, 13] string_args: "MAX" }'
    args = composed("mine", args=message)
    with pytest.raises(chai.PluginError, match="float_args has 1 value too many"):
        REGISTRY.types["mine"].args.pop("rest")  # type: ignore[attr-defined]
        untrained(tmp_path, args)


def test_any_number_of_bottoms_and_several_tops(tmp_path: Path) -> None:
    @chai.custom.compose("mine", args={"at": 1})
    def _(g: Any, *bottoms: Any, at: int) -> Any:
        total = g.eltwise(*bottoms, operation="SUM", coeff=[1.5] * len(bottoms))
        first, second = g.slice(total, ntop=2, slice_point=[at])
        return second, g.relu(first, name="positive", negative_slope=0.5)

    net = untrained(tmp_path, "mine mine data data data -> p q : user_defined_layer: true")
    data = drawn(2, 3, 5, 7)
    out = net.forward(data)
    total = np.float32(1.5) * data + np.float32(1.5) * data + np.float32(1.5) * data
    np.testing.assert_allclose(out["p"], total[:, 1:], rtol=1e-6)
    np.testing.assert_allclose(out["q"], np.where(total > 0, total, total / 2)[:, :1], rtol=1e-6)
    assert parts(net) == {"mine/eltwise": "Eltwise", "mine/slice": "Slice", "mine/positive": "ReLU"}
    assert net.graph.layer("mine/slice").tops == ("mine/slice_0", "p")


def test_an_optional_bottom(tmp_path: Path) -> None:
    @chai.custom.compose("mine")
    def _(g: Any, x: Any, y: Any = None) -> Any:
        return g.relu(x) if y is None else g.eltwise(x, y)

    assert parts(untrained(tmp_path, composed("mine"))) == {"mine/relu": "ReLU"}
    both = untrained(tmp_path, "mine mine data data -> y : user_defined_layer: true")
    assert parts(both) == {"mine/eltwise": "Eltwise"}
    with pytest.raises(chai.PluginError, match=r"takes 1 to 2 bottoms \(x, y\), found 3"):
        untrained(tmp_path, "mine mine data data data -> y : user_defined_layer: true")


def test_the_second_of_a_kind_is_numbered(tmp_path: Path) -> None:
    @chai.custom.compose("mine")
    def _(g: Any, x: Any) -> Any:
        return g.relu(g.power(g.relu(x, name="power2"), shift=1.0))

    net = untrained(tmp_path, composed("mine"))
    assert list(parts(net)) == ["mine/power2", "mine/power", "mine/relu"]

    @chai.custom.compose("three", replace=True)
    def _(g: Any, x: Any) -> Any:
        return g.tan_h(g.tanh(g.TanH(x)))

    assert list(parts(untrained(tmp_path, composed("three")))) == ["mine/TanH", "mine/tanh", "mine/tan_h"]


def test_a_composed_type_may_use_composed_and_custom_types(tmp_path: Path) -> None:
    @chai.custom("triple", jit=False, args={"factor": 3.0, "unit": "x"})
    def triple(x: Any, factor: float) -> None:
        x.top[0][...] = factor * x.bottom[0]

    @triple.shape
    def _(x: Any) -> Any:
        return [tuple(x.input_dims[0])]

    @chai.custom.compose("Inner", args={"outputs": 2})
    def _(g: Any, x: Any, outputs: int) -> Any:
        return g.triple(g.inner_product(x, num_output=outputs, blobs=(1, 0)), factor=5)

    @chai.custom.compose("Outer")
    def _(g: Any, x: Any) -> Any:
        first = g.inner_product(x, num_output=4, blobs=(0, 3))
        return g.layer("Inner", first, outputs=2, blobs=(2, 1), name="in")

    weights, bias, more, further = drawn(4, 105), drawn(2), drawn(2, 4), drawn(4)
    write_caffemodel(tmp_path / "w.caffemodel", "net", [("mine", "Outer", [weights, more, bias, further])])
    (tmp_path / "net.prototxt").write_text(prototxt(composed("Outer")))
    net = chai.Net(tmp_path / "net.prototxt", tmp_path / "w.caffemodel", "float")
    data = drawn(2, 3, 5, 7)
    first = data.reshape(2, -1) @ weights.T + further
    np.testing.assert_allclose(net.forward(data)["y"], 5 * (first @ more.T + bias), rtol=1e-4, atol=1e-4)
    assert parts(net) == {
        "mine/inner_product": "InnerProduct",
        "mine/in/inner_product": "InnerProduct",
        "mine/in/triple": "triple",
    }
    assert net.graph.composed["mine"].parts == tuple(parts(net))


@pytest.mark.parametrize("vector", [(), (1.0, 2.0)])
def test_arguments_after_a_vector_reach_a_custom_part(vector: tuple[float, ...], tmp_path: Path) -> None:
    """A vector takes all of float_args that are left."""
    args = {"low": 1.0, "vector": (), "n": 1, "unit": "x", "on": False, "more": ()}

    @chai.custom("given", jit=False, args=args)
    def function(x: Any, low: float, vector: Array, n: int, unit: str, on: bool, more: Array) -> None:
        x.top[0][...] = low + vector.sum() + 10 * n + 100 * on + 1000 * (unit == "y") + 1e4 * more.sum()

    @function.shape
    def _(x: Any) -> Any:
        return [tuple(x.input_dims[0])]

    @chai.custom.compose("mine")
    def _(g: Any, x: Any) -> Any:
        return g.given(x, low=0.5, vector=vector, n=-3, unit="y", on=True, more=(0.25, 2))

    net = untrained(tmp_path, composed("mine"))
    expected = 0.5 + sum(vector) - 30 + 100 + 1000 + 22500
    assert (net.forward(drawn(2, 3, 5, 7))["y"] == expected).all()
    (tmp_path / "parts.prototxt").write_text(prototxt("").removesuffix("\n") + net.graph.composed["mine"].text)
    again = chai.Net(tmp_path / "parts.prototxt", device="float")
    assert (again.forward(drawn(2, 3, 5, 7))["y"] == expected).all()


def test_parameters_under_the_parts_own_names_come_first(tmp_path: Path, cell: Path) -> None:
    blobs = [drawn(3, 8), drawn(3)]
    stored = [("rnn", "RNNCell", [drawn(3, 8), drawn(3)]), ("rnn/inner_product", "InnerProduct", blobs)]
    net = _cell(tmp_path, stored)
    assert all(np.array_equal(a, b) for a, b in zip(net.params["rnn/inner_product"], blobs, strict=True))


def _cell(folder: Path, stored: list[tuple[str, str, list[Array]]]) -> chai.Net:
    write_caffemodel(folder / "w.caffemodel", "net", stored)
    (folder / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" top: "h" '
        "input_param { shape { dim: 2 dim: 5 } shape { dim: 2 dim: 3 } } }\n"
        'layer { name: "rnn" type: "RNNCell" bottom: "x" bottom: "h" top: "y" xcustom_param { float_args: 3 } }\n'
    )
    return chai.Net(folder / "net.prototxt", folder / "w.caffemodel", "float")


def test_parameters_that_do_not_fit(tmp_path: Path, cell: Path) -> None:
    with pytest.raises(chai.ModelError, match=r"takes blob 1 of layer 'rnn', which has 1 in .*w\.caffemodel"):
        _cell(tmp_path, [("rnn", "RNNCell", [drawn(3, 8)])])
    with pytest.raises(chai.ModelError, match=r"\(blob 0\) are 3x9 .*expected 3x8"):
        _cell(tmp_path, [("rnn", "RNNCell", [drawn(3, 9), drawn(3)])])
    with pytest.raises(chai.MissingWeights, match="'rnn/inner_product'"):
        _cell(tmp_path, [("other", "RNNCell", [drawn(3, 8)])])
    cell.write_text(CODE.replace(", blobs=(0, 1)", ""))
    chai.load_custom(cell)
    with pytest.raises(chai.MissingWeights) as caught:
        _cell(tmp_path, [("rnn", "RNNCell", [drawn(3, 8), drawn(3)])])
    assert "the file has layer 'rnn': blobs=(0, 1)" in (caught.value.hint or "")


def test_pycaffe_reads_and_shares_the_parameters(tmp_path: Path, cell: Path) -> None:
    import chai.pycaffe as caffe

    _cell(tmp_path, [("rnn", "RNNCell", [drawn(3, 8), drawn(3)])])
    net = caffe.Net(tmp_path / "net.prototxt", caffe.TEST)
    net.copy_from(tmp_path / "w.caffemodel")
    assert np.array_equal(
        net.params["rnn/inner_product"][0].data, Weights(tmp_path / "w.caffemodel").layers["rnn"][0].load()
    )
    net.forward(x=drawn(2, 5), h=drawn(2, 3))
    assert [entry.name for entry in net.perf.entries] == ["rnn"]


def test_a_layer_of_another_phase_is_not_composed(tmp_path: Path) -> None:
    @chai.custom.compose("mine")
    def _(g: Any, x: Any) -> Any:
        raise RuntimeError("composed")

    lines = composed("mine", args="include { phase: TRAIN }") + "\nabs AbsVal data -> z"
    assert list(parts(untrained(tmp_path, lines))) == ["abs"]
    with pytest.raises(chai.PluginError, match="RuntimeError: composed"):
        untrained(tmp_path, lines, phase="TRAIN")


def test_a_built_in_gives_way_to_the_flag_or_to_override(tmp_path: Path) -> None:
    @chai.custom.compose("AbsVal", override=False)
    def _(g: Any, x: Any) -> Any:
        return g.eltwise(g.relu(x), g.relu(g.power(x, scale=-1.0)), operation="SUM")

    lines = "a AbsVal data -> a\nb AbsVal data -> b : user_defined_layer: true"
    net = untrained(tmp_path, lines)
    assert list(parts(net)) == ["a", "b/relu", "b/power", "b/relu2", "b/eltwise"]
    out = net.forward(drawn(2, 3, 5, 7))
    assert np.array_equal(out["a"], out["b"])
    with pytest.raises(chai.PluginError, match=r"test_compose\.py:\d+: .*'TanH': chai has a type of that name"):
        chai.custom.compose("TanH")(lambda g, x: g.relu(x))


# -- times


def test_the_whole_and_its_parts_are_shown(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chai.custom.compose("Cell")(cell_on_the_overlay)
    host = {"rnn/tanh": "host"}
    net = chai.Net(trained / "net.prototxt", trained / "net.caffemodel", "emulator", engine=host)
    net.forward(drawn(2, 3, 5, 7))
    capsys.readouterr()
    perf = chai.getPerfInfo(net)
    text = capsys.readouterr().err
    assert text == perf.text()
    steps = {step.name: step for step in perf.steps}
    own = [s for s in perf.steps if s.name.startswith(("rnn/", "Unpack rnn/"))]
    assert [(s.type, s.engine) for s in own] == [("conv", "fpga"), ("Unpack", "host"), ("TanH", "host")]
    assert "Cell" not in {s.type for s in perf.steps}
    (entry,) = perf.entries
    assert (entry.name, entry.steps, entry.shared) == ("rnn", tuple(own), ())
    assert entry.own == pytest.approx(sum(s.ms for s in own))
    assert (entry.unpack, entry.pack) == (0, 0)
    assert "Custom Layer - 1 : rnn\n[PERFM] Unpack layer Latency : 0.000000 ms\n" in text
    assert f"[PERFM]   rnn/convolution (fpga) Latency : {steps['rnn/convolution'].ms:f} ms\n" in text
    assert re.search(rf"^rnn +3 +{entry.own:.3f}", str(perf), re.M)
    row = perf.to_json()["custom_layers"][0]
    assert row["parts"] == [s.name for s in own] and row["custom_ms"] == entry.own
    assert main(["show", str(trained / "net.prototxt"), "-q"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("composed"))
    assert re.fullmatch(r"composed rnn \(Cell, .*prototxt:\d+\) of 3: rnn/concat, rnn/convolution, rnn/tanh", line)


def test_conversions_at_the_border_are_not_the_parts(tmp_path: Path) -> None:
    @chai.custom.compose("mine")
    def _(g: Any, x: Any) -> Any:
        return g.tanh(g.convolution(g.sigmoid(x), num_output=4, kernel_size=1))

    lines = f"a Convolution data -> a : {CONV}\nmine mine a -> y\nb Convolution y -> b : {CONV}"
    host = dict.fromkeys(("mine/sigmoid", "mine/tanh"), "host")
    net = network(tmp_path, lines, device="emulator", engine=host)
    net.forward(drawn(2, 3, 5, 7))
    ms = {step.name: step.ms for step in net.perf.steps}
    (entry,) = net.perf.entries
    assert entry.unpack == ms["Unpack a"]
    assert entry.pack == ms["Pack y"]
    inside = ["mine/sigmoid", "Pack mine/sigmoid", "mine/convolution", "Unpack mine/convolution", "mine/tanh"]
    assert sorted(s.name for s in entry.steps) == sorted(inside)
    assert entry.own == pytest.approx(sum(ms[name] for name in inside))


def test_a_part_that_runs_together_with_others_is_named_and_not_counted(tmp_path: Path) -> None:
    @chai.custom.compose("mine")
    def _(g: Any, x: Any) -> Any:
        return g.scale(g.batch_norm(x, use_global_stats=True), bias_term=True)

    net = network(tmp_path, f"a Convolution data -> a : {CONV}\nmine mine a -> y", device="emulator")
    net.forward(drawn(2, 3, 5, 7))
    (entry,) = net.perf.entries
    assert (entry.own, entry.steps, [s.name for s in entry.shared]) == (0, (), ["a"])
    assert "[PERFM]   a (fpga), together with other layers\n" in net.perf.text()


# -- as one layer of a network


ENDS = """
before AbsVal data -> a
mine mine data a -> y z : user_defined_layer: true
after Power y -> out : power_param { scale: 2 }
"""


def crossed(g: Any, x: Any, h: Any) -> Any:
    """Reads its bottoms in the opposite order, and writes one top inside."""
    z = g.relu(x)
    return g.concat(g.tanh(h), z), z


def test_a_composed_layer_is_one_layer_for_run_layer(tmp_path: Path) -> None:
    chai.custom.compose("mine")(crossed)
    net = network(tmp_path, ENDS, (2, 3, 5, 7), device="float", keep="all")
    x, h = drawn(2, 3, 5, 7), drawn(2, 3, 5, 7)
    with pytest.raises(chai.UsageError, match="the inputs of layer 'mine' were not kept: data, a"):
        chai.run_layer(net, "mine")
    tops = chai.run_layer(net, "mine", [x, h])
    assert list(tops) == ["y", "z"]
    assert np.array_equal(tops["z"], np.maximum(x, 0))
    np.testing.assert_allclose(tops["y"], np.concatenate([np.tanh(h), np.maximum(x, 0)], 1), atol=1e-6)
    net.forward(x)
    assert all(np.array_equal(top, net.blobs[blob]) for blob, top in chai.run_layer(net, "mine").items())
    assert np.array_equal(chai.run_layer(net, "mine/tanh")["mine/tanh"], net.blobs["mine/tanh"])
    with pytest.raises(chai.UsageError, match="layer 'mine' has 2 bottoms, found 1 array"):
        chai.run_layer(net, "mine", [x])
    with pytest.raises(chai.UsageError, match="there is no layer 'mime'") as caught:
        chai.run_layer(net, "mime")
    assert "did you mean 'mine'?" in str(caught.value.hint)


def test_a_bottom_that_no_part_reads_is_a_bottom(tmp_path: Path) -> None:
    chai.custom.compose("mine")(lambda g, x, h: (g.relu(h), g.tanh(h)))
    net = network(tmp_path, ENDS, (2, 3, 5, 7), device="float", keep="outputs")
    x, h = drawn(2, 3, 5, 7), drawn(2, 3, 5, 7)
    assert np.array_equal(chai.run_layer(net, "mine", [x, h])["y"], np.maximum(h, 0))


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_network_starts_and_ends_at_a_composed_layer(tmp_path: Path, device: str) -> None:
    chai.custom.compose("mine")(crossed)
    x = drawn(2, 3, 5, 7)
    whole = network(tmp_path, ENDS, x.shape, device="float", keep="all")
    whole.forward(x)
    head, tail, one = (
        network(tmp_path, ENDS, x.shape, device=device, **cut)
        for cut in ({"end_layer": "mine"}, {"start_layer": "mine"}, {"start_layer": "mine", "end_layer": "mine"})
    )
    assert [layer.name for layer in head.graph.layers if not layer.source] == [
        "before",
        *whole.graph.composed["mine"].parts,
    ]
    assert (head.inputs, head.outputs) == (["data"], ["y", "z"])
    assert (set(tail.inputs), tail.outputs) == ({"data", "a"}, ["out"])
    assert (set(one.inputs), one.outputs) == ({"data", "a"}, ["y", "z"])
    feeds = {"data": x, "a": np.abs(x)}
    for net, blobs in ((head, head.forward(x)), (tail, tail.forward(**feeds)), (one, one.forward(**feeds))):
        for name, blob in blobs.items():
            np.testing.assert_allclose(blob, whole.blobs[name], atol=1e-6 if device == "float" else 0.05)
        assert "mine" in [entry.name for entry in net.perf.entries]


# -- registry and start-up


def test_it_is_listed_versioned_and_unloaded(tmp_path: Path) -> None:
    path = tmp_path / "cells.py"
    path.write_text(CODE.replace("args={", 'version="2.1", args={'))
    extension = chai.load_custom(path)
    assert (extension.types, extension.version) == (("RNNCell",), {"RNNCell": "2.1"})
    assert "RNNCell" in REGISTRY.known()
    extension.unload()
    assert "RNNCell" not in REGISTRY.known()
    lines = "mine RNNCell data data -> y : user_defined_layer: true xcustom_param { float_args: 2 }"
    own = untrained(tmp_path, lines, custom=path)
    assert "mine/tanh" in parts(own)
    assert "RNNCell" not in REGISTRY.known()


def test_a_network_without_composed_layers_loads_no_builder() -> None:
    code = "import sys, chai; chai.Net('digits', device='float'); print([m for m in sys.modules if 'compose' in m])"
    assert python(code) == "[]"
