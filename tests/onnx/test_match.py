"""Groups of nodes that become one layer, or few: the numbers of onnxruntime, and how many layers they are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import pi, sqrt
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import ChaiError

from .common import model, node, numbers, types

X = numbers(2, 8, 6, 10, low=-5, high=5)
Array = np.ndarray
GELU = ["Power", "Erf", "Power", "Eltwise"]
TANH = ["Power", "Eltwise", "TanH", "Power", "Eltwise"]


def file(nodes: list[bytes], constants: dict[str, Any], opset: int = 17) -> bytes:
    return model(nodes, {"x": ("n", *X.shape[1:])}, ["y"], {k: np.asarray(v) for k, v in constants.items()}, opset)


def f32(**values: float) -> dict[str, Any]:
    return {name: np.float32(value) for name, value in values.items()}


def gelu(divided: bool, order: str) -> bytes:
    """As TorchScript's exporter writes it ("x, half"), the dynamo exporter ("both"), and in other ways."""
    first = ["Div", "x", "root"] if divided else ["Mul", "root", "x"]
    nodes = [node(first[0], first[1:], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "one"], ["c"])]
    if order == "x, half":
        nodes += [node("Mul", ["x", "c"], ["d"]), node("Mul", ["d", "half"], ["y"])]
    elif order == "half, x":
        nodes += [node("Mul", ["c", "half"], ["d"]), node("Mul", ["x", "d"], ["y"])]
    elif order == "x, two":
        nodes += [node("Mul", ["x", "c"], ["d"]), node("Div", ["d", "two"], ["y"])]
    else:
        nodes += [node("Mul", ["x", "half"], ["d"]), node("Mul", ["d", "c"], ["y"])]
    return file(nodes, f32(root=sqrt(2) if divided else sqrt(0.5), one=1, half=0.5, two=2))


def tanh_gelu() -> bytes:
    nodes = [
        node("Pow", ["x", "three"], ["a"]),
        node("Mul", ["a", "small"], ["b"]),
        node("Add", ["x", "b"], ["c"]),
        node("Mul", ["c", "root"], ["d"]),
        node("Tanh", ["d"], ["e"]),
        node("Add", ["e", "one"], ["f"]),
        node("Mul", ["x", "half"], ["g"]),
        node("Mul", ["g", "f"], ["y"]),
    ]
    return file(nodes, f32(three=3, small=0.044715, root=sqrt(2 / pi), one=1, half=0.5))


def hard_swish(order: str, opset: int = 17) -> bytes:
    """x * Clip(x + 3, 0, 6) / 6."""
    bounds = {"min": 0.0, "max": 6.0} if opset < 11 else {}
    inputs = ["a"] if opset < 11 else ["a", "zero", "six"]
    nodes = [node("Add", ["three", "x"], ["a"]), node("Clip", inputs, ["b"], **bounds)]
    if order == "product, quotient":
        nodes += [node("Mul", ["x", "b"], ["c"]), node("Div", ["c", "six"], ["y"])]
    elif order == "quotient, product":
        nodes += [node("Div", ["b", "six"], ["c"]), node("Mul", ["x", "c"], ["y"])]
    elif order == "divisor":
        nodes += [node("Mul", ["x", "b"], ["c"]), node("Div", ["six", "c"], ["y"])]
    elif order == "both":
        nodes += [node("Mul", ["x", "sixth"], ["c"]), node("Mul", ["c", "b"], ["y"])]
    else:
        nodes += [node("Mul", ["b", "sixth"], ["c"]), node("Mul", ["c", "x"], ["y"])]
    return file(nodes, f32(three=3, zero=0, six=6, sixth=1 / 6), opset)


def shuffle(groups: int, free: bool) -> bytes:
    """x.view(n, groups, c / groups, h, w).transpose(1, 2).view(n, c, h, w)."""
    n, (c, h, w) = (-1 if free else 0), X.shape[1:]
    nodes = [
        node("Reshape", ["x", "five"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["b", "four"], ["y"]),
    ]
    return file(nodes, {"five": [n, groups, c // groups, h, w], "four": [n, c, h, w]})


def focus(together: bool, axes: tuple[int, int] = (2, 3)) -> bytes:
    nodes, parts = [], []
    for i, (row, column) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
        parts.append(f"p{i}")
        if together:
            nodes.append(node("Slice", ["x", f"s{row}{column}", "ends", "axes", "steps"], [f"p{i}"]))
        else:
            nodes.append(node("Slice", ["x", f"s{row}", "end", "rows", "step"], [f"q{i}"]))
            nodes.append(node("Slice", [f"q{i}", f"s{column}", "end", "columns", "step"], [f"p{i}"]))
    known: dict[str, Any] = {f"s{r}{c}": [r, c] for r in (0, 1) for c in (0, 1)} | {"s0": [0], "s1": [1]}
    known |= {"ends": [2**63 - 1] * 2, "axes": list(axes), "steps": [2, 2], "end": [2**63 - 1], "step": [2]}
    known |= {"rows": [axes[0]], "columns": [axes[1]]}
    return file([*nodes, node("Concat", parts, ["y"], axis=1)], known)


MATCHES: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    **{
        f"gelu, {'/' if d else '*'} root, {o}": (lambda d=d, o=o: gelu(d, o), GELU)  # type: ignore[misc]
        for d in (True, False)
        for o in ("x, half", "half, x", "x, two", "both")
    },
    "gelu by tanh": (tanh_gelu, TANH),
    "hardswish, product first": (lambda: hard_swish("product, quotient"), ["HardSwish"]),
    "hardswish, quotient first": (lambda: hard_swish("quotient, product"), ["HardSwish"]),
    "hardswish, a sixth": (lambda: hard_swish("sixth"), ["HardSwish"]),
    "hardswish, a sixth of x": (lambda: hard_swish("both"), ["HardSwish"]),
    "hardswish of opset 10": (lambda: hard_swish("product, quotient", 10), ["HardSwish"]),
    "shuffle of 2": (lambda: shuffle(2, False), ["ShuffleChannel"]),
    "shuffle of 4, with a free batch": (lambda: shuffle(4, True), ["ShuffleChannel"]),
    "focus": (lambda: focus(False), ["Reshape", "Permute", "Reshape"]),
    "focus, both axes at once": (lambda: focus(True), ["Reshape", "Permute", "Reshape"]),
    "focus, axes from the last": (lambda: focus(False, (-2, -1)), ["Reshape", "Permute", "Reshape"]),
}


@pytest.mark.parametrize("name", MATCHES)
def test_layers(name: str) -> None:
    write, expected = MATCHES[name]
    assert types(write()) == expected


@pytest.mark.extras
@pytest.mark.parametrize("name", MATCHES)
def test_numbers_of_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    content = MATCHES[name][0]()
    expected = onnxruntime.InferenceSession(content).run(None, {"x": X})[0]
    with chai.Net(content, device="float") as net:
        y = net.forward(x=X)["y"]
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
        three = np.concatenate([X, X[:1]])  # the batch stays free
        np.testing.assert_array_equal(net.forward(x=three)["y"][:2], y)


NEAR_MISSES = {
    "another root": gelu(True, "both").replace(np.float32(sqrt(2)).tobytes(), np.float32(1.5).tobytes()),
    "another half": gelu(True, "x, half").replace(np.float32(0.5).tobytes(), np.float32(0.7).tobytes()),
    "another shift": hard_swish("sixth").replace(np.float32(3).tobytes(), np.float32(2).tobytes()),
    "another bound": hard_swish("quotient, product").replace(np.float32(6).tobytes(), np.float32(5).tobytes()),
    "another order": shuffle(2, False).replace(bytes([8 << 3, 2, 8 << 3, 1]), bytes([8 << 3, 1, 8 << 3, 2])),
    "another step": focus(True, (3, 2)),
}


def test_six_over_a_value_is_no_sixth_of_it() -> None:
    assert "HardSwish" in types(hard_swish("product, quotient"))
    assert "HardSwish" not in types(hard_swish("divisor"))


@pytest.mark.extras
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_like_it_is_computed_as_it_is(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    content = NEAR_MISSES[name]
    kinds = types(content)
    assert "HardSwish" not in kinds and "ShuffleChannel" not in kinds and kinds not in (GELU, TANH)
    expected = onnxruntime.InferenceSession(content).run(None, {"x": X})[0]
    with chai.Net(content, device="float") as net:
        np.testing.assert_allclose(net.forward(x=X)["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_value_that_others_read_stays() -> None:
    """The error function is an output, too."""
    nodes = [
        node("Div", ["x", "root"], ["a"]),
        node("Erf", ["a"], ["b"]),
        node("Add", ["b", "one"], ["c"]),
        node("Mul", ["x", "c"], ["d"]),
        node("Mul", ["d", "half"], ["y"]),
    ]
    content = model(nodes, {"x": X.shape}, ["y", "b"], f32(root=sqrt(2), one=1, half=0.5))
    with chai.Net(content, device="float") as net:
        result = net.forward(x=X)
    np.testing.assert_allclose(result["y"], X * (result["b"] + 1) / 2, rtol=1e-5, atol=1e-6)


def test_nodes_of_a_match_without_inputs_or_outputs_are_named_errors() -> None:
    """Any node of any group, cut down to what a damaged file may leave."""
    chains = {
        "gelu": ["Div", "Erf", "Add", "Mul", "Mul"],
        "tanh": ["Pow", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul"],
        "hardswish": ["Add", "Clip", "Mul", "Div"],
        "swish": ["Sigmoid", "Mul"],
    }
    for operators in chains.values():
        for i in range(len(operators)):
            for inputs, outputs in (([], True), (["in"], True), (["in", "x"], False), ([], False)):
                nodes = []
                for j, operator in enumerate(operators):
                    before = "x" if j == 0 else f"v{j - 1}"
                    reads = [before, "one"] if operator not in ("Erf", "Tanh", "Clip", "Sigmoid") else [before]
                    writes = [f"v{j}"]
                    if j == i:
                        reads = [before if name == "in" else name for name in inputs]
                        writes = writes if outputs else []
                    nodes.append(node(operator, reads, writes))
                content = model(nodes, {"x": X.shape}, [f"v{len(operators) - 1}"], {"one": np.float32(1)})
                with suppress(ChaiError):
                    chai.Net(content, device="float").close()
