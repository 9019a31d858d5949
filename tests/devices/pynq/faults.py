"""Faults of a first bitstream, as the simulated board shows them to host and accelerator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from chai.tasks import Task
from tests.reference import engines

from .accelerator import Rows
from .ddr import STALE

BEAT = 8  # bytes that a master takes at a time
LANES = {"zynq7000": {64: 0, 32: 1}, "zynqmp": {128: 0, 64: 1, 32: 2}}  # values of a port's register


def no_clock(board: Any) -> None:
    """Nothing drives the registers: the interconnect answers for them with ones."""
    board.accelerator.read = lambda offset: 0xFFFFFFFF


def silent(board: Any, wait: Callable[[], None]) -> None:
    """The first read of a register hangs until ``wait`` returns: on a real board, for ever."""
    accelerator, real = board.accelerator, board.accelerator.read

    def read(offset: int) -> int:
        accelerator.read = real
        wait()
        return int(real(offset))

    accelerator.read = read


def bit_errors(board: Any, rate: float, seed: int = 3) -> None:
    """A share of the codes of convolutions has a wrong bit, another one in each run."""
    random = np.random.default_rng(seed)

    def corrupt(task: Task, out: np.ndarray) -> None:
        if task.kind == "conv":
            out ^= np.where(random.random(out.shape) < rate, 1 << random.integers(0, 7, out.shape), 0).astype(np.int8)

    board.accelerator.corrupt = corrupt


def rare_errors(board: Any, share: float, seed: int = 5) -> None:
    """Now and then a Task of the window engine has one wrong bit."""
    random = Random(seed)

    def corrupt(task: Task, out: np.ndarray) -> None:
        if task.kind != "conv" and random.random() < share:
            out[0, random.randrange(out.shape[1]), 0, 0] ^= 1 << random.randrange(7)

    board.accelerator.corrupt = corrupt


def same_error(board: Any) -> None:
    """A gate is wrong: every Task has the same wrong codes in every run."""

    def corrupt(task: Task, out: np.ndarray) -> None:
        out[:, 4] ^= 1

    board.accelerator.corrupt = corrupt


def unwired(board: Any) -> None:
    """The accelerator raises its interrupt, and the controller does not see it."""
    board.controller.line = lambda: False


def forgotten_width(board: Any) -> None:
    """The handoff lacks the parameters by which pynq sets the ports of an UltraScale+, so they are as after power-on."""
    handoff = board.overlay.path.with_name(f"{board.overlay.name}.hwh")
    text, count = re.subn(r'<PARAMETER NAME="C_SAXIGP\d_DATA_WIDTH"[^>]*>', "", handoff.read_text())
    assert count == 4
    handoff.write_text(text)
    _through(board, 128)


def set_width(board: Any, width: int) -> None:
    """Boot files set the window engine's port to another width; nothing sets it again on a Zynq-7000."""
    board.processor |= dict.fromkeys((0xF800_B000, 0xF800_B014), LANES["zynq7000"][width])
    _through(board, width)


def unseen_width(board: Any, width: int, empty: bool = False) -> None:
    """The port has another width, and its register says nothing of it: the design itself is of another width.

    ``empty`` halves of beats bring nothing.
    """
    _through(board, width, empty)


def _through(board: Any, width: int, empty: bool = False) -> None:
    """Let the window engine read through a port of another width than its 64 bits."""
    accelerator, inside = board.accelerator, board.accelerator._rows

    def rows(values: dict[str, int], name: str) -> Iterator[Rows]:
        for part in inside(values, name):
            if name != "output" and engines.engine(values, board.overlay) == "window":
                first = part.rows.start * values["input_width"]
                part.memory = {place: _seen(words, width, first, empty) for place, words in part.memory.items()}
            yield part

    accelerator._rows = rows


def _seen(words: np.ndarray, width: int, first: int, empty: bool) -> np.ndarray:
    """Pixels' words as a master of 64 bits takes them of a burst: the lower half of each wider word twice, or half of each beat.

    ``first`` is the number of the burst's first beat, from an address that all widths divide.
    """
    beats = words.view(np.uint8).reshape(-1, BEAT)
    if width == 128:
        odd = (np.arange(len(beats)) + first) % 2 == 1
        before = np.full_like(beats, STALE) if empty else np.roll(beats, 1, axis=0)
        return np.where(odd[:, None], before, beats).view(np.int8).reshape(words.shape)
    halves = np.full_like(beats, STALE)
    halves[:, : BEAT // 2] = beats[:, : BEAT // 2] if empty else beats.reshape(-1, BEAT // 2)[: len(beats)]
    return halves.view(np.int8).reshape(words.shape)
