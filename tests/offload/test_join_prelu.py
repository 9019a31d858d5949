"""A PReLU on an overlay: with the layer before it, or alone; the codes of its formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.fixed import Format
from chai.layers.prelu import PReLU
from chai.tasks import Task
from chai.tasks.affine import Affine
from chai.tasks.arithmetic import Arithmetic
from tests.passes.common import AFFINE, CONV, GLOBAL, MAX, network

SHAPE = (2, 8, 6, 7)
RNG = np.random.default_rng(3)
DATA = RNG.uniform(-1, 1, SHAPE).astype(np.float32)
SLOPES = np.array([0.25, -0.5, 1.7, 0, 1, -1.3, 0.01, 0.9], np.float32)


def tasks(net: chai.Net) -> list[Task]:
    return [task for step in net.schedule.segments for task in step.tasks]


def names(net: chai.Net) -> list[str]:
    return ["+".join(task.origin) for task in tasks(net)]


def planned(folder: Path, lines: str, **options: Any) -> chai.Net:
    net = network(folder, lines, SHAPE, device="emulator", **options)
    net.forward(DATA)
    return net


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"c Convolution data -> c : {CONV}\np PReLU c -> c\nm Pooling c -> m : {MAX}", ["c+p", "m"]),
        (f"c Convolution data -> c : {CONV}\nb BatchNorm c -> c : {GLOBAL}\np PReLU c -> p\nm Pooling p -> m : {MAX}",
         ["c+b+p", "m"]),
        (f"s Scale data -> s : {AFFINE}\np PReLU s -> p : prelu_param {{ channel_shared: true }}\nm Pooling p -> m : {MAX}",
         ["s+p", "m"]),
        ("f InnerProduct data -> f : inner_product_param { num_output: 5 }\np PReLU f -> p\n"
         "g InnerProduct p -> g : inner_product_param { num_output: 3 }", ["f+p"]),
        (f"e Eltwise data data -> e\np PReLU e -> p\nm Pooling p -> m : {MAX}", ["e", "p", "m"]),  # a Task of its own
        (f"c Convolution data -> c : {CONV}\np PReLU c -> p\nm Eltwise c p -> m", ["c", "p", "m"]),  # two readers
        (f"c Convolution data -> c : {CONV}\nr ReLU c -> c\np PReLU c -> p\nm Pooling p -> m : {MAX}", ["c+r", "p", "m"]),
    ],
)  # fmt: skip
def test_one_task_with_the_layer_before(tmp_path: Path, lines: str, expected: list[str]) -> None:
    net = planned(tmp_path, lines)
    assert names(net) == expected
    assert len(net.schedule.segments) == 1


def test_where_its_layers_run_is_the_users_choice(tmp_path: Path) -> None:
    lines = f"c Convolution data -> c : {CONV}\np PReLU c -> p\nm Pooling p -> m : {MAX}"
    net = planned(tmp_path, lines, engine={"p": "host"})
    assert names(net) == ["c", "m"] and len(net.schedule.segments) == 2
    net = planned(tmp_path, lines, engine={"c": "host"})
    assert names(net) == ["m"]  # on the host its input costs a conversion
    net = planned(tmp_path, lines, engine={"c": "host", "p": "fpga"})
    assert names(net) == ["p", "m"]


def test_without_the_unit_it_runs_on_the_host(tmp_path: Path) -> None:
    manifest = json.loads(overlays.load().path.read_text())
    for limits in manifest["tasks"].values():
        limits.pop("prelu", None)
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(manifest))
    lines = f"c Convolution data -> c : {CONV}\np PReLU c -> p\nm Pooling p -> m : {MAX}"
    net = planned(tmp_path, lines, overlay=path)
    assert names(net) == ["c", "m"] and net.offload.plan.partition.reasons["p"] == "no PReLU unit"


@pytest.mark.parametrize("affine", [None, {"leaky": False, "prelu": False}])
def test_on_the_host_without_the_unit_of_its_own(tmp_path: Path, affine: dict[str, bool] | None) -> None:
    """The convolution could bend sums for it, but no format is measured for its top there."""
    manifest = json.loads(overlays.load().path.read_text())
    limits = manifest["tasks"].pop("affine")
    if affine is not None:
        manifest["tasks"]["affine"] = limits | affine
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(manifest))
    for engine in ({}, {"c": "fpga"}):
        net = planned(tmp_path, f"c Convolution data -> c : {CONV}\np PReLU c -> p", overlay=path, engine=engine)
        assert names(net) == ["c"] and net.offload.plan.partition.reasons["p"] == "no PReLU unit"


def test_a_manifest_needs_signed_multipliers(tmp_path: Path) -> None:
    manifest = json.loads(overlays.load().path.read_text())
    for field in manifest["table"]["fields"]:
        field["signed"] = field["name"] == "bias"
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(manifest))
    with pytest.raises(chai.ChaiError, match=r"tasks\.conv: prelu: the table has no signed field 'negative'"):
        overlays.load(path)


@pytest.mark.parametrize(
    "source", [Format("Xilinx", 8, 1.1), Format("DynamicFixed", 6, 3), Format("Xilinx", 8, 2, True)]
)
@pytest.mark.parametrize("shared", [False, True])
def test_codes_are_those_of_the_formula(tmp_path: Path, source: Format, shared: bool) -> None:
    """Within one code of the rounded formula, for all 256 codes, whatever the slopes: negative, or above 1."""
    slopes = np.float32(-0.6).reshape(()) if shared else SLOPES
    layer = PReLU("p", ("x",), ("y",), PReLU.Params(channel_shared=shared), [slopes])
    shape = (1, 8, 16, 16)
    result = Format("Xilinx", 8, 1.3)
    target = Arithmetic(overlays.load(), {"x": source, "y": result}, {"x": shape, "y": shape})
    (task,) = layer.lower(target)
    assert isinstance(task, Affine)
    low, high = source.range
    codes = np.broadcast_to(np.clip(np.arange(-128, 128), low, high).astype(np.int8).reshape(16, 16), shape)
    x = (codes.astype(np.float64) - source.zero) * source.step
    each = np.broadcast_to(slopes, 8).astype(np.float64).reshape(-1, 1, 1)
    exact = np.clip(np.where(x < 0, each * x, x) / result.step, *result.range)
    top_codes = task.define(codes)
    assert np.abs(top_codes - exact).max() <= 0.51
    assert len(np.unique(top_codes)) > 20


def test_a_network_is_near_its_float_numbers(tmp_path: Path) -> None:
    """With slopes that no leaky ReLU has, and formats of a calibration."""
    lines = f"c Convolution data -> c : {CONV}\np PReLU c -> c\ne Eltwise c c -> e\nq PReLU e -> q\nd Convolution q -> y : {CONV}"
    exact = network(tmp_path, lines, SHAPE)
    assert exact.params["p"][0].min() < 0 and exact.params["q"][0].max() > 1
    wanted = exact.forward(DATA)["y"]
    net = planned(tmp_path, lines)
    assert names(net) == ["c+p", "e", "q", "d"]
    error = net.forward(DATA)["y"] - wanted
    assert np.sqrt((error**2).mean() / (wanted**2).mean()) < 0.03


def test_a_slope_that_is_no_number_is_refused() -> None:
    layer = PReLU("p", ("x",), ("y",), PReLU.Params(), [np.where(SLOPES < 0, np.inf, SLOPES)])
    shapes = dict.fromkeys("xy", (1, 8, 2, 3))
    with pytest.raises(chai.ChaiError, match="a slope is not a finite number"):
        layer.lower(Arithmetic(overlays.load(), dict.fromkeys("xy", Format("Xilinx", 8, 1)), shapes))
