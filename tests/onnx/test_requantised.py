"""Codes that are made of codes, and several codes of one blob: onnxruntime's, in whatever order they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chai

from .common import model, node
from .test_quantised import B, S, U, W, X, convolved, steps_of

BOUNDS = {("int8", 0): (-128, 127), ("uint8", 128): (-128, 127), ("uint8", 0): (0, 255), ("int8", -128): (0, 255)}
AGAIN = {  # step, type and zero point of the convolution's codes, then those of what is made of them, one after the other
    "finer": ((0.04, "int8", 0), (0.03, "int8", 0)),
    "coarser": ((0.03, "int8", 0), (0.07, "uint8", 128)),
    "without the negative ones": ((0.05, "int8", 0), (0.025, "uint8", 0)),  # saturated at 127 * 0.05 before
    "with both signs": ((0.03, "uint8", 0), (0.05, "int8", 0)),
    "unsigned both": ((0.05, "int8", -128), (0.03, "uint8", 0)),
    "saturated between": ((0.03, "int8", 0), (0.0127, "int8", 0), (0.05, "int8", 0)),
    "without the negative ones between": ((0.03, "int8", 0), (0.0063, "uint8", 0), (0.04, "int8", 0)),
}


@pytest.mark.parametrize("case", AGAIN)
def test_codes_are_made_of_codes(case: str) -> None:
    """A QuantizeLinear after a DequantizeLinear of another step: each rounds and saturates."""
    tensors: dict[str, Any] = {"sx": S, "zx": np.int8(0)}
    tensors |= {"w": W, "sw": U, "zw": np.zeros(4, np.int8), "b": (B * (S * U)).astype(np.float32)}
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=0),
        node("Conv", ["xd", "wd", "b"], ["y0"], "conv", pads=[1, 1, 1, 1], strides=[2, 1]),
    ]
    for i, (step, dtype, zero) in enumerate(AGAIN[case], 1):
        tensors |= {f"s{i}": np.float32(step), f"z{i}": np.array(zero, dtype)}
        nodes.append(node("QuantizeLinear", [f"y{i - 1}", f"s{i}", f"z{i}"], [f"q{i}"], f"codes{i}"))
        nodes.append(node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"y{i}"]))
    file = model(nodes, {"x": X.shape}, [f"y{len(AGAIN[case])}"], tensors)
    with chai.Net(file, device="emulator") as net:
        (result,) = net.forward(x=X).values()
        assert {net.partition.engine(layer.name) for layer in net.graph.layers if not layer.source} == {"fpga"}
    numbers = convolved(steps_of(X, float(S), -128, 127)) * (float(S) * U.astype(np.float64))[:, None, None]
    inside = np.ones(numbers.shape, bool)  # a table of codes ends at -127
    for step, dtype, zero in AGAIN[case]:
        expected = np.clip(np.rint(numbers / step), *BOUNDS[dtype, zero])
        numbers, inside = expected * step, inside & (expected > -128)
    first, second = AGAIN[case][0][0], step
    got = np.rint(result / np.float32(second))
    wrong = got != expected  # the multipliers of the convolution have 16 bits
    assert np.abs(got - expected).max() <= max(1, first / second) and wrong[inside].mean() < 0.02
    assert len(np.unique(got)) > 15
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (theirs,) = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, {"x": X})
    np.testing.assert_allclose(np.rint(theirs / np.float32(second)), expected, atol=max(1, first / second))


SEVERAL = {  # step, type and zero point of codes that are each made of the same numbers
    "signed and unsigned": ((0.03, "int8", 0), (0.02, "uint8", 0)),
    "unsigned and signed": ((0.02, "uint8", 0), (0.03, "int8", 0)),
    "one step": ((0.03, "int8", 0), (0.03, "int8", -128)),
    "fine and coarse": ((0.01, "int8", 0), (0.05, "uint8", 128)),
    "three": ((0.051, "int8", 0), (0.037, "uint8", 0), (0.0149, "int8", 0)),
}


@pytest.mark.parametrize("of", ["conv", "input"])
@pytest.mark.parametrize("case", SEVERAL)
def test_codes_of_several_formats_of_one_blob(case: str, of: str) -> None:
    """Each is made of the numbers, not of another's codes, in whatever order the file has them."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    tensors: dict[str, Any] = {"sx": S, "zx": np.int8(0), "w": W, "sw": U, "zw": np.zeros(4, np.int8)}
    nodes = [node("Identity", ["x"], ["c"])]
    if of == "conv":
        nodes = [
            node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
            node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
            node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=0),
            node("Conv", ["xd", "wd"], ["c"], "conv"),
        ]
    names = [f"y{i}" for i in range(len(SEVERAL[case]))]
    for i, (step, dtype, zero) in enumerate(SEVERAL[case]):
        tensors |= {f"s{i}": np.float32(step), f"z{i}": np.array(zero, dtype)}
        nodes.append(node("QuantizeLinear", ["c", f"s{i}", f"z{i}"], [f"q{i}"], f"codes{i}"))
        nodes.append(node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"d{i}"]))
        nodes.append(node("MaxPool", [f"d{i}"], [f"y{i}"], f"pool{i}", kernel_shape=[2, 2]))
    file = model(nodes, {"x": X.shape}, names, tensors)
    x = steps_of(X, float(S), -128, 127).astype(np.float32) * S  # which the codes before the convolution do not change
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with chai.Net(file, device="emulator") as net:
        tops = net.forward(x=x)
        assert {net.partition.engine(f"pool{i}") for i in range(len(names))} == {"fpga"}
    for name, expected, (step, _, _) in zip(names, theirs, SEVERAL[case], strict=True):
        theirs_as_codes, ours = (np.rint(numbers / np.float32(step)) for numbers in (expected, tops[name]))
        np.testing.assert_array_equal(ours, np.maximum(theirs_as_codes, -127))  # the least signed code of a Pack
