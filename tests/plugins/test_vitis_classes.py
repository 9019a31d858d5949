"""Classes written for Vitis AI, unmodified: what its documents say that they get, and what they write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.registry import Registry
from tests.passes.common import CONV, prototxt

from .common import DATA, SHAPE

# As in vart_op_imp/NAME.py: numpy views of the tensor buffers, constants after the inputs, channels last.
CLASSES = '''
import numpy as np

instances = []


class Sum:
    def __init__(self, op):
        instances.append(op)

    def calculate(self, output, input):
        result = np.array(output, copy=False)
        if len(input) == 0:
            return
        np.copyto(result, np.array(input[0], copy=False))
        for other in input[1:]:
            np.add(result, np.array(other, copy=False), out=result)


class Slopes:
    def __init__(self, op):
        self.limit = op.get_attr("limit") if op.has_attr("limit") else None
        self.op = op

    def calculate(self, output, input):
        data, alpha = np.array(input[0], copy=False), np.array(input[1], copy=False).reshape(-1)
        result = np.asarray(output)
        values, target = data.reshape(-1), result.reshape(-1)
        for i in range(result.size):
            target[i] = values[i] if values[i] >= 0 else values[i] * alpha[i % alpha.size]
        if self.limit is not None:
            np.minimum(result, self.limit, out=result)


class Fold:
    """Halve the channels and double the width."""

    def __init__(self, op):
        pass

    def calculate(self, output, input):
        n, h, w, c = input[0].get_tensor().dims
        assert output.get_tensor().dims == [n, h, 2 * w, c // 2]
        np.array(output, copy=False)[...] = np.array(input[0], copy=False).reshape(n, h, 2 * w, c // 2)
'''


@pytest.fixture
def classes(registry: Registry) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "classes_of_an_xmodel"}
    exec(compile(CLASSES, "classes.py", "exec"), space)
    return space


def net(folder: Path, lines: str, shape: tuple[int, ...] = SHAPE, **options: Any) -> chai.Net:
    (folder / "net.prototxt").write_text(prototxt(lines, shape))
    return chai.Net(folder / "net.prototxt", **{"device": "float", **options})


def test_a_sum_of_any_number_of_inputs(tmp_path: Path, classes: dict[str, Any]) -> None:
    assert chai.custom.vitis("Sum", version="1.2")(classes["Sum"]) is classes["Sum"]
    lines = "q Power data -> q : power_param { scale: 3 }\ns Sum data q data -> y : sum_param { axis: 2 mode: wide k: 3 k: 0.5 }"
    sum_net = net(tmp_path, lines)
    for x in (DATA, DATA[:1, :, :3]):
        assert np.array_equal(sum_net.forward(x)["y"], x + np.float32(3) * x + x)
    (op,) = classes["instances"]
    assert (op.get_name(), op.get_type()) == ("s", "Sum")
    assert op.get_attrs() == {"axis": 2, "mode": "wide", "k": [3, 0.5]} and not op.has_attr("nothing")
    assert sum_net.graph.layer("s").custom.version == "1.2"


@pytest.mark.parametrize("limit", ["", " : slopes_param { limit: 1 }"])
def test_trained_parameters_come_after_the_inputs_and_channels_last(
    tmp_path: Path, classes: dict[str, Any], limit: str
) -> None:
    """A slope for every channel: only right if the channels are the last axis."""
    chai.custom.vitis("Slopes")(classes["Slopes"])
    slopes = np.float32([0.5, -2, 3])
    write_caffemodel(tmp_path / "net.caffemodel", "net", [("p", "Slopes", [slopes])])
    (tmp_path / "net.prototxt").write_text(prototxt(f"p Slopes data -> y{limit}", SHAPE))
    top = chai.Net(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", device="float").forward(DATA)["y"]
    wanted = np.where(DATA >= 0, DATA, DATA * slopes.reshape(1, 3, 1, 1))
    assert np.array_equal(top, np.minimum(wanted, 1) if limit else wanted)


def test_another_shape_from_top_dim_or_a_shape_function(tmp_path: Path, classes: dict[str, Any]) -> None:
    chai.custom.vitis("Fold")(classes["Fold"])
    x = np.random.default_rng(3).standard_normal((2, 6, 5, 7)).astype(np.float32)
    n, c, h, w = x.shape
    wanted = x.transpose(0, 2, 3, 1).reshape(n, h, 2 * w, c // 2).transpose(0, 3, 1, 2)
    top_dim_net = net(tmp_path, "f Fold data -> y : xcustom_param { top_dim: [2, 3, 5, 14] }", x.shape)
    assert np.array_equal(top_dim_net.forward(x)["y"], wanted)

    @chai.shape("Fold")
    def shape(x: Any) -> list[tuple[int, ...]]:
        n, c, h, w = map(int, x.input_dims[0])
        return [(n, c // 2, h, 2 * w)]

    ruled = net(tmp_path, "f Fold data -> y", x.shape)
    assert np.array_equal(ruled.forward(x)["y"], wanted)
    assert ruled.forward(x[:1, :4])["y"].shape == (1, 2, 5, 14)


def test_nchw_for_operations_of_pytorch(tmp_path: Path, registry: Registry) -> None:
    class Rows:
        def __init__(self, op: Any) -> None:
            self.name = op.get_name()

        def calculate(self, output: Any, input: Any) -> None:
            tensor = input[0].get_tensor()
            assert (tensor.name, tensor.dims, tensor.ndim) == ("data", [2, 3, 5, 7], 4)
            assert tensor.dtype == "float32" and tensor.get_element_num() == DATA.size
            np.asarray(output)[...] = np.asarray(input[0])[:, :, ::-1]

    chai.custom.vitis("Rows", layout="NCHW")(Rows)
    assert np.array_equal(net(tmp_path, "r Rows data -> y").forward(DATA)["y"], DATA[:, :, ::-1])


def test_beside_the_emulator(tmp_path: Path, classes: dict[str, Any]) -> None:
    chai.custom.vitis("Sum")(classes["Sum"])
    overlay_net = net(
        tmp_path, f"c Convolution data -> c : {CONV}\ns Sum c c -> s\nd Convolution s -> y : {CONV}", device="emulator"
    )
    top = overlay_net.forward(DATA)["y"]
    assert {s.name: s.engine for s in overlay_net.perf.steps if s.engine != "host"} == {
        "c": "fpga",
        "s": "custom",
        "d": "fpga",
    }
    exact = chai.Net(tmp_path / "net.prototxt", device="float").forward(DATA)["y"]
    assert np.abs(top - exact).max() < 0.05 * np.abs(exact).max()


def test_mistakes(tmp_path: Path, registry: Registry) -> None:
    file = tmp_path / "mine.py"
    text = (
        "import chai\n@chai.custom.vitis('Mine')\nclass Mine:\n"
        "    def __init__(self, op): {}\n    def calculate(self, output, input): {}\n"
    )
    for init, calculate, reason in (
        ("op.get_attr('k')", "pass", r"mine\.py:4: KeyError: 'k'"),
        ("pass", "input[1]", r"mine\.py:5: IndexError: list index out of range"),
    ):
        file.write_text(text.format(init, calculate))
        with pytest.raises(chai.PluginError, match=rf"layer 'm' .*{reason}"):
            net(tmp_path, "m Mine data -> y", custom=file).forward(DATA)
    with pytest.raises(chai.ParseError, match=r"layer 'm' \(Mine\) takes 1 top, found 2"):
        net(tmp_path, "m Mine data -> y z", custom=file)
    with pytest.raises(chai.PluginError, match="class object has no method calculate"):
        chai.custom.vitis("X")(object)
    with pytest.raises(chai.PluginError, match="chai has a type of that name") as caught:
        chai.custom.vitis("PReLU")(type("PReLU", (), {"calculate": print}))
    assert "override=True" in (caught.value.hint or "")
