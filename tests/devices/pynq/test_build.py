"""What the build scripts make: the real pynq reads the .hwh of the block design, and the driver runs a network through it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, parse

import numpy as np
import pytest

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")
pytest.importorskip("tkinter", reason="this Python has no tkinter, whose Tcl runs the scripts")

import pynq

import chai
from chai.bitstream.project import Project
from chai.devices.pynq import program
from chai.env import env
from tests.bitstream.common import built

from .conftest import ZYNQ_7000
from .hardware_files import base, bitstream, controller
from .test_networks import digits, segments

BOARDS = [
    pytest.param(name, marks=ZYNQ_7000) for name in ("pynq-z2", "pynq-z1", "zedboard")
] + ["ultra96", "ultra96-v2", "kv260", "zcu102", "zcu104"]  # fmt: skip


def board_with(
    board_of: Callable[..., Any], name: str, folder: Path, clock: float | None = None, **options: Any
) -> Any:
    """The simulated board, with the two files that the scripts have made."""
    project = Project.of(name, clock)
    board = board_of(project.overlay.path, **options)
    vivado = built(project, folder, bit=bitstream(project.overlay))
    assert vivado.design is not None and vivado.design.valid
    for ending in ("bit", "hwh"):
        file = folder / f"{project.overlay.name}.{ending}"
        board.overlay.path.with_name(file.name).write_bytes(file.read_bytes())
    return board


@pytest.mark.parametrize("name", BOARDS)
def test_digits_run_on_what_the_scripts_built(
    board_of: Callable[..., Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Registers, clock, and the interrupt, which the driver only has if pynq finds the way to the controller."""
    monkeypatch.setenv("CHAI_PYNQ_WAIT", "interrupt")
    env.cache_clear()
    board = board_with(board_of, name, tmp_path / "build", interrupt=True)
    wanted = chai.Net("digits", overlay=board.overlay.path, calibrate=digits())
    net = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=digits())
    expected, outputs = wanted.forward(digits()), net.forward(digits())
    assert all(np.array_equal(outputs[blob], expected[blob]) for blob in expected)
    assert board.counts.writes["CONTROL"] == segments(net) == 1
    assert board.controller.count == 1, caplog.text
    net.close()


@pytest.mark.parametrize("name", BOARDS)
def test_pynq_reads_the_design(board_of: Callable[..., Any], name: str, tmp_path: Path) -> None:
    board = board_with(board_of, name, tmp_path / "build")
    overlay = board.overlay
    loaded = pynq.Overlay(str(overlay.path.with_name(f"{overlay.name}.bit")), device=board)
    accelerator = loaded.ip_dict["accelerator"]
    assert accelerator["type"] == overlay.vlnv
    assert (accelerator["phys_addr"], accelerator["addr_range"]) == (base(overlay), overlay.registers.window)
    assert loaded.ip_dict["axi_intc_0"]["phys_addr"] == controller(overlay)
    assert [about["fullpath"] for about in accelerator["interrupts"].values()] == ["accelerator/interrupt"]
    assert loaded.interrupt_pins["accelerator/interrupt"]["controller"] == "axi_intc_0"


@pytest.mark.parametrize(("name", "mhz"), [pytest.param("pynq-z2", 83.3, marks=ZYNQ_7000), ("kv260", 187.5)])
def test_a_slower_bitstream_is_never_clocked_faster(
    board_of: Callable[..., Any], name: str, mhz: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    board = board_with(board_of, name, tmp_path / "build", mhz)
    with caplog.at_level(logging.INFO, "chai.pynq"):
        opened = program.device.board(board.overlay)
    assert opened.mhz == pytest.approx(mhz, rel=1e-3) and opened.mhz < board.overlay.clock_mhz
    assert "does not reach" not in caplog.text


def test_the_handoff_says_nothing_that_vivado_would_not(tmp_path: Path) -> None:
    """Its elements and attributes are among those of a file that Vivado has written, which comes with pynqmetadata."""
    pynqmetadata = pytest.importorskip("pynqmetadata", reason="this pynq has no pynqmetadata")
    (real,) = Path(pynqmetadata.__file__).parent.glob("tests/hwhs/resizer.hwh")
    project = Project.of("pynq-z2")
    built(project, tmp_path)
    known, own = attributes(real), attributes(tmp_path / "pynq-z2.hwh")
    assert own.keys() <= known.keys() and len(own) > 10
    assert {tag: names - known[tag] for tag, names in own.items() if names - known[tag]} == {}


def attributes(path: Path) -> dict[str, set[str]]:
    """Names of the attributes of each kind of element, at its place."""
    names_at: dict[str, set[str]] = {}

    def walk(element: Element, place: str) -> None:
        names_at.setdefault(place, set()).update(element.attrib)
        for child in element:
            walk(child, f"{place}/{child.tag}")

    walk(parse(path).getroot(), "")
    return names_at
