"""InnerProduct on the overlay: a convolution whose kernel is the whole map, equal to its definition in every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import chai
from chai.artifact.save import save
from chai.blob import Shape
from chai.offload.schedule import DeviceStep
from chai.tasks.conv import Conv
from tests.passes.common import network
from tests.tasks.common import EXAMPLES

Array = np.ndarray
SHAPE = (2, 5, 3, 4)
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
END = "end InnerProduct {} -> end : inner_product_param {{ num_output: 3 }}\nprob Softmax end -> prob"


def fc(outputs: int, fields: str = "") -> str:
    return f"inner_product_param {{ num_output: {outputs} {fields} }}"


def opened(folder: Path, lines: str, shape: Shape = SHAPE, data: Array = DATA, **options: Any) -> chai.Net:
    """The network after one pass on the emulator, with random weights everywhere."""
    net = network(folder, lines, shape, device="emulator", keep="all", **options)
    rng = np.random.default_rng(1)
    for layer in net.graph.layers:
        for blob in layer.blobs:
            blob[...] = rng.uniform(-1, 1, blob.shape)
    net.forward(data)
    return net


def reasons(net: chai.Net) -> dict[str, str]:
    return dict(net.offload.partition.reasons)


def tasks(net: chai.Net) -> list[Conv]:
    steps = (step for step in net.schedule.steps if isinstance(step, DeviceStep))
    return [task for step in steps for task in step.tasks if isinstance(task, Conv)]


def by_hand(x: Array, weights: Array, bias: Array, relu: bool) -> Array:
    y = x.reshape(len(x), -1).astype(np.float64) @ weights.T.astype(np.float64) + bias
    return np.maximum(y, 0) if relu else y


@EXAMPLES
@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 5), st.integers(1, 6)),
    outputs=st.integers(1, 60),
    flat=st.booleans(),
    transpose=st.booleans(),
    relu=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_by_hand(
    tmp_path_factory: Any, size: Shape, outputs: int, flat: bool, transpose: bool, relu: bool, seed: int
) -> None:
    """Every sum as integers, from the Task's codes; close to the float layer."""
    shape = (*size[:2],) if flat else size
    lines = f"abs AbsVal data -> a\nfc InnerProduct a -> y : {fc(outputs, 'transpose: true' if transpose else '')}\n"
    lines += "relu ReLU y -> y\n" if relu else ""
    data = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    net = opened(tmp_path_factory.mktemp("fc"), lines + END.format("y"), shape, data, engine={"abs": "host"})
    assert list(reasons(net)) == ["abs", "end", "prob"]
    data = np.abs(data)
    (task,) = tasks(net)
    k = int(np.prod(shape[1:]))
    assert task.weights.shape == (outputs, *shape[1:], *((1, 1) if flat else ()))
    stored, bias = net.params["fc"]
    rows = stored.T if transpose else stored
    wanted = by_hand(data, rows, bias, relu)
    top = net.blobs["y"]
    assert top.shape == (shape[0], outputs)
    assert np.abs(top - wanted).max() <= 0.1 * max(1, np.abs(wanted).max())  # formats of one image reach twice as far
    source, target = net.offload.formats["a"], net.offload.formats[net.graph.latest["y"]]
    codes = source.quantize(data).astype(np.int64).reshape(-1, k) - source.zero
    weights = np.asarray(task.weights).astype(np.int64).reshape(outputs, k)
    own = task.bias + source.zero * weights.sum(1)
    m, r = task.requantization.multiplier.reshape(-1), task.requantization
    scaled = (codes @ weights.T + own) * m
    rounded = np.sign(scaled) * (np.abs(scaled) + (1 << r.shift >> 1) >> r.shift)
    assert np.array_equal(top, target.dequantize(np.clip(rounded + r.zero, r.low, r.high)))


def test_a_chain_of_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flatten, Reshape and Dropout are looked through, ReLUs are taken in; scores stay on the host."""
    monkeypatch.setenv("CHAI_CHECK", "1")
    monkeypatch.setenv("CHAI_DUMP", str(tmp_path / "dump"))
    lines = f"""
        conv Convolution data -> c : convolution_param {{ num_output: 6 kernel_size: 1 }}
        flat Flatten c -> f
        fc6 InnerProduct f -> y6 : {fc(30)}
        relu6 ReLU y6 -> y6
        drop6 Dropout y6 -> y6
        shape Reshape y6 -> s : reshape_param {{ shape {{ dim: 0 dim: 15 dim: 2 dim: 1 }} }}
        fc7 InnerProduct s -> y7 : {fc(21)}
        relu7 ReLU y7 -> y7 : relu_param {{ negative_slope: 0.1 }}
        """ + END.format("y7")
    net = opened(tmp_path, lines)
    assert net.schedule.engines() == [
        *("host:Pack", "fpga:Convolution", "fpga:InnerProduct", "fpga:InnerProduct", "host:Unpack"),
        *("host:InnerProduct", "host:Softmax"),
    ]
    assert reasons(net)["end"] == "only a Softmax or the caller reads its scores, which 8 bits would blur"
    assert [(t.origin, t.window.kernel) for t in tasks(net)] == [
        (("conv",), (1, 1)),
        (("fc6", "relu6"), (3, 4)),
        (("fc7", "relu7"), (1, 1)),
    ]
    with network(tmp_path, lines, SHAPE, keep="all") as reference:
        for layer in reference.graph.layers:
            for mine, own in zip(layer.blobs, net.graph.layer(layer.name).blobs):
                mine[...] = own
        reference.forward(DATA)
        assert {b: v.shape for b, v in net.blobs.items()} == {b: v.shape for b, v in reference.blobs.items()}
        for blob, wanted in reference.blobs.items():
            assert np.abs(net.blobs[blob] - wanted).max() <= 0.1 * np.abs(wanted).max(), blob
    macs = {s.name: s.macs for s in net.perf.steps if s.engine == "fpga"}
    assert macs == {"conv": 2 * 12 * 30, "fc6": 2 * 30 * 72, "fc7": 2 * 21 * 30}


def test_compiled(tmp_path: Path) -> None:
    """Its weights are int8 in the file; the pages that it takes from there give the same scores."""
    lines = f"fc InnerProduct data -> y : {fc(200)}\nrelu ReLU y -> y\n" + END.format("y")
    net = opened(tmp_path, lines, (1, 40, 3, 4), np.ones((1, 40, 3, 4), np.float32))
    save(net, tmp_path / "net.chai")
    assert (tmp_path / "net.chai").stat().st_size < 216 * 576 + 200 * 3 * 4 + 216 * 16 + 8000  # blocks of 24 x 16
    again = chai.Net(tmp_path / "net.chai", device="emulator", keep="all")
    assert np.array_equal(again.forward(np.ones((1, 40, 3, 4)))["prob"], net.blobs["prob"])
    assert np.array_equal(again.blobs["y"], net.blobs["y"]) and again.blobs["y"].shape == (1, 200)


def test_heads_of_one_blob_are_one_task(tmp_path: Path) -> None:
    lines = f"a InnerProduct data -> a : {fc(5)}\nb InnerProduct data -> b : {fc(7)}\n"
    lines += "sum Eltwise a2 b2 -> s\n".join(
        [f"a2 InnerProduct a -> a2 : {fc(4)}\nb2 InnerProduct b -> b2 : {fc(4)}\n", ""]
    )
    net = opened(tmp_path, lines)
    assert tasks(net)[0].origin in {("a", "b"), ("b", "a")}
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator", keep="all")
    assert np.array_equal(again.forward(DATA)["s"], net.blobs["s"])


STAYS = {
    "axis 2 of a blob of 4 axes": f"fc InnerProduct data -> y : {fc(3, 'axis: 2')}\nt Normalize y -> t",
    "axis 1 of a blob of 3 axes": f"r Reshape data -> r : reshape_param {{ shape {{ dim: 1 dim: 2 dim: 60 }} }}\n"
    f"fc InnerProduct r -> y : {fc(3)}\nt Normalize y -> t",
    "channels 5000 is more": f"fc InnerProduct data -> y : {fc(5000)}\nt Normalize y -> t",
    "only a Softmax": f"fc InnerProduct data -> y : {fc(3)}\nr Reshape y -> r : reshape_param {{ shape {{ dim: 0 dim: -1 }} }}\n"
    "t Softmax r -> t",
    "or the caller": f"fc InnerProduct data -> y : {fc(3)}",
}


@pytest.mark.parametrize("reason", STAYS)
def test_what_stays_on_the_host(tmp_path: Path, reason: str) -> None:
    assert reason in reasons(opened(tmp_path, STAYS[reason]))["fc"]


def test_a_map_larger_than_any_kernel_stays_on_the_host(tmp_path: Path) -> None:
    net = opened(
        tmp_path, f"fc InnerProduct data -> y : {fc(3)}\nt Normalize y -> t", (1, 2, 12, 3), np.ones((1, 2, 12, 3))
    )
    assert reasons(net)["fc"] == "kernel 12 is more than the overlay's 11"


FORMATS = 'precision_param { quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 th_layer_in: 1 th_layer_out: 9 }'


def test_with_formats_of_others_it_needs_its_own(tmp_path: Path) -> None:
    """A layer without one would have its input's range."""
    lines = f"c Convolution data -> c : convolution_param {{ num_output: 4 kernel_size: 1 }} {FORMATS}\n"
    inherits = lines + f"fc InnerProduct c -> y : {fc(6)}\nt Normalize y -> t"
    assert reasons(opened(tmp_path, inherits))["fc"] == "it has no format of its own"
    assert list(reasons(opened(tmp_path, inherits, engine={"fc": "fpga"}))) == ["t"]
    own = lines + f"fc InnerProduct c -> y : {fc(6)} {FORMATS}\nt Normalize y -> t"
    assert list(reasons(opened(tmp_path, own))) == ["t"]
    assert reasons(opened(tmp_path, own, engine={"fc": "host"}))["fc"] == "chosen by the user"


def test_scores_go_where_the_user_says(tmp_path: Path) -> None:
    net = opened(tmp_path, f"fc InnerProduct data -> y : {fc(3)}\nprob Softmax y -> prob", engine={"fc": "fpga"})
    assert list(reasons(net)) == ["prob"]
    assert net.blobs["y"].shape == (2, 3)
