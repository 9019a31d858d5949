"""chai overlay build, with the stand-in for Vivado on the PATH."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chai import overlay as overlays
from chai.bitstream import core
from chai.bitstream.project import LOG, Project, rate
from chai.errors import UsageError
from tests.bitstream.common import written
from tests.conftest import ROOT

from .conftest import InProcess


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core with nothing in it: the real one takes a minute."""
    monkeypatch.setattr(Project, "write_core", lambda self, folder: written(self, folder))


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tkinter", reason="this Python has no tkinter, whose Tcl runs the scripts")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vivado"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.bitstream.vivado "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


@pytest.mark.usefixtures("quick")
def test_it_prints_the_one_command(in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made" / "here"
    assert in_process("overlay", "build", "zedboard", "-o", folder, "--clock", "90.9") == 0
    first, second = capsys.readouterr().out.splitlines()
    build = f"{overlays.load('pynq-z2').build:08x}"
    assert first == f"{folder}   pynq-z2 for ZedBoard, xc7z020clg484-1, 90.9 MHz, build {build}"
    assert second == f"build it:   cd {folder} && vivado -mode batch -source build.tcl"
    settings = (folder / "settings.tcl").read_text()
    assert "set part {xc7z020clg484-1}" in settings and "set mhz {90.909091}" in settings
    assert (folder / "ooc.xdc").read_text() == "create_clock -period 11.000 -name aclk [get_ports aclk]\n"


@pytest.mark.usefixtures("quick", "on_path")
def test_run_starts_it(in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process("overlay", "build", "ultra96", "-o", tmp_path / "b", "--run") == 0
    out, err = capsys.readouterr()
    assert "the fastest clock that would close is 250.0 MHz" in out and "next: copy ultra96.bit" in err
    assert (tmp_path / "b" / "ultra96.bit").is_file() and (tmp_path / "b" / "ultra96.hwh").is_file()
    assert "****** Vivado" not in out


@pytest.mark.usefixtures("quick", "on_path")
def test_a_clock_that_is_not_met_ends_with_1(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDIN_SLACK", "-1.9")
    assert in_process("overlay", "build", "pynq-z2", "-o", tmp_path / "b", "--run") == 1
    out, err = capsys.readouterr()
    assert "ERROR: the clock of 100.0 MHz is not met: build with --clock 83.3" in out
    assert f"error: Vivado ended with 1: {tmp_path / 'b' / LOG} has all that it printed" in err
    assert "not met" in (tmp_path / "b" / LOG).read_text()


@pytest.mark.usefixtures("quick", "on_path")
def test_ooc_runs_the_accelerator_alone(
    in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process("overlay", "build", "kv260", "-o", tmp_path / "b", "--ooc", "--run") == 0
    assert "worst path 3.800 ns of 4.000 ns" in capsys.readouterr().out
    assert not (tmp_path / "b" / "kv260.bit").exists()


@pytest.mark.parametrize(
    ("typed", "code", "says", "hint"),
    [
        (["vta-z7020"], 69, "overlay vta-z7020 is no design of chai's", "chai overlay build pynq-z2"),
        (["zedbord"], 69, "there is no overlay or board 'zedbord'", "did you mean 'zedboard'?"),
        (["pynq-z2", "--clock", "95"], 2, "the PLL has no 95 MHz", "--clock 90.9 or --clock 100.0"),
        (["pynq-z2", "--clock", "1e9"], 2, "the PLL has no 1e+09 MHz", "--clock 500.0"),
        (["pynq-z2", "--clock", "-3"], 2, "the PLL has no -3 MHz", "--clock 10.0"),
        (["pynq-z2", "--clock", "nan"], 2, "the PLL has no nan MHz", "1000 MHz"),
        (["pynq-z2", "--run"], 69, "there is no vivado on the PATH", "settings64.sh"),
        (["pynq-z2", "--run", "--scripts-only"], 2, "--run does nothing with --scripts-only", "leave it out"),
    ],
)
def test_what_cannot_be_built_says_why(
    typed: list[str], code: int, says: str, hint: str, in_process: InProcess, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    assert in_process("overlay", "build", *typed, "-o", tmp_path / "b") == code
    err = capsys.readouterr().err
    assert says in err and hint in err and "Traceback" not in err
    assert not (tmp_path / "b").exists()


def test_a_board_needs_the_name_of_its_file(
    in_process: InProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the scripts would take whatever board Vivado knows."""
    manifest = tmp_path / "overlay.json"
    manifest.write_text(overlays.load("zcu102").path.read_text().replace(', "board_file": "zcu102"', ""))
    assert in_process("overlay", "build", manifest, "-o", tmp_path / "b") == 69
    err = capsys.readouterr().err
    assert "does not say which board file sets the processor of ZCU102" in err and '"board_file"' in err


def test_without_amaranth_it_says_what_installs_it(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core, "find_spec", lambda name: None)
    assert in_process("overlay", "build", "pynq-z2", "-o", tmp_path / "b") == 69
    err = capsys.readouterr().err
    assert "error: Verilog cannot be written: the amaranth library is not installed" in err
    assert "hint: pip install 'chai-fpga[rtl]'" in err


@pytest.mark.parametrize(("family", "typed", "mhz"), [("zynq7000", 76.9, 1000 / 13), ("zynqmp", 214.3, 1500 / 7)])
def test_a_rate_of_the_pll_may_be_rounded(family: str, typed: float, mhz: float) -> None:
    assert rate(family, typed) == mhz
    with pytest.raises(UsageError, match="divides"):
        rate(family, typed + 0.5)
