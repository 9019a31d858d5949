"""The written files: unrelated text is preserved, and reading them gives the quantiser's formats and weights."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.fixed import Format
from chai.offload.formats import from_precision
from chai.parser.caffemodel import write_caffemodel
from chai.parser.text import parse, read_source, stamp, stamped
from chai.quantizer import Recipe, quantize
from chai.quantizer.writeback import annotated, fields
from chai.tasks.precision import Precision
from chai.util.files import digest
from tests.conftest import thinned
from tests.passes.common import AFFINE, AVE, CONV, DEEP, GLOBAL, MAX, network, prototxt

SHAPE = (4, 3, 9, 11)
RECIPES = [
    Recipe("max", "max"),
    Recipe("mse", "mse"),
    Recipe("kl", "mse", 0.5),
    Recipe("mse", "mse", 0.7, "compensated", "tuned"),
    Recipe("percentile", "max", 0.0, "nearest", "tuned"),
    Recipe("after", "mse", 0.5, "learned", "mean"),
]

TEXT = """\
# A network,\twith "odd" text { and braces
name: 'odd'   # trailing
layer {
  name: "data"  type: "Input"  top: "data"
  input_param { shape { dim: 1 dim: 3 dim: 9 dim: 11 } }
}
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 4 kernel_size: 3 } }
layer {
    name: "r1"; type: "ReLU"
    bottom: "c1" top: "c1"   # in place }
}
layer <
\tname: "c2"
\ttype: "Convolution" bottom: "c1" top: "c2"
\tprecision_param { bw_layer_in: 6 th_params: [1, 2] }
\t# the last line is a comment
\tconvolution_param { num_output: 5 kernel_size: 1 }   # }
>
layer { name: "c3" type: "Convolution" bottom: "c2" top: "c3" quantization_param { fl_params: 3 } convolution_param {
  num_output: 2 kernel_size: 1 } }
# the end, without a line's end"""


def batches(shape: tuple[int, ...] = SHAPE, count: int = 2) -> list[np.ndarray]:
    return [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in range(count)]


def without_formats(text: str) -> str:
    text = re.sub(r"\A# chai quantize: [^\n]*\n", "", text)
    text = re.sub(r"\n[ \t]*precision_param \{\r?\n[^}]*\}\r?(?=\n)", "", text)
    return re.sub(r"precision_param \{ [^}]*\} ", "", text)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_everything_else_of_the_text_survives(tmp_path: Path, ending: str, encoding: str) -> None:
    text = TEXT.replace("odd text", "odd Tëxt").replace("\n", ending)
    path = tmp_path / "net.prototxt"
    path.write_bytes(text.encode(encoding))
    net = chai.Net(path, device="float")
    out = tmp_path / "out.prototxt"
    quantize(path, None, batches((2, 3, 9, 11)), out, effort="fast")
    data = out.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf") == (encoding == "utf-8-sig")
    written = data.decode(encoding)
    assert (written.count("\r\n") == written.count("\n")) == (ending == "\r\n")
    old = text.replace(f"\tprecision_param {{ bw_layer_in: 6 th_params: [1, 2] }}{ending}", "")
    old = old.replace("quantization_param { fl_params: 3 } ", " ")
    assert without_formats(written).replace(" ", "") == old.replace(" ", "")
    for comment in re.findall(r"#[^\r\n]*", text):
        assert comment in written
    tree = parse(read_source(out))
    count = [
        sum(f.name in ("precision_param", "quantization_param") for f in layer.value.fields)  # type: ignore[union-attr]
        for layer in tree.fields
        if layer.name == "layer"
    ]
    assert count == [0, 1, 0, 1, 1]
    assert [x.name for x in chai.Net(out, out.with_suffix(".caffemodel"), "float").graph.layers] == [
        x.name for x in net.graph.layers
    ]


def test_only_what_is_inserted_differs(tmp_path: Path) -> None:
    """Byte for byte, where the user's file had no formats."""
    text = TEXT.replace("\tprecision_param { bw_layer_in: 6 th_params: [1, 2] }\n", "").replace(
        "quantization_param { fl_params: 3 } ", ""
    )
    path, out = tmp_path / "net.prototxt", tmp_path / "out.prototxt"
    path.write_text(text)
    quantize(path, None, batches((2, 3, 9, 11)), out, effort="fast")
    written = out.read_text()
    assert without_formats(written) == text
    again = tmp_path / "again.prototxt"
    quantize(out, out.with_suffix(".caffemodel"), batches((2, 3, 9, 11)), again, effort="fast")
    assert without_formats(again.read_text()) == text  # what was quantised before is replaced
    assert again.read_text().count("# chai quantize") == 1


def test_fields_are_the_numbers_they_say() -> None:
    p = Precision("Xilinx", 8, 6, 8, th_layer_in=0.1, th_layer_out=1e-9, th_params=(1 / 3, 0.0, 4e8))
    assert fields(p) == [
        'quant_type: "Xilinx"',
        "bw_layer_in: 8",
        "bw_layer_out: 6",
        "bw_params: 8",
        "th_layer_in: 0.1",
        "th_layer_out: 9.99999972e-10",
        "th_params: [0.33333334, 0, 400000000]",
    ]
    assert fields(Precision("DynamicFixed", 8, 8, 8, 3, -2, 9))[4:] == [
        "fl_layer_in: 3",
        "fl_layer_out: -2",
        "fl_params: 9",
    ]
    for value in np.random.default_rng(0).uniform(-40, 40, 200):
        text = fields(Precision("Xilinx", th_layer_in=float(np.exp2(value))))[1].split(": ")[1]
        assert np.float32(text) == np.float32(np.exp2(value))


NET = f"""
    a Convolution data -> a : {DEEP}
    ra ReLU a -> a
    pa Pooling a -> pa : {MAX}
    b Convolution pa -> b : {DEEP}
    bn BatchNorm b -> b : {GLOBAL}
    sc Scale b -> b : {AFFINE}
    rb ReLU b -> b : relu_param {{ negative_slope: 0.1 }}
    c Convolution pa -> c : convolution_param {{ num_output: 16 kernel_size: 1 group: 2 }}
    cat Concat b c -> cat
    sum Eltwise b c -> sum
    ave Pooling cat -> ave : {AVE}
    drop Dropout ave -> ave
    d Convolution ave -> d : {CONV}
    e Convolution sum -> e : {CONV}
    bn2 BatchNorm e -> e : {GLOBAL}
    ip InnerProduct d -> ip : inner_product_param {{ num_output: 6 }}
    prob Softmax ip -> prob
    """


@pytest.mark.parametrize(("recipe", "scheme", "bits"), thinned(3, RECIPES, ("Xilinx", "DynamicFixed"), (8, 6)), ids=str)
def test_the_files_compute_what_was_judged(tmp_path: Path, recipe: Recipe, scheme: str, bits: int) -> None:
    """The network that is loaded gives the very codes that the search saw, weights of folded layers included."""
    source = network(tmp_path, NET, SHAPE)
    weights = tmp_path / "net.caffemodel"
    save(source, weights)
    out = tmp_path / "out.prototxt"
    data = batches()
    result = quantize(tmp_path / "net.prototxt", weights, data, out, bits=bits, scheme=scheme, recipe=recipe)
    built = result.built
    assert not built.refused
    with chai.Net(out, result.caffemodel, "emulator") as net:
        outputs = [net.forward(batch) for batch in data]
        assert net.formats is not None and steps(net.formats) == steps(built.formats)
    with chai.Net(tmp_path / "net.prototxt", weights, "float") as exact:
        wanted = [exact.forward(batch) for batch in data]
    prob = np.mean([kl(w["prob"], o["prob"]) for w, o in zip(wanted, outputs)])
    energy = np.mean([ratio(w["e"], o["e"]) for w, o in zip(wanted, outputs)])
    # folded weights are divided and multiplied in float32 on their way: a multiplier may differ in its last bit
    assert built.cost == pytest.approx(prob + energy, rel=1e-3)
    assert np.isfinite(built.cost)


@pytest.mark.parametrize(
    ("fields", "bias"),
    [("bn_param { bn_mode: INFERENCE }", True), ("bn_param { frozen: true }", False)],
    ids=["SegNet's", "PSPNet's"],
)
def test_a_bias_before_a_bn_of_the_forks_is_tuned_in_the_convolution(tmp_path: Path, fields: str, bias: bool) -> None:
    """A BN has no blob that this could go into; a convolution without bias keeps what it has."""
    lines = f"""
        a Convolution data -> a : {DEEP}
        b Convolution a -> b : convolution_param {{ num_output: 4 kernel_size: 1 bias_term: {str(bias).lower()} }}
        bn BN b -> b : {fields}
        """
    net = network(tmp_path, lines, SHAPE)
    weights, out, data = tmp_path / "net.caffemodel", tmp_path / "out.prototxt", batches()
    save(net, weights)
    recipe = Recipe("max", "max", 0.0, "nearest", "tuned")
    built = quantize(tmp_path / "net.prototxt", weights, data, out, recipe=recipe).built
    assert not built.refused
    before, after = (
        {x.name: x.blobs for x in chai.Net(path, w, "float").graph.layers}
        for path, w in ((tmp_path / "net.prototxt", weights), (out, out.with_suffix(".caffemodel")))
    )
    assert all(map(np.array_equal, before["bn"], after["bn"]))
    assert not bias or not np.array_equal(before["b"][1], after["b"][1])
    assert not np.array_equal(before["a"][1], after["a"][1])
    exact = [net.forward(batch)["b"] for batch in data]
    with chai.Net(out, out.with_suffix(".caffemodel"), "emulator") as fixed:
        outputs = [fixed.forward(batch)["b"] for batch in data]
        assert fixed.formats is not None and steps(fixed.formats) == steps(built.formats)
    assert np.mean([ratio(*pair) for pair in zip(exact, outputs)]) == pytest.approx(built.cost, rel=1e-3)


def steps(formats: Mapping[str, Format]) -> dict[str, tuple[str, int, float]]:
    return {blob: (f.scheme, f.bits, f.step) for blob, f in formats.items()}


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float((p.astype(float) * (np.log(p.astype(float) + 1e-12) - np.log(q.astype(float) + 1e-12))).sum(1).mean())


def ratio(a: np.ndarray, b: np.ndarray) -> float:
    axes = tuple(range(1, a.ndim))
    return float((((a.astype(float) - b) ** 2).sum(axes) / (a.astype(float) ** 2).sum(axes)).mean())


def save(net: chai.Net, path: Path) -> None:
    from chai.parser.caffemodel import write_caffemodel

    write_caffemodel(path, net.name, [(x.name, x.type, x.blobs) for x in net.graph.layers if x.blobs])


def test_equalised_weights_are_the_same_float_network(tmp_path: Path) -> None:
    source = network(tmp_path, NET, SHAPE)
    weights = tmp_path / "net.caffemodel"
    save(source, weights)
    recipe = Recipe("mse", "max", 0.7)
    result = quantize(tmp_path / "net.prototxt", weights, batches(), tmp_path / "out.prototxt", recipe=recipe)
    assert result.built.factors.keys() == {"a@ra", "pa"}  # d is read in float alone, e is an output
    data = batches()[0]
    before = source.forward(data)
    after = chai.Net(tmp_path / "out.prototxt", result.caffemodel, "float").forward(data)
    for blob, wanted in before.items():
        np.testing.assert_allclose(after[blob], wanted, rtol=1e-3, atol=1e-4)
    assert digest(result.caffemodel) != digest(weights)


def test_formats_are_those_of_the_file(tmp_path: Path) -> None:
    source = network(tmp_path, NET, SHAPE)
    save(source, tmp_path / "net.caffemodel")
    out = tmp_path / "out.prototxt"
    quantize(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", batches(), out, bits=6, recipe=Recipe())
    net = chai.Net(out, out.with_suffix(".caffemodel"), "emulator")
    formats = from_precision(net.offload.graph)
    six = {b for b, f in formats.items() if f.bits == 6}
    # what multipliers read, but the first layer; its sum is read by a convolution, its branches in the sum are not
    assert six == {"a@ra", "pa", "ave", "sum"}
    assert formats["a@ra"] == formats["pa"] and formats["b@rb"] == formats["c"] == formats["cat"]
    assert {f.scheme for f in formats.values()} == {"Xilinx"}
    params = {x.name: x.precision.bw_params for x in net.graph.layers if x.precision and x.precision.bw_params}
    assert params == {"a": 8, "b": 6, "c": 6, "d": 6, "e": 6}


def test_a_network_without_weights_has_a_caffemodel_that_is_read(tmp_path: Path) -> None:
    path, out = tmp_path / "net.prototxt", tmp_path / "q.prototxt"
    path.write_text(prototxt(f"p Pooling data -> p : {AVE}", SHAPE))
    write_caffemodel(path.with_suffix(".caffemodel"), "net", [("p", "Pooling", [])])
    quantize(path, path.with_suffix(".caffemodel"), batches(), out, effort="fast")
    with chai.Net(out, out.with_suffix(".caffemodel")) as net:
        assert from_precision(net.offload.graph).keys() == {"data", "p"}


def test_a_layer_may_be_wider(tmp_path: Path) -> None:
    save(network(tmp_path, NET, SHAPE), tmp_path / "net.caffemodel")
    out = tmp_path / "out.prototxt"
    files = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    result = quantize(*files, batches(), out, bits=6, recipe=Recipe(), wider={"d": 8})
    assert result.built.formats["ave"].bits == 8
    assert "bw_params: 8" in out.read_text()
    with pytest.raises(
        chai.UsageError, match="there is no convolution or InnerProduct 'dd' on the overlay whose width"
    ):
        quantize(*files, batches(), out, wider={"dd": 8})


# -- the checksum


def test_other_weights_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(network(tmp_path, NET, SHAPE), tmp_path / "net.caffemodel")
    out = tmp_path / "out.prototxt"
    quantize(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", batches(), out, effort="fast")
    caplog.clear()
    chai.Net(out, out.with_suffix(".caffemodel"), "float")
    assert not caplog.records
    chai.Net(out, tmp_path / "net.caffemodel", "float")
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert "was quantised for other weights than" in caplog.text


def test_the_stamp_is_read_back() -> None:
    line = stamp("wéights one.caffemodel", "ab" * 32, "8-bit Xilinx")
    assert line.isascii()
    assert stamped(line + "\n" + TEXT) == "ab" * 32
    assert stamped(TEXT) is None
    assert stamped("\n" + line + "\n") is None  # the first line or none


# -- refusals


OLD = """input: "data" input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 11
layers {  # of 2014
  name: "a" type: CONVOLUTION bottom: "data" top: "a"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }
}
layers { name: "r" type: RELU bottom: "a" top: "a" }
"""


def test_the_form_of_2014_gets_its_formats(tmp_path: Path) -> None:
    path, out = tmp_path / "net.prototxt", tmp_path / "out.prototxt"
    path.write_text(OLD)
    data = batches((2, 3, 9, 11))
    result = quantize(path, None, data, out, effort="fast")
    text = out.read_text()
    assert text.count("precision_param") == 1 and "layers {  # of 2014\n" in text and "layer {" not in text
    net = chai.Net(out, tmp_path / "out.caffemodel", "emulator")
    outputs = net.forward(data[0])
    assert net.formats is not None
    assert [np.float32(f.value) for f in net.formats.values()] == [
        np.float32(f.value) for f in result.built.formats.values()
    ]
    exact = chai.Net(path, tmp_path / "out.caffemodel", "float").forward(data[0])
    assert 0 < np.abs(outputs["a"] - exact["a"]).max() < 0.05 * np.abs(exact["a"]).max()


def test_the_oldest_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    old = 'layers { layer { name: "a" type: "relu" } bottom: "data" top: "a" }'
    path.write_text('input: "data" input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 11\n' + old)
    with pytest.raises(chai.ParseError, match=r"oldest form \(layers \{ layer \{ \} \}\).*upgrade_net_proto_text"):
        quantize(path, None, batches((2, 3, 9, 11)), tmp_path / "out.prototxt", effort="fast")
    assert [p.name for p in tmp_path.iterdir()] == ["net.prototxt"]


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt(f"a Convolution data -> a : {CONV}", SHAPE))
    with pytest.raises(chai.UsageError, match="no calibration image"):
        quantize(path, None, [], tmp_path / "out.prototxt")
    with pytest.raises(chai.UsageError, match="effort 'much': expected one of fast, normal, best"):
        quantize(path, None, batches(), tmp_path / "out.prototxt", effort="much")
    with pytest.raises(chai.UsageError, match="seed -1: expected 0 or more"):
        quantize(path, None, batches(), tmp_path / "out.prototxt", seed=-1)
    not_hashable: Any = ["much"]
    with pytest.raises(chai.UsageError, match=r"effort \['much'\]: expected one of fast, normal, best"):
        quantize(path, None, batches(), tmp_path / "out.prototxt", effort=not_hashable)
    wrong: list[Any] = [(8, 8), (), (8, 6, 7), 7, [8, 8, 8], (8, 8, [8])]
    for widths in wrong:
        with pytest.raises(chai.UsageError, match="expected 8 or 6, three of them, or mixed"):
            quantize(path, None, batches(), tmp_path / "out.prototxt", bits=widths)
    wrong = [{"a": 0}, {"a": 5}, {"a": [8]}, {3: 8}, ["a"]]
    for wider in wrong:
        with pytest.raises(chai.UsageError, match=re.escape(f"wider {wider}: expected 8 or 6 by layer")):
            quantize(path, None, batches(), tmp_path / "out.prototxt", wider=wider)
    with pytest.raises(chai.UsageError, match=r"the output is a \.prototxt"):
        quantize(path, None, batches(), tmp_path / "out.caffemodel")
    with pytest.raises(chai.UsageError, match="would be written over what it is made from"):
        quantize(path, None, batches(), path)
    with pytest.raises(chai.UsageError, match=r"there is no folder .*nowhere' to write into"):
        quantize(path, None, batches(), tmp_path / "nowhere" / "out.prototxt")
    bad = batches()[0]
    bad[1, 2, 3, 4] = np.nan
    with pytest.raises(chai.ModelError, match="input 'data' has values that are not finite"):
        quantize(path, None, [bad], tmp_path / "out.prototxt")
    (loop := tmp_path / "loop.prototxt").symlink_to("loop.prototxt")  # which a file may replace
    with pytest.raises(chai.ModelError, match="input 'data' has values that are not finite"):
        quantize(path, None, [bad], loop)
    loop.unlink()
    assert [p.name for p in tmp_path.iterdir()] == ["net.prototxt"]


def test_layers_of_another_phase_are_left_alone(tmp_path: Path) -> None:
    text = prototxt(f"a Convolution data -> a : {CONV}", SHAPE) + (
        'layer { name: "t" type: "Convolution" bottom: "a" top: "t" include { phase: TRAIN }\n'
        "  precision_param { bw_layer_in: 6 } convolution_param { num_output: 2 kernel_size: 1 } }\n"
        'layer { name: "t" type: "ReLU" bottom: "a" top: "t" include { phase: TEST } }\n'
    )
    path, out = tmp_path / "net.prototxt", tmp_path / "out.prototxt"
    path.write_text(text)
    source, graph = read_source(path), chai.Net(path, device="float").graph
    edited = annotated(source, graph, {"t": Precision("Xilinx", 8, 8)})
    assert "include { phase: TRAIN }\n  precision_param { bw_layer_in: 6 }" in edited
    assert "phase: TEST } precision_param { quant_type" in edited
    quantize(path, None, batches(), out, effort="fast")
    assert chai.Net(out, out.with_suffix(".caffemodel")).forward(batches()[0])["t"].shape == (4, 4, 9, 11)


def test_format_of_a_blob_of_zeros(tmp_path: Path) -> None:
    net = network(tmp_path, f"a Convolution data -> a : {CONV}\nb Convolution a -> b : {CONV}", SHAPE)
    for blob in net.graph.layer("a").blobs:
        blob[...] = 0
    save(net, tmp_path / "net.caffemodel")
    out = tmp_path / "out.prototxt"
    recipe = Recipe("mse", "mse", 0.5, "compensated", "tuned")
    result = quantize(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", batches(), out, recipe=recipe)
    assert result.built.formats["a"] == Format("Xilinx", 8, 1.0)
    assert np.isfinite(result.built.cost)
    assert np.isfinite(chai.Net(out, result.caffemodel).forward(batches()[0])["b"]).all()
