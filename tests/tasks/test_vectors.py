"""CHaiDNN's own numbers: what its hardware source gives for whole layers, code by code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chai.fixed import Format, Requantization, quantize_weights, requantize, weight_steps
from chai.tasks.conv import Conv
from chai.tasks.window import Window
from tests.reference import fixed as reference
from tests.vectors import Vector

from .common import Array, emulated

Vectors = dict[str, list[Vector]]


def xilinx(facts: dict[str, Any]) -> bool:
    return facts["quant"] in (1, "Xilinx")


def window(facts: dict[str, Any]) -> Window:
    return Window(*((facts[name],) * 2 for name in ("F", "stride", "pad", "dil")))


def sums(facts: dict[str, Any], arrays: dict[str, Array]) -> Array:
    """The exact accumulators without bias; float64 holds them all."""
    w, group = window(facts), facts["group"]
    x = np.pad(arrays["x"].astype(np.float64), ((0, 0), (0, 0), *((p, p) for p in w.pad)))
    oh, ow = w.sizes(arrays["x"].shape[2:])
    n, m = len(x), len(arrays["qw"])
    weights = arrays["qw"].astype(np.float64).reshape(group, m // group, -1, *w.kernel)
    total = np.zeros((n, group, m // group, oh * ow))
    for i, j in np.ndindex(w.kernel):
        top, left = i * w.dilation[0], j * w.dilation[1]
        rows = slice(top, top + w.stride[0] * (oh - 1) + 1, w.stride[0])
        columns = slice(left, left + w.stride[1] * (ow - 1) + 1, w.stride[1])
        total += weights[..., i, j] @ x[:, :, rows, columns].reshape(n, group, -1, oh * ow)
    return total.reshape(n, m, oh, ow).astype(np.int64)


def test_there_are_vectors_to_compare_with(vectors: Vectors) -> None:
    assert len(vectors["conv"]) == 60
    assert len(vectors["pack_unpack"]) == 8
    assert sum(xilinx(facts) for facts, _ in vectors["pack_unpack"]) == 4


def test_codes_of_weights(vectors: Vectors) -> None:
    equal = 0
    for facts, arrays in vectors["conv"]:
        thresholds = arrays["th_params"] if xilinx(facts) else None
        format = (
            Format("Xilinx", facts["bw_wt"], 0.0)
            if xilinx(facts)
            else Format("DynamicFixed", facts["bw_wt"], facts["fl_wt"])
        )
        steps = weight_steps(arrays["w"], format, thresholds, 1.0)
        assert np.array_equal(quantize_weights(arrays["w"], steps, facts["bw_wt"]), arrays["qw"]), facts["name"]
        equal += 1
    assert equal == 60


def test_accumulators(vectors: Vectors) -> None:
    """The rest reach CHaiDNN's 18-bit saturation."""
    equal = [np.array_equal(sums(facts, arrays), arrays["acc18"]) for facts, arrays in vectors["conv"]]
    assert sum(equal) == 51


def test_requantized_codes(vectors: Vectors) -> None:
    """CHaiDNN's multipliers and biases, exact sums: its codes wherever its own registers do not overflow."""
    equal = 0
    for facts, arrays in vectors["conv"]:
        bias = arrays["qb"].astype(np.int64).reshape(-1, 1, 1)
        m = arrays["scale"].astype(np.int64).reshape(-1, 1, 1) if xilinx(facts) else np.array(1)
        low, high = Format("DynamicFixed", facts["bw_out"], 0).range
        r = Requantization(m, 22 if xilinx(facts) else facts["shift"], 0 if facts["relu"] else low, high)
        output = requantize(sums(facts, arrays), r, bias << 14 if xilinx(facts) else bias)
        assert np.array_equal(output, arrays["y_exact_arith"]), facts["name"]
        if facts["mismatch_exact_arith_vs_hls"] == 0:
            assert np.array_equal(output, arrays["y"]), facts["name"]
            equal += 1
    assert equal == 53


def test_whole_layers_as_tasks(vectors: Vectors) -> None:
    """A DynamicFixed layer is a Conv Task as it stands: multiplier 1, the bias in the accumulator's unit."""
    equal = 0
    for facts, arrays in vectors["conv"]:
        if xilinx(facts) or facts["mismatch_exact_arith_vs_hls"]:
            continue
        low, high = Format("DynamicFixed", facts["bw_out"], 0).range
        r = Requantization(np.ones((1, 1, 1), np.int64), facts["shift"], 0 if facts["relu"] else low, high)
        bias = arrays["qb"].astype(np.int64)
        task = Conv(("x",), "y", ("probe",), arrays["qw"], bias, window(facts), facts["group"], r)
        output = emulated([task], {"x": arrays["x"]}, {"y": arrays["y"].shape})["y"]
        assert np.array_equal(output, arrays["y"]), facts["name"]
        assert np.array_equal(task.define(arrays["x"]), arrays["y"]), facts["name"]
        equal += 1
    assert equal == 26


def form(facts: dict[str, Any]) -> reference.Form:
    return reference.Form(facts["quant"], facts["bw"], facts["th"] if xilinx(facts) else facts["fbits"])


def test_unpack(vectors: Vectors) -> None:
    for facts, arrays in vectors["pack_unpack"]:
        values = Format(*form(facts)).dequantize(arrays["unpack_in"])
        assert np.array_equal(values, arrays["unpack_ideal"]), facts["name"]


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_pack(vectors: Vectors, scheme: str) -> None:
    """CHaiDNN truncates and wraps DynamicFixed values; here they are rounded and saturate."""
    chosen = [(facts, arrays) for facts, arrays in vectors["pack_unpack"] if facts["quant"] == scheme]
    assert len(chosen) == 4
    for facts, arrays in chosen:
        codes = Format(*form(facts)).quantize(arrays["f"])
        assert codes.ravel().tolist() == [form(facts).quantize(v) for v in arrays["f"].ravel().tolist()]
        assert np.array_equal(codes, arrays["ideal_packed"]) == (scheme == "Xilinx"), facts["name"]
