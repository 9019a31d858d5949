"""chai devices --test on boards that are broken on purpose: it says in words what is wrong, and nothing of a good one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from chai.cli import devices, main as chai_command
from chai.evaluate import diagnosis
from tests.conftest import HANG

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

from . import faults  # noqa: E402
from .conftest import ANY, ZYNQ_7000  # noqa: E402
from .manifests import one_format  # noqa: E402


@pytest.fixture
def board_of(board_of: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """The boards of overlays with a single format, with the emulator's kernels."""

    def make(name: str = ANY, **options: Any) -> Any:
        return board_of(one_format(tmp_path, name), exact=False, **options)

    return make


def command(board: Any, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    code = chai_command(["devices", "--test", "--device", "pynq", "--overlay", str(board.overlay.path), *options])
    return code, capsys.readouterr().out.splitlines()


def told(lines: list[str], name: str = "probably") -> list[str]:
    """The values of a name in the block."""
    begin = lines.index("```")
    return [line[len(name) :].strip() for line in lines[begin:] if line.startswith(f"{name} ")]


def failures(lines: list[str]) -> list[str]:
    return [line.removeprefix("FAIL  ") for line in lines if line.startswith("FAIL  ")]


@pytest.mark.parametrize(
    ("name", "interrupt"),
    [
        *(pytest.param("pynq-z2", interrupt, marks=ZYNQ_7000) for interrupt in ("", "level")),
        pytest.param("pynq-z2", "edge", marks=[ZYNQ_7000, pytest.mark.slow]),
        *(pytest.param("ultra96", interrupt, marks=pytest.mark.slow) for interrupt in ("", "level")),
        ("ultra96", "edge"),
    ],
)
def test_a_good_board_is_told_nothing(
    board_of: Callable[..., Any], name: str, interrupt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = command(board_of(name, interrupt=interrupt), capsys, "--repeat", "7")
    assert (code, failures(lines), told(lines)) == (0, [], [])
    first = next(i for i, line in enumerate(lines) if line.endswith("7 times"))
    passed = [line.removeprefix("PASS  ") for line in lines[first : lines.index("") - 1]]
    assert passed == [
        "conv, 8 bit Xilinx, 7 times", "pool MAX, 8 bit Xilinx, 7 times", "widths of memory ports",
        *(["interrupt"] if interrupt else []),
    ]  # fmt: skip
    assert told(lines, "right") == [f"{first + len(passed)} of {first + len(passed)} tests"]


def test_no_clock(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    faults.no_clock(board)
    code, lines = command(board, capsys)
    assert code == 69
    (words,) = told(lines, "stopped")
    assert words.startswith("no accelerator of chai answers: register ID reads 0xffffffff, expected ")
    assert "does the accelerator have a clock, and is its reset released?" in words


def test_a_register_that_never_answers(
    board: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is said while the command hangs, and nothing is if the board answers."""
    told = []

    def wait() -> None:
        end = monotonic() + HANG
        while "a register is read that never answers: the accelerator has no clock" not in "".join(told):
            assert monotonic() < end
            told.append(capfd.readouterr().err)
            sleep(0.01)

    monkeypatch.setattr(devices, "PATIENCE", 0.01)
    faults.silent(board, wait)
    options = "devices", "--test", "--device", "pynq", "--overlay", str(board.overlay.path), "--repeat", "0", "-q"
    assert chai_command(options) == 0 and told
    monkeypatch.setattr(devices, "PATIENCE", float(HANG))
    capfd.readouterr()
    assert chai_command(options) == 0
    assert "never answers" not in capfd.readouterr().err


def test_another_build(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.accelerator.constants["BUILD"] = 0x1234
    code, lines = command(board, capsys)
    assert code == 69
    (words,) = told(lines, "stopped")
    assert words.startswith(f"the bitstream is of build 00001234, overlay {board.overlay.name} is build ")
    assert "take the bitstream that was built from this overlay.json" in words and "clock" not in words


def test_no_task_ends(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.accelerator.hangs_at = 0
    code, lines = command(board, capsys)
    assert (code, told(lines)) == (1, [diagnosis.NEVER])
    assert any(line.startswith("conv, 8 bit Xilinx, 1,000 times: after 0 runs: ") for line in failures(lines))


def test_bit_errors_that_differ(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    faults.bit_errors(board, 1e-3)
    code, lines = command(board, capsys, "--repeat", "30")
    assert (code, told(lines)) == (1, [diagnosis.TIMING])


@pytest.mark.parametrize("times", [300])
def test_bit_errors_that_only_many_runs_show(board: Any, times: int, capsys: pytest.CaptureFixture[str]) -> None:
    faults.rare_errors(board, 1 / 150)
    code, lines = command(board, capsys, "--repeat", str(times))
    assert (code, told(lines)) == (1, [diagnosis.TIMING])
    (line,) = (line for line in failures(lines) if line.startswith(f"pool MAX, 8 bit Xilinx, {times} times: "))
    assert f" of {times} runs are wrong" in line and "(1 of " in line


def test_the_same_wrong_codes(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    faults.same_error(board)
    code, lines = command(board, capsys, "--repeat", "9")
    assert (code, told(lines)) == (1, [diagnosis.SAME])
    assert any("9 of 9 runs are wrong, all alike; one is at (0, 4, 0, 0): expected " in line for line in lines)


@pytest.mark.parametrize(
    ("width", "empty"),
    [
        *((32, False), (128, True)),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((32, True), (128, False))),
    ],
)
def test_a_width_that_only_codes_show(board: Any, width: int, empty: bool, capsys: pytest.CaptureFixture[str]) -> None:
    faults.unseen_width(board, width, empty)
    code, lines = command(board, capsys, "--repeat", "2")
    assert (code, told(lines)) == (1, [diagnosis.WIDTH])
    assert not any(line.startswith(("conv", "widths")) for line in failures(lines))


@ZYNQ_7000
def test_a_width_that_boot_files_set(board_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of("pynq-z2")
    faults.set_width(board, 32)
    code, lines = command(board, capsys, "--repeat", "2")
    (words,) = told(lines)
    assert code == 1
    assert words.startswith(
        "S_AXI_HP3 reads 32 bits at a time, the .hwh says 64; S_AXI_HP3 writes 32 bits at a time, the .hwh says 64: "
    )
    assert f"widths of memory ports: {words}" in failures(lines)


def test_a_width_that_pynq_does_not_set(board_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of("ultra96")
    faults.forgotten_width(board)
    code, lines = command(board, capsys, "--repeat", "2")
    (words,) = told(lines)
    assert code == 1 and words.count("128 bits at a time, the .hwh says 64") == 8
    assert words.startswith("S_AXI_HP0_FPD reads 128 bits")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda board: setattr(board.accelerator, "mute", True), "the accelerator does not raise it"),
        (faults.unwired, "register IRQ says done, and none came in 0.1 s: is the accelerator's interrupt wired"),
    ],
)
def test_no_interrupt(
    board_of: Callable[..., Any], fault: Callable[[Any], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    board = board_of(interrupt="level")
    fault(board)
    code, lines = command(board, capsys, "--repeat", "2")
    (line,) = failures(lines)
    assert code == 1 and line.startswith(f"interrupt: {words}")
    assert told(lines) == [line.removeprefix("interrupt: ")]


def test_descriptors_that_arrive_wrong(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.accelerator.stop_at = board.overlay.registers.errors.index("descriptor of another version"), 0
    code, lines = command(board, capsys, "--repeat", "2")
    assert (code, told(lines)) == (1, [diagnosis.READS])


def test_chains_alone(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.accelerator.hangs_at = 12  # a Task alone is four bands of three images at most
    code, lines = command(board, capsys, "--repeat", "2")
    assert (code, told(lines)) == (1, [diagnosis.CHAINS])


def test_as_json(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    faults.bit_errors(board, 1e-3)
    code, lines = command(board, capsys, "--repeat", "8", "--json")
    value = json.loads("".join(lines))
    assert (code, value["probably"], value["ok"]) == (1, [diagnosis.TIMING], False)
    assert value["tests"][-1]["name"] == "widths of memory ports" and value["tests"][-1]["ok"]
