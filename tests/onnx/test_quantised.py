"""Quantised files: scales become formats, what no format can hold is refused by node, and the numbers are onnxruntime's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import UnsupportedNodes
from chai.fixed import SINGLE

from .common import model, node, numbers, run

Array = np.ndarray
X = numbers(2, 3, 7, 5)
S, T = np.float32(0.02), np.float32(0.03)  # steps of x and y
W = np.random.default_rng(1).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
U = np.array([0.004, 0.01, 0.002, 0.007], np.float32)  # of the weights of each output
B = np.array([100, -2000, 30, 4000], np.int32)
MICROSOFT = "com.microsoft"


def qdq(
    dtype: str = "int8", x: int = 0, y: int = 0, w: Array = W, zero: int = 0, relu: bool = False, **wrong: Any
) -> bytes:
    """x -> Q -> DQ -> Conv -> Q -> DQ, with zero points x and y; ``wrong`` are constants in place of others."""
    tensors: dict[str, Any] = {"sx": S, "zx": np.array(x, dtype), "sy": T, "zy": np.array(y, dtype)}
    tensors |= {"w": w, "sw": U, "zw": np.full(4, zero, w.dtype), "b": B, "sb": (S * U).astype(np.float32)}
    tensors |= {"zb": np.zeros(4, np.int32), **wrong}
    return model(
        [
            node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], "first"),
            node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
            node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=0),
            node("DequantizeLinear", ["b", "sb", "zb"], ["bd"], axis=0),
            node("Conv", ["xd", "wd", "bd"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 1]),
            *([node("Relu", ["c"], ["r"])] if relu else []),
            node("QuantizeLinear", ["r" if relu else "c", "sy", "zy"], ["yq"], "last"),
            node("DequantizeLinear", ["yq", "sy", "zy"], ["y"]),
        ],
        {"x": X.shape},
        ["y"],
        tensors,
    )


def qlinear(dtype: str = "int8", x: int = 0, y: int = 0) -> bytes:
    """The same as one QLinearConv."""
    tensors: dict[str, Any] = {"sx": S, "zx": np.array(x, dtype), "sy": T, "zy": np.array(y, dtype)}
    tensors |= {"w": W, "sw": U, "zw": np.zeros(4, np.int8), "b": B}
    inputs = ["xq", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    return model(
        [
            node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], "first"),
            node("QLinearConv", inputs, ["yq"], "conv", pads=[1, 1, 1, 1], strides=[2, 1]),
            node("DequantizeLinear", ["yq", "sy", "zy"], ["y"]),
        ],
        {"x": X.shape},
        ["y"],
        tensors,
    )


def steps_of(x: Array, step: float, low: int, high: int) -> Array:
    """Numbers in steps, rounded and saturated."""
    return np.clip(np.rint(x.astype(np.float64) / step), low, high)


def convolved(x: Array) -> Array:
    """The sums of the integer convolution of steps of x, with the bias; one window after the other."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.zeros((2, 4, 4, 5))
    for i in range(4):
        for j in range(5):
            window = padded[:, :, 2 * i : 2 * i + 3, j : j + 3]
            sums[:, :, i, j] = np.einsum("nchw,mchw->nm", window, W.astype(np.float64))
    return sums + B[:, None, None]


@pytest.mark.parametrize("file", [qdq, qlinear])
@pytest.mark.parametrize(
    ("dtype", "x", "y", "in_steps", "out_steps"),
    [
        ("int8", 0, 0, (-128, 127), (-128, 127)),
        ("uint8", 128, 128, (-128, 127), (-128, 127)),
        ("uint8", 128, 0, (-128, 127), (0, 255)),
        ("uint8", 127, 127, (-127, 127), (-128, 127)),  # symmetric codes of onnxruntime 1.23
        ("int8", -128, -128, (0, 255), (0, 255)),
        ("uint8", 0, 128, (0, 255), (-128, 127)),
    ],
)
def test_codes(file: Any, dtype: str, x: int, y: int, in_steps: Any, out_steps: Any) -> None:
    """The emulator has the codes of integer arithmetic, but for one step where a sum lies between two; float is near."""
    with chai.Net(file(dtype, x, y), device="emulator") as net:
        (result,) = net.forward(x=X).values()
        assert net.partition.engine("conv") == "fpga" and net.calibrated and net.basis is None
    codes = steps_of(X, float(S), *in_steps)
    exact = convolved(codes) * (float(S) * U.astype(np.float64))[:, None, None] / float(T)
    expected = np.clip(np.rint(exact), *out_steps)
    got = np.rint(result / float(T))
    np.testing.assert_allclose(result, got * float(T), rtol=1e-5)
    # the multipliers have 16 bits, and a Pack rounds halves away from zero
    assert np.abs(got - expected).max() <= 1 and (got != expected).mean() < 0.02
    assert len(np.unique(got)) > 20
    (in_float,) = run(file(dtype, x, y), x=np.clip(X, *(float(S) * bound for bound in in_steps)).astype(np.float32))
    inside = (expected > out_steps[0]) & (expected < out_steps[1])
    assert np.abs(in_float - result)[inside].max() < 3 * float(T)


def test_formats() -> None:
    """th = scale * 127, or scale * 255 of unsigned codes; each output's weights have their own."""
    with chai.Net(qdq("uint8", 128, 0, relu=True), device="float") as net:
        conv, relu = (next(layer for layer in net.graph.layers if layer.type == t) for t in ("Convolution", "ReLU"))
    p = conv.precision
    assert (p.quant_type, p.bw_layer_in, p.bw_layer_out, p.bw_params) == ("Xilinx", 8, 8, 8)
    assert math.isclose(p.th_layer_in, 127 * 0.02, rel_tol=1e-6) and not p.chai_unsigned_in
    np.testing.assert_allclose(p.th_params, 127 * U, rtol=1e-6)
    assert math.isclose(relu.precision.th_layer_out, 255 * 0.03, rel_tol=1e-6) and relu.precision.chai_unsigned_out


def test_saturation_at_zero_is_a_relu() -> None:
    """A quantiser drops the Relu before codes that begin at 0; one that is there is not doubled."""
    for relu in (False, True):
        with chai.Net(qdq("uint8", 128, 0, relu=relu), device="float") as net:
            assert [layer.type for layer in net.graph.layers] == ["Input", "Convolution", "ReLU"]
            (y,) = net.forward(x=X).values()
            assert y.min() == 0


def test_saturation_at_six_is_a_relu6() -> None:
    with chai.Net(qdq("uint8", 128, 0, sy=np.float32(6 / 255)), device="float") as net:
        assert net.graph.layers[-1].params.relu6
        (y,) = net.forward(x=20 * X).values()
        assert y.max() == 6


def test_weights_of_uint8() -> None:
    """Codes around 128 are the same weights, and those around 127, of onnxruntime 1.23."""
    (one,) = run(qdq(), x=X)
    for zero in (128, 127):
        shifted = (W.astype(np.int16) + zero).astype(np.uint8)
        (same,) = run(qdq(w=shifted, zero=zero), x=X)
        np.testing.assert_array_equal(one, same)


def refusal(file: bytes) -> UnsupportedNodes:
    with pytest.raises(UnsupportedNodes) as caught:
        chai.Net(file, device="float")
    return caught.value


@pytest.mark.parametrize(
    ("file", "name", "reason"),
    [
        (qdq("uint8", 114, 128), "first", "zero point is 114"),
        (qdq("int8", 5, 0), "first", "zero point is 5"),
        (qdq("int16", 0, 0), "first", "codes of type int16"),
        (qdq(zero=3), "conv", "its weights have zero point 3"),
        (
            qdq(w=np.full_like(W, 255, np.uint8), zero=127),
            "conv",
            "its weights have the code 255 beside the zero point 127",
        ),
        (qdq(sx=np.full(3, S), zx=np.zeros(3, np.int8)), "first", "a scale for each channel"),
        (qdq(sx=np.full(2, S), zx=np.zeros(2, np.int8)), "first", "2 scales for an axis of 3"),
        (qdq(sx=np.float32(0)), "first", "not above 0"),
        (qdq(sx=np.float32(np.nan)), "first", "not above 0"),
        (qdq(sx=np.array(2)), "first", "a scale of type int64"),
        (qdq(zx=np.float32(0)), "first", "zero points float32"),
        (qdq(zw=np.zeros(4, np.uint8)), "wd", "codes of type int8 with a zero point of type uint8"),
    ],
)
def test_what_no_format_holds_is_refused(file: bytes, name: str, reason: str) -> None:
    error = refusal(file)
    assert error.nodes[0]["node"] == name and reason in error.nodes[0]["reason"]


def test_all_zero_points_are_named() -> None:
    """A refused node does not hide the next one."""
    error = refusal(qdq("uint8", 114, 99))
    assert [entry["node"] for entry in error.nodes] == ["first", "last"]
    assert "5 of 7 nodes would run" in str(error) and "ActivationSymmetric" in str(error.hint)


def with_nodes(*nodes: bytes, **tensors: Any) -> bytes:
    known = {"s": S, "z": np.int8(0), "t": T, **tensors}
    first = node("QuantizeLinear", ["x", "s", "z"], ["q"])
    return model([first, *nodes], {"x": X.shape}, ["y"], known)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("DequantizeLinear", ["q", "t", "z"], ["y"])], "scale or zero point differ"),
        ([node("Relu", ["q"], ["r"]), node("DequantizeLinear", ["r", "s", "z"], ["y"])], "it computes with codes"),
        ([node("DequantizeLinear", ["x", "s", "z"], ["y"])], "no codes that a node of the file makes"),
        ([node("DynamicQuantizeLinear", ["x"], ["y", "ys", "yz"])], "depends on the image"),
        ([node("DequantizeLinear", ["q", "s", "z"], ["y"], block_size=4)], "a scale for each block"),
    ],
)
def test_what_cannot_be_said_by_formats_is_refused(nodes: list[bytes], reason: str) -> None:
    assert reason in refusal(with_nodes(*nodes)).nodes[0]["reason"]


def test_copies_of_codes_have_their_format() -> None:
    """A pool and a transposition of codes are those of the numbers."""
    file = with_nodes(
        node("MaxPool", ["q"], ["m"], kernel_shape=[2, 2]),
        node("Transpose", ["m"], ["p"], perm=[0, 2, 3, 1]),
        node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    )
    pools = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3)).max((4, 5))
    np.testing.assert_array_equal(run(file, x=X)[0], pools.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(("code", "number"), [(128, 0.0), (153, 0.5), (None, -2.56)])
def test_the_border_of_codes_is_a_code(code: int | None, number: float) -> None:
    constants = [] if code is None else ["border"]
    file = with_nodes(
        node("Pad", ["q", "pads", *constants], ["p"]),
        node("DequantizeLinear", ["p", "s", "z"], ["y"]),
        z=np.uint8(128),
        pads=np.array([0, 0, 1, 2, 0, 0, 0, 1]),
        border=np.uint8(code or 0),
    )
    expected = np.pad(X, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=number)
    np.testing.assert_allclose(run(file, x=X)[0], expected, rtol=1e-6)


def test_layers_without_codes_run_in_float32() -> None:
    """The file has no codes for what Sigmoid writes, so the convolution that reads it is not one of codes."""
    tensors = {"w": W, "u": U, "v": np.zeros(4, np.int8), "b": numbers(4, seed=3)}
    file = with_nodes(
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "u", "v"], ["wd"], axis=0),
        node("Conv", ["d", "wd", "b"], ["c"], "one", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "t", "z"], ["e"]),
        node("DequantizeLinear", ["e", "t", "z"], ["f"]),
        node("Sigmoid", ["f"], ["g"], "free"),
        node("Conv", ["g", "kernel"], ["y"], "two"),
        **tensors,
        kernel=numbers(3, 4, 2, 2, seed=5),
    )
    with chai.Net(file, device="emulator") as net:
        assert (net.partition.engine("one"), net.partition.engine("two")) == ("fpga", "host")
        computing = [layer for layer in net.graph.layers if not layer.source]
        types = {layer.name: layer.precision.quant_type for layer in computing if layer.precision}
        assert types == {"one": "Xilinx", "free": SINGLE, "two": SINGLE}


FACTORS = np.array([0.5, 4, -3, 2], np.float32)
FREE: dict[str, tuple[bytes, dict[str, Any]]] = {
    "factors": (node("Mul", ["f", "k"], ["y"], "free"), {"k": FACTORS.reshape(4, 1, 1)}),
    "addends": (node("Add", ["f", "k"], ["y"], "free"), {"k": FACTORS.reshape(4, 1, 1)}),
    "norm": (
        node("BatchNormalization", ["f", "k", "k", "k", "o"], ["y"], "free"),
        {"k": FACTORS, "o": np.ones(4, np.float32)},
    ),
    "slopes": (node("PRelu", ["f", "k"], ["y"], "free"), {"k": FACTORS.reshape(4, 1, 1)}),
    "steep": (node("LeakyRelu", ["f"], ["y"], "free", alpha=3.0), {}),
    "border": (
        node("MaxPool", ["b"], ["y"], "free", kernel_shape=[1, 1]),
        {"k": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "v": np.float32(9)},
    ),
}


@pytest.mark.parametrize("name", FREE)
def test_numbers_beyond_the_codes_before_them_stay_float32(name: str) -> None:
    """What the file has no codes for does not end where the codes of a convolution before it do."""
    free, constants = FREE[name]
    tensors = {"w": W, "u": U, "v8": np.zeros(4, np.int8), **constants}
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "u", "v8"], ["wd"], axis=0),
        node("Conv", ["d", "wd"], ["c"], "one", pads=[1, 1, 1, 1], strides=[2, 1]),
        node("QuantizeLinear", ["c", "t", "z"], ["e"]),
        node("DequantizeLinear", ["e", "t", "z"], ["f"]),
    ]
    with chai.Net(with_nodes(*nodes, node("Identity", ["f"], ["y"]), **tensors), device="emulator") as net:
        (f,) = net.forward(x=X).values()
    nodes += [node("Pad", ["f", "k", "v"], ["b"])] * (name == "border")
    with chai.Net(with_nodes(*nodes, free, **tensors), device="emulator") as net:
        (y,) = net.forward(x=X).values()
        assert (net.partition.engine("one"), net.partition.engine("free")) == ("fpga", "host")
    k = FACTORS.reshape(4, 1, 1)
    expected = {
        "factors": f * k,
        "addends": f + k,
        "norm": (f - k) * k / np.sqrt(np.float32(1 + 1e-5)) + k,
        "slopes": np.where(f > 0, f, f * k),
        "steep": np.where(f > 0, f, 3 * f),
        "border": np.pad(f, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=9),
    }[name]
    assert np.abs(expected).max() > 1.2 * np.abs(f).max()
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


BETWEEN: dict[str, list[bytes]] = {
    "second of two": [node("Split", ["g"], ["h0", "h"], axis=2), node("Neg", ["h0"], ["other"])],
    "pool": [node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2])],
    "concat": [node("Concat", ["f", "g"], ["h"], axis=2)],
    "slice": [node("Slice", ["g", "starts", "ends", "axes"], ["h"])],
}


@pytest.mark.parametrize("name", BETWEEN)
def test_copies_in_float32_have_the_codes_of_the_file(name: str) -> None:
    """What is computed without codes may be larger than those before it: the codes after it say how large."""
    tensors = {"w": W, "u": U, "v8": np.zeros(4, np.int8), "large": np.float32(0.5)}
    tensors |= {"starts": np.array([1]), "ends": np.array([4]), "axes": np.array([3]), "three": np.float32(3)}
    tensors |= {"w2": W[:2, :1].repeat(4, 1), "out": np.float32(1), "u2": np.float32(0.01)}
    file = with_nodes(
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "u", "v8"], ["wd"], axis=0),
        node("Conv", ["d", "wd"], ["c"], "one", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "t", "z"], ["e"]),
        node("DequantizeLinear", ["e", "t", "z"], ["f"]),
        node("Pow", ["f", "three"], ["g"], "free"),
        *BETWEEN[name],
        node("QuantizeLinear", ["h", "large", "z"], ["i"]),
        node("DequantizeLinear", ["i", "large", "z"], ["j"]),
        node("DequantizeLinear", ["w2", "u2", "z"], ["w2d"]),
        node("Conv", ["j", "w2d"], ["l"], "two", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["l", "out", "z"], ["m"]),
        node("DequantizeLinear", ["m", "out", "z"], ["y"]),
        **tensors,
    )
    x = np.float32(0.3) * X
    with chai.Net(file, device="emulator") as net:
        assert (net.partition.engine("free"), net.partition.engine("two")) == ("host", "fpga")
        y = net.forward(x=x)["y"]
    expected = run(file, x=x)[0]
    assert 8 < np.abs(expected).max() < 127
    assert np.abs(y - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(("operator", "third"), [("Add", False), ("Concat", False), ("Concat", True)])
def test_each_input_has_its_own_codes(operator: str, third: bool) -> None:
    """Whatever reads it: a layer of two inputs, or a Concat beside a layer without codes."""
    a, b = numbers(2, 8, 5, 7, low=-1, high=1), numbers(2, 8, 5, 7, seed=1, low=-9, high=9)
    steps = {"a": np.float32(0.01), "b": np.float32(0.08)}
    tensors: dict[str, Any] = {"z": np.int8(0), "three": np.float32(3), "t": np.float32(0.08), **steps}
    nodes = [node("Pow", ["a", "three"], ["free"])] * third
    for name in steps:
        nodes.append(node("QuantizeLinear", [name, name.upper(), "z"], [f"{name}q"]))
        nodes.append(node("DequantizeLinear", [f"{name}q", name.upper(), "z"], [f"{name}d"]))
    nodes.append(node(operator, ["ad", "bd"], ["c"], "both", **({"axis": 1} if operator == "Concat" else {})))
    nodes += [node("QuantizeLinear", ["c", "t", "z"], ["yq"]), node("DequantizeLinear", ["yq", "t", "z"], ["y"])]
    tensors = {name.upper() if name in steps else name: array for name, array in tensors.items()}
    file = model(nodes, {"a": a.shape, "b": b.shape}, ["y", *["free"] * third], tensors)
    with chai.Net(file, device="emulator") as net:
        y = net.forward(a=a, b=b)["y"]
        assert net.partition.engine("both") == "fpga"
    expected = a + b if operator == "Add" else np.concatenate([a, b], 1)
    assert np.abs(y - expected).max() < 0.01 / 2 + 0.08 / 2 + 0.08 * 0.51


@pytest.mark.parametrize("operators", [False, True], ids=["qdq", "qoperator"])
def test_codes_of_zeros_do_not_widen_a_concat(operators: bool) -> None:
    """A quantiser gives a blob of zeros steps of 1; a Concat of it and others has the steps that the file gives it."""
    tensors: dict[str, Any] = {"s": S, "z": np.int8(0), "t": T, "one": np.float32(1), "u": U, "w": W}
    tensors |= {"w0": np.zeros((8, 3, 3, 3), np.int8), "v": np.zeros(4, np.int8), "su": (S * U).astype(np.float32)}
    tensors |= {"b": B, "zb": np.zeros(4, np.int32)}
    window = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
    together = [
        node("DequantizeLinear", ["aq", "t", "z"], ["ad"]),
        node("DequantizeLinear", ["eq", "one", "z"], ["ed"]),
        node("Concat", ["ed", "ad"], ["c"], "concat", axis=1),
        node("QuantizeLinear", ["c", "t", "z"], ["yq"]),
    ]
    parts = ["t", "z", "eq", "one", "z", "aq", "t", "z"]
    if operators:
        together = [node("QLinearConcat", parts, ["yq"], "concat", domain=MICROSOFT, axis=1)]
    file = with_nodes(
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "u", "v"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "su", "zb"], ["bd"], axis=0),
        node("DequantizeLinear", ["w0", "one", "z"], ["w0d"]),
        node("Conv", ["d", "wd", "bd"], ["a"], **window),
        node("Conv", ["d", "w0d"], ["e"], **window),
        node("QuantizeLinear", ["a", "t", "z"], ["aq"]),
        node("QuantizeLinear", ["e", "one", "z"], ["eq"]),
        *together,
        node("DequantizeLinear", ["yq", "t", "z"], ["y"]),
        **tensors,
    )
    with chai.Net(file, device="emulator") as net:
        y = net.forward(x=X)["y"]
        assert net.partition.engine("concat") == "fpga"
    sums = convolved(steps_of(X, float(S), -128, 127)) * (float(S) * U.astype(np.float64))[:, None, None]
    assert not y[:, :8].any()
    assert np.abs(y[:, 8:] - float(T) * steps_of(sums, float(T), -128, 127)).max() < 1.01 * float(T)


@pytest.mark.parametrize("name", ["yq/input0", "yq/input3", "yq/value", "yq/step", "yq/bias"])
def test_names_beside_those_of_parts(name: str) -> None:
    """A value of the file may have any name; those between the parts of an operator on codes are no names of the file."""
    tensors: dict[str, Any] = {"s": S, "z": np.int8(0), "t": T, "w": W, "u": U, "v": np.zeros(4, np.int8), "b": B}
    conv = ["xq", "s", "z", "w", "u", "v", "t", "z", "b"]
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        node("Relu", ["x"], [name]),
        node("QLinearConv", conv, ["yq"], "conv", pads=[1, 1, 1, 1], strides=[2, 1]),
        node("DequantizeLinear", ["yq", "t", "z"], ["y"]),
    ]
    y, own = run(model(nodes, {"x": X.shape}, ["y", name], tensors), x=X)
    np.testing.assert_array_equal(own, np.maximum(X, 0))
    np.testing.assert_array_equal(y, run(qlinear(), x=X)[0])
    with chai.Net(qlinear(), device="float", keep="all") as net:
        net.forward(x=X)
        assert set(net.blobs) <= {"x", "xq", "yq", "y", "yq/value"}  # the last is the blob


def test_matrices_of_codes() -> None:
    """QLinearMatMul with a scale for each column, and QGemm whose output has no codes and whose alpha is of the bias, too."""
    x, w = numbers(2, 6), np.random.default_rng(2).integers(-127, 128, (6, 4)).astype(np.int8)
    known = {"s": S, "z": np.int8(0), "t": T, "w": w, "u": U, "v": np.zeros(4, np.int8), "b": B}
    first = node("QuantizeLinear", ["x", "s", "z"], ["q"])
    values = steps_of(x, float(S), -127, 127) * float(S) @ (w * U)
    product = node("QLinearMatMul", ["q", "s", "z", "w", "u", "v", "t", "z"], ["p"])
    last = node("DequantizeLinear", ["p", "t", "z"], ["y"])
    y = run(model([first, product, last], {"x": x.shape}, ["y"], known), x=x)[0]
    np.testing.assert_allclose(y, x @ (w * U).astype(np.float32), rtol=1e-5, atol=1e-5)
    assert np.abs(y - values).max() < float(S) * 0.51 * np.abs(w * U).sum(0).max()
    for alpha in (1.0, 0.5):
        gemm = node("QGemm", ["q", "s", "z", "w", "u", "v", "b"], ["y"], domain=MICROSOFT, alpha=alpha)
        y = run(model([first, gemm], {"x": x.shape}, ["y"], known, domains={MICROSOFT: 1}), x=x)[0]
        np.testing.assert_allclose(y, alpha * (x @ (w * U) + B * (S * U)), rtol=1e-4, atol=1e-4)
