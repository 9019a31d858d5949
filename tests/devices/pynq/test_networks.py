"""Whole networks through the real pynq, bit for bit what the emulator computes, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.codegen.compile import chain
from chai.devices.pynq import program
from chai.env import env
from chai.evaluate import Output
from chai.evaluate.kinds import measure, reduce
from chai.evaluate.workers.job import Job, WorkerNetworks
from chai.offload.schedule import DeviceStep
from chai.util.paths import resource
from tests.artifact.common import NETS, compiled, custom, data, load, parts
from tests.conftest import need_models, report
from tests.passes.common import network

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from .conftest import ZYNQ_7000  # noqa: E402


def digits() -> np.ndarray:
    return np.random.default_rng(3).random((1, 1, 8, 8)).astype(np.float32)


def segments(net: chai.Net) -> int:
    return sum(isinstance(step, DeviceStep) and bool(step.tasks) for step in net.schedule.steps)


@pytest.mark.parametrize("name", [pytest.param("pynq-z2", marks=ZYNQ_7000), "ultra96"])
def test_digits(board_of: Callable[..., Any], name: str) -> None:
    board = board_of(name)
    wanted = chai.Net("digits", overlay=board.overlay.path, calibrate=digits()).forward(digits())
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=digits())
    outputs = net.forward(digits())
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    assert "fpga:Convolution" in net.schedule.engines()
    assert board.counts.writes["CONTROL"] == segments(net) == 1


@pytest.mark.parametrize("name", NETS)
def test_small_networks_of_every_kind(board: Any, tmp_path: Path, name: str) -> None:
    options = {"custom": custom(), "overlay": board.overlay.path}
    nets = [network(tmp_path, NETS[name], device=device, **options) for device in ("emulator", "pynq")]
    for net in nets:
        net.calibrate(data())
    for seed in (1, 2, 3):
        wanted, outputs = (net.forward(data(seed)) for net in nets)
        assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    for wanted, outputs in zip(*(net.stream([data(seed) for seed in range(6)]) for net in nets), strict=True):
        assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


@pytest.mark.parametrize("name", NETS)
def test_compiled_networks(board: Any, tmp_path: Path, name: str) -> None:
    net, path = compiled(tmp_path, name, overlay=board.overlay.path)
    again = load(path, device="pynq", overlay=board.overlay.path)
    wanted, outputs = net.forward(data(4)), again.forward(data(4))
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    constants = {name: content for name, content in parts(path)[1].items() if name.startswith("constants.")}
    assert len(constants) == segments(again)
    for content in constants.values():  # DDR has the bytes of the file
        assert any(buffer.device.tobytes().endswith(content) for buffer in board.memory.held.values())


def test_a_compiled_network_is_evaluated(board: Any, tmp_path: Path) -> None:
    """As a worker of chai evaluate does it, and the board is free again."""
    path, folder = tmp_path / "digits.chai", resource("prototxt", "digits_images")
    net = chai.Net("digits", overlay=board.overlay.path, calibrate=digits())
    save(net, path, net.card)
    files = [str(file) for file in sorted(folder.glob("*.png"))[:7]]
    job = Job(
        network=(str(path), None), reference=None, devices=("emulator", "pynq"),
        output=Output("prob", "scores", "classifier", "softmax", 10),
        common={"shapes": {}}, offload={"overlay": str(board.overlay.path)}, input="data", shape=(1, 1, 8, 8),
        preprocess=asdict(net.card.preprocess), mean=None, batch=3, sample=files[0],
    ).sealed()  # fmt: skip
    bench = WorkerNetworks(job)
    records = bench.run([(i, file, None) for i, file in enumerate(files)])
    side = reduce(records, job.sides, measure(job.output), lambda _: None)["pynq"]
    assert (side.images, side.agree, side.kl) == (7, 7, 0.0) and side.sqnr / 7 == pytest.approx(200)
    assert board.counts.writes["CONTROL"] == 3  # passes of three images
    bench.close()
    assert not program._boards and not board.memory.held


@pytest.mark.parametrize("name", ["parts", "host layers"])
def test_kept_blobs_are_read_from_inside_a_segment(board: Any, tmp_path: Path, name: str) -> None:
    options = {"custom": custom(), "overlay": board.overlay.path, "keep": "all"}
    nets = [network(tmp_path, NETS[name], device=device, **options) for device in ("emulator", "pynq")]
    for net in nets:
        net.calibrate(data())
        net.forward(data(1))
    assert set(nets[0].blobs) == set(nets[1].blobs) and len(nets[0].blobs) > 5
    assert all(np.array_equal(nets[1].blobs[b], v) for b, v in nets[0].blobs.items())


@pytest.mark.parametrize("name", ["parts", "codes"])
def test_a_dump_shows_every_blob(board: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each Task is then a chain of its own, and may be timed."""
    board.accelerator.takes = 1e-3  # longer than in the model
    for device in ("emulator", "pynq"):
        monkeypatch.setenv("CHAI_DUMP", str(tmp_path / device))
        env.cache_clear()
        net = network(tmp_path, NETS[name], device=device, custom=custom(), overlay=board.overlay.path)
        net.calibrate(data())
        net.forward(data(1))
    files = sorted(p.name for p in (tmp_path / "emulator").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "pynq").iterdir()) and len(files) >= 3
    for file in files:
        assert np.array_equal(np.load(tmp_path / "emulator" / file), np.load(tmp_path / "pynq" / file)), file
    tasks = [t for step in net.schedule.steps if isinstance(step, DeviceStep) for t in step.tasks]
    assert board.counts.writes["CONTROL"] == len(tasks)
    assert [s.name for s in net.perf.steps if s.engine == "fpga"] == [t.origin[0] for t in tasks]


def test_a_segment_is_timed_as_a_whole(board: Any, tmp_path: Path) -> None:
    net = network(tmp_path, NETS["parts"], device="pynq", overlay=board.overlay.path)
    net.calibrate(data())
    net.forward(data())
    (segment,) = (s for s in net.perf.steps if s.engine == "fpga")
    (step,) = (s for s in net.schedule.steps if isinstance(s, DeviceStep))
    views = net.schedule.views
    segment_chain = chain(step.work(board.overlay, net.offload.plan.device_shapes, views))
    counted = sum(
        task.cycles(board.overlay, net.offload.plan.device_shapes) for task in segment_chain.tasks
    )  # one after the other here
    assert segment.type == "segment"
    assert segment.device_ms == pytest.approx(counted / (board.overlay.clock_mhz * 1000), rel=0.01)


POOLED = """
c Convolution data -> c : convolution_param { num_output: 5 kernel_size: 2 }
p Pooling c -> p : pooling_param { kernel_size: 3 stride: 2 }
"""


def test_a_segment_of_one_descriptor_and_two_tasks(board: Any, tmp_path: Path) -> None:
    """A convolution and the pooling of its codes, which the accelerator does not time apart."""
    x = np.random.default_rng(5).standard_normal((3, 3, 9, 11)).astype(np.float32)
    emulated, net = (
        network(tmp_path, POOLED, x.shape, device=device, overlay=board.overlay.path) for device in ("emulator", "pynq")
    )
    for one in (emulated, net):
        one.calibrate(x)
    np.testing.assert_array_equal(net.forward(x)["p"], emulated.forward(x)["p"])
    (segment,) = (s for s in net.perf.steps if s.engine == "fpga")
    assert segment.name == "c .. p"
    (step,) = (s for s in net.schedule.steps if isinstance(s, DeviceStep))
    segment_chain = chain(step.work(board.overlay, net.offload.plan.device_shapes, net.schedule.views))
    assert len(step.tasks) == 2 and [task.kind for task in segment_chain.whole] == ["conv"]


REAL = [
    ("cifar_resnet20", 3),
    ("squeezenet_v1.1", 1),
    ("googlenet", 1),
    pytest.param("googlenet_nolrn", 1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "images"), REAL)
def test_real_networks(board_of: Callable[..., Any], tmp_path: Path, name: str, images: int) -> None:
    """From a compiled file. The accelerator uses the emulator's kernels here, which equal the definitions (tests/tasks)."""
    folder = need_models() / name.removesuffix("_nolrn")  # the same weights: LRN has none
    board = board_of(memory=128 << 20, exact=False)
    image = np.load(min((folder / "cases").iterdir()) / "input.npy")
    image = np.concatenate([image, image[::-1] * 0.5, image + 1])[:images]
    prototxt = folder / "deploy.prototxt" if name == folder.name else name
    net = chai.Net(prototxt, folder / "weights.caffemodel", batch=images, overlay=board.overlay.path)
    net.calibrate(image)
    save(net, tmp_path / "net.chai")
    on_board = chai.Net(tmp_path / "net.chai", device="pynq", overlay=board.overlay.path)
    wanted, outputs = net.forward(image), on_board.forward(image)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    first, board.counts = board.counts, type(board.counts)()
    again = on_board.forward(image * 0.75)
    assert all(np.array_equal(v, again[b]) for b, v in net.forward(image * 0.75).items())
    count = segments(on_board)
    writes = sum(board.counts.writes.values())
    assert board.counts.allocations == 0
    assert writes <= 8 * count
    report(
        f"{name}, {images} images on the simulated board: {count} segments, {writes / count:g} register writes each, "
        f"{sum(board.counts.reads.values()) / count:g} reads; {first.allocations} buffers once, then none; "
        f"{board.counts.flushed / 1e6:.2f} MB flushed, {board.counts.invalidated / 1e6:.2f} MB invalidated per forward; "
        f"{sum(b.size for b in board.memory.held.values()) / 1e6:.2f} MB of DDR"
    )
