"""chai devices --test on the simulated board."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from chai.cli import main as chai_command
from chai.devices.pynq import program
from chai.evaluate import selftest
from chai.tasks import Task

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")


def failures(board: Any) -> dict[str, str]:
    return {r.name: r.reason for r in selftest.run(program.device, board.overlay) if not r.ok}


def test_a_good_board(board: Any) -> None:
    """Every descriptor is decoded and done by its definition there, and nothing is left in DDR."""
    assert failures(board) == {}
    assert not board.memory.held and board.downloads == 1


def test_a_bit(board: Any) -> None:
    def flip(task: Task, out: np.ndarray) -> None:
        if task.kind == "eltwise":
            out[0, 4, 3, 2] ^= 16

    board.accelerator.corrupt = flip
    found = failures(board)
    words = ("", " leaky", " unsigned x0", " unsigned x1", " unsigned y")
    assert {name.partition(",")[0] for name in found} == {f"eltwise{word}" for word in words}
    assert len(found) == 20 and all(reason.startswith("at (0, 4, 3, 2): expected ") for reason in found.values())


def test_a_task_that_never_ends(board: Any, clock: Any) -> None:
    """The second of a chain, so the networks alone."""
    board.accelerator.hangs_at = 1
    found = failures(board)
    assert len(found) == 4 and all(name.startswith("network digits, ") for name in found)
    assert all(" Tasks completed" in reason and "not done after 1.0 s" in reason for reason in found.values())
    assert 4 < clock.now < 5
    board.accelerator.hangs_at = None
    assert failures(board) == {}


def test_a_board_that_does_nothing(board: Any, clock: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.accelerator.hangs_at = 0
    assert chai_command(["devices", "--test", "--device", "pynq", "--overlay", str(board.overlay.path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"0 of 100 passed: device pynq, overlay {board.overlay.name}"
    assert lines[0].startswith("FAIL  conv, 8 bit Xilinx: layer 'conv' (conv): not done after 1.0 s, 0 of 1 Tasks")
    assert clock.now > 56


def test_a_board_that_is_not_there(board: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.bit").unlink()
    assert chai_command(["devices", "--test", "--device", "pynq", "--overlay", str(board.overlay.path)]) == 69
    found = capsys.readouterr()
    assert found.out == "" and "error: no bitstream of overlay" in found.err


def test_addresses_of_more_than_32_bits(board_of: Callable[..., Any]) -> None:
    board = board_of("ultra96")
    assert failures(board) == {}
    assert board.accelerator.values["CHAIN_HI"] == 8
