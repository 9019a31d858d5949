"""Typed reading: what each kind of field takes, how it refuses, and that protobuf sees the same values."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from chai.errors import ParseError
from chai.parser.load import load_graph
from chai.parser.schema import fields, message_class
from chai.plugins.registry import Registry

from .common import DATA, PATH, differences, layer, message, protobuf_reads


def refused(text: str, type: str = "NetParameter") -> ParseError:
    with pytest.raises(ParseError) as caught:
        message(text, type)
    return caught.value


# -- the schema


def test_every_message_has_the_fields_that_protobuf_reads_from_the_same_file() -> None:
    file = message_class("NetParameter").DESCRIPTOR.file
    bits = {1: (-(2**31), 2**31 - 1), 2: (-(2**63), 2**63 - 1), 3: (0, 2**32 - 1), 4: (0, 2**64 - 1)}  # by CPPTYPE_
    kinds = {**dict.fromkeys(bits, "int"), 5: "float", 6: "float", 7: "bool", 8: "enum", 9: "string", 10: "message"}
    assert len(file.message_types_by_name) > 100
    for name, description in file.message_types_by_name.items():
        own = fields(name)
        assert [*own] == [f.name for f in description.fields], name
        for f in description.fields:
            field = own[f.name]
            assert field.kind == ("bytes" if f.type == f.TYPE_BYTES else kinds[f.cpp_type]), f.full_name
            assert (field.low, field.high) == bits.get(f.cpp_type, (0, 0)), f.full_name
            assert field.repeated == (f.is_repeated if hasattr(f, "is_repeated") else f.label == f.LABEL_REPEATED)
            assert field.enum == ({v.name: v.number for v in f.enum_type.values} if f.enum_type else {}), f.full_name
            assert field.message == (f.message_type.name if f.message_type else ""), f.full_name
    with pytest.raises(KeyError):
        fields("NoParameter")


# -- values


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        ("NetParameter", "input_dim: 034", 28),
        ("NetParameter", "input_dim: 0x1C", 28),
        ("NetParameter", "input_dim: 0X1c", 28),
        ("NetParameter", "input_dim: -0x10", -16),
        ("NetParameter", "input_dim: - 7", -7),
        ("NetParameter", "input_dim: 0", 0),
        ("NetParameter", "input_dim: 2147483647", 2**31 - 1),
        ("NetParameter", "input_dim: -2147483648", -(2**31)),
        ("BlobShape", "dim: 9223372036854775807", 2**63 - 1),
        ("BlobShape", "dim: -9223372036854775808", -(2**63)),
        ("ConvolutionParameter", "num_output: 4294967295", 2**32 - 1),
        ("FillerParameter", "value: 2.0f", 2.0),
        ("FillerParameter", "value: .5", 0.5),
        ("FillerParameter", "value: 1.", 1.0),
        ("FillerParameter", "value: 3", 3.0),
        ("FillerParameter", "value: -1e-3", -1e-3),
        ("FillerParameter", "value: - 1F", -1.0),
        ("FillerParameter", "value: inf", math.inf),
        ("FillerParameter", "value: -Infinity", -math.inf),
        ("NetParameter", "name: 'a' \"b\"", "ab"),
        ("PoolingParameter", "pool: AVE", "AVE"),
        ("PoolingParameter", "pool: 1", "AVE"),
        ("PoolingParameter", "pool: 0x0", "MAX"),
        ("LayerParameter", "phase: TEST", "TEST"),
        ("V1LayerParameter", "type: 4", "CONVOLUTION"),
        *(("ConvolutionParameter", f"bias_term: {t}", True) for t in ("true", "True", "t", "1")),
        *(("ConvolutionParameter", f"bias_term: {t}", False) for t in ("false", "False", "f", "0")),
    ],
)
def test_values(type: str, text: str, expected: Any) -> None:
    name = text.partition(":")[0]
    value = message(text, type).get(name)
    assert value == expected
    assert isinstance(value, expected.__class__)


def test_nan_is_a_float() -> None:
    assert math.isnan(message("value: nan", "FillerParameter").get("value"))


@pytest.mark.parametrize(
    ("type", "text", "words", "hint"),
    [
        ("NetParameter", "input_dim: 2147483648", "input_dim: 2147483648 is outside -2147483648 .. 2147483647", None),
        ("NetParameter", "input_dim: -2147483649", "is outside", None),
        ("ConvolutionParameter", "num_output: -1", "num_output: -1 is outside 0 .. 4294967295", None),
        ("ConvolutionParameter", "num_output: 4294967296", "is outside 0 .. 4294967295", None),
        ("BlobShape", "dim: 9223372036854775808", "is outside", None),
        ("BlobShape", "dim: 1" + "0" * 5000, "is outside", None),
        ("BlobShape", "dim: 0x1" + "0" * 5000, "is outside", None),
        ("NetParameter", "input_dim: 089", "input_dim: expected an integer, found 089", None),
        ("NetParameter", "input_dim: 1.5", "expected an integer, found 1.5", None),
        ("NetParameter", "input_dim: 1f", "expected an integer, found 1f", None),
        ("NetParameter", "input_dim: 1e3", "expected an integer, found 1e3", None),
        ("NetParameter", 'input_dim: "3"', 'expected an integer, found "3"', None),
        ("NetParameter", "input_dim: three", "expected an integer, found three", None),
        ("NetParameter", "input_dim { }", "input_dim: expected an integer, found a message", None),
        ("ConvolutionParameter", 'kernel_size: "3x5"', "expected an integer", "write  kernel_h: 3  kernel_w: 5"),
        ("ConvolutionParameter", 'stride: "1X2"', "expected an integer", "write  stride_h: 1  stride_w: 2"),
        ("ConvolutionParameter", 'pad: "1x"', "expected an integer", None),
        ("FillerParameter", 'value: "1"', 'value: expected a number, found "1"', None),
        ("FillerParameter", "value: many", "value: expected a number, found many", None),
        ("FillerParameter", "value: 0x1" + "0" * 5000, "value: expected a number", None),
        ("ConvolutionParameter", "bias_term: yes", "bias_term: expected true or false, found yes", None),
        ("ConvolutionParameter", "bias_term: 2", "expected true or false, found 2", None),
        ("ConvolutionParameter", 'bias_term: "true"', 'expected true or false, found "true"', None),
        ("NetParameter", "name: LeNet", "name: expected a quoted string, found LeNet", 'write name: "LeNet"'),
        ("NetParameter", "name: 5", "name: expected a quoted string, found 5", 'write name: "5"'),
        ("NetParameter", "layer: 5", "layer: expected a message { ... }, found '5'", None),
        (
            "PoolingParameter",
            "pool: max",
            "pool: expected one of MAX, AVE, STOCHASTIC, AVE_EXC_PAD, AVE_TF, found max",
            "did you mean MAX?",
        ),
        ("PoolingParameter", "pool: AVG", "found AVG", "did you mean AVE?"),
        ("PoolingParameter", 'pool: "MAX"', 'found "MAX"', "did you mean MAX?"),
        ("PoolingParameter", "pool: AVE_NO", "found AVE_NO", "did you mean AVE_TF?"),
        ("PoolingParameter", "pool: 7", "found 7", "a value of another Caffe fork?"),
        ("PoolingParameter", "pool: 99999999999", "is outside", None),
        ("V1LayerParameter", "type: locally", "found locally", "did you mean LOCAL?"),
        ("V1LayerParameter", 'type: "Convolution"', "type: expected one of NONE", "did you mean CONVOLUTION?"),
    ],
)
def test_refusals(type: str, text: str, words: str, hint: str | None) -> None:
    error = refused(text, type)
    assert words in error.message
    if hint is not None:
        assert error.hint == hint
    assert error.line == 1
    assert error.excerpt


def test_a_refusal_points_at_the_value() -> None:
    error = refused('layer {\n  pooling_param {\n    pool: "MAX"\n  }\n}')
    assert (error.line, error.column) == (3, 11)
    assert error.excerpt.splitlines()[1].endswith("^" * 5)


def test_a_field_is_given_twice() -> None:
    error = refused('name: "a"\n\nname: "b"')
    assert error.message == "name is given twice (first on line 1); it can have one value"
    assert (error.line, error.column) == (3, 1)
    assert "twice" in refused("pooling_param { } pooling_param { }", "LayerParameter").message
    assert "twice" in refused("pool: [MAX, AVE]", "PoolingParameter").message


def test_repeated_fields_keep_their_order_across_spellings() -> None:
    net = message("input_dim: 1 input_dim: [2, 3] input: 'x' input_dim: 4")
    assert net.all("input_dim") == [1, 2, 3, 4]
    assert net.all("layer") == []
    assert net.get("name") is None
    assert net.get("name", "none") == "none"
    assert not net.has("name")


def test_values_have_the_places_of_their_text() -> None:
    text = 'name: "a"  input_dim: [1, - 2]'
    net = message(text)
    places = {v.value: text[v.start : v.end] for values in net.values.values() for v in values}
    assert places == {"a": '"a"', 1: "1", -2: "- 2"}


# -- errors inside a layer name it


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('layer { name: "conv1" convolution_param { num_output: x } }', "conv1"),
        ('layer { convolution_param { num_output: x } name: "later" }', "later"),
        ('layers { name: "old" type: locally }', "old"),
        ('layer { name: "fork" pooling_param { pool: MEDIAN } }', "fork"),
        ('layers { layer { name: "oldest" num_output: -1 } }', "oldest"),
        ("layer { type: 5 }", None),
        ("layer { name: 5 }", "5"),
        ("layer { name { } type: 5 }", None),
        ("input_dim: x", None),
    ],
)
def test_errors_inside_a_layer_name_it(text: str, name: str | None) -> None:
    error = refused(text)
    assert error.layer == name
    assert error.headline.startswith(f"{PATH}:1:")
    if name is not None:
        assert f"layer {name!r}" in error.headline


# -- unknown fields


UNKNOWN = (
    "debug: 1\n"
    + DATA
    + layer("r", "ReLU", "data", "r", "\n own_param { a: 1 }\n own_param { b: 2 } relu_param {\n pad_l: 1 }")
    + layer("s", "ReLU", "r", "s", "relu_param {\n pad_l: 1 }\n pad_l: 2\n pad_l: 3\n pad_l: 4")
)


def test_unknown_fields_are_kept() -> None:
    net = message(UNKNOWN)
    assert [f.name for f in net.unknown] == ["debug"]
    relu = net.all("layer")[1]
    assert [(f.name, f.value.fields[0].name) for f in relu.unknown] == [("own_param", "a"), ("own_param", "b")]
    assert [f.name for f in relu.get("relu_param").unknown] == ["pad_l"]


def test_unknown_fields_give_one_warning_with_their_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "n.prototxt"
    path.write_text(UNKNOWN)
    with caplog.at_level(logging.WARNING, "chai.parser"):
        net = load_graph(path, Registry())
    assert [v.name for v in net.layers] == ["data", "r", "s"]
    assert [(r.name, r.levelname) for r in caplog.records] == [("chai.parser", "WARNING")]
    words = caplog.messages[0]
    assert words.startswith(f"{path}: ")
    listed = sorted(words.partition(" are ignored: ")[2].replace("), ", ")|").split("|"))
    assert listed == ["debug (line 1)", "own_param (lines 4, 5)", "pad_l (lines 6, 9, 10, 11, ...)"]


def test_strict_reading_refuses_an_unknown_field(tmp_path: Path) -> None:
    path = tmp_path / "n.prototxt"
    for text, line, words, name in (
        (UNKNOWN, 1, "debug is no field", None),
        (UNKNOWN.partition("\n")[2], 3, "layer 'r': own_param is no field", "r"),
        (DATA + layer("s", "ReLU", "data", "s", "relu_param {\n pad_l: 1 }"), 3, "layer 's': pad_l is no field", "s"),
    ):
        path.write_text(text)
        with pytest.raises(ParseError) as info:
            load_graph(path, Registry(), strict=True)
        assert words in info.value.message
        assert (info.value.line, info.value.layer) == (line, name)
        assert "without strict" in str(info.value.hint)


def test_strict_reading_takes_what_the_schema_has(tmp_path: Path) -> None:
    path = tmp_path / "n.prototxt"
    path.write_text(DATA + layer("r", "ReLU", "data", "r", "relu_param { relu6: true }"))
    assert load_graph(path, Registry(), strict=True).layers


def test_a_file_within_the_schema_gives_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "n.prototxt"
    path.write_text(DATA + layer("r", "ReLU", "data", "r"))
    with caplog.at_level(logging.WARNING, "chai.parser"):
        load_graph(path, Registry())
    assert not caplog.records


def test_a_long_list_of_unknown_fields_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "n.prototxt"
    path.write_text("".join(f"odd{i}: {i}\n" for i in range(20)) + DATA + layer("r", "ReLU", "data", "r"))
    with caplog.at_level(logging.WARNING, "chai.parser"):
        load_graph(path, Registry())
    assert caplog.messages[0].endswith("odd7 (line 8) and 12 more")


# -- the schema


def test_the_pool_is_private() -> None:
    from google.protobuf import descriptor_pool

    assert message_class("NetParameter").DESCRIPTOR.full_name == "caffe.NetParameter"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("caffe.NetParameter")


# -- against protobuf


def test_every_value_of_real_networks_is_seen(models: Path) -> None:
    """All that protobuf reads from a file, chai reads too, and nothing else."""
    compared = 0
    for path in sorted(models.glob("*/*.prototxt")):
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            theirs = protobuf_reads(text)
        except text_format.ParseError:
            continue
        assert list(differences(message(text), theirs)) == [], path
        compared += 1
    assert compared >= 20


@pytest.mark.parametrize("largest", [40_000, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_every_value_of_the_corpus_is_seen(corpus: Path, largest: int) -> None:
    """Of small files always: large ones have the same messages, more often."""
    compared = 0
    for path in sorted(corpus.glob("*.prototxt")):
        if path.stat().st_size > largest:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            theirs = text_format.Parse(text, message_class("NetParameter")(), allow_unknown_field=True)
        except text_format.ParseError:
            continue
        assert list(differences(message(text), theirs)) == [], path
        compared += 1
    assert compared >= 90
