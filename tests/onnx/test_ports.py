"""Inputs beyond those that an operator has are refused, and no input that ONNX defines is."""

from __future__ import annotations

import re

import numpy as np
import pytest

import chai
from chai.errors import UnsupportedNodes
from chai.onnx.expand import _EXPANSIONS
from chai.onnx.fold import _FOLDS, _SIZES
from chai.onnx.ops import operators
from chai.onnx.read import MOST

from .common import model, node, numbers

X = numbers(1, 3, 5, 7)
OLDEST = 6  # opset that is read
MATCHED = {"Focus"}  # operators of chai alone


@pytest.mark.extras
def test_counts_are_those_of_the_definitions_of_onnx() -> None:
    defs = pytest.importorskip("onnx.defs", reason="onnx is not installed: pip install -e '.[dev]'")
    known = {*operators(), *_FOLDS, *_SIZES, *(name for domain, name in _EXPANSIONS if not domain)} - MATCHED
    counts: dict[str, list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        newest = defs.get_schema(schema.name, OLDEST).since_version if defs.has(schema.name, OLDEST, "") else 1
        if not schema.domain and schema.name in known and schema.since_version >= newest:
            counts.setdefault(schema.name, []).append(min(schema.max_input, 2**31))
    expected = {name: max(1, 2**31 if max(each) == 2**31 - 1 else max(each)) for name, each in counts.items()}
    assert expected.keys() == known
    assert {name: MOST.get(name, 1) for name in known} == expected


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [("Relu", ["x", "x"]), ("Sigmoid", ["x", "x"]), ("Add", ["x", "x", "c"]), ("Clip", ["x", "", "", "c"]),
     ("Identity", ["c", "c"]), ("Reshape", ["c", "shape", "c"])],
)  # fmt: skip
def test_an_input_too_many_is_refused(operator: str, inputs: list[str]) -> None:
    nodes = [node(operator, inputs, ["z"], "probe"), node("Mul", ["x", "z"], ["y"])]
    tensors = {"c": X, "shape": np.array([1, 3, 5, 7])}
    with pytest.raises(
        UnsupportedNodes, match=re.escape(f"'probe' ({operator}, opset 17): an input '{inputs[-1]}' beyond")
    ):
        chai.Net(model(nodes, {"x": X.shape}, ["y"], tensors), device="float")


def test_inputs_that_are_left_out_are_none() -> None:
    with chai.Net(model([node("Relu", ["x", "", ""], ["y"])], {"x": X.shape}, ["y"]), device="float") as net:
        assert (net.forward(x=X)["y"] == X.clip(0)).all()
