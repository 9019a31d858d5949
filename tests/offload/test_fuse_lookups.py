"""Functions of one number on an overlay: which Task computes each, and the same codes whichever does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import devices
from chai.artifact.save import save
from chai.blob import Wholes, codes_of
from chai.errors import UsageError
from chai.kernels.codes import pack
from chai.offload.schedule import Pack
from chai.tasks import Task
from chai.tasks.copy import Copy
from tests.lookups import random_lines, with_lookups
from tests.passes.common import AVE, CONV, DEEP, MAX, network

SHAPE = (2, 8, 6, 7)
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)


def planned(folder: Path, lines: str, *kinds: str, **options: Any) -> chai.Net:
    """The network after a pass, for an overlay on which the codes of these kinds may go through tables."""
    net = network(folder, lines, SHAPE, device="emulator", overlay=with_lookups(folder, *kinds).path, **options)
    net.forward(DATA)
    return net


def tasks(net: chai.Net) -> list[Task]:
    return [task for step in net.schedule.segments for task in step.tasks]


def names(net: chai.Net) -> list[tuple[str, bool]]:
    """The origin of each Task, and whether its codes go through a table."""
    return [("+".join(task.origin), task.lookup is not None) for task in tasks(net)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"c Convolution data -> c : {CONV}\ns Swish c -> c\ne Convolution c -> e : {CONV}", [("c+s", True), ("e", False)]),
        (f"p Pooling data -> p : {MAX}\ns TanH p -> s\ne Convolution s -> e : {CONV}", [("p+s", True), ("e", False)]),
        (f"p Pooling data -> p : {AVE}\ns ELU p -> s\ne Convolution s -> e : {CONV}", [("p+s", True), ("e", False)]),
        (f"p Eltwise data data -> p\ns ReLU p -> s\nt TanH s -> s\ne Pooling s -> e : {MAX}", [("p+s+t", True), ("e", False)]),
        (f"p Deconvolution data -> p : convolution_param {{ num_output: 5 kernel_size: 2 stride: 2 }}\ns TanH p -> s\n"
         f"e Convolution s -> e : {CONV}", [("p", False), ("p+s", True), ("e", False)]),
        (f"p Scale data -> p\ns BNLL p -> s\ne Convolution s -> e : {CONV}", [("p+s", True), ("e", False)]),
        (f"p Eltwise data data -> p\nq Pooling p -> q : {MAX}\ns TanH p -> s\nt ELU s -> t\ne Pooling t -> e : {MAX}",
         [("p", False), ("q", False), ("s+t", True), ("e", False)]),
    ],
)  # fmt: skip
def test_a_table_of_the_task_before(tmp_path: Path, lines: str, expected: list[tuple[str, bool]]) -> None:
    net = planned(tmp_path, lines)
    assert names(net) == expected
    assert {step for step in net.schedule.engines() if step.startswith("host")} == {"host:Pack", "host:Unpack"}


@pytest.mark.parametrize(
    "lines",
    [
        f"c Convolution data -> c : {DEEP}\ns TanH c -> s\ne Concat c s -> e",  # somebody else reads its input
        f"c Convolution data -> c : {DEEP}\ns TanH c -> s\nt ELU c -> t\ne Concat s t -> e",
        f"c Convolution data -> c : {DEEP}\nd Concat c data -> d\ns TanH d -> s\ne Convolution s -> e : {CONV}",
    ],
)
def test_or_a_task_of_its_own(tmp_path: Path, lines: str) -> None:
    net = planned(tmp_path, lines)
    alone = [task for task in tasks(net) if task.lookup is not None]
    assert alone and all(isinstance(task, Copy) for task in alone)
    assert [step for step in net.schedule.engines() if step.startswith("host")].count("host:Unpack") == 1


def test_an_output_is_written(tmp_path: Path) -> None:
    """A blob that the caller gets is not fused away."""
    net = planned(tmp_path, f"c Convolution data -> c : {DEEP}\ns TanH c -> s\np Pooling c -> p : {MAX}")
    assert {task.output for task in tasks(net)} == {"c", "s", "p"}


def test_the_codes_of_the_host(tmp_path: Path) -> None:
    """What a table gives is what the host would have unpacked, computed and packed."""
    lines = f"c Convolution data -> c : {CONV}\ns Swish c -> s\ne Convolution s -> e : {CONV}"
    formats = {}
    for engine in ("fpga", "host"):
        net = planned(tmp_path, lines, engine={"s": engine})
        formats[engine] = net.offload.formats
        assert ("host:Swish" in net.schedule.engines()) == (engine == "host")
        formats[engine, "e"] = net.blobs["e"].tobytes()
    assert formats["fpga"]["s"] == formats["host"]["s"] and formats["fpga", "e"] == formats["host", "e"]


def test_what_is_between_can_be_kept(tmp_path: Path) -> None:
    """In float32, from the codes that the Task reads, as everything that is folded away; other numbers stay as they were."""
    lines = f"c Convolution data -> c : {CONV}\ns Swish c -> s\ne Convolution s -> e : {CONV}"
    few, every = (planned(tmp_path, lines, keep=keep) for keep in ("outputs", "all"))
    assert np.array_equal(few.blobs["e"], every.blobs["e"]) and names(few) == names(every)
    (data,) = [step for step in every.schedule.steps if isinstance(step, Pack)]
    layer = next(layer for layer in every.graph.layers if layer.name == "c")
    assert np.allclose(every.blobs["c"], layer.forward(data.format.dequantize(pack(DATA, data.format)))[0], atol=1e-5)
    assert every.offload.formats["c"] != every.offload.formats["s"]  # each as it was calibrated


def test_an_input_is_computed_in_float(tmp_path: Path) -> None:
    net = planned(tmp_path, f"s TanH data -> s\nc Convolution s -> c : {CONV}")
    assert net.schedule.engines()[:2] == ["host:TanH", "host:Pack"]
    assert net.offload.plan.partition.reasons["s"] == "its input is on the host, in float32"
    net = planned(tmp_path, f"s TanH data -> s\nc Convolution s -> c : {CONV}", engine={"s": "fpga"})
    assert names(net) == [("s", True), ("c", False)]


def test_alone_it_stays_on_the_host(tmp_path: Path) -> None:
    """Between layers of the host a table would only cost conversions, unless the user chooses it."""
    lines = "m MVN data -> m\ns TanH m -> s\nt ELU s -> t\nn MVN t -> n"
    net = planned(tmp_path, lines)
    assert not net.schedule.segments
    assert net.offload.plan.partition.reasons["t"] == "its input is on the host, in float32"
    assert names(planned(tmp_path, lines, engine={"s": "fpga", "t": "fpga"})) == [("s+t", True)]


def test_a_sigmoid_for_the_caller_stays_in_float(tmp_path: Path) -> None:
    lines = f"c Convolution data -> c : {CONV}\ns Sigmoid c -> s"
    net = planned(tmp_path, lines)
    assert net.schedule.engines()[-1] == "host:Sigmoid"
    assert planned(tmp_path, lines, engine={"s": "fpga"}).schedule.engines()[-1] == "host:Unpack"


def test_with_formats_of_others_it_needs_its_own(tmp_path: Path) -> None:
    """Another range than its input's; a ReLU has the same, and takes it."""
    widths = "bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 fl_layer_in: 6"
    precision_text = f'precision_param {{ quant_type: "DynamicFixed" {widths} fl_layer_out: %d }}'
    lines = f"c Convolution data -> c : {CONV} {precision_text % 5}\ns TanH c -> s%s\n"
    lines += f"p Pooling s -> p : {AVE} {precision_text % 7}\nr ReLU p -> r\nq Pooling r -> q : {MAX}"
    net = planned(tmp_path, lines % "")
    assert net.offload.plan.partition.reasons == {"s": "it has no format of its own"}
    assert names(net)[-2:] == [("p+r", True), ("q", False)]
    net = planned(tmp_path, lines % f" : {precision_text % 7}")
    assert names(net) == [("c+s", True), ("p+r", True), ("q", False)]


def test_a_function_without_a_value_runs_on_the_host(tmp_path: Path) -> None:
    """Formats reach beyond what was measured: -1.5 may come."""
    net = planned(
        tmp_path, f"p Pooling data -> p : {MAX}\ns Log p -> s : log_param {{ shift: 1.02 }}\ne Pooling s -> e : {MAX}"
    )
    reason = net.offload.plan.partition.reasons["s"]
    assert reason.startswith("its value for -1.") and reason.endswith("is not a number")


def test_a_compiled_network(tmp_path: Path) -> None:
    lines = f"c Convolution data -> c : {CONV}\ns Swish c -> s\np Pooling s -> p : {AVE}\n"
    lines += f"t TanH p -> t\ne Convolution t -> e : {CONV}"
    net = planned(tmp_path, lines, keep="all")
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator", overlay=net.overlay.path, keep="all")
    again.forward(DATA)
    assert names(again) == names(net) == [("c+s", True), ("p+t", True), ("e", False)]
    assert np.array_equal(again.blobs["e"], net.blobs["e"]) and np.array_equal(again.blobs["s"], net.blobs["s"])
    with pytest.raises(UsageError, match="blob 'c' was folded into layer 'c'"):
        again.blobs["c"]
    assert len(net.offload.graph.layers) == 4


def test_an_overlay_without_the_unit_says_what_it_said(tmp_path: Path) -> None:
    net = network(
        tmp_path,
        f"c Convolution data -> c : {CONV}\ns Swish c -> s\nr ReLU data -> r\ne Eltwise s s -> e",
        SHAPE,
        device="emulator",
        overlay="vta-z7020",
    )
    net.forward(DATA)
    reasons = net.offload.plan.partition.reasons
    assert reasons["s"] == "no Swish unit" and reasons["r"] == "nothing before it on the overlay could take it in"


def check(folder: Path, seed: int) -> int:
    """Compare a random network's Tasks with their definitions, and with those of the same network without fused tables.

    Return the number of Tasks with tables.
    """
    lines = random_lines(seed)
    net, apart = planned(folder, lines), planned(folder, lines, "copy")
    assert len(tasks(apart)) >= len(tasks(net))
    assert all(np.array_equal(net.blobs[b], apart.blobs[b]) for b in net.outputs), lines
    for step in net.schedule.segments:
        shapes, views = net.offload.plan.device_shapes, net.schedule.views
        work = step.work(net.overlay, shapes, views)
        rng = np.random.default_rng(seed)
        blobs = {blob: rng.integers(-128, 128, shapes[blob]).astype(np.int8) for blob in step.inputs}
        devices.open("emulator").compile(type(work)(net.overlay, step.tasks, shapes, views)).run(blobs)
        wholes = Wholes(views)
        for task in step.tasks:
            inputs = [codes_of(blob, blobs, shapes, wholes.views) for blob in task.inputs]
            output = codes_of(task.output, blobs, shapes, wholes.views)
            assert np.array_equal(task.written(output, shapes), task.define(*inputs)), (lines, task)
    return sum(task.lookup is not None for task in tasks(net))


def test_random_networks(tmp_path: Path) -> None:
    assert sum(check(tmp_path, seed) for seed in range(50)) > 80


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_thousands_of_random_networks(tmp_path: Path, first: int) -> None:
    assert sum(check(tmp_path, seed) for seed in range(first, first + 100)) > 160
