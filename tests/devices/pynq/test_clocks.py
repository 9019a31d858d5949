"""The accelerator's clock after a download, in the processor's registers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.devices.pynq import clocks, program
from chai.errors import DeviceError

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from .conftest import ZYNQ_7000  # noqa: E402
from .hardware_files import handoff  # noqa: E402

DIGIT = np.zeros((1, 1, 8, 8), np.float32)
FAMILIES = [pytest.param("pynq-z2", marks=ZYNQ_7000), "ultra96"]
# where divisors of PL clocks are (UG585, UG1087), and MHz of the PLL that the simulated boards divide
REGISTERS = {"pynq-z2": (0xF8000170, 0x10, 8, 20, 1000), "ultra96": (0xFF5E00C0, 0x4, 8, 16, 33.333 * 45)}


def mhz(board: Any, number: int) -> float:
    """What the divisors in the registers of the processor make of the PLL."""
    first, step, low, high, pll = REGISTERS[board.overlay.name]
    value = board.processor[first + step * number]
    return float(pll / ((value >> low & 63) * (value >> high & 63)))


def opened(board: Any, wanted: float) -> Any:
    """The board with an overlay that wants another clock: neither digest nor build depend on it."""
    return program.device.board(replace(board.overlay, clock_mhz=wanted))


def written(board: Any, **options: Any) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.hwh").write_bytes(handoff(board.overlay, **options))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("number", [0, 2])
def test_the_clock_that_drives_the_accelerator_is_set(
    board_of: Callable[..., Any], name: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    board = board_of(name)
    written(board, clock=number)
    before = [mhz(board, i) for i in range(4)]
    with caplog.at_level(logging.INFO, "chai.pynq"):
        opened(board, 125.0)
    assert mhz(board, number) == pytest.approx(125, rel=0.001)
    assert mhz(board, number) != before[number]
    assert f"clock {number} runs at 12" in caplog.text and "does not reach" not in caplog.text


@pytest.mark.parametrize("name", FAMILIES)
def test_a_clock_between_two_divisors_is_the_slower(
    board_of: Callable[..., Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """pynq's nearest would be 333 or 500 MHz: too fast for what was built."""
    board = board_of(name)
    opened(board, 300.0 if name == "pynq-z2" else 290.0)
    assert mhz(board, 0) == pytest.approx(250, rel=0.001)
    (record,) = [r for r in caplog.records if r.name == "chai.pynq"]
    assert record.levelno == logging.WARNING
    assert "clock 0 runs at 250 MHz" in record.message or "clock 0 runs at 249.99" in record.message
    assert "the board does not reach the" in record.message and board.overlay.name in record.message


@pytest.mark.parametrize("name", FAMILIES)
def test_a_bitstream_that_was_built_for_a_slower_clock_has_that_one(board_of: Callable[..., Any], name: str) -> None:
    """The .hwh says so; the manifest's clock would be too fast for it."""
    board = board_of(name)
    slow, hertz = (83.3333, "83333333") if name == "pynq-z2" else (214.281, "214281000")
    path = board.overlay.path.with_name(f"{name}.hwh")
    text = path.read_text()
    port = '<PORT NAME="aclk" DIR="I" SIGIS="clk"'
    assert text.count(port) == 1
    path.write_text(text.replace(port, f'{port} CLKFREQUENCY="{hertz}"'))
    opened(board, board.overlay.clock_mhz)
    assert mhz(board, 0) == pytest.approx(slow, rel=0.001)


def test_a_clock_that_cannot_be_slow_enough(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_set", lambda number, wanted: 2 * wanted)  # a PLL beyond what 63 * 63 divide
    with pytest.raises(DeviceError, match=r"clock 0 of the board runs at .* MHz, overlay .* is made for") as caught:
        program.device.board(board.overlay)
    assert "codes may be wrong" in str(caught.value.hint)
    assert not program._boards


def test_a_processor_whose_clocks_pynq_does_not_know(
    board: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program.device.board(board.overlay)  # which has downloaded it
    monkeypatch.setattr(type(pynq.Clocks), "fclk0_mhz", property(lambda _: 0, _unknown))
    path = board.overlay.path.with_name(f"{board.overlay.name}.hwh")
    clocks.set_clock(board.overlay, path, "accelerator")
    assert "clock 0 cannot be set to" in caplog.text and "Architecture not supported" in caplog.text


def _unknown(*_: Any) -> None:
    raise RuntimeError("Architecture not supported for Clocks")


def test_a_clock_that_is_not_the_processors(board: Any, caplog: pytest.LogCaptureFixture) -> None:
    written(board, clock=None)
    with caplog.at_level(logging.INFO, "chai.pynq"):
        opened(board, 33.0)
    assert mhz(board, 0) > 90  # what the download leaves behind
    assert "no clock of the processor drives accelerator" in caplog.text


def test_a_real_handoff() -> None:
    """One that Vivado has written comes with pynqmetadata."""
    import pynqmetadata

    path = Path(pynqmetadata.__file__).parent / "tests" / "hwhs" / "resizer.hwh"
    assert clocks.source(path, "axi_dma_0") == (0, 100)
    assert clocks.source(path, "no_such_block") is None


def test_a_counter_beyond_the_wall_clock_is_not_reported(
    board: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a build has no such register and reads ones: centuries, in a pass of milliseconds."""
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=DIGIT)
    net.forward(DIGIT)
    assert all(s.device_ms is not None for s in net.perf.steps if s.engine == "fpga")
    assert "accelerator " in net.perf.throughput() and "not reported" not in caplog.text
    read = board.accelerator.read
    offset = board.overlay.registers["CYCLES_HI"].offset
    monkeypatch.setattr(board.accelerator, "read", lambda at: 0xFFFF_FFFF if at == offset else read(at))
    for _ in range(2):
        net.forward(DIGIT)
    assert all(s.device_ms is None for s in net.perf.steps) and "accelerator" not in net.perf.throughput()
    assert caplog.text.count("ms in a run of ") == 1 and "its time is not reported" in caplog.text
