"""Parallel convolutions as one Task: the same codes, fewer cycles, and only where both hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

import chai
from chai import overlay
from chai.blob import Shape, View
from chai.env import env
from chai.fixed import Requantization
from chai.offload import scheduling
from chai.offload.merge_parallel import merge_parallel
from chai.offload.schedule import DeviceStep, Schedule
from chai.overlay import Overlay
from chai.tasks import Task
from chai.tasks.affine import Affine
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from tests.codegen.cases import decoded, encoded
from tests.codegen.equality import equal
from tests.codegen.test_memory_map import Segment, laid_out
from tests.conftest import need_models, report
from tests.passes.common import CONV, network
from tests.tasks.common import EXAMPLES, codes, emulated, factors, limited, seeds, zeros

Z2 = overlay.load("pynq-z2")
STEP = Z2.layout.channels_per_word
SHAPE = (2, 5, 6, 7)
ONE = Window((1, 1), (1, 1), (0, 0))


def conv(rng: np.random.Generator, name: str, outputs: int, leaky: bool = False, **changes: Any) -> Conv:
    """A convolution of ``x`` with random numbers; 1x1, shift 20, clamp -128..127 unless it is said otherwise."""
    window = changes.pop("window", ONE)
    negative = factors(rng, (outputs, 1, 1), 20) if leaky else None
    r = Requantization(factors(rng, (outputs, 1, 1), 20), 20, -128, 127, negative)
    weights = codes(rng, outputs, SHAPE[1], *window.kernel, low=-127)
    bias = rng.integers(-(1 << 16), 1 << 16, outputs)
    task = Conv(("x",), name, (name, f"{name}/relu"), weights, bias, window, 1, r)
    return replace(task, requantization=r._replace(**changes.pop("r", {})), **changes)


def shapes(tasks: Iterable[Conv], x: Shape = SHAPE) -> dict[str, Shape]:
    return {"x": x, **{t.output: (x[0], len(t.bias), *t.window.sizes(x[2:])) for t in tasks}}


class Merged(NamedTuple):
    """Tasks in order, the blobs that became parts of a joint blob, and the shapes of joint blobs."""

    tasks: Sequence[Task]
    views: dict[str, View]
    shapes: dict[str, Shape]


def merged(
    tasks: Sequence[Task], views: Mapping[str, View], known: Mapping[str, Shape], overlay: Overlay = Z2
) -> Merged:
    scheduled = Schedule(views={**views})
    after = merge_parallel(tasks, scheduled, known, overlay)
    parts = {blob: view for blob, view in scheduled.views.items() if blob not in views}
    return Merged([*after], parts, scheduled.shapes)


def merge(*tasks: Conv, x: Shape = SHAPE) -> Merged:
    return merged(tasks, {}, shapes(tasks, x))


def total(tasks: Iterable[Task], known: Mapping[str, Shape]) -> int:
    return sum(task.cycles(Z2, known) for task in tasks)


# -- by the codes


@EXAMPLES
@given(
    outputs=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    window=st.sampled_from([ONE, Window((3, 2), (2, 1), (1, 0)), Window((1, 1), (2, 2), (0, 0))]),
    leaky=st.booleans(),
    points=st.tuples(zeros, zeros),
    seed=seeds,
)
def test_every_blob_keeps_its_codes(
    outputs: list[int], window: Window, leaky: bool, points: tuple[int, int], seed: int
) -> None:
    """As the emulator computes them, as their readers find them, and as descriptors say them."""
    rng = np.random.default_rng(seed)
    changes: dict[str, Any] = {"window": window, "zero": points[0], "r": {"zero": points[1]}}
    tasks = [conv(rng, f"y{i}", n, leaky, **changes) for i, n in enumerate(outputs)]
    outcome = merge(*tasks)
    known = {**shapes(tasks), **outcome.shapes}
    assert total(outcome.tasks, known) <= total(tasks, known)
    readers = [Pool((t.output,), f"z{i}", (), ONE, known[t.output][2:], None) for i, t in enumerate(tasks)]
    known.update({reader.output: known[reader.inputs[0]] for reader in readers})
    x = codes(rng, *SHAPE)
    run = emulated([*outcome.tasks, *readers], {"x": x}, known, outcome.views)
    for task, reader in zip(tasks, readers):
        assert np.array_equal(run[reader.output], task.define(x))
    for whole, shape in outcome.shapes.items():
        used = np.zeros(shape[1], bool)
        for part, first in ((part, first) for part, (of, first) in outcome.views.items() if of == whole):
            assert first % STEP == 0
            assert not used[first : first + known[part][1]].any()
            used[first : first + known[part][1]] = True
        assert (run[whole][:, ~used] == points[1]).all()
    moves = [(task.inputs, task.output) for task in (*outcome.tasks, *readers)]
    address = Segment(known, outcome.views, moves, ["x"], [output for _, output in moves]).lay().blobs
    for task in (*outcome.tasks, *readers):
        descriptor, constants = encoded(task, Operands(Z2, address, known), 64)
        assert equal(decoded(descriptor, constants, Z2, address, known, 64, task), task)


def test_what_a_joint_task_is() -> None:
    """Parts that fill whole planes go first; the Task stands for all layers of both, where the first one stood."""
    rng = np.random.default_rng(0)
    a, b, other = conv(rng, "a", 6), conv(rng, "b", 16), conv(rng, "c", 5, window=Window((3, 3), (1, 1), (1, 1)))
    outcome = merge(a, other, b)
    assert [task.output for task in outcome.tasks] == ["b & a", "c"]
    assert outcome.tasks[0].origin == ("b", "b/relu", "a", "a/relu")
    assert outcome.views == {"b": ("b & a", 0), "a": ("b & a", 16)}
    assert outcome.shapes == {"b & a": (2, 22, 6, 7)}


def test_more_than_two() -> None:
    rng = np.random.default_rng(0)
    assert merge(*(conv(rng, name, 8) for name in "abc")).shapes == {"a & b & c": (2, 24, 6, 7)}


# -- what stays

APART: dict[str, dict[str, Any]] = {
    "shift": {"r": {"shift": 19}},
    "clamp": {"r": {"low": 0}},
    "width of codes": {"r": {"high": 31}},
    "leaky": {"leaky": True},
    "sign of the input": {"zero": -128},
    "sign of the output": {"r": {"zero": -128}},  # branch1 of a ResNet has no ReLU: both clamp at -128
    "window": {"window": Window((1, 1), (1, 1), (0, 0), (2, 2))},
    "input": {"inputs": ("z",)},
}


@pytest.mark.parametrize("what", APART)
def test_tasks_that_differ_stay_apart(what: str) -> None:
    rng = np.random.default_rng(0)
    a, b = conv(rng, "a", 8), conv(rng, "b", 8, **APART[what])
    assert merged([a, b], {}, {**shapes([a, b]), "z": SHAPE}) == Merged([a, b], {}, {})
    assert merge(a, conv(rng, "b", 8)).shapes  # nothing else kept them apart


def test_groups_affines_and_branches_of_a_concat_stay() -> None:
    rng = np.random.default_rng(0)
    a, b = conv(rng, "a", 5), conv(rng, "b", 5)
    depthwise = [replace(task, weights=task.weights[:, :1], group=5) for task in (a, b)]
    assert not merge(*depthwise).shapes
    assert not merge(*(Affine(**vars(task)) for task in depthwise)).shapes
    assert not merged([a, b], {"b": View("whole", 0)}, shapes([a, b])).shapes


def test_nothing_is_merged_at_a_loss() -> None:
    """In blocks of 20, 17 and 19 channels are one each; as 24 + 19, since a part begins with a plane, they would be three."""
    rng = np.random.default_rng(0)
    tasks = [conv(rng, "a", 17), conv(rng, "b", 19)]
    odd = replace(Z2, array=Z2.array._replace(outputs=20), memory_port=None)  # by the drain, not by the port after it
    assert not merged(tasks, {}, shapes(tasks, (1, 5, 60, 70)), odd).shapes
    small = (1, 5, 1, 2)  # a Task less is worth more than so small a block
    assert merged(tasks, {}, shapes(tasks, small), odd).shapes


def test_the_overlays_channels_are_enough_or_tasks_stay() -> None:
    rng = np.random.default_rng(0)
    tasks = [conv(rng, "a", 8), conv(rng, "b", 8)]
    narrow = limited(Z2, "conv", channels_max=15)
    assert not merged(tasks, {}, shapes(tasks), narrow).shapes
    assert not merged(tasks, {}, {**shapes(tasks), "a & b": SHAPE}, Z2).shapes  # a blob of that name
    assert merge(*tasks).shapes


# -- in networks


def xilinx(threshold: float) -> str:
    return f"""precision_param {{ quant_type: "Xilinx" bw_layer_in: 8 bw_layer_out: 8 bw_params: 8
        th_layer_in: 2 th_layer_out: {threshold} }}"""


HEADS = f"""
    stem Convolution data -> s : {CONV} {xilinx(4)}
    one Convolution s -> a : {CONV.replace("4", "12")} {xilinx(3)}
    two Convolution s -> b : {CONV.replace("4", "6")} {xilinx(3.125)}
    big Convolution s -> c : convolution_param {{ num_output: 6 kernel_size: 1 }} {xilinx(3)}
    sum Eltwise b c -> t : {xilinx(5)}
    """.replace("\n        th", " th")
DATA = np.random.default_rng(0).uniform(-2, 2, (2, 3, 5, 7)).astype(np.float32)


def apart(tasks: Sequence[Task], *_: Any) -> Sequence[Task]:
    return tasks


def tasks_of(net: chai.Net) -> list[Task]:
    return [t for step in net.schedule.steps if isinstance(step, DeviceStep) for t in step.tasks]


@pytest.mark.parametrize("keep", ["outputs", "all"])
def test_a_network_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str) -> None:
    """The formats differ: it is the multipliers of each channel that lead to them."""
    net = network(tmp_path, HEADS, device="emulator", keep=keep)
    outputs = net.forward(DATA)
    assert net.formats is not None and net.formats["a"] != net.formats["b"]
    assert [t.output for t in tasks_of(net)] == ["s", "a & b", "c", "t"]
    assert net.schedule.engines().count("fpga:Convolution") == 4  # every layer is still listed
    assert [s.name for s in net.perf.steps if s.engine == "fpga"] == ["stem", "one & two", "big", "sum"]
    first = dict(net.blobs)
    assert all(np.array_equal(out["a"], outputs["a"]) for out in net.stream([DATA, DATA]))
    monkeypatch.setattr(scheduling, "merge_parallel", apart)
    plain = network(tmp_path, HEADS, device="emulator", keep=keep)
    plain.forward(DATA)
    assert [t.output for t in tasks_of(plain)] == ["s", "a", "b", "c", "t"]
    assert first.keys() == plain.blobs.keys()
    for name, blob in plain.blobs.items():
        assert np.array_equal(first[name], blob), name
        assert blob.any()


def test_googlenet() -> None:
    """The two reduces of a block, where their shifts are equal; the 1x1 beside them lies in the concat already."""
    folder = need_models() / "googlenet"
    with chai.Net(folder / "deploy.prototxt", folder / "weights.caffemodel", device="emulator", batch=1) as net:
        data = np.load(folder / "cases" / "camel" / "input.npy")
        net.calibrate(data)
        scores = net.forward(data)["prob"]
        merged = [task.origin for task in tasks_of(net) if "&" in task.output]
        after = total(tasks_of(net), net.offload.shapes)
        bytes = laid_out(net.offload)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduling, "merge_parallel", apart)
            net.calibrate(data)
            assert np.array_equal(net.forward(data)["prob"], scores)
            before = total(tasks_of(net), net.offload.shapes)
            assert laid_out(net.offload) == bytes
    report(f"googlenet: {len(merged)} pairs of reduces merged, {before:,} cycles before, {after:,} after")
    assert after < before
    parts = ("3x3_reduce", "relu_3x3_reduce", "5x5_reduce", "relu_5x5_reduce")
    assert merged == [tuple(f"inception_{b}/{part}" for part in parts) for b in ("3b", "4b", "4c", "4d", "4e")]


def test_a_slice_of_a_merged_convolution_is_an_output_of_checked_tasks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = """c1 Convolution data -> c1 : convolution_param { num_output: 24 kernel_size: 1 }
        c2 Convolution data -> c2 : convolution_param { num_output: 16 kernel_size: 1 }
        sl Slice c2 -> a b : slice_param { slice_point: 8 }"""
    data = np.random.default_rng(3).standard_normal((2, 3, 5, 7)).astype(np.float32)
    wanted = network(tmp_path, lines, device="emulator").forward(data)
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    net = network(tmp_path, lines, device="emulator")
    outputs = net.forward(data)
    assert any(isinstance(step, DeviceStep) and step.tasks[0].output == "c1 & c2" for step in net.schedule.steps)
    assert outputs.keys() == wanted.keys() == {"c1", "a", "b"}
    assert all(np.array_equal(outputs[blob], wanted[blob]) for blob in wanted)
