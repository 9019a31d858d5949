"""Layers that together are one function of one number are one table; where they cannot, each is what it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.tasks.eltwise import Eltwise
from tests.passes.common import CONV, DEEP, MAX, network

SHAPE = (2, 8, 6, 7)
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)
CASES: dict[str, tuple[str, Callable[[float], float]]] = {
    "Mish": (
        "a BNLL c -> a\nb TanH a -> b\ny Eltwise c b -> y : eltwise_param { operation: PROD }",
        lambda x: x * math.tanh(math.log1p(math.exp(x))),
    ),
    "GELU": (
        "a Power c -> a : power_param { scale: 0.70710678 }\nb Erf a -> b\n"
        "d Power b -> d : power_param { scale: 0.5 shift: 0.5 }\ny Mul c d -> y",
        lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    ),
    "HardSigmoid": (
        "a Power c -> a : power_param { scale: 0.2 shift: 0.5 }\ny Clip a -> y : clip_param { min: 0 max: 1 }",
        lambda x: min(max(0.2 * x + 0.5, 0), 1),
    ),
}


def opened(folder: Path, lines: str, **options: object) -> chai.Net:
    text = f"c Convolution data -> c : {DEEP}\n{lines}\ne Convolution y -> e : {CONV}"
    net = network(folder, text, SHAPE, device="emulator", **options)
    net.forward(DATA)
    return net


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_table_of_the_nearest_codes(tmp_path: Path, name: str) -> None:
    lines, formula = CASES[name]
    net = opened(tmp_path, lines)
    assert net.schedule.engines() == ["host:Pack", "fpga:Convolution", "fpga:Convolution", "host:Unpack"]
    first, _ = net.schedule.segments[0].tasks
    source, target = net.offload.formats["c"], net.offload.formats["y"]
    assert first.lookup is not None
    for code in range(-128, 128):
        exact = formula((code - source.zero) * source.step) / target.step + target.zero
        exact = min(max(exact, target.packed[0]), target.packed[1])
        assert abs(int(first.lookup[code + 128]) - exact) < 0.501


def test_what_somebody_else_reads_is_written(tmp_path: Path) -> None:
    """Then each function is a table of its own, and their product a Task."""
    lines, _ = CASES["Mish"]
    net = opened(tmp_path, f"{lines}\nq Pooling b -> q : {MAX}")
    every = [task for step in net.schedule.segments for task in step.tasks]
    assert {task.output for task in every} >= {"b", "q"} and len(net.schedule.segments) == 1
    assert [task.operation for task in every if isinstance(task, Eltwise)] == ["PROD"]


@pytest.mark.parametrize("options", [{"engine": {"b": "host"}}, {"overlay": "vta-z7020"}])
def test_on_the_host_each_layer_is_its_own(tmp_path: Path, options: dict[str, object]) -> None:
    net = opened(tmp_path, CASES["Mish"][0], **options)
    assert [layer.name for layer in net.offload.graph.layers if not layer.source][-3:] in (
        ["b", "y", "e"],
        ["a", "y", "e"],
    )
    assert net.offload.plan.partition.reasons["b"] in ("chosen by the user", "no TanH unit")


def test_the_parts_can_be_kept(tmp_path: Path) -> None:
    net, few = (opened(tmp_path, CASES["GELU"][0], keep=keep) for keep in ("all", "outputs"))
    assert np.array_equal(net.blobs["e"], few.blobs["e"])
    assert {"c", "a", "b", "d", "y"} <= set(net.blobs)
    wanted = np.vectorize(CASES["GELU"][1])(net.blobs["c"].astype(np.float64))
    assert np.abs(net.blobs["c"] * net.blobs["d"] - wanted).max() < 1e-5


def test_a_compiled_network(tmp_path: Path) -> None:
    """A table of its own, too: something else reads c."""
    lines, _ = CASES["Mish"]
    net = opened(tmp_path, f"{lines}\nq Pooling c -> q : {MAX}")
    assert any(task.origin == ("a", "b", "y") for task in net.schedule.segments[0].tasks)
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator")
    again.forward(DATA)
    assert all(np.array_equal(again.blobs[blob], net.blobs[blob]) for blob in ("e", "q"))


def test_a_compiled_network_of_a_sum_with_relus(tmp_path: Path) -> None:
    """The first ReLU is folded into the sum, before all three are one function."""
    lines = "a Eltwise c c -> a\nb ReLU a -> b\ny ReLU b -> y : relu_param { negative_slope: 0.1 }"
    net = opened(tmp_path, lines, keep="all")
    assert net.schedule.engines() == ["host:Pack", "fpga:Convolution", "fpga:Convolution", "host:Unpack"]
    assert {"a", "b", "y"} <= set(net.blobs)
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator")
    assert np.array_equal(again.forward(DATA)["e"], net.blobs["e"])


def test_what_follows_a_function_whose_last_layer_alone_is_on_the_host(tmp_path: Path) -> None:
    """A product of three runs there, and so does the ReLU after it, of which no format is measured."""
    product = "a ReLU c -> a\nb Eltwise a c c -> b : eltwise_param { operation: PROD }"
    net = opened(tmp_path, f"{product}\nm ReLU b -> m\ny Pooling b -> y : {MAX}")
    reasons = net.offload.plan.partition.reasons
    assert reasons["m"] == "no format was measured for it" and "b" not in reasons
    outputs = net.forward(DATA)
    assert outputs["m"].min() == 0 and outputs["m"].max() > 0
