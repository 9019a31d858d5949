"""Named arguments: where each value comes from, which values are refused, and in which form functions get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai

from .common import DATA, SHAPE, compiles, flagged, one

FOREIGN = "region_param { classes: 20 anchors: 1.5 anchors: 2 thresh: 0.25 softmax: true name: 'voc' deep { num: 9 } }"
OWN = "pooling_param { pool: AVE kernel_size: 3 } convolution_param { num_output: 6 bias_term: false dilation: [2, 4] }"


def values(folder: Path, args: dict[str, Any], fields: str) -> dict[str, Any]:
    """The arguments of a layer with these fields."""
    layer = one(folder, fields, custom={"mine": chai.custom("mine", args=args, jit=False)(lambda x: None)}).graph.layer(
        "mine"
    )
    return layer.named((SHAPE,), (SHAPE,))


@pytest.mark.parametrize(
    ("args", "fields", "expected"),
    [
        ({"slope": 0.5, "times": 3}, flagged(), {"slope": 0.5, "times": 3}),
        ({"slope": 0.5, "times": 3}, flagged(floats=[0.25]), {"slope": 0.25, "times": 3}),
        ({"slope": 0.5, "mode": "max", "times": 3}, flagged(floats=[2, 7]), {"slope": 2.0, "mode": "max", "times": 7}),
        ({"mode": "max", "where": str}, flagged(strings=["sum", "x"]), {"mode": "sum", "where": "x"}),
        ({"first": 1, "rest": ()}, flagged(floats=[4, 5, 6.5]), {"first": 4, "rest": [5, 6.5]}),
        ({"first": 1, "rest": (8, 9)}, flagged(floats=[4]), {"first": 4, "rest": [8, 9]}),
        ({"on": False, "off": True}, flagged(floats=[1, 0]), {"on": True, "off": False}),
        ({"classes": 0, "anchors": (), "thresh": 0.0}, flagged() + FOREIGN, {
            "classes": 20, "anchors": [1.5, 2], "thresh": 0.25}),
        ({"softmax": False, "name": ""}, flagged() + FOREIGN, {"softmax": True, "name": "voc"}),
        ({"num": 5}, flagged() + FOREIGN, {"num": 5}),  # of a message inside another one
        ({"num_output": int, "pool": str, "bias_term": True}, flagged() + OWN, {
            "num_output": 6, "pool": "AVE", "bias_term": False}),
        ({"num_output": int}, flagged(floats=[5]) + OWN, {"num_output": 5}),  # xcustom_param goes first
        ({"dilation": 1, "kernel_size": 1}, flagged() + OWN, {"dilation": 4, "kernel_size": 3}),  # the last of several
        ({"dilation": (1,)}, flagged() + OWN, {"dilation": [2, 4]}),
        ({"n": "I.B", "c": "I.F", "h": "O.Y", "w": "O.X"}, flagged(), {"n": 2, "c": 3, "h": 5, "w": 7}),
        ({"k": 9, "c": "I.F", "mode": ""}, flagged(floats=[4], strings=["a"]), {"k": 4, "c": 3, "mode": "a"}),
    ],
)  # fmt: skip
def test_values(tmp_path: Path, args: dict[str, Any], fields: str, expected: dict[str, Any]) -> None:
    arguments = values(tmp_path, args, fields)
    assert set(arguments) == set(expected)
    for name, wanted in expected.items():
        if isinstance(wanted, list):
            assert arguments[name].dtype == np.float32 and arguments[name].tolist() == wanted
        else:
            assert (arguments[name], type(arguments[name])) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("args", "fields", "message", "hint"),
    [
        ({"slope": float, "k": int}, flagged(floats=[1]), "argument 'k' (int) is missing",
         "give it in xcustom_param (float_args, in this order: slope, k) or as a field k of a *_param"),
        ({"mode": str}, flagged(), "argument 'mode' (str) is missing", "string_args, in this order: mode"),
        ({"anchors": tuple}, flagged(), "argument 'anchors' (tuple) is missing", "float_args"),
        ({"k": 1}, flagged(floats=[2.5]), "argument 'k': expected a whole number, found 2.5", None),
        ({"k": 1}, flagged(floats=[2, 3, 4]), "float_args has 2 values too many, found 3.0", "arguments: k"),
        ({"k": 1}, flagged(strings=["a"]), "string_args has 1 value too many, found 'a'", "arguments: k"),
        ({"pool": 1}, flagged() + OWN, "argument 'pool': expected a whole number, found 'AVE'", None),
        ({"name": 0.5}, flagged() + FOREIGN, "argument 'name': expected a number, found 'voc'", None),
        ({"name": False}, flagged() + FOREIGN, "argument 'name': expected true or false, found 'voc'", None),
        ({"name": (1,)}, flagged() + FOREIGN, "argument 'name': expected numbers, found ('voc',)", None),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, args: dict[str, Any], fields: str, message: str, hint: str | None) -> None:
    with pytest.raises(chai.PluginError) as caught:
        values(tmp_path, args, fields)
    where = f"{tmp_path / 'net.prototxt'}:2: layer 'mine' (custom type 'mine'): "
    assert caught.value.message == where + message
    assert caught.value.layer == "mine"
    assert (hint or "") in (caught.value.hint or "")


@pytest.mark.parametrize("number", ["inf", "nan"])
def test_a_number_that_is_not_finite(tmp_path: Path, number: str) -> None:
    with pytest.raises(chai.ParseError, match=f"float_args: expected a finite number, found {number}"):
        values(tmp_path, {"k": 0.5}, flagged(floats=[float(number)]))
    with pytest.raises(chai.PluginError, match=f"argument 'k': expected a whole number, found '{number}'"):
        values(tmp_path, {"k": 1}, flagged() + f"mine_param {{ k: {number} }}")


FORMS = {
    "custom": lambda args: chai.custom("mine", args=args)(lambda x: None),
    "compose": lambda args: chai.custom.compose("mine", args=args)(lambda g, x: g.tanh(x)),
    "opencl": lambda args: chai.custom.opencl("mine", "__kernel void f(__global float* x) {}", args=args),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "default", [None, [1, 2], {}, np.float32(1), bytes, (1, "a"), ("1", "2"), (None,), (1, (2,)), (1j,)], ids=repr
)
def test_a_default_of_another_kind(form: str, default: Any) -> None:
    with pytest.raises(chai.PluginError, match=r"custom type 'mine': args: k: .* expected a number, a text or a tuple"):
        FORMS[form]({"k": default})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["k"], "['k']: expected {name: default}"),
        ("k", "'k': expected {name: default}"),
        ({1: 2}, "1: expected the name of a parameter"),
        ({"my k": 2}, "'my k': expected the name of a parameter"),
        ({"k": -(2**53) - 1}, "k: -9007199254740993: expected a whole number up to 2^53"),
    ],
)
def test_arguments_that_cannot_be(form: str, args: Any, message: str) -> None:
    """Refused where they are declared, with the place."""
    with pytest.raises(chai.PluginError) as caught:
        FORMS[form](args)
    assert caught.value.message.startswith(f"{__file__}:") and f"custom type 'mine': args: {message}" in str(
        caught.value
    )


def test_numbers_of_any_type_in_a_tuple(tmp_path: Path) -> None:
    arguments = values(tmp_path, {"k": (np.float32(0.5), np.int64(3), True), "n": 2**53}, flagged())
    assert arguments["k"].tolist() == [0.5, 3, 1] and arguments["n"] == 2**53


def scaled(x: Any, factor: float, times: int, on: bool, rest: Any, channels: int, mode: str) -> None:
    for i in range(x.in_ptrs[0].size):
        x.out_ptrs[0][i] = x.in_ptrs[0][i] * factor
    if on and mode == "sum":
        x.top[0][0, 0, 0, 0] = rest[0] + 10 * rest[1] + 100 * times + 1000 * channels + 10000 * (times // 2)


@compiles
@pytest.mark.parametrize("jit", [True, False])
def test_functions_ask_for_them_by_name_compiled_or_not(tmp_path: Path, jit: bool) -> None:
    args = {"factor": 1.0, "times": 1, "on": False, "rest": (), "channels": "I.F", "mode": "max"}
    chai.custom("mine", args=args, jit=jit)(scaled)
    fields = flagged(floats=[0.5, 7, 1, 2, 3], strings=["sum"])
    top = one(tmp_path, fields).forward(DATA)["y"]
    assert top[0, 0, 0, 0] == 2 + 30 + 700 + 3000 + 30000
    assert np.array_equal(top.ravel()[1:], DATA.ravel()[1:] * np.float32(0.5))


def test_shape_and_setup_get_them_too(tmp_path: Path) -> None:
    seen = []

    @chai.custom("mine", args={"k": 1, "mode": "a", "channels": "I.F"}, jit=False)
    def mine(x: Any) -> None:
        x.out_ptrs[0][:] = 1

    @mine.shape
    def _(x: Any, k: int, channels: int) -> list[tuple[int, ...]]:
        return [(x.input_dims[0][0], channels * k)]

    @mine.setup
    def _(x: Any, mode: str, k: int) -> None:
        seen.append((mode, k))

    net = one(tmp_path, flagged((), floats=[4], strings=["b"]))
    assert net.shapes["y"] == (2, 12)
    assert seen == [("b", 4)]
    assert net.forward(DATA[:1])["y"].shape == (1, 12)


def test_a_foreign_message_that_is_taken_from_is_not_called_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chai.custom("mine", args={"classes": 1}, jit=False)(lambda x, classes: None)
    one(tmp_path, flagged() + FOREIGN, strict=True)  # nor refused
    assert "schema" not in caplog.text
    one(tmp_path, flagged() + FOREIGN + "other_param { thing: 1 }")
    assert "fields that Caffe's schema does not have are ignored: other_param (line 2)" in caplog.text
