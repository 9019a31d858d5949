"""The window engine alone against the definitions of its Tasks, byte for byte, in a memory of noise."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from chai import overlay as overlays
from chai.fixed import Requantization
from chai.tasks.pool import Pool
from chai.tasks.window import Window

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from chai.devices.rtlsim.building import missing, rtlil
from chai.devices.rtlsim.simulation import Simulation
from chai.hw_overlays.rtl.window.engine import WindowEngine
from chai.hw_overlays.rtl.window.table import RECORDS
from tests.rtl.window_tasks import KINDS, Bench, Case, copy, eltwise, pool

if missing():
    pytest.skip(missing(), allow_module_level=True)

OVERLAY = overlays.load()


@pytest.fixture(scope="module")
def engine() -> str:
    return rtlil(WindowEngine(OVERLAY))


def bench(engine: str, seed: int) -> Bench:
    return Bench(OVERLAY, Simulation(engine, seed), seed)


@pytest.mark.parametrize("kind", [pool, eltwise, copy])
def test_a_task_alone(engine: str, kind) -> None:
    for seed in range(80 if kind is pool else 25):
        one = bench(engine, seed)
        one.add(kind(one.random, OVERLAY))
        one.check()


def test_tasks_overlap(engine: str) -> None:
    """Each is fetched while the ones before are computed and written."""
    for seed in range(25):
        many = bench(engine, 1000 + seed)
        for _ in range(6):
            many.add(many.random.choice(KINDS)(many.random, OVERLAY))
        many.check()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_tasks(engine: str, part: int) -> None:
    for seed in range(50):
        many = bench(engine, 10_000 + 50 * part + seed)
        for _ in range(6):
            many.add(many.random.choice(KINDS)(many.random, OVERLAY))
        many.check()


def average(out: tuple[int, int], size: tuple[int, int], window: Window, batch: int = 1, channels: int = 8) -> Case:
    random = np.random.default_rng(out)
    r = Requantization(random.integers(1 << 8, 1 << 17, out), 20, -128, 127)
    task = Pool(("x",), "y", ("pool",), window, out, r, -128)
    shapes = {"x": (batch, channels, *size), "y": (batch, channels, *out)}
    return Case(task, shapes, dict.fromkeys(("x", "y"), (channels, 0)))


def test_a_table_that_does_not_stay_is_fetched_for_each_plane(engine: str) -> None:
    case = average((25, 22), (50, 43), Window((2, 3), (2, 2), (0, 1)), batch=2, channels=11)
    assert case.task.out[0] * case.task.out[1] > RECORDS
    one = bench(engine, 1)
    one.add(case)
    one.add(pool(Random(5), OVERLAY))
    one.add(average((RECORDS // 16, 16), (RECORDS // 16, 17), Window((1, 2), (1, 1), (0, 0)), channels=17))
    one.check()


def test_windows_use_the_whole_line_memory(engine: str) -> None:
    columns = OVERLAY.buffers.pool.depth // 15
    size = 3, columns
    case = average((3, columns), size, Window((15, 3), (1, 1), (14, 1)))
    case = Case(Pool(("x",), "y", ("pool",), case.task.window, (17, columns), None), {**case.shapes}, case.around)
    case.shapes["y"] = (1, 8, 17, columns)
    one = bench(engine, 2)
    one.add(case)
    one.check()


def test_the_largest_global_average_fits_its_register(engine: str) -> None:
    one = bench(engine, 3)
    one.random = Random(1)
    case = average((1, 1), (230, 250), Window((230, 250), (1, 1), (0, 0)), channels=5)
    one.add(case)
    one.check()


def test_a_blob_is_not_read_before_the_tasks_it_waits_for_have_finished(engine: str) -> None:
    one = bench(engine, 4)
    case = pool(Random(3), OVERLAY)
    case.after = 1
    one.add(case)
    one.simulation.tick(2000)
    assert np.array_equal(one.memory, one.expected) is False
    one.simulation.set("window_done", 1)
    one.check()


@pytest.mark.parametrize("count", ["array_done", "window_done"])
def test_dependency_is_the_reason_of_a_stall(engine: str, count: str) -> None:
    assert count in ("array_done", "window_done")
