"""Tasks and a network on the device rtlsim, with a small array: the whole way from Tasks to the interrupt."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai import devices
from chai.codegen.compile import chain
from chai.codegen.memory_map import FIXED
from chai.devices import placed
from chai.devices.rtlsim import program, verilator
from chai.devices.rtlsim.tools import missing
from chai.driver.memory import place
from chai.env import env
from chai.errors import DeviceError
from chai.evaluate import selftest
from chai.hw_overlays.rtl import generate
from chai.offload.schedule import DeviceStep
from chai.overlay import Overlay
from chai.overlay.records import pack, unpack
from chai.tasks.work import Work

if missing():
    pytest.skip(missing(), allow_module_level=True)

from tests.passes.common import network
from tests.rtl.manifests import small
from tests.runtime.test_direct import SEVERAL, WIDE, check, conversions, pair

from .simulators import check_agreement


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    return small(tmp_path_factory.mktemp("overlay"))


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])
def test_every_kind_of_task_equals_its_definition(overlay: Overlay, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """As ``chai devices --test`` does: signed and unsigned, leaky, grouped, depthwise, dilated, in one of the four formats.

    And the networks and some Tasks in the others, which are other numbers for the same circuits.
    """
    every, one = selftest.probes(overlay), f"{overlay.bits[0]} bit {overlay.schemes[0]}"
    chosen = [p for i, p in enumerate(every) if p.name.endswith(one) or "network" in p.name or i % 9 // 3 == part]
    monkeypatch.setattr(selftest, "probes", lambda _: chosen)
    results = list(selftest.run(devices.open("rtlsim"), overlay))
    assert len(results) == len(chosen) >= 70
    assert [f"{result.name}: {result.reason}" for result in results if not result.ok] == []


@pytest.mark.parametrize("batch", [1, 2])
def test_every_blob_of_a_network_equals_the_emulator(overlay: Overlay, batch: int) -> None:
    images = np.random.default_rng(5).random((batch, 1, 8, 8)).astype(np.float32)
    nets = [
        chai.Net("digits", device=device, overlay=overlay.path, calibrate=images, keep="all")
        for device in ("emulator", "rtlsim")
    ]
    for net in nets:
        net.forward(images)
    tasks = [task for step in nets[1].schedule.steps if isinstance(step, DeviceStep) for task in step.tasks]
    assert {task.kind for task in tasks} == {"conv", "pool"}
    assert nets[0].blobs.keys() == nets[1].blobs.keys()
    for blob, values in nets[0].blobs.items():
        assert np.array_equal(nets[1].blobs[blob], values), blob


@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rows_that_do_not_fit_are_convolved_in_strips(overlay: Overlay, tmp_path: Path, wide: bool) -> None:
    """Of two images in a chain with other Tasks, which read the blob of all strips, in memory that blobs share."""
    lines = (
        "a Convolution data -> a : convolution_param { num_output: 20 kernel_size: 1 }\nr ReLU a -> a\n"
        "b Convolution a -> b : convolution_param { num_output: 12 kernel_size: 3 pad: 1 stride: 2 }\n"
        "p Pooling b -> p : pooling_param { pool: MAX kernel_size: 3 stride: 2 }\n"
        "c Convolution b -> c : convolution_param { num_output: 5 kernel_h: 1 kernel_w: 5 pad_w: 2 }\ne Eltwise c c -> e"
    )
    if wide:
        overlay = small(tmp_path, 16, 16, 1, board="zcu104", wide=True)
    images = np.random.default_rng(6).standard_normal((2, 3, 7, 301)).astype(np.float32)
    emulated, simulated = (
        network(tmp_path, lines, images.shape, device=device, overlay=overlay.path) for device in ("emulator", "rtlsim")
    )
    tops = [net.forward(images) for net in (emulated, simulated)]
    assert all(tops[1][blob].tobytes() == values.tobytes() for blob, values in tops[0].items())
    (step,) = simulated.schedule.segments
    tasks = chain(step.work(overlay, simulated.offload.plan.device_shapes, simulated.schedule.views)).tasks
    assert {task.kind for task in tasks} == {"conv", "pool", "eltwise"}
    assert sum(task.columns is not None for task in tasks) >= 6


@pytest.mark.parametrize("lines", [SEVERAL, WIDE], ids=["several", "unfolded"])
def test_blobs_are_converted_in_the_accelerators_memory(overlay: Overlay, tmp_path: Path, lines: str) -> None:
    """Forward in one set and streams in two; each bit is the emulator's."""
    hosts = {name: "host" for name in "cpq" if f"{name} Power" in lines}  # else these are tables of codes
    nets = pair(tmp_path, lines, device="rtlsim", overlay=overlay.path, engine=hosts)
    check(nets)
    direct, others = conversions(nets[1])
    assert direct and others == ({"Unpack a"} if lines == SEVERAL else set())
    programs = [one for listed in nets[1].offload._programs.values() for one in listed]
    assert all(isinstance(one, program.RtlProgram) and len(one._sets) == 2 for one in programs)


def test_a_chain_that_fails_names_the_layer_and_the_next_one_runs(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = next(p for p in selftest.probes(overlay) if isinstance(p, selftest.TaskProbe))
    work = Work(overlay, [probe.task], probe.shapes, {}, probe.task.inputs, (probe.task.output,))
    segment = chain(Work(overlay, work.tasks, work.shapes, work.views, work.reads, work.writes))
    broken = program.RtlProgram(segment, {})
    monkeypatch.setattr(placed, "place", lambda *_: None)  # noise instead of descriptors
    with pytest.raises(DeviceError, match="the accelerator stopped: descriptor of another version"):
        broken.run({name: codes.copy() for name, codes in probe.codes.items()})
    monkeypatch.undo()
    assert probe.run(devices.open("rtlsim"), overlay) == ""


@pytest.mark.parametrize("kind", ["conv", "pool"])
def test_a_reset_ends_a_task_that_waits_for_ever(overlay: Overlay, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A descriptor that no host makes: it waits for a Task that is not in its chain."""
    probe = next(p for p in selftest.probes(overlay) if isinstance(p, selftest.TaskProbe) and p.task.kind == kind)
    work = Work(overlay, [probe.task], probe.shapes, {}, probe.task.inputs, (probe.task.output,))
    segment = chain(work)
    memory = program.NoisyBuffers(segment.sizes)
    place(segment, memory)
    descriptor = memory.bytes[FIXED][: overlay.descriptor.bytes]
    values = unpack(overlay.descriptor, descriptor.tobytes())
    hostile = pack(overlay.descriptor, {**values, "after_window": 9})
    descriptor[:] = np.frombuffer(hostile, np.uint8)
    simulated = program.accelerator(overlay)
    monkeypatch.setattr(program, "PATIENCE", (1, 2000))
    with pytest.raises(DeviceError, match=f"0 of {len(segment.tasks)} Tasks? completed"):
        simulated.run(segment, memory)
    registers = simulated.registers
    assert registers.bits("STATUS", "busy", registers.read("STATUS"))
    registers.write("CONTROL", registers.mask("CONTROL", "reset"))
    simulated.simulation.tick(1000)
    assert registers.read("STATUS") == 0
    assert probe.run(devices.open("rtlsim"), overlay) == ""
    assert program.accelerator(overlay) is simulated


@pytest.mark.slow
@pytest.mark.skipif(verilator.found() is None, reason="Verilator is not installed")
def test_both_simulators_agree_in_bits_and_cycles(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(6).random((2, 1, 8, 8)).astype(np.float32)

    def forward() -> chai.Net:
        net = chai.Net("digits", device="rtlsim", overlay=overlay.path, calibrate=images, keep="all")
        net.forward(images)
        return net

    assert check_agreement(monkeypatch, overlay, forward) > 1000


def test_waves_are_written_where_the_user_says(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a run: the library for it takes as long to compile as the other."""
    monkeypatch.setenv("CHAI_RTL_VCD", str(tmp_path / "task.vcd"))
    env.cache_clear()
    asked = []
    monkeypatch.setattr(program, "Simulation", lambda text, seed, waves, simulator: asked.append(waves))
    with pytest.raises(AttributeError):
        program.Simulated(overlay)
    assert asked == [str(tmp_path / "task.vcd")]


@pytest.mark.slow
def test_the_same_manifest_makes_the_same_rtl_in_every_process(overlay: Overlay, tmp_path: Path) -> None:
    """Else no process would find the library that another has compiled. Each has a cache of its own, so each generates it."""
    code = (
        "import sys, chai\nfrom hashlib import sha256\nfrom pathlib import Path\n"
        "from chai.devices.rtlsim import program\n"
        "print(sha256(program.generated(chai.overlay.load(Path(sys.argv[1]))).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, str(overlay.path)],
            env={**os.environ, "PYTHONHASHSEED": seed, "CHAI_CACHE": str(tmp_path / seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_rtlil_is_generated_once_for_each_manifest(
    overlay: Overlay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one process for all: other values of a manifest, or other sources, make another file. The oldest ones go."""
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path))
    env.cache_clear()
    numbers = count()
    monkeypatch.setattr(generate, "accelerator", lambda overlay: overlay)
    monkeypatch.setattr(program, "rtlil", lambda component: f"# {next(numbers)}")

    def generated(one: Overlay) -> str:
        program.generated.cache_clear()  # as in another process
        text = program.generated(one)
        program.generated.cache_clear()
        return text

    faster = replace(overlay, clock_mhz=2 * overlay.clock_mhz)
    assert [generated(one) for one in (overlay, overlay, faster, overlay)] == ["# 0", "# 0", "# 1", "# 0"]
    for i in range(program.KEPT):
        monkeypatch.setattr(program, "_sources", lambda module, i=i: [f"version {i}"])
        assert generated(overlay) == f"# {2 + i}"
    assert generated(overlay) == f"# {1 + program.KEPT}"
    assert len([*tmp_path.rglob("*.il")]) == program.KEPT


def test_what_the_rtl_depends_on_are_all_sources_of_its_generator_and_of_chai() -> None:
    sources = {*program._sources(generate)}
    folder = Path(generate.__file__).parent
    for path in (folder / "window" / "depthwise.py", Path(chai.__file__).parent / "tasks" / "depthwise.py"):
        assert path.read_text() in sources
