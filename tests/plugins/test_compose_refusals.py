"""What ``@chai.custom.compose`` refuses, at the line of the function."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import chai

from .common import untrained
from .test_compose import composed


def _error(folder: Path, build: Any, lines: str | None = None, **options: Any) -> chai.ChaiError:
    chai.custom.compose("mine", replace=True, **options)(build)
    with pytest.raises(chai.ChaiError) as caught:
        untrained(folder, lines or composed("mine"))
    return caught.value


HERE = re.escape(str(Path(__file__)))
REFUSED: dict[str, tuple[Any, str]] = {
    "field": (lambda g, x: g.inner_product(x, num_outpt=3), r":\d+:\d+: layer 'mine/inner_product'.*'num_output'"),
    "value": (
        lambda g, x: g.inner_product(x, num_output="x"),
        r":\d+:\d+: .*num_output: expected an integer, found 'x'",
    ),
    "range": (lambda g, x: g.convolution(x, num_output=3, kernel_size=70000), r":\d+:\d+: .*kernel_size: .*65535"),
    "enum": (lambda g, x: g.pooling(x, pool="AVG", kernel_size=2), r":\d+:\d+: .*pool: expected one of MAX, AVE"),
    "message": (lambda g, x: g.scale(x, filler=3), r":\d+:\d+: .*filler: expected a message, found 3"),
    "type": (lambda g, x: g.inner_prodct(x), r"failed at .*:\d+: there is no layer type 'inner_prodct'"),
    "bottom": (lambda g, x: g.relu(3), r"failed at .*:\d+: relu: expected blobs of this layer as bottoms, found 3"),
    "code": (lambda g, x: 1 // 0, r"failed at .*:\d+: ZeroDivisionError"),
    "shape": (lambda g, x: g.convolution(x, num_output=3, kernel_size=9), r":\d+: layer 'mine/convolution'.*larger"),
    "nothing": (lambda g, x: None, r"failed at .*:\d+: it returned None, expected a blob"),
    "bottom again": (lambda g, x: x, r"failed at .*:\d+: it returned its bottom"),
    "twice": (lambda g, x: (lambda y: (y, y))(g.relu(x)), r"failed at .*:\d+: it returned twice"),
    "tops": (lambda g, x: (g.relu(x), g.relu(x)), r"failed at .*:\d+: it returned 2 blobs for 1 top"),
    "name": (lambda g, x: g.relu(g.relu(x, name="r"), name="r"), r"failed at .*:\d+: two parts are called 'r'"),
    "ntop": (lambda g, x: g.slice(x, ntop=-1), r"failed at .*:\d+: ntop=-1: expected the number of tops"),
    "blobs": (lambda g, x: g.relu(x, blobs=(-1,)), r"failed at .*:\d+: blobs=\(-1,\): expected indices from 0"),
    "tops of a type": (lambda g, x: g.relu(x, ntop=2)[0], r":\d+: layer 'mine/relu' \(ReLU\) takes 1 top, found 2"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_line_of_the_function(tmp_path: Path, what: str) -> None:
    build, expected = REFUSED[what]
    error = _error(tmp_path, build)
    assert re.search(expected, str(error)), str(error)
    assert f"{__file__}:" in str(error)
    assert error.excerpt or "shape" in what


def test_too_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_LIMITS", "layers=40")

    def build(g: Any, x: Any) -> Any:
        while True:
            x = g.relu(x)

    assert "too many parts" in str(_error(tmp_path, build))

    @chai.custom.compose("ten")
    def _(g: Any, x: Any) -> Any:
        for _ in range(10):
            x = g.relu(x)
        return x

    @chai.custom.compose("hundred")
    def _(g: Any, x: Any) -> Any:
        for _ in range(10):
            x = g.ten(x)
        return x

    assert "too many parts" in str(_error(tmp_path, lambda g, x: g.hundred(x)))


def test_a_circle_is_an_error(tmp_path: Path) -> None:
    chai.custom.compose("other")(lambda g, x: g.mine(x))
    error = _error(tmp_path, lambda g, x: g.relu(g.other(x)))
    assert "composed type 'mine' is made of itself: mine -> other -> mine" in str(error)
    assert isinstance(error, chai.PluginError)


def test_a_part_takes_no_more_blobs_than_its_layer_was_given(tmp_path: Path) -> None:
    chai.custom.compose("inner")(lambda g, x: g.inner_product(x, num_output=2, blobs=(0, 1)))
    error = _error(tmp_path, lambda g, x: g.inner(x, blobs=(4,)))
    assert "layer 'mine/inner/inner_product' takes blob 1 of layer 'mine/inner', which has 1" in str(error)


FIELDS = {
    "top_dim": ("xcustom_param { top_dim: 1 top_dim: 3 }", "net.prototxt:3:.*top_dim: the tops of a composed layer"),
    "precision": ("precision_param { bw_layer_in: 8 }", "net.prototxt:3:.*precision_param: the parts"),
}


@pytest.mark.parametrize("field", FIELDS)
def test_fields_that_belong_to_the_parts(tmp_path: Path, field: str) -> None:
    text, expected = FIELDS[field]
    error = _error(tmp_path, lambda g, x: g.relu(x), composed("mine", "abs AbsVal data -> a", text))
    assert re.search(expected, str(error)), str(error)


def test_it_cannot_work_in_place(tmp_path: Path) -> None:
    lines = "abs AbsVal data -> a\nmine mine a -> a : user_defined_layer: true"
    assert "'a' is bottom and top" in str(_error(tmp_path, lambda g, x: g.relu(x), lines))


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ("mine AbsVal data -> z", ["mine/relu", "mine (2)"]),
        ("mine/relu AbsVal data -> z", ["mine/relu", "mine/relu (2)"]),
        ("mine mine data -> z", ["mine/relu", "mine (2)/relu"]),
    ],
)
def test_names_that_are_used_twice(tmp_path: Path, other: str, names: list[str]) -> None:
    chai.custom.compose("mine")(lambda g, x: g.relu(x))
    net = untrained(tmp_path, f"{composed('mine')}\n{other}")
    assert [layer.name for layer in net.graph.layers[1:]] == names


def test_the_name_of_a_part_is_used_before(tmp_path: Path) -> None:
    chai.custom.compose("mine")(lambda g, x: g.relu(x))
    with pytest.raises(chai.ParseError, match="layer name 'mine/relu' is used twice"):
        untrained(tmp_path, f"mine/relu AbsVal data -> z\n{composed('mine').strip()}")


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (lambda: None, {}, "takes no argument, it is given a builder"),
        (lambda g, x, n: None, {"n": "I.X"}, "args: n: sizes are not known when a composed layer is expanded"),
        (lambda g, x, n: None, {"n": [1]}, "args: n: .*expected a number"),
        (lambda g, n, *x: None, {"n": 1}, r"argument 'n' comes before \*x"),
        (lambda g, x, *, k: None, {}, "asks for 'k', which is not in args"),
    ],
)
def test_what_cannot_be_composed(function: Any, args: dict[str, Any], expected: str) -> None:
    with pytest.raises(chai.PluginError, match=rf"{HERE}:\d+: custom type 'mine': .*{expected}"):
        chai.custom.compose("mine", args=args)(function)


def test_it_has_no_implementations_to_compare() -> None:
    custom_type = chai.custom.compose("mine")(lambda g, x: g.relu(x))
    with pytest.raises(chai.PluginError, match=r"'mine' .* is composed of layers"):
        chai.check_custom("mine", [(2, 3)])
    with pytest.raises(chai.PluginError, match="is composed of layers"):
        chai.check_custom(custom_type, [(2, 3)])
