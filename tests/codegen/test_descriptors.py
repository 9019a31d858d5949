"""Chains as bytes: what a memory holds after both engines have run their descriptors, in any order that these allow."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay as overlays
from chai.artifact.save import save
from chai.codegen import compile, encoding
from chai.codegen.dependencies import dependencies
from chai.codegen.memory_map import OUTPUT, WORK
from chai.devices.base import Device, Program, Ran
from chai.devices.placed import PAGE, PlacedProgram, SimulatedBuffers
from chai.errors import DeviceError
from chai.offload.schedule import DeviceStep
from chai.tasks.work import Work
from tests.conftest import examples, report
from tests.passes.common import prototxt
from tests.reference import descriptors

from .random_chains import random_chains, write_manifest

Array = np.ndarray
FAST, SLOW, PART = 40, examples(4000), 500
PARTS = "images", "rows", "columns", "pooling", "lookup"  # of Tasks
RUNS = 3  # of a network, each in an order of its own


class Noise(SimulatedBuffers):
    """Regions that are apart, and noise before anything writes."""

    first, gap = 1 << 28, PAGE

    def fill(self, data: Array) -> None:
        data[:] = np.random.default_rng(len(data)).integers(0, 256, len(data), np.uint8)


class DescribedProgram(PlacedProgram):
    """Runs what is in memory, and nothing else of its segment but the address and number of descriptors."""

    _memory = Noise

    def __init__(self, work: Work, device: Described) -> None:
        super().__init__(work.chain or compile.chain(work), work.views)
        self.device = device
        for task in self.segment.tasks:
            device.counts.update([task.kind, *(name for name in PARTS if getattr(task, name, None) is not None)])

    def run_in(
        self, used: Any, blobs: dict[str, Array], packed: Collection[str] = (), unpacked: Collection[str] = ()
    ) -> Ran:
        regions = used.memory

        def start() -> None:
            for region in {WORK, OUTPUT} & regions.bytes.keys():
                regions.fill(regions.bytes[region])
            memory = descriptors.Memory({regions.addresses[name]: data for name, data in regions.bytes.items()})
            entry, count = self.segment.entry(regions.addresses), len(self.segment.tasks)
            descriptors.run(self.segment.overlay, memory, entry, count, self.device.random)

        used.run(blobs, self.views, start, packed, unpacked)
        return Ran()


class Described(Device):
    """A device of this test alone; ``counts`` kinds of Tasks, and in what parts they are."""

    fixed = placed = hidden = True
    word = "simulated"

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        super().__init__("described", "what descriptors say")
        self.random, self.counts = Random(seed), counts

    def status(self) -> tuple[bool, str]:
        return True, "this test"

    def compile(self, work: Work) -> Program:
        return DescribedProgram(work, self)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Each network would warn that it has no formats of its own."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def compare(seed: int, folder: Path, counts: Counter[str], compiled: bool = True) -> None:
    """The device's codes are the emulator's: of a network, run after run, and of its compiled file if there is one."""
    path, device = folder / "overlay.json", Described(seed, counts)
    net = random_chains(seed, write_manifest(seed, path)["batch_max"])
    options: dict[str, Any] = {"overlay": path, "calibrate": net.inputs, "keep": ("outputs", "all")[seed % 3 == 0]}
    files = net.write(folder)
    nets = chai.Net(*files, device="emulator", **options), chai.Net(*files, device=device, **options)
    with nets[0] as emulated, nets[1] as described:
        wanted = emulated.forward(**net.inputs)
        for _ in range(RUNS):
            equal(described.forward(**net.inputs), wanted, seed)
            equal(described.blobs.readable, dict(emulated.blobs.readable), seed)
        if compiled:
            save(emulated, folder / "net.chai")
            with chai.Net(folder / "net.chai", device=device, overlay=path) as again:
                equal(again.forward(**net.inputs), wanted, seed)
    counts["networks"] += 1


def equal(actual: Any, wanted: Any, seed: int) -> None:
    assert list(actual) == list(wanted), seed
    wrong = [name for name in wanted if not np.array_equal(actual[name], wanted[name])]
    assert not wrong, f"seed {seed}: {wrong} have other codes than the emulator's"


def test_random_networks(tmp_path: Path) -> None:
    """Of all kinds of Tasks, in parts of each kind."""
    counts: Counter[str] = Counter()
    for seed in range(FAST):
        compare(seed, tmp_path, counts)
    assert counts["networks"] == FAST and counts.keys() >= set(PARTS), counts
    assert counts.keys() >= {section.kind for section in overlays.load("pynq-z2").tasks}, counts


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(FAST, FAST + SLOW, PART))
def test_thousands(tmp_path: Path, begin: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(begin, begin + PART):
        compare(seed, tmp_path, counts)
    report(f"random chains from {begin} on: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    assert counts["networks"] == PART


# -- defects that have to be found


def finds(folder: Path, seeds: int = FAST) -> bool:
    """Whether some network has other codes, or accesses what no region has; where it is refused, the next one may."""
    for seed in range(seeds):
        with suppress(DeviceError):
            try:
                compare(seed, folder, Counter(), compiled=False)
            except (AssertionError, ValueError, ArithmeticError):
                return True
    return False


@pytest.mark.parametrize("engine", ["array", "window"])
def test_a_dependency_that_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    def lacking(*arguments: Any) -> Any:
        return [after._replace(**{engine: 0}) for after in dependencies(*arguments)]

    monkeypatch.setattr(compile, "dependencies", lacking)
    assert finds(tmp_path)


def test_a_count_that_is_one_too_low(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(*arguments: Any) -> Any:
        return [after._replace(window=max(0, after.window - 1)) for after in dependencies(*arguments)]

    monkeypatch.setattr(compile, "dependencies", lower)
    assert finds(tmp_path)


FEW = "shift", "output", "input_pitch", "output_image", "table", "pad_h", "weights", "low"
CHAIN = {"version", "opcode", "tag", "after_array", "after_window"}
SPEED = {"stays", "shares"}  # change no code
FACTOR = 18  # bits of the factors, whose last bit seldom changes a code
FIELDS = [field.name for field in overlays.load("kv260").descriptor.fields if field.name not in CHAIN | SPEED]


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in FIELDS])
def test_a_field_that_is_off_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By the least that its field can be, in each descriptor where it is not 0; factors by more."""
    exact = encoding.fields_of

    def wrong(task: Any, memory: Any, *arguments: Any) -> dict[str, int]:
        values = exact(task, memory, *arguments)
        field = memory.overlay.descriptor.values[name]
        change = 1 << FACTOR // 2 if field.width == FACTOR else field.multiple
        return values | ({name: values[name] ^ change} if values.get(name) else {})

    monkeypatch.setattr(encoding, "fields_of", wrong)
    assert finds(tmp_path, PART)


# -- what random networks seldom have

OVERLAPPING = """a Convolution data -> a : convolution_param { num_output: 64 kernel_size: 1 }
s Slice a -> x y : slice_param { axis: 1 slice_point: 32 }
t Slice a -> u v w : slice_param { axis: 1 slice_point: 16 slice_point: 48 }
m MVN y -> m
e Eltwise m x -> e
f Eltwise m v -> f
b Convolution e -> b : convolution_param { num_output: 8 kernel_size: 1 }
c Convolution f -> c : convolution_param { num_output: 12 kernel_size: 1 }"""


@pytest.mark.parametrize("overlay", ["pynq-z2", "vta-z7020"])
def test_slices_with_channels_in_common_of_what_another_segment_wrote(tmp_path: Path, overlay: str) -> None:
    path, image = tmp_path / "net.prototxt", np.random.default_rng(1).standard_normal((2, 3, 5, 7)).astype(np.float32)
    path.write_text(prototxt(OVERLAPPING))
    devices = "emulator", Described(0, Counter()) if overlay == "pynq-z2" else "vtasim"
    emulated, described = (chai.Net(path, device=device, overlay=overlay, calibrate=image) for device in devices)
    second = [step for step in described.schedule.steps if isinstance(step, DeviceStep)][-1]
    assert {"x", "v"} <= {*second.inputs}
    equal(described.forward(data=image), emulated.forward(data=image), 0)
    save(emulated, tmp_path / "net.chai")
    equal(chai.Net(tmp_path / "net.chai", device=devices[1]).forward(data=image), emulated.forward(data=image), 0)
