"""Random networks of what overlays' later units run, on the simulated accelerator: every blob of it against the emulator.

pytest -m slow tests/devices/rtlsim/test_units.py        200 networks, and 40 chains that an error of a memory port stops
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai.devices.rtlsim import program
from chai.devices.rtlsim.tools import missing
from chai.errors import DeviceError
from tests.passes.common import network
from tests.test_units import DATA
from tests.units import INPUT, UnitNet

if missing():
    pytest.skip(missing(), allow_module_level=True)

pytestmark = pytest.mark.slow
AT_ONCE = 20


def pair(folder: Path, seed: int, **options: str) -> list[chai.Net]:
    """The network on the emulator and on the simulated accelerator, each after a pass."""
    nets = []
    for device in ("emulator", "rtlsim"):
        nets.append(network(folder, str(UnitNet(seed)), INPUT, device=device, **options))
        nets[-1].forward(DATA)
    return nets


def same(nets: list[chai.Net], seed: int) -> None:
    emulated, simulated = nets
    assert emulated.blobs.keys() == simulated.blobs.keys()
    for blob, values in emulated.blobs.items():
        assert np.array_equal(simulated.blobs[blob], values), (seed, blob)


@pytest.mark.parametrize("first", range(0, 200, AT_ONCE))
def test_random_networks(tmp_path: Path, first: int) -> None:
    """Half of them with every blob kept, the others with memory that blobs share."""
    kinds = set()
    for seed in range(first, first + AT_ONCE):
        nets = pair(tmp_path, seed, **({"keep": "all"} if seed % 2 else {}))
        same(nets, seed)
        kinds |= {task.kind for step in nets[1].schedule.segments for task in step.tasks}
    assert kinds >= {"conv", "pool", "eltwise", "interleave"}


@pytest.mark.parametrize("first", range(1000, 1040, AT_ONCE))
def test_chains_that_a_memory_port_stops(tmp_path: Path, first: int) -> None:
    """The error has the name of a layer, and the next pass is right."""
    for seed in range(first, first + AT_ONCE):
        nets, random = pair(tmp_path, seed), Random(seed)
        same(nets, seed)
        channels = program.accelerator(chai.overlay.load()).accelerator.channels
        window = any(task.engine == "window" for step in nets[1].schedule.segments for task in step.tasks)
        name = random.choice([f"m{port}_{way}" for port in (0, 3) for way in ("read", "write") if window or not port])
        channels[name].fail(random.choice(["slverr", "decerr"]), random.randrange(3))
        with pytest.raises(DeviceError, match="bus error while") as caught:
            nets[1].forward(DATA)
        assert caught.value.layer in {layer.name for layer in nets[1].graph.layers}, seed
        nets[1].forward(DATA)
        same(nets, seed)
