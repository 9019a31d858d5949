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
from chai.devices.pynq.array import RESET
from chai.devices.rtlsim import program
from chai.devices.rtlsim.program import READS, Accelerator
from chai.devices.rtlsim.simulation import Simulation, fastest
from chai.devices.rtlsim.tools import missing
from chai.driver.registers import Registers
from chai.env import env
from chai.errors import DeviceError
from chai.hw_overlays.rtl.watch import PATIENCE
from chai.overlay import Overlay
from tests.rtl.manifests import small

from .clock import Clock
from .test_build import board_with
from .test_networks import ZYNQ_7000, digits, segments

if missing():
    pytest.skip(missing(), allow_module_level=True)


LOOK = 20e-6  # seconds between two looks at its interrupt


class Rtl:
    """The simulated board's accelerator, as far as the board asks for it; its clock follows the test's."""

    def __init__(self, overlay: Overlay, memory: Any, clock: Clock) -> None:
        self.overlay, self.memory, self.clock = overlay, memory, clock
        self.offsets = {r.offset: r.name for r in overlay.registers.list}
        self.text = program.generated(overlay)
        self.power_on()

    def power_on(self) -> None:
        self.simulation = Simulation(self.text, simulator=fastest())
        self.accelerator = Accelerator(self.simulation, (90, 150), 20, 15, self.overlay.memory_port)
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

    @property
    def ends(self) -> float:
        """When it is time to look again: a chain takes as long as it takes."""
        return self.clock.now + LOOK

    def _bit(self, name: str) -> bool:
        status = self.overlay.registers["STATUS"]
        return bool(self.accelerator.read(status.offset) & status.mask(name))


def fails(net: chai.Net) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        net.forward(digits())
    assert caught.value.layer in {layer.name for layer in net.graph.layers}
    return caught.value


@pytest.mark.slow
@ZYNQ_7000
@pytest.mark.parametrize("wait", ["poll", "interrupt"])
def test_faults_of_memory_ports_through_pynq_and_the_rtl(
    board_of: Callable[..., Any],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    wait: str,
) -> None:
    """Errors on each port, then a port that gets stuck: each is told in words and at once, and the next pass is right."""
    monkeypatch.setenv("CHAI_CACHE", str(request.config.cache.mkdir("chai-rtl")))
    monkeypatch.setenv("CHAI_PYNQ_WAIT", wait)
    env.cache_clear()
    (tmp_path / "small").mkdir()
    board = board_of(
        small(tmp_path / "small", inputs=16, outputs=16, lanes=1).path, interrupt="level" * (wait == "interrupt")
    )
    board.accelerator = rtl = Rtl(board.overlay, board.memory, clock)
    expected = chai.Net("digits", overlay=board.overlay.path, calibrate=digits()).forward(digits())
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=digits())

    def right() -> None:
        outputs = net.forward(digits())
        assert all(np.array_equal(outputs[b], expected[b]) for b in expected)

    right()
    for i, channel in enumerate(rtl.accelerator.channels):
        for kind in ("slverr", "decerr"):
            rtl.accelerator.channels[channel].fail(kind, 3 * i)
            error = fails(net)
            assert f"bus error while {'reading' if channel in READS else 'writing'}" in error.message
            assert board.downloads == 1
            right()
    for channel in ("m1_read", "m3_write"):
        for kind in ("silent", "deaf"):
            rtl.accelerator.channels[channel].fail(kind, 2)
            begin = clock.now
            error = fails(net)
            assert f"memory port {channel[:2]} does not answer" in error.message
            told = clock.now - begin
            # at once, and not when the driver's patience ends, a second; with a reset that does not help
            assert PATIENCE / (board.overlay.clock_mhz * 1e6) < told < RESET + 0.01
            registers = Registers(board.overlay, rtl)  # a start without a download
            registers.start(0x1000_0000, 1)
            assert registers.failed([]).message.endswith(f"memory port {channel[:2]} does not answer")
            assert "until the bitstream is loaded again" in str(registers.failed([]).hint)
            right()
    assert board.downloads == 5
    net.close()


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
        expected, outputs = wanted.forward(scale * digits()), net.forward(scale * digits())
        assert all(np.array_equal(outputs[b], expected[b]) for b in expected)
    assert board.counts.writes["CONTROL"] == 2 * segments(net) == 2
    # the level of the first pass may stand again before the second one: the thread of interrupts may be late to acknowledge it
    assert board.controller.count in (2, 3)
    net.close()
