"""Random networks with tables of codes on the simulated accelerator, every blob of it against the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai.devices.rtlsim.tools import missing
from tests.lookups import random_lines
from tests.passes.common import network

if missing():
    pytest.skip(missing(), allow_module_level=True)

pytestmark = pytest.mark.slow
SHAPE = 2, 8, 6, 7
DATA = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype(np.float32)


def check(folder: Path, seed: int) -> int:
    """Compare both devices, and return the number of Tasks with tables."""
    nets: list[chai.Net] = []
    for device in ("emulator", "rtlsim"):
        nets.append(network(folder, random_lines(seed), SHAPE, device=device))
        nets[-1].forward(DATA)
    emulated, simulated = nets
    for blob, values in emulated.blobs.items():
        assert np.array_equal(simulated.blobs[blob], values), (seed, blob)
    return sum(task.lookup is not None for step in simulated.schedule.segments for task in step.tasks)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_networks(tmp_path: Path, first: int) -> None:
    assert sum(check(tmp_path, seed) for seed in range(first, first + 20)) > 20
