"""chai devices --test on the simulated board."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.cli import main as chai_command
from chai.devices.pynq import finding, program
from chai.evaluate import selftest
from chai.tasks import Task

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from .conftest import ANY, ZYNQ_7000  # noqa: E402
from .manifests import one_format  # noqa: E402


def failures(board: Any) -> dict[str, str]:
    return {r.name: r.reason for r in selftest.run(program.device, board.overlay) if not r.ok}


def test_a_good_board(board: Any) -> None:
    """Every descriptor is decoded and done by its definition there, and nothing is left in DDR."""
    assert failures(board) == {}
    assert not board.memory.held and board.downloads == 1


@pytest.fixture
def one_format_of(board_of: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Boards of overlays with a single format: what goes wrong is said of each alike."""
    return lambda name: board_of(one_format(tmp_path, name))


@pytest.fixture
def simple(one_format_of: Callable[..., Any]) -> Any:
    return one_format_of(ANY)


def test_a_bit(simple: Any) -> None:
    def flip(task: Task, out: np.ndarray) -> None:
        if task.kind == "eltwise":
            out[0, 4, 3, 2] ^= 16

    simple.accelerator.corrupt = flip
    reasons = failures(simple)
    words = {"", " leaky", " unsigned x0", " unsigned x1", " unsigned y"}
    words |= {" PROD", " MAX", " SUM vector", " MAX vector", " PROD vector unsigned x1"}
    assert {name.partition(",")[0] for name in reasons} == {f"eltwise{word}" for word in words}
    assert len(reasons) == len(words) and all(
        reason.startswith("at (0, 4, 3, 2): expected ") for reason in reasons.values()
    )


def test_a_task_that_never_ends(simple: Any, clock: Any) -> None:
    """The 13th of a chain: a Task alone is four bands of three images at most, so the network alone."""
    simple.accelerator.hangs_at = 12
    reasons = failures(simple)
    assert [*reasons] == ["network digits, 8 bit Xilinx"]
    assert all(" Tasks completed" in reason and "not done after 1.0 s" in reason for reason in reasons.values())
    assert 1 < clock.now < 2
    simple.accelerator.hangs_at = None
    assert failures(simple) == {}


def test_a_board_that_does_nothing(simple: Any, clock: Any, capsys: pytest.CaptureFixture[str]) -> None:
    simple.accelerator.hangs_at = 0
    code, lines = command(simple, capsys)
    assert code == 1
    tests = sum(line[:4] in ("PASS", "FAIL") for line in lines)
    assert tests > 30 and lines[tests] == f"1 of {tests} passed: device pynq, overlay {simple.overlay.name}"
    assert re.match(r"FAIL  conv, 8 bit Xilinx: layer 'conv' \(conv\): not done after 1\.0 s, 0 of \d Tasks", lines[0])
    assert clock.now > 14


def test_a_board_that_is_not_there(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.bit").unlink()
    assert chai_command(["devices", "--test", "--device", "pynq", "--overlay", str(board.overlay.path)]) == 69
    output = capsys.readouterr()
    assert output.out == "" and "error: no bitstream of overlay" in output.err


def test_addresses_of_more_than_32_bits(one_format_of: Callable[..., Any]) -> None:
    board = one_format_of("ultra96")
    assert failures(board) == {}
    assert board.accelerator.values["CHAIN_HI"] == 8


def command(board: Any, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    code = chai_command(["devices", "--test", "--device", "pynq", "--overlay", str(board.overlay.path), *options])
    return code, capsys.readouterr().out.splitlines()


@ZYNQ_7000
def test_a_block_to_report_a_board_with_vta(
    board_of: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = board_of("vta-z7020")
    for name, text in (("MODEL", "Digilent Pynq-Z2\0"), ("RELEASE", 'NAME="x"\nPRETTY_NAME="PYNQ Linux 3.1"\n')):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(finding, name, tmp_path / name)
    monkeypatch.setenv("BOARD", "Pynq-Z2")
    code, lines = command(board, capsys, "--repeat", "7")
    assert (code, lines[17]) == (0, "PASS  network digits, 6 bit DynamicFixed")
    first = lines.index("```")
    assert lines[first - 2 : first] == ["To report this board, paste into an issue:", ""]
    assert lines[first + 1] == f"chai {chai.__version__} devices --test --device pynq --overlay vta-z7020"
    facts = dict(line.split(maxsplit=1) for line in lines[first + 2 : -1])
    assert facts.pop("board") == "Digilent Pynq-Z2, BOARD Pynq-Z2"
    assert facts["image"].startswith("PYNQ Linux 3.1, Linux ")
    assert facts.pop("image").endswith(f", pynq {pynq.__version__}")
    bit = board.overlay.path.with_name("vta-z7020.bit").read_bytes()
    assert facts.pop("bitstream") == f"sha256 {hashlib.sha256(bit).hexdigest()}"
    assert facts.pop("overlay") == f"vta-z7020, build {board.overlay.build:08x}"
    assert facts.pop("right") == "20 of 20 tests"
    assert re.fullmatch(
        r"network digits: \d+\.\d{3} ms by the host's clock, \d+\.\d{3} ms modelled", facts.pop("segment")
    )
    assert (facts, lines[-1]) == ({}, "```")


@ZYNQ_7000
def test_the_block_says_what_went_wrong(board_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of("vta-z7020")
    board.accelerator.hangs_at = 12  # behind the first two programs' most
    code, lines = command(board, capsys)
    assert code == 69
    assert lines[-2].startswith(
        "stopped    the bitstream of overlay vta-z7020 does not run a known program: layer 'the known"
    )
    board.accelerator.hangs_at = 60
    code, lines = command(board, capsys)
    assert code == 1
    (wrong,) = (line for line in lines if line.startswith("wrong "))
    assert "network digits, 8 bit DynamicFixed" in wrong
    assert any(line.startswith("segment    layer '") and "not done after 1.0 s" in line for line in lines)


def test_a_block_for_an_array(simple: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = command(simple, capsys, "--repeat", "7")
    assert code == 0
    (right,) = [line.split() for line in lines if line.startswith("right ")]
    assert right[1] == right[3] and int(right[1]) > 30 and right[2::2] == ["of", "tests"]


def test_a_bitstream_that_cannot_be_read_is_in_the_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "design.bit"
    path.touch()

    def refused(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(finding, "bitstream", lambda overlay: path)
    monkeypatch.setattr(finding, "digest", refused)
    assert dict(finding.about(chai.overlay.load()))["bitstream"] == "cannot be read: Permission denied"
