"""The window engine with planes side by side: the same Tasks, with channels that are no whole groups of planes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from chai import overlay as overlays
from chai.fixed import Requantization
from chai.overlay import Overlay
from chai.tasks.eltwise import Eltwise

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from amaranth.lib import data

from chai.devices.rtlsim.simulation import Simulation, fastest, rtlil
from chai.devices.rtlsim.tools import missing
from chai.hw_overlays.rtl.window.engine import WindowEngine
from chai.hw_overlays.rtl.window.side_by_side import PlaneRuns, plane_run
from chai.hw_overlays.rtl.window.walk import run
from tests.rtl.window_tasks import KINDS, SIZE, Bench, Case, looked_up

if missing():
    pytest.skip(missing(), allow_module_level=True)

LINES = 128


def with_planes(folder: Path, planes: int, beat: int, inputs: int) -> Overlay:
    """An overlay of a small engine with so many planes side by side, bytes in a beat, ports to read; the widest has no LRN."""
    manifest = json.loads(overlays.load("kv260" if beat > 8 else "pynq-z2").path.read_text())
    manifest["ports"] = {"bytes": beat, "window": inputs}
    if planes > 2:  # its 8 lanes are the same
        del manifest["tasks"]["lrn"]
    manifest["tasks"]["pool"]["kernel_max"] = 5 if planes <= 2 else 3
    manifest["buffers"]["pool"] |= {"depth": LINES, "word_bits": 16 * 8 * planes}
    manifest["window"] = {"read_bytes": 8 * planes, "write_bytes": 8 * planes, "bands": True}
    path = folder / "overlay.json"
    path.write_text(json.dumps(manifest))
    return overlays.load(path)


class Engine:
    """The engine of so many planes, bytes in a beat and ports to read, compiled once."""

    def __init__(self, folder: Path, *sizes: int) -> None:
        self.overlay = with_planes(folder, *sizes)
        self.text = rtlil(WindowEngine(self.overlay))

    def bench(self, seed: int) -> Bench:
        simulation = Simulation(self.text, seed, simulator=fastest())
        return Bench(self.overlay, simulation, seed, SIZE * self.overlay.window.planes)


@pytest.fixture(scope="module", params=[(2, 16, 1), (2, 16, 2), (4, 8, 2), (1, 16, 1)], ids=str)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tmp_path_factory.mktemp("window"), *request.param)


@pytest.mark.slow  # four engines to compile
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_hundreds_of_chains(engine: Engine, first: int) -> None:
    """Tasks of all kinds, each fetched while the ones before are computed and written; codes of some go through a table."""
    kinds = [kind for kind in KINDS if kind.__name__ in {*engine.overlay.kinds, "pair"}]
    for seed in range(first, first + 50):
        bench, random = engine.bench(seed), Random(seed)
        for kind in random.choices(kinds, k=6):
            case = kind(bench.random, engine.overlay)
            bench.add(
                looked_up(bench.random, case) if random.random() < 0.5 else case, bands=random.choice([1, 1, 2, 5])
            )
        bench.check()


@pytest.mark.slow
@pytest.mark.parametrize("planes", range(1, 10))
def test_groups_with_fewer_planes(engine: Engine, planes: int) -> None:
    """A vector's words go to the queues one by one; the last group has some of its planes, and its last plane some channels."""
    for channels in (8 * planes, 8 * planes - 3):
        shape = 2, channels, 7, 13
        shapes = {"x": shape, "z": (2, channels, 1, 1), "y": shape}
        r = Requantization(np.array(1), 9, -128, 127)
        task = Eltwise(("x", "z"), "y", ("scale",), (300,), None, r, (0, -128), "PROD", True)
        bench = engine.bench(channels)
        bench.add(Case(task, shapes, {"x": (channels + 8, 8), "z": (channels, 0), "y": (channels + 16, 8)}))
        bench.check()


@pytest.mark.slow
def test_planes_side_by_side_take_the_cycles_of_one_as_modelled(engine: Engine) -> None:
    """A leaky sum multiplies four times for each word, and its ports read two, one a cycle or both."""
    shape = 1, 128, 28, 28
    words = 16 * 28 * 28
    r = Requantization(np.array(1), 9, -128, 127)
    task = Eltwise(("x", "z"), "y", ("sum",), (300, 200), (30, 20), r, (0, 0))
    shapes = dict.fromkeys(("x", "z", "y"), shape)
    bench = engine.bench(6)
    bench.calm()
    bench.add(Case(task, shapes, dict.fromkeys(shapes, (128, 0))))
    multiplied = 4 * words // engine.overlay.window.planes
    assert (cycles := task.working_cycles(engine.overlay, shapes)) == max(
        multiplied, words, 2 * words // engine.overlay.ports.words // engine.overlay.ports.window
    )
    assert cycles < bench.check() < 1.05 * cycles + 400


def test_runs_of_a_group_are_those_of_its_planes_in_turn() -> None:
    """The last group of an image has fewer, and the last run of all is that of its last plane."""
    bits, planes, pitch = 32, 4, 392
    simulation = Simulation.of(PlaneRuns(bits, planes), 1)
    for name, value in {"size": planes, "rest": 3, "pitch": pitch}.items():
        simulation.set(name, value)
    groups, runs = simulation.source("groups", 60), simulation.sink("runs", 60)
    places = [(0x1000, 64, 0, 0), (0x1200, 3, 0, 0), (0x5000, 64, 1, 0), (0x5200, 3, 1, 1)]
    groups.feed(*(packed(run(bits), place) for place in places))
    simulation.tick(200)
    expected = []
    for address, beats, tail, last in places:
        for plane in range(count := 3 if tail else planes):
            ends = plane == count - 1
            values = address + plane * pitch, beats, tail, last and ends, plane, ends
            expected.append(packed(plane_run(bits, planes), values))
    assert [*runs] == expected


def packed(layout: data.StructLayout, values: tuple[int, ...]) -> int:
    """The members of a layout as one number."""
    return sum(int(value) << field.offset for (_, field), value in zip(layout, values))
