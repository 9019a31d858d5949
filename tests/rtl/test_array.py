"""The array engine against the definitions of its Tasks, bit for bit, in all of memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from chai.codegen.dependencies import Finished
from chai.devices.rtlsim.tools import missing
from chai.overlay import Overlay
from chai.overlay.records import value
from chai.tasks import tiling

from .array_bench import KINDS, Bench, pick, random_conv, small

if missing():
    pytest.skip(missing(), allow_module_level=True)

SMALL = small(16, 16)
LATENCIES = (1, 1), (1, 20), (150, 150), (1, 300)


def run(overlay: Overlay, seed: int, tasks: int = 5) -> set[int]:
    """Run a chain of random Tasks of all kinds; some read what the one before them writes. Return what stays on chip."""
    bench = Bench(overlay, seed)
    random = np.random.default_rng(seed)
    target, stays = None, set()
    for i in range(tasks):
        kind = KINDS[int(random.integers(len(KINDS)))]
        follows = target is not None and random.random() < 0.5
        task, codes = random_conv(overlay, random, kind, target.shape if follows else None)
        if follows and codes.shape == target.shape:
            target = bench.add(task, bench.codes(target), Finished(array=i, window=0), target)
        else:
            target = bench.add(task, codes, Finished(array=int(random.integers(0, i + 1)), window=0))
        stays.add(value(overlay.descriptor, bench.descriptors[-1], "stays"))
    bench.run(LATENCIES[int(random.integers(len(LATENCIES)))], pick(random, 0, 0, 40, 200))
    return stays


@pytest.mark.parametrize("part", range(6))
def test_chains_of_random_tasks_are_their_definitions(part: int) -> None:
    stays = set().union(*(run(SMALL, 1000 * part + seed) for seed in range(10)))
    assert stays == {tiling.NOTHING, tiling.IMAGE, tiling.IMAGES, tiling.WEIGHTS}
