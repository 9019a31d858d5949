"""Nodes with attributes, inputs and sizes that nobody would write: a result or a ChaiError, and nothing else."""

from __future__ import annotations

import random
import resource
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import ChaiError, UnsupportedNodes
from chai.onnx.fold import _FOLDS
from chai.onnx.ops import operators
from tests.conftest import examples

from .common import model, node

INTEGERS = "axis axes pads strides dilations kernel_shape group ceil_mode count_include_pad transA transB keepdims perm"
INTEGERS += (
    " size blocksize num_groups to start end starts ends split num_outputs p noop_with_empty_axes allowzero shape"
)
INTEGERS += " output_padding output_shape storage_order training_mode"
FLOATS = "alpha beta gamma epsilon bias value min max cubic_coeff_a scales extrapolation_value"
TEXTS = {
    "mode": ["nearest", "linear", "cubic", "CRD", "reflect", ""],
    "auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID", "?"],
    "coordinate_transformation_mode": ["align_corners", "tf_crop_and_resize", "asymmetric", "x"],
    "keep_aspect_ratio_policy": ["not_larger", "not_smaller"],
    "approximate": ["tanh"],
}
WHOLE = [0, 1, 2, 3, -1, -2, -7, 40, 2**31, -(2**31), 2**63 - 1, -(2**63)]
REAL = [0.0, 1.0, -1.0, 0.5, 1e30, -1e30, float("inf"), float("nan"), 1e-45]


def number(draw: random.Random, values: list[Any]) -> Any:
    return draw.choice(values[:4] if draw.random() < 0.7 else values)


def attributes(draw: random.Random) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name in draw.sample(INTEGERS.split(), draw.randrange(5)):
        listed = draw.random() < 0.7
        chosen[name] = [number(draw, WHOLE) for _ in range(draw.randrange(5))] if listed else number(draw, WHOLE)
    for name in draw.sample(FLOATS.split(), draw.randrange(3)):
        chosen[name] = [number(draw, REAL) for _ in range(4)] if name == "scales" else number(draw, REAL)
    for name in draw.sample([*TEXTS], draw.randrange(3)):
        chosen[name] = draw.choice(TEXTS[name])
    return chosen


def constant(draw: random.Random) -> np.ndarray:
    shape = tuple(draw.choice([0, 1, 2, 3, 3]) for _ in range(draw.randrange(5)))
    count = int(np.prod(shape))
    if draw.random() < 0.5:
        return np.array([number(draw, WHOLE) for _ in range(count)], np.int64).reshape(shape)
    return np.array([number(draw, REAL) for _ in range(count)], np.float32).reshape(shape)


@pytest.mark.parametrize("operator", sorted({*operators(), *_FOLDS, "Shape", "Size"}))
def test_odd_nodes(operator: str) -> None:
    draw = random.Random(operator)
    for _ in range(examples(30)):
        shape = tuple(draw.choice([1, 2, 3, 4, 5]) for _ in range(draw.randrange(6)))
        constants = {f"c{i}": constant(draw) for i in range(draw.randrange(5))}
        inputs = [name if draw.random() < 0.9 else "" for name in constants]
        inputs.insert(0 if draw.random() < 0.8 else len(inputs), "x" if draw.random() < 0.9 else "")
        outputs = [f"y{i}" for i in range(draw.choice([1, 1, 1, 2, 3]))]
        nodes = [node(operator, inputs, outputs, **attributes(draw)), node("Relu", ["x"], ["other"])]
        file = model(nodes, {"x": shape}, [*outputs, "other"], constants, opset=draw.choice([7, 10, 13, 18, 24]))
        try:
            with chai.Net(file, device="float") as net, np.errstate(all="ignore"):
                net.forward(x=np.ones(shape, np.float32))
        except ChaiError:
            pass


# operators that read a list, or make one of the sizes of a blob, with the inputs after the one that is read
LISTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Reshape": (["list"], {}),
    "Slice": (["list", "list", "list"], {}),
    "Gather": (["list"], {}),
    "Split": (["list"], {}),
    "Pad": (["list"], {}),
    "ReduceSum": (["list"], {}),
    "Unsqueeze": (["list"], {}),
    "AveragePool": ([], {"kernel_shape": [2, 2, 2], "pads": [1, 1, 1, 1, 1, 1]}),
}


@pytest.mark.parametrize("operator", [*LISTS, "reversed"])
def test_few_bytes_are_no_long_list(operator: str) -> None:
    """A list of a billion numbers, which a file has as one number and a size, is refused before it is made."""
    inputs, attributes = LISTS.get(operator, (["minus", "far", "one", "minus"], {}))
    constants = {"number": np.array(1), "size": np.array([1 << 30]), "one": np.array([1]), "minus": np.array([-1])}
    constants["far"] = np.array([-(2**62)])
    nodes = [
        node("Expand", ["number", "size"], ["list"]),
        node("Slice" if operator == "reversed" else operator, ["x", *inputs], ["y"], "probe", **attributes),
    ]
    shape = (1, 1, 1000, 1000, 1000) if operator == "AveragePool" else (1, 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnsupportedNodes, match=r"'probe' .* exceeds the limit folded_numbers") as caught:
        chai.Net(model(nodes, {"x": shape}, ["y"], constants), device="float")
    assert len(str(caught.value)) < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KB


def test_reasons_are_short() -> None:
    sizes = np.ones(5000, np.int64)
    file = model([node("Split", ["x", "sizes"], ["y"], "probe", axis=1)], {"x": (1, 4)}, ["y"], {"sizes": sizes})
    with pytest.raises(UnsupportedNodes, match="pieces of") as caught:
        chai.Net(file, device="float")
    assert len(str(caught.value)) < 1000


def test_names_of_many_layers() -> None:
    """Each is found at once: the next number for a name is known."""
    nodes = [node("Relu", [f"a{i}"], [f"a{i + 1}"], "A.3" if i == 4 else "A") for i in range(6)]
    with chai.Net(model(nodes, {"a0": (1, 4)}, ["a6"]), device="float") as net:
        names = [layer.name for layer in net.graph.layers if not layer.source]
    assert names == ["A", "A.2", "A.3", "A.4", "A.3.2", "A.5"]
