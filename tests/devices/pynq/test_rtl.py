"""The real pynq and driver, the .hwh that the build scripts make, and the RTL in place of the accelerator in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")
pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai.devices.rtlsim import program
from chai.devices.rtlsim.accelerator import Accelerator
from chai.devices.rtlsim.building import fastest
from chai.devices.rtlsim.simulation import Simulation
from chai.devices.rtlsim.tools import missing
from chai.env import env
from chai.overlay import Overlay
from tests.rtl.manifests import small

from .clock import Clock
from .test_build import board_with
from .test_networks import ZYNQ_7000, digits, segments

if missing():
    pytest.skip(missing(), allow_module_level=True)


class Rtl:
    """The simulated board's accelerator, as far as the board asks for it; its clock follows the test's."""

    def __init__(self, overlay: Overlay, memory: Any, clock: Clock) -> None:
        self.overlay, self.memory, self.clock = overlay, memory, clock
        self.offsets = {r.offset: r.name for r in overlay.registers.list}
        self.text = program.generated(overlay)
        self.power_on()

    def power_on(self) -> None:
        self.simulation = Simulation(self.text, simulator=fastest())
        self.accelerator = Accelerator(self.simulation, (90, 150), 20, 15)
        self.time = self.clock.now

    def read(self, offset: int) -> int:
        self.tick()
        return self.accelerator.read(offset)

    def write(self, offset: int, value: int) -> None:
        self.tick()
        self.simulation.forget_memory()
        for buffer in self.memory.held.values():
            self.simulation.memory(buffer.address, buffer.device)
        self.accelerator.write(offset, value)

    def tick(self) -> None:
        passed, self.time = self.clock.now - self.time, self.clock.now
        if cycles := round(passed * self.overlay.clock_mhz * 1e6):
            self.simulation.tick(cycles)

    @property
    def due(self) -> float:
        return self.clock.now + 1e-3  # nobody knows: look every 100,000 cycles

    @property
    def line(self) -> bool:
        return bool(self.simulation.get("interrupt"))


@pytest.mark.slow  # compiling the accelerator takes two minutes on one processor
@ZYNQ_7000
def test_a_network_through_pynq_and_the_rtl(
    board_of: Callable[..., Any],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("CHAI_CACHE", str(request.config.cache.mkdir("chai-rtl")))
    env.cache_clear()
    monkeypatch.setenv("CHAI_PYNQ_WAIT", "interrupt")
    (tmp_path / "small").mkdir()
    board = board_with(board_of, str(small(tmp_path / "small").path), tmp_path / "build", interrupt=True)
    board.accelerator = Rtl(board.overlay, board.memory, clock)
    wanted = chai.Net("digits", overlay=board.overlay.path, calibrate=digits())
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=digits())
    for scale in (1, 0.5):
        expected, found = wanted.forward(scale * digits()), net.forward(scale * digits())
        assert all(np.array_equal(found[b], expected[b]) for b in expected)
    assert board.counts.writes["CONTROL"] == 2 * segments(net) == board.controller.count == 2
    net.close()
