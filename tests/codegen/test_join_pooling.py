"""A pooling joined to the convolution before it: which ones become one Task, and that no code changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.codegen.join_pooling import apart, joined
from chai.errors import ChaiError
from chai.offload.schedule import DeviceStep
from chai.tasks import Task
from tests.artifact.common import assembled, parts
from tests.passes.common import AVE, CONV, DEEP, MAX, network

SHAPE = (2, 3, 13, 10)
DATA = np.random.default_rng(4).uniform(-1, 1, SHAPE).astype(np.float32)
TWO = f"a Convolution data -> a : {DEEP}\nb Convolution data -> b : {DEEP}\nc Concat a b -> c"
LAST = f"d Convolution p -> d : {DEEP}"


def planned(folder: Path, lines: str, **options: Any) -> chai.Net:
    net = network(folder, f"{lines}\n{LAST}" if "-> p" in lines else lines, SHAPE, **{"device": "emulator", **options})
    net.forward(DATA)
    return net


def compiled(net: chai.Net) -> Chain:
    (step,) = net.schedule.segments
    return chain(step.work(net.overlay, net.offload.plan.device_shapes, net.schedule.views))


def kinds(tasks: Any) -> list[str]:
    return [f"{task.kind}+pool" if getattr(task, "pooling", None) else task.kind for task in tasks]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"a Convolution data -> a : {CONV}\nr ReLU a -> a\np Pooling a -> p : {MAX}", ["conv+pool", "conv"]),
        (f"a Convolution data -> a : {CONV}\nr TanH a -> a\np Pooling a -> p : {MAX}", ["conv+pool", "conv"]),
        (f"{TWO}\np Pooling c -> p : {MAX}", ["conv+pool", "conv+pool", "conv"]),
        # the windows share two columns; an average; another reader, of the whole or of a part; a blob that no array writes
        (f"a Convolution data -> a : {CONV}\np Pooling a -> p : pooling_param {{ pool: MAX kernel_size: 3 }}",
         ["conv", "pool", "conv"]),
        (f"a Convolution data -> a : {CONV}\np Pooling a -> p : {AVE}", ["conv", "pool", "conv"]),
        (f"a Convolution data -> a : {CONV}\np Pooling a -> p : {MAX}\ne Pooling a -> e : {AVE}",
         ["conv", "pool", "pool", "conv"]),
        (f"{TWO}\np Pooling c -> p : {MAX}\ne Convolution b -> e : {DEEP}", ["conv", "conv", "pool", "conv", "conv"]),
        (f"{TWO}\np Pooling c -> p : {MAX}\ne Convolution c -> e : {DEEP}", ["conv", "conv", "pool", "conv", "conv"]),
        (f"a Convolution data -> a : {DEEP}\nb Pooling data -> b : {AVE}\nc Concat a b -> c\np Pooling c -> p : {MAX}",
         ["conv", "pool", "pool", "conv"]),
    ],
)  # fmt: skip
def test_which_poolings_are_joined(tmp_path: Path, lines: str, expected: list[str]) -> None:
    net = planned(tmp_path, lines)
    assert sorted(kinds(compiled(net).whole)) == sorted(expected)
    assert len(net.schedule.segments) == 1


@pytest.mark.parametrize(
    "lines", [f"a Convolution data -> a : {CONV}\np Pooling a -> p : {MAX}", f"{TWO}\np Pooling c -> p : {MAX}"]
)
def test_codes_and_blobs_stay(tmp_path: Path, lines: str) -> None:
    """Kept blobs are there, and equal to those of Tasks apart; what is compiled for them has Tasks apart, too."""
    net = planned(tmp_path, lines, keep="all")
    (step,) = net.schedule.segments
    work = step.work(net.overlay, net.offload.plan.device_shapes, net.schedule.views)
    before = "c" if "-> c" in lines else "a"
    assert net.blobs[before].shape[2:] == SHAPE[2:]
    pool = net.blobs["p"]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(net.blobs[before], [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=-np.inf), (3, 3), (2, 3)
    )
    assert np.array_equal(pool, windows.max((4, 5))[:, :, ::2, ::2][:, :, : pool.shape[2], : pool.shape[3]])
    together, kept = joined(work), joined(chai_with(work, before))
    assert "conv+pool" in kinds(together.tasks) and "conv+pool" not in kinds(kept.tasks)
    again = apart(together.tasks, together.views)
    assert [(t.inputs, t.output, t.origin) for t in again] == [(t.inputs, t.output, t.origin) for t in work.tasks]


def chai_with(work: Any, blob: str) -> Any:
    """The Work that also writes the blob of a top."""

    return work._replace(writes=(*work.writes, blob))


@pytest.mark.parametrize("lines", [f"{TWO}\np Pooling c -> p : {MAX}"])
def test_a_compiled_network_runs_them_on_any_device(tmp_path: Path, lines: str) -> None:
    net = planned(tmp_path, lines)
    save(net, tmp_path / "net.chai")
    again = chai.Net(tmp_path / "net.chai", device="emulator", keep="all")
    result = again.forward(DATA)
    (step,) = (step for step in again.schedule.steps if isinstance(step, DeviceStep))
    assert kinds(step.chain.whole).count("conv+pool") == 2 and kinds(step.tasks) == kinds(
        net.schedule.segments[0].tasks
    )
    assert np.array_equal(again.blobs["d"], net.blobs["d"]) and result
    assert again.blobs["c"].shape == (2, 32, 13, 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda task: task.pop("pooled"), "pooled: expected"),
        (lambda task: task["pooled"].update(blob="nowhere"), "blob 'nowhere' is not what the task of 'a' pools"),
        (lambda task: task["pooled"].update(blob="d"), "blob 'd' is not what the task of 'a' pools"),
        (lambda task: task["pooled"].update(blob="b"), "pool different blobs"),
        (lambda task: task["pooled"].update(at=9), "pooling"),
        (lambda task: task["pooled"].update(origin=[]), "a pooling's origin names no layer"),
    ],
)
def test_a_file_with_another_blob_between_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    save(planned(tmp_path, f"{TWO}\np Pooling c -> p : {MAX}"), tmp_path / "net.chai")
    header, sections = parts(tmp_path / "net.chai")
    (step,) = (step for step in header["steps"] if "tasks" in step)
    change(next(task for task in step["tasks"] if task["origin"] == ["a"]))
    (tmp_path / "net.chai").write_bytes(assembled(header, sections))
    with pytest.raises(ChaiError, match=re.escape(words)):
        chai.Net(tmp_path / "net.chai", device="emulator")


def test_a_task_without_a_pooling_has_no_blob_between(tmp_path: Path) -> None:
    save(planned(tmp_path, f"{TWO}\np Pooling c -> p : {MAX}"), tmp_path / "net.chai")
    header, sections = parts(tmp_path / "net.chai")
    (step,) = (step for step in header["steps"] if "tasks" in step)
    last = next(task for task in step["tasks"] if task["origin"] == ["d"])
    last["pooled"] = {"blob": "a", "origin": ["p"]}
    (tmp_path / "net.chai").write_bytes(assembled(header, sections))
    with pytest.raises(ChaiError, match="the task of 'd' has no pooling"):
        chai.Net(tmp_path / "net.chai", device="emulator")


def test_without_the_unit_both_are_tasks(tmp_path: Path) -> None:
    manifest = json.loads(overlays.load().path.read_text())
    del manifest["tasks"]["conv"]["pool_kernel_max"], manifest["tasks"]["conv"]["pool_columns_max"]
    path = tmp_path / "overlay.json"
    path.write_text(json.dumps(manifest))
    net = planned(tmp_path, f"{TWO}\np Pooling c -> p : {MAX}", overlay=path)
    tasks: list[Task] = compiled(net).whole
    assert sorted(kinds(tasks)) == ["conv", "conv", "conv", "pool"]


def test_googlenet_has_three_of_them() -> None:
    """conv1, and all branches of inception_3b and inception_4e; the second pooling follows an LRN."""
    net = chai.Net("googlenet", device="null", overlay="pynq-z2")
    net.plan()
    tasks = compiled(net).tasks
    names = {name for task in tasks if (pooling := getattr(task, "pooling", None)) for name in pooling.origin}
    assert names == {"pool1/3x3_s2", "pool3/3x3_s2", "pool4/3x3_s2"}
    assert kinds(compiled(net).whole).count("conv+pool") == 9
    assert "pool2/3x3_s2" in {task.origin[0] for task in tasks if task.kind == "pool"}
