"""Descriptors that no host writes, on a small array: each chain ends in a bounded time, and the next one is right."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from chai import devices
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.codegen.memory_map import FIXED
from chai.devices.rtlsim import program
from chai.devices.rtlsim.tools import missing
from chai.driver.memory import place
from chai.evaluate.selftest import TaskProbe, probes
from chai.overlay import Overlay
from chai.overlay.records import pack, unpack
from chai.tasks.work import Work
from tests.conftest import HANG, report
from tests.tasks.common import kinds

if missing():
    pytest.skip(missing(), allow_module_level=True)

from .manifests import small

BOUND = 1_500_000  # cycles; the Tasks that are changed take some 2,000
TAG = 0x1234
WATCHED = 1 << 16  # cycles without a beat or a product that end a chain
PIXELS = 64 * 3  # of a tile: accumulators of each lane
LIMITED = "a value beyond the limits of its kind"


class Hostile:
    """The accelerator of a small array, and a Task of every kind to change."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay, self.simulated = overlay, program.accelerator(overlay)
        self.probes: dict[str, list[TaskProbe]] = {}
        for probe in probes(overlay):
            if isinstance(probe, TaskProbe):
                self.probes.setdefault(probe.task.kind, []).append(probe)

    def chain(self, probe: TaskProbe) -> Chain:
        work = Work(self.overlay, [probe.task], probe.shapes, {}, probe.task.inputs, (probe.task.output,))
        return chain(work)

    def run(self, probe: TaskProbe, changes: dict[str, int]) -> tuple[str, int]:
        """Run the probe's Task with other values in its descriptor; return "done" or the words of the error, and the cycles."""
        segment = self.chain(probe)
        memory = program.NoisyBuffers(segment.sizes)
        place(segment, memory)
        descriptor = memory.bytes[FIXED][: self.overlay.descriptor.bytes]
        values = {**unpack(self.overlay.descriptor, descriptor.tobytes()), "tag": TAG, **changes}
        descriptor[:] = np.frombuffer(pack(self.overlay.descriptor, values), np.uint8)
        simulation, registers = self.simulated.simulation, self.simulated.registers
        simulation.forget_memory()
        for region, data in memory.bytes.items():
            simulation.memory(memory.addresses[region], data)
        registers.start(memory.addresses[FIXED], 1)
        cycles = self.simulated.accelerator.wait(BOUND)
        assert cycles, f"no end: {changes}"
        status = registers.read("STATUS")
        registers.write("IRQ", registers.mask("IRQ", "done", "error"))
        if registers.bits("STATUS", "done", status):
            return "done", cycles
        assert status == registers.mask("STATUS", "error")
        error = registers.read("ERROR")
        assert registers.bits("ERROR", "tag", error) == changes.get("tag", TAG)
        registers.write("CONTROL", registers.mask("CONTROL", "reset"))
        assert registers.read("STATUS") == 0
        return self.overlay.registers.errors[registers.bits("ERROR", "cause", error)], cycles

    def check(self, probe: TaskProbe) -> None:
        """Run the probe's own Task: every code must be right."""
        assert probe.run(devices.open("rtlsim"), self.overlay) == ""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return Hostile(small(tmp_path_factory.mktemp("overlay")))


def values(field: Any, old: int, random: random.Random) -> Iterator[int]:
    """0, the least and the largest value, neighbours of the right one, and random ones."""
    least, most = (-1 << field.width - 1, (1 << field.width - 1) - 1) if field.signed else (0, (1 << field.width) - 1)
    near = old + 1, old - 1, 2 * old, random.randint(0, 40), random.randint(0, 300), random.randint(least, most)
    for value in (0, least, most, *near):
        yield max(least, min(most, value)) & -field.multiple


def changed(hostile: Hostile, seed: int, count: int) -> Counter[str]:
    """Change one to three random fields of random Tasks; return what became of each."""
    chosen, outcomes = random.Random(seed), Counter[str]()
    fields = [field for field in hostile.overlay.descriptor.fields if field.name != "version"]
    for i in range(count):
        probe = chosen.choice(hostile.probes[chosen.choice(list(hostile.probes))])
        descriptor = hostile.chain(probe).descriptors[0]
        before = unpack(hostile.overlay.descriptor, descriptor)
        changes = {}
        for field in chosen.sample(fields, chosen.choice([1, 1, 1, 2, 3])):
            changes[field.name] = chosen.choice([*values(field, before[field.name], chosen)])
        outcomes[hostile.run(probe, changes)[0]] += 1
        if i % 4 == 0:
            hostile.check(chosen.choice(hostile.probes[chosen.choice(list(hostile.probes))]))
    return outcomes


def test_hostile_descriptors_end_and_leave_nothing_behind(hostile: Hostile) -> None:
    outcomes = changed(hostile, 10, 50)
    assert {"done", LIMITED, "no progress", "bus error while reading", "bus error while writing"} <= outcomes.keys()


def test_an_error_after_the_end_of_a_task_has_its_tag(hostile: Hostile) -> None:
    """Planes that no plane of the output needs are read beyond memory: before the Task's end, or after it."""
    probes = hostile.probes["conv"] + hostile.probes["eltwise"] + hostile.probes["copy"]
    for i, probe in enumerate(probes[::4]):  # those of all formats are alike
        hostile.run(probe, {"input_channels": (22, 40, 200)[i % 3]})


@pytest.mark.slow
@pytest.mark.timeout(4 * HANG)
@pytest.mark.parametrize("wide", [False, True])
def test_an_ultrascale_has_bursts_of_up_to_256_bytes(tmp_path: Path, wide: bool) -> None:
    """Tasks of every kind through ports of its family, which have room for 8 bursts; then hostile ones."""
    array = (16, 16, 1) if wide else (8, 8, 3)
    hostile = Hostile(small(tmp_path, *array, board="kv260", wide=wide))
    lengths = hostile.simulated.simulation.histogram("m1_read__arlen")
    for kind in hostile.probes.values():
        for probe in kind:
            hostile.check(probe)
    if wide:  # an error at the second port for outputs is one of the Task that wrote there
        probe = next(probe for probe in hostile.probes["conv"] if probe.task.weights.shape[0] > 8)
        hostile.simulated.accelerator.channels["m2_write"].fail("slverr", 0)
        assert hostile.run(probe, {})[0] == "bus error while writing"
        hostile.check(probe)
    outcomes, longest = changed(hostile, 5, 300), 256 // hostile.overlay.ports.bytes
    assert lengths[longest - 1] and {"done", LIMITED, "bus error while reading"} <= outcomes.keys()


@pytest.mark.slow
@pytest.mark.timeout(4 * HANG)
@pytest.mark.parametrize("seed", range(1, 5))
def test_thousands_of_hostile_descriptors(hostile: Hostile, seed: int) -> None:
    report(f"hostile descriptors, seed {seed}: {dict(changed(hostile, seed, 2000))}")


@pytest.mark.slow
@pytest.mark.timeout(4 * HANG)
@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_field_with_every_odd_value(hostile: Hostile, kind: str) -> None:
    chosen, outcomes = random.Random(kind), Counter[str]()
    for field in hostile.overlay.descriptor.fields:
        for probe in chosen.sample(hostile.probes[kind], 2):
            before = unpack(hostile.overlay.descriptor, hostile.chain(probe).descriptors[0])
            for value in dict.fromkeys(values(field, before.get(field.name, 0), chosen)):
                if field.name != "version":
                    outcomes[hostile.run(probe, {field.name: value})[0]] += 1
        hostile.check(chosen.choice(hostile.probes[kind]))
    report(f"every field of a {kind}: {dict(outcomes)}")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("affine", {"kernel_h": 2}),
        ("affine", {"stride_w": 3}),
        ("affine", {"pad_h": 1}),
        ("conv", {"tile_rows": PIXELS + 1}),
        ("conv", {"dilation_w": 0}),
        ("pool", {"kernel_h": 16}),  # as large are windows that cover the image
        ("pool", {"kernel_w": 255, "kernel_h": 230}),
        ("eltwise", {"output_channels": 4097}),
        ("copy", {"input_height": 0}),
        ("upsample", {"tiles": 0}),
        ("interleave", {"stride_h": 9}),
        ("interleave", {"tiles": 0}),
        ("lrn", {"kernel_h": 10}),
        ("lrn", {"kernel_h": 0}),
        ("depthwise", {"input_width": 513}),
        ("depthwise", {"pad_h": 3}),
        ("depthwise", {"stride_w": 0}),
    ],
)
def test_what_is_beyond_a_limit_is_not_begun(hostile: Hostile, kind: str, changes: dict[str, int]) -> None:
    words, cycles = hostile.run(hostile.probes[kind][0], changes)
    assert words == LIMITED
    assert cycles < 1000


def test_a_tile_of_one_column_may_have_the_rows_of_all_lanes(hostile: Hostile) -> None:
    assert hostile.run(hostile.probes["conv"][0], {"tile_rows": PIXELS})[0] != LIMITED


@pytest.mark.parametrize("changes", [{"after_array": 1}, {"after_window": 65535}, {"input_pitch": 8}])
def test_what_contradicts_itself_is_stopped_when_nothing_moves(hostile: Hostile, changes: dict[str, int]) -> None:
    words, cycles = hostile.run(hostile.probes["copy"][0], changes)
    assert words == "no progress"
    assert WATCHED < cycles < WATCHED + 20_000


@pytest.mark.parametrize(("kind", "changes"), [("conv", {"tiles": 7, "stays": 0}), ("copy", {"output_pitch": 8})])
def test_a_task_that_ends_too_early_leaves_nothing_behind(hostile: Hostile, kind: str, changes: dict[str, int]) -> None:
    """Weights of tiles that do not exist are still fetched after its end, words that nobody stores are computed."""
    assert hostile.run(hostile.probes[kind][0], changes)[0] == "done"
    for good in hostile.probes[kind][:4]:
        hostile.check(good)
