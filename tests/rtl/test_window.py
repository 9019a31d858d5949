"""The window engine alone against the definitions of its Tasks, byte for byte, in a memory of noise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from chai import overlay as overlays
from chai.codegen.dependencies import Finished
from chai.fixed import Requantization
from chai.overlay import Overlay
from chai.tasks.copy import Copy
from chai.tasks.depthwise import Depthwise
from chai.tasks.eltwise import Eltwise
from chai.tasks.lrn import SEGMENTS
from chai.tasks.pool import Pool
from chai.tasks.window import Window

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from chai.devices.rtlsim.simulation import Simulation, fastest, rtlil
from chai.devices.rtlsim.tools import missing
from chai.hw_overlays.rtl.ports import Stall
from chai.hw_overlays.rtl.window.engine import WindowEngine
from chai.hw_overlays.rtl.window.table import RECORDS
from tests.rtl.window_tasks import (
    KINDS,
    SIZE,
    Bench,
    Case,
    copy,
    depthwise,
    eltwise,
    interleave,
    looked_up,
    lrn,
    pair,
    pool,
    upsample,
)
from tests.tasks.lrns import random_table

if missing():
    pytest.skip(missing(), allow_module_level=True)

KERNEL, LINES = 5, 128  # of a small engine: two groups of slots


class Engine:
    """The window engine of a manifest, compiled once."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.text = rtlil(WindowEngine(overlay))

    def bench(self, seed: int, size: int = SIZE) -> Bench:
        return Bench(self.overlay, Simulation(self.text, seed, simulator=fastest()), seed, size)

    def tasks(self, seed: int, *kinds: Callable[..., Case]) -> None:
        """Run random Tasks of these kinds, and compare."""
        bench = self.bench(seed)
        for kind in kinds:
            bench.add(kind(bench.random, self.overlay), bands=bench.random.choice([1, 1, 2, 3, 6]))
        bench.check()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    manifest = json.loads(overlays.load().path.read_text())
    manifest["tasks"]["pool"]["kernel_max"] = KERNEL
    manifest["buffers"]["pool"]["depth"] = LINES
    path = tmp_path_factory.mktemp("window") / "overlay.json"
    path.write_text(json.dumps(manifest))
    return Engine(overlays.load(path))


@pytest.fixture(scope="module")
def shipped() -> Engine:
    return Engine(overlays.load())


@pytest.mark.parametrize(
    ("kind", "count"),
    [(pool, 120), (eltwise, 40), (pair, 60), (upsample, 40), (interleave, 40), (copy, 25), (lrn, 30), (depthwise, 80)],
)
def test_a_task_alone(engine: Engine, kind: Callable[..., Case], count: int) -> None:
    for seed in range(count):
        engine.tasks(seed, kind)


def test_tasks_overlap(engine: Engine) -> None:
    """Each is fetched while the ones before are computed and written."""
    for seed in range(1000, 1040):
        engine.tasks(seed, *Random(seed).choices(KINDS, k=6))


def test_codes_go_through_tables(engine: Engine) -> None:
    """Those of some of the Tasks, each through its own; the manifest gives an LRN none."""
    for seed in range(2000, 2040):
        bench = engine.bench(seed)
        for kind in Random(seed).choices(KINDS, k=6):
            case = kind(bench.random, engine.overlay)
            case = looked_up(bench.random, case) if kind is not lrn and bench.random.random() < 0.7 else case
            bench.add(case, bands=bench.random.choice([1, 1, 3]))
        bench.check()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_thousands_of_tasks(shipped: Engine, first: int) -> None:
    for seed in range(first, first + 50):
        shipped.tasks(seed, *Random(seed).choices(KINDS, k=6))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(5000, 5500, 50))
def test_hundreds_of_lrn_tasks(shipped: Engine, first: int) -> None:
    """In pairs, so that one is fetched while the other is computed, and its table when the other one's is free."""
    for seed in range(first, first + 50, 2):
        shipped.tasks(seed, lrn, lrn)


def average(out: tuple[int, int], size: tuple[int, int], window: Window, batch: int = 1, channels: int = 8) -> Case:
    """An average pooling with other multipliers for each window."""
    random = np.random.default_rng(out)
    r = Requantization(random.integers(1 << 8, 1 << 17, out), 20, -128, 127)
    task = Pool(("x",), "y", ("pool",), window, out, r, -128)
    shapes = {"x": (batch, channels, *size), "y": (batch, channels, *out)}
    return Case(task, shapes, dict.fromkeys(("x", "y"), (channels, 0)))


def test_a_table_that_does_not_stay_is_fetched_for_each_plane(engine: Engine) -> None:
    bench = engine.bench(1)
    bench.add(average((25, 22), (50, 43), Window((2, 3), (2, 2), (0, 1)), batch=2, channels=11))
    assert RECORDS < 25 * 22
    bench.add(pool(Random(5), engine.overlay))
    exactly = average((RECORDS // 16, 16), (RECORDS // 16, 17), Window((1, 2), (1, 1), (0, 0)), channels=17)
    bench.add(exactly)
    size = (RECORDS + 1) // 19, 19  # one record too many
    bench.add(average(size, size, Window((1, 1), (1, 1), (0, 0)), channels=9))
    bench.check()


@pytest.mark.parametrize("slots", [3, KERNEL])
def test_windows_use_the_whole_line_memory(engine: Engine, slots: int) -> None:
    """As many unfinished windows as it has words: slots for each column."""
    columns = LINES // slots
    window = Window((slots, 2), (1, 1), (slots - 1, 0))
    task = Pool(("x",), "y", ("pool",), window, (6 + slots - 1, columns), None)
    shapes = {"x": (1, 8, 6, columns + 1), "y": (1, 8, 6 + slots - 1, columns)}
    bench = engine.bench(2)
    bench.add(Case(task, shapes, {"x": (8, 0), "y": (8, 0)}))
    bench.check()


def test_the_largest_global_average_fits_its_register(engine: Engine) -> None:
    """255 x 255 codes of 127, whose values are 255: nearly 2^24."""
    size = 255, 255
    bench = engine.bench(3, 1 << 20)
    bench.add(average((1, 1), size, Window(size, (1, 1), (0, 0)), channels=3), code=127)
    bench.check()


def test_a_blob_is_not_read_before_the_tasks_it_waits_for_have_finished(engine: Engine) -> None:
    for after in (Finished(array=3), Finished(window=2)):
        bench = engine.bench(4)
        case = pool(Random(3), engine.overlay)
        case.after = after
        bench.add(case)
        bench.start()
        before = bench.memory.copy()
        bench.simulation.tick(1500)
        assert bench.simulation.get("stall") == Stall.DEPENDENCY.value
        assert (bench.memory == before).all()
        bench.simulation.set("array_done", after.array)
        bench.simulation.set("window_done", after.window)
        bench.check()


def test_each_cycle_of_a_task_is_work_or_has_a_reason(engine: Engine) -> None:
    for seed in range(3):
        bench = engine.bench(seed)
        bench.calm()
        bench.writes = 90, 90
        bench.add(pool(Random(seed), engine.overlay))
        work, stalls = bench.simulation.histogram("mac"), bench.simulation.histogram("stall")
        cycles = bench.check()
        before = cycles - work[1] - sum(stalls[reason.value] for reason in Stall if reason is not Stall.NONE)
        assert 0 <= before <= 4  # until it has the Task
        assert stalls[Stall.INPUT.value] > 100  # of the latency, while it goes through rows above the image
        assert stalls[Stall.OUTPUT.value] >= 90


def test_a_word_of_the_input_takes_a_cycle(engine: Engine) -> None:
    """But for two cycles from row to row, the last column of windows that end in the padding, and the last row of those."""
    size, planes = (28, 28), 6
    task = Pool(("x",), "y", ("pool",), Window((3, 3), (1, 1), (1, 1)), size, None)
    shape = 1, 8 * planes, *size
    bench = engine.bench(5)
    bench.calm()
    bench.add(Case(task, {"x": shape, "y": shape}, {"x": (shape[1], 0), "y": (shape[1], 0)}))
    words = planes * size[0] * size[1]
    assert words < bench.check() < 1.16 * words + 150


def test_a_word_of_an_eltwise_takes_two_cycles_and_of_a_copy_one_as_modelled(engine: Engine) -> None:
    shape = 1, 64, 28, 28
    words = 8 * 28 * 28
    around = dict.fromkeys(("x", "z", "y"), (64, 0))
    r = Requantization(np.array(1), 9, -128, 127)
    for task, cycles in (
        (Eltwise(("x", "z"), "y", ("sum",), (300, 200), None, r, (0, 0)), 2 * words),
        (Eltwise(("x", "z"), "y", ("sum",), (300, 200), (30, 20), r, (0, 0)), 4 * words),
        (Copy(("x",), "y", ("copy",), 0, None), words),
    ):
        bench = engine.bench(6)
        bench.calm()
        shapes = dict.fromkeys(("x", "z", "y"), shape)
        bench.add(Case(task, shapes, around))
        assert task.working_cycles(engine.overlay, shapes) == cycles
        assert cycles < bench.check() < 1.02 * cycles + 250


def filters(size: tuple[int, int], planes: int, stride: int = 1) -> Case:
    """Filters of so many planes over images of this size, with padding as large as keeps it."""
    channels, window = 8 * planes, Window((3, 3), (stride, stride), (1, 1))
    random = np.random.default_rng(planes)
    weights = random.integers(-127, 128, (channels, 1, 3, 3)).astype(np.int8)
    r = Requantization(random.integers(1 << 8, 1 << 17, (channels, 1, 1)), 24, -128, 127)
    task = Depthwise(("x",), "y", ("f",), weights, random.integers(-99, 99, channels), window, channels, r)
    shapes = {"x": (1, channels, *size), "y": (1, channels, *window.sizes(size))}
    return Case(task, shapes, dict.fromkeys("xy", (channels, 0)))


@pytest.mark.parametrize(
    ("size", "planes", "stride"), [((28, 28), 6, 1), ((28, 30), 6, 2), ((14, 14), 9, 1), ((5, 7), 40, 1)]
)
def test_a_column_of_filters_takes_a_cycle_as_modelled(
    engine: Engine, size: tuple[int, int], planes: int, stride: int
) -> None:
    """Weights and records of the next plane come meanwhile, even where that takes longer than a small plane."""
    case = filters(size, planes, stride)
    bench = engine.bench(10)
    bench.calm()
    bench.add(case)
    cycles = case.task.working_cycles(engine.overlay, case.shapes)
    assert cycles >= planes * (size[0] + (stride == 1)) * (size[1] + (stride == 1))
    assert cycles < bench.check() < 1.02 * cycles + 450


def test_filters_use_the_whole_memory_of_rows(engine: Engine) -> None:
    limits = Depthwise.limits(engine.overlay)
    assert limits is not None
    bench = engine.bench(11)
    bench.add(filters((4, limits.columns_max), 2))
    bench.add(filters((3, limits.columns_max), 1, 2))
    bench.check()


@pytest.mark.parametrize("size", [(28, 28), (9, 7), (1, 1)])
def test_a_word_of_an_lrn_takes_one_cycle_as_modelled(engine: Engine, size: tuple[int, int]) -> None:
    """After its table, of as many words as it has segments; with a part of the last plane for each image."""
    shapes = dict.fromkeys("xy", (2, 64, *size))
    task = replace(random_table(np.random.default_rng(3), 9), local_size=5)
    bench = engine.bench(7)
    bench.calm()
    bench.add(Case(task, shapes, dict.fromkeys("xy", (64, 0))))
    pixels = size[0] * size[1]
    assert (cycles := task.working_cycles(engine.overlay, shapes)) == 2 * (8 * pixels + min(64, pixels))
    assert cycles + SEGMENTS < bench.check() < 1.02 * cycles + SEGMENTS + 450


@pytest.mark.parametrize("size", [(8, 8), (5, 13), (8, 16), (3, 43), (1, 66)])
def test_the_last_part_of_an_lrn_is_short(engine: Engine, size: tuple[int, int]) -> None:
    """Parts have 64 pixels: all, or the last one has one or two, of one plane and of some; the next image begins at once."""
    for channels in (3, 8, 20):
        shapes = dict.fromkeys("xy", (3, channels, *size))
        task = replace(random_table(np.random.default_rng(5), 9), local_size=5)
        bench = engine.bench(9)
        bench.add(Case(task, shapes, dict.fromkeys("xy", (channels, 0))))
        bench.check()


def test_a_table_of_an_lrn_comes_while_the_task_before_computes(engine: Engine) -> None:
    """An LRN after a copy does not wait for its table; one after an LRN does, until that one is done with its own."""
    shapes = dict.fromkeys("xy", (1, 64, 28, 28))
    table = random_table(np.random.default_rng(4), 9)
    planar = dict.fromkeys("xy", (64, 0))
    cycles = []
    for first in (Copy(("x",), "y", ("copy",), 0, None), table):
        bench = engine.bench(8)
        bench.calm()
        bench.add(Case(first, shapes, planar))
        bench.add(Case(table, shapes, planar))
        cycles.append(bench.check())
    assert 2 * SEGMENTS > cycles[1] - cycles[0] - 64 > SEGMENTS
