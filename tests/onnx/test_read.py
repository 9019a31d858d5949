"""Reading ONNX files: what their bytes may be, and that every damage is an error with its place."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.errors import ChaiError, ModelError, ParseError, UnsupportedNodes, UsageError

from .common import TYPES, blob, model, node, number, numbers, one, outside, run, tensor, types, value, varint

W = numbers(4, 3, 3, 3)
CONV = model([node("Conv", ["x", "w"], ["y"], "first", pads=[1, 1, 1, 1])], {"x": (2, 3, 5, 7)}, ["y"], {"w": W})


def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution of 3x3 with padding 1, by its sum."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((x.shape[0], w.shape[0], *x.shape[2:]))
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,mc->nmhw", padded[:, :, i : i + x.shape[2], j : j + x.shape[3]], w[:, :, i, j])
    return out


def test_a_file_and_its_bytes_are_the_same_network(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(CONV)
    x = numbers(2, 3, 5, 7, seed=1)
    for source in (tmp_path / "net.onnx", str(tmp_path / "net.onnx"), CONV):
        with chai.Net(source, device="float") as net:
            (y,) = net.forward(x=x).values()
            assert net.trained and net.weights is not None and net.inputs == ["x"] and net.outputs == ["y"]
        np.testing.assert_allclose(y, reference(x, W), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["net.prototxt", "net", "net.bin"])
def test_content_counts_and_not_the_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(CONV)
    with chai.Net(tmp_path / name, device="float") as net:
        assert [layer.type for layer in net.graph.layers] == ["Input", "Convolution"]


def test_layers_are_called_after_nodes() -> None:
    with chai.Net(CONV, device="float") as net:
        assert [layer.name for layer in net.graph.layers] == ["x", "first"]
        assert net.graph.layers[1].tops == ("y",)


def typed(dtype: str, array: np.ndarray) -> bytes:
    """A TensorProto with its numbers in the field of their type, packed."""
    dims = b"".join(number(1, size) for size in array.shape)
    if dtype in ("float32", "float64"):
        data = blob(4 if dtype == "float32" else 10, array.astype(dtype).tobytes())
    elif dtype == "float16":
        data = blob(5, b"".join(map(varint, array.astype(dtype).view(np.uint16).reshape(-1).tolist())))
    else:
        field = {"int64": 7, "uint32": 11, "uint64": 11}.get(dtype, 5)
        data = blob(field, b"".join(map(varint, array.astype(dtype).reshape(-1).tolist())))
    return dims + number(2, TYPES[dtype]) + blob(8, "c") + data


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_weights_of_every_float_type(dtype: str) -> None:
    c = numbers(3, 1, 1).astype(dtype)
    file = model([node("Add", ["x", "c"], ["y"])], {"x": (2, 3, 5, 7)}, ["y"], {"c": c})
    other = model([node("Add", ["x", "c"], ["y"])], {"x": (2, 3, 5, 7)}, ["y"], more=blob(5, typed(dtype, c)))
    x = numbers(2, 3, 5, 7)
    for each in (file, other):
        np.testing.assert_allclose(run(each, x=x)[0], x + c.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("dtype", [d for d in TYPES if d not in ("float32", "float64", "float16", "bool")])
def test_whole_numbers_of_every_type(dtype: str) -> None:
    """As the shape of a Reshape, which is cast to int64 first."""
    shape = np.array([2, 7, 15])
    nodes = [node("Cast", ["c"], ["d"], to=7), node("Reshape", ["x", "d"], ["y"])]
    x = numbers(2, 3, 5, 7)
    for more in (blob(5, typed(dtype, shape)), blob(5, tensor("c", shape.astype(dtype)))):
        assert run(model(nodes, {"x": x.shape}, ["y"], more=more), x=x)[0].shape == (2, 7, 15)


def test_numbers_that_are_not_packed() -> None:
    data = b"".join(varint(4 << 3 | 5) + struct.pack("<f", i) for i in (1.0, 2.0, 3.0))
    c = number(1, 3) + number(2, 1) + blob(8, "c") + data
    file = model([node("Add", ["x", "c"], ["y"])], {"x": (2, 3)}, ["y"], more=blob(5, c))
    assert run(file, x=np.zeros((2, 3), np.float32))[0][1].tolist() == [1, 2, 3]


def test_zeros_that_were_not_written() -> None:
    """As by proto3: the attribute has a name and a type, and no number."""
    flat = blob(1, "x") + blob(2, "y") + blob(4, "Flatten") + blob(5, blob(1, "axis") + number(20, 2))
    assert run(model([flat], {"x": (2, 3, 5)}, ["y"]), x=numbers(2, 3, 5))[0].shape == (1, 30)


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("Conv", [W], {"strides": 2}),
        ("Transpose", [], {"perm": 2}),
        ("Transpose", [], {"perm": [0.0, 1.0, 3.0, 2.0]}),
        ("Upsample", [], {"scales": 2.0}),
        ("Upsample", [], {"scales": [1, 1, 2, 2]}),
    ],
)
def test_attributes_of_another_kind_are_refused(operator: str, constants: list, attributes: dict) -> None:
    (name,) = attributes
    with pytest.raises(UnsupportedNodes, match=f"attribute {name!r} has another type than this operator's"):
        one(operator, numbers(2, 3, 5, 7), *constants, opset=8, **attributes)


def test_lists_without_numbers_are_the_defaults() -> None:
    x = numbers(2, 3, 5)
    np.testing.assert_array_equal(one("Transpose", x, perm=[])[0], x.T)


SOFT = node("Softsign", ["x"], ["y"])


@pytest.mark.parametrize(
    ("inputs", "nodes", "outputs"),
    [
        (["x"], [node("Neg", ["x"], ["y/1"]), SOFT, node("Sub", ["y", "y/1"], ["z"])], ["z"]),
        (["x"], [SOFT, node("Neg", ["x"], ["y/1"]), node("Sub", ["y", "y/1"], ["z"])], ["z"]),
        (["x", "y/1"], [SOFT, node("Add", ["y", "y/1"], ["z"])], ["z"]),
        (["x"], [node("Neg", ["x"], ["x/output"]), SOFT], ["x", "x/output", "y"]),
    ],
    ids=["before", "after", "input", "output"],
)
def test_names_that_chai_gives_are_not_those_of_the_file(
    inputs: list[str], nodes: list[bytes], outputs: list[str]
) -> None:
    """A Softsign is several layers, whose blobs are y/1 and y/2; an input that is an output is copied to x/output."""
    x = numbers(2, 3)
    y = x / (1 + np.abs(x))
    expected = {"x": x, "x/output": -x, "y": y, "z": y + x}
    file = model(nodes, dict.fromkeys(inputs, (2, 3)), outputs)
    for name, got in zip(outputs, run(file, **dict.fromkeys(inputs, x)), strict=True):
        np.testing.assert_allclose(got, expected[name], rtol=1e-6)


# -- damage


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for end in range(len(CONV)):
        path.write_bytes(CONV[:end])
        with pytest.raises(ChaiError) as caught:
            chai.Net(path, device="float")
        assert str(path) in str(caught.value)
    # the cut that leaves out the last field alone: opset_import { domain: "" version: 17 }
    assert CONV.endswith(b"B\x04\n\x00\x10\x11")
    with pytest.raises(ModelError, match="no opset, expected 6 or newer"):
        chai.Net(CONV[:-6], device="float")


def test_names_of_several_tensors_or_inputs() -> None:
    """A reader would take one of them."""
    add = model([node("Add", ["x", "w"], ["y"])], {"x": (2, 3)}, ["y"], {"w": numbers(3)}, more=blob(5, tensor("w", W)))
    with pytest.raises(ParseError, match="2 tensors of the name 'w', expected one"):
        chai.Net(add)
    relu = model([node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"], more=blob(11, value("x", (1, 7))))
    with pytest.raises(ParseError, match="2 inputs of the name 'x', expected one"):
        chai.Net(relu)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (node("Transpose", ["x"], ["y"], "probe", perm=[1, 0]), r"perm \[1, 0\] does not name each of 4 axes once"),
        (node("Conv", ["x", "w"], ["y"], "probe", kernel_shape=[1, 1]), "kernel_shape of 1x1, but weights of 4x3x3x3"),
        (node("Relu", [], ["y"], "probe"), "0 inputs, of which it takes another number"),
        (node("Add", ["w"], ["y"], "probe"), "1 input, of which it takes another number"),
    ],
)
def test_nodes_that_contradict_themselves(odd: bytes, reason: str) -> None:
    nodes = [odd, node("Relu", ["x"], ["other"])]
    file = model(nodes, {"x": (2, 3, 5, 7)}, ["y", "other"], {"w": numbers(4, 3, 3, 3)})
    with pytest.raises(UnsupportedNodes, match=f"'probe' .*: .*{reason}"):
        chai.Net(file)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer"),
        (b"<html>not found</html>", "is this the whole file?"),
        (b"PK\x03\x04" + bytes(40) + b"data.pkl" + bytes(500), "a PyTorch file"),
        (number(1, 8) + blob(2, "maker"), "there is no graph"),
        (number(1, 8) + blob(7, blob(2, "net")), "there is no node"),
    ],
)
def test_what_is_no_network(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ParseError, match=part.replace("?", r"\?")):
        chai.Net(path, device="float")


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        (number(1, 3) + number(2, 1) + blob(8, "c") + blob(9, bytes(8)), "8 bytes, expected 12"),
        (number(1, 3) + number(2, 1) + blob(8, "c") + blob(4, bytes(8)), "2 numbers"),
        (number(1, 3) + number(2, 1) + blob(8, "c"), "no numbers"),
        (number(1, 3) + number(2, 8) + blob(8, "c"), "numbers of string"),
        (number(1, -3) + number(2, 1) + blob(8, "c"), "shape -3"),
        (number(1, 2**40) + number(2, 1) + blob(8, "c"), "shape 1099511627776"),
    ],
)
def test_tensors_that_do_not_hold_what_they_say(broken: bytes, part: str) -> None:
    with pytest.raises(ParseError, match=part):
        chai.Net(model([node("Add", ["x", "c"], ["y"])], {"x": (2, 3)}, ["y"], more=blob(5, broken)), device="float")


@pytest.mark.parametrize(
    ("nodes", "part"),
    [
        ([node("Relu", ["z"], ["y"], "a")], "reads 'z', which no node before it writes"),
        ([node("Relu", ["b"], ["y"], "a"), node("Relu", ["x"], ["b"], "c")], "reads 'b', which no node before it"),
        ([node("Relu", ["x"], ["y"], "a"), node("Relu", ["x"], ["y"], "c")], "which is written before"),
        ([node("Relu", ["x"], ["x"], "a")], "which is written before"),
        ([node("Split", ["x"], ["y", "y"], "a", axis=1)], "node 'a' writes 'y' twice"),
        ([node("Relu", ["x"], ["b"], "a")], "no node writes the output 'y'"),
        ([node("Relu", ["x"], [], "a")], "has no outputs"),
    ],
)
def test_graphs_that_are_not_wired(nodes: list[bytes], part: str) -> None:
    with pytest.raises(ParseError, match=part):
        chai.Net(model(nodes, {"x": (2, 3)}, ["y"]), device="float")


def test_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from chai import limits

    chain = [node("Relu", ["x" if i == 0 else f"b{i}"], [f"b{i + 1}"], f"n{i}") for i in range(40)]
    file = model(chain, {"x": (2, 3)}, ["b40"])
    assert len(types(file)) == 40
    for setting, part in (
        ("layers=30", "layers=30"),
        ("wire_fields=90", "wire_fields=90"),
        ("name_length=2", "name_length=2"),
    ):
        monkeypatch.setenv("CHAI_LIMITS", setting)
        limits.limits.cache_clear()
        chai.env.env.cache_clear()
        with pytest.raises(ChaiError, match=part):
            chai.Net(file, device="float")


# -- sizes


def test_sizes_that_the_file_leaves_open() -> None:
    file = model([node("Relu", ["x"], ["y"])], {"x": ("N", 3, "height", "width")}, ["y"])
    with pytest.raises(
        ModelError, match=r"input 'x' is N x 3 x height x width: the file leaves its size open.*--shape x="
    ):
        chai.Net(file, device="float")
    with chai.Net(file, device="float", shapes={"x": (2, 3, 5, 7)}) as net:
        assert net.shapes["y"] == (2, 3, 5, 7)
    with pytest.raises(ModelError, match="has 4 axes, but the shape given is 2x3"):
        chai.Net(file, device="float", shapes={"x": (2, 3)})


def test_the_batch_is_free_and_the_rest_is_not() -> None:
    nodes = [node("Reshape", ["x", "s"], ["f"]), node("Gemm", ["f", "w"], ["y"])]
    w = numbers(105, 4)
    file = model(nodes, {"x": ("batch", 3, 5, 7)}, ["y"], {"s": np.array([1, 105]), "w": w})
    x = numbers(6, 3, 5, 7)
    with chai.Net(file, device="float") as net:
        assert net.shapes["y"] == (1, 4)
        np.testing.assert_allclose(net.forward(x=x)["y"], x.reshape(6, -1) @ w, rtol=1e-4, atol=1e-4)
        with pytest.raises(ModelError, match="only the batch may change"):
            net.reshape(x=(1, 3, 7, 5))


# -- external data


def external(folder: Path, location: str, offset: int = 0, length: int | None = None, create: bool = True) -> Path:
    """A model whose weights are in another file."""
    if create:
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        (folder / location).write_bytes(bytes(offset) + W.tobytes())
    weights = outside("w", location, W.shape, offset, length)
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    path = folder / "net.onnx"
    path.write_bytes(model(nodes, {"x": (2, 3, 5, 7)}, ["y"], more=blob(5, weights)))
    return path


@pytest.mark.parametrize("location", ["w.bin", "deep/er/w.bin"])
def test_external_data_below_the_model(tmp_path: Path, location: str) -> None:
    path, x = external(tmp_path, location, offset=24), numbers(2, 3, 5, 7)
    with chai.Net(path, device="float") as net:
        np.testing.assert_allclose(net.forward(x=x)["y"], reference(x, W), rtol=1e-5, atol=1e-5)
    with pytest.raises(ParseError, match="a model from bytes has no folder"):
        chai.Net(path.read_bytes(), device="float")


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../w.bin", "./w.bin", "a//w.bin", "", "a\\w.bin"])
def test_external_data_elsewhere_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(ParseError, match="expected a path below the model's folder"):
        chai.Net(external(tmp_path / "in", location, create=False), device="float")


def test_external_data_through_links_and_devices_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "link.bin").symlink_to(tmp_path / "w.bin")
    (inside / "folder").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    for location, part in (
        ("link.bin", "'link.bin' is a link"),
        ("folder/w.bin", "'folder' is a link"),
        ("pipe", "this is no file"),
        ("absent.bin", "there is no such file"),
    ):
        with pytest.raises(ParseError, match=part):
            chai.Net(external(inside, location, create=False), device="float")


@pytest.mark.parametrize(
    ("offset", "length", "part"),
    [
        (4, W.nbytes, "from byte 4, but the file has"),
        (0, 8, "8 bytes of external data"),
        (2**62, W.nbytes, "from byte 4"),
    ],
)
def test_external_data_is_measured_before_it_is_read(tmp_path: Path, offset: int, length: int, part: str) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(ParseError, match=part):
        chai.Net(external(tmp_path, "w.bin", offset, length, create=False), device="float")


# -- beside other files


def test_weights_beside_an_onnx_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(CONV)
    (tmp_path / "w.caffemodel").write_bytes(b"\n\0")
    with pytest.raises(UsageError, match="is an ONNX file, which has its weights"):
        chai.Net(tmp_path / "net.onnx", tmp_path / "w.caffemodel", device="float")
    with pytest.raises(UsageError, match="have its weights"):
        chai.Net(CONV, tmp_path / "w.caffemodel", device="float")


def test_an_onnx_file_as_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(CONV)
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 5, 7] } } }\n'
        'layer { name: "y" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 4 kernel_size: 3 } }\n'
    )
    with pytest.raises(
        ParseError, match=r"this is an ONNX model, expected a caffemodel \(hint: an ONNX file is a network"
    ):
        chai.Net(tmp_path / "net.prototxt", tmp_path / "net.onnx", device="float")


def test_phases_are_refused() -> None:
    for options in ({"phase": "TRAIN"}, {"stages": ("deploy",)}, {"level": 1}):
        with pytest.raises(UsageError, match="an ONNX file has no phases"):
            chai.Net(CONV, device="float", **options)


def test_inputs_of_other_types_are_refused() -> None:
    more = blob(11, value("z", (2, 3), "int64"))
    file = model([node("Add", ["x", "z"], ["y"])], {"x": (2, 3)}, ["y"], more=more)
    with pytest.raises(ModelError, match="input 'z' has int64 numbers"):
        chai.Net(file, device="float")


# -- refusals


def test_all_that_cannot_run_is_one_error() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], "fine"),
        node("Einsum", ["a"], ["b"], "sums"),
        node("Sigmoid", ["b"], ["c"], "after"),
        node("Loop", ["c"], ["d"], "loops"),
        node("Relu", ["d"], ["y"], "last"),
    ]
    with pytest.raises(UnsupportedNodes) as caught:
        chai.Net(model(nodes, {"x": (2, 3)}, ["y"]), device="float")
    text = str(caught.value)
    assert "<bytes>: node 'sums' (Einsum, opset 17): no layer of chai computes this operator" in text
    assert "3 of 5 nodes would run; nor would Loop ('loops')" in text
    assert [(each["node"], each["operator"], each["opset"]) for each in caught.value.nodes] == [
        ("sums", "Einsum", 17),
        ("loops", "Loop", 17),
    ]


@pytest.mark.parametrize(
    ("operator", "constants", "attributes", "reason"),
    [
        ("Conv", [W], {"pads": [1, 1, 1, 1, 1]}, "strides, dilations and pads do not fit a kernel of 2 axes"),
        ("MaxPool", [], {"kernel_shape": [2, 2], "pads": [0, 1, 1]}, "do not fit a kernel of 2 axes"),
        ("Pad", [np.array([0] * 7 + [1]), np.zeros(0, np.float32)], {}, "its value has 0 numbers, expected one"),
        ("Resize", [None, np.array([1, 1, np.inf, 2], np.float32)], {}, r"scales \[1.0, 1.0, inf, 2.0\]"),
        ("Resize", [None, np.array([1, 1, np.nan, 2], np.float32)], {}, r"scales \[1.0, 1.0, nan, 2.0\]"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(operator: str, constants: list, attributes: dict, reason: str) -> None:
    with pytest.raises(UnsupportedNodes, match=reason):
        one(operator, numbers(2, 3, 5, 7), *constants, **attributes)


@pytest.mark.parametrize("operator", ["Sum", "Mean"])
def test_nodes_without_inputs_are_refused(operator: str) -> None:
    with pytest.raises(UnsupportedNodes, match="input 0 is missing"):
        run(model([node(operator, [], ["c"]), node("Add", ["x", "c"], ["y"])], {"x": (2, 3)}, ["y"]), x=numbers(2, 3))


@pytest.mark.parametrize("name", ["QuantizeLinear", "DequantizeLinear", "QLinearConv"])
def test_quantised_nodes_without_a_scale_are_refused_by_name(name: str) -> None:
    file = model([node(name, ["x"], ["y"], "q")], {"x": (2, 3)}, ["y"])
    with pytest.raises(UnsupportedNodes, match=rf"node 'q' \({name}, opset 17\): its scale is computed by other nodes"):
        chai.Net(file, device="float")


def test_old_operators_are_refused() -> None:
    with pytest.raises(ModelError, match="opset 5, expected 6 or newer"):
        chai.Net(model([node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"], opset=5), device="float")
