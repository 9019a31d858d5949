"""Faults in any order, drawn by a seed: every result is correct or a ChaiError, and the next pass works.

Faults are injected into a simulated board, on a simulated clock, while chains run on it. The seed of a failure is the
test's parameter.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from chai.devices.base import Program
from chai.devices.pynq import program
from chai.env import env
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.tasks import Task
from chai.tasks.conv import Conv
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.tasks.work import Work
from tests.conftest import HANG
from tests.leftovers import Leftovers

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

SHAPE = 2, 19, 3, 5
STEPS = 5  # chains per seed, each with a fault or none
AT_MOST = 40  # uses of the board by one chain, opening it aside


def _tasks() -> list[Task]:
    """Four Tasks on both engines."""
    random = np.random.default_rng(0)
    one = Window((1, 1), (1, 1), (0, 0))

    def conv(source: str, target: str) -> Conv:
        weights = random.integers(-127, 128, (19, 19, 1, 1)).astype(np.int8)
        r = Requantization(random.integers(200, 400, (19, 1, 1)), 16, -128, 127)
        return Conv((source,), target, (target,), weights, random.integers(-999, 999, 19), one, 1, r)

    r = Requantization(np.array(1), 8, -128, 127)
    window = Window((3, 3), (1, 1), (1, 1))
    return [
        conv("x", "a"),
        Pool(("a",), "b", ("b",), window, SHAPE[2:], None),
        Eltwise(("x", "b"), "c", ("c",), (150, -200), None, r, (0, 0)),
        conv("c", "y"),
    ]


TASKS = _tasks()


def defined(x: np.ndarray) -> np.ndarray:
    blobs = {"x": x}
    for task in TASKS:
        blobs[task.output] = task.define(*(blobs[b] for b in task.inputs))
    return blobs["y"]


def compiled(board: Any) -> Program:
    return program.device.compile(Work(board.overlay, TASKS, dict.fromkeys("xabcy", SHAPE), {}, ["x"], ["y"]))


# -- what may happen; each says which exceptions it may lead to


def nothing(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    return ()


def slow(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.accelerator.takes = random.uniform(1e-6, 0.99)
    return ()


def late(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.accelerator.takes = random.uniform(1.0, 3.0)
    return (DeviceError,)


def hanging(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.accelerator.hangs_at = random.randrange(len(TASKS))
    return (DeviceError,)


def stuck(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.accelerator.deaf = True
    return hanging(board, random)


def stopped(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.accelerator.stop_at = random.randrange(1, 7), random.randrange(len(TASKS))
    return (DeviceError,)


def mute(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.accelerator.mute = True
    return slow(board, random)


def full(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    board.memory.fail_at = random.randrange(1, 6)
    return ()  # the second try succeeds


def power(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    return _at(board, random, board.accelerator.power_on)


def exchanged(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    """Another's bitstream, whose registers may look as if a chain were done."""

    def other() -> None:
        values = board.accelerator.values
        values.update({name: random.choice([0, 1, 2, 3, 4, 0xFFFFFFFF]) for name in values})
        values["ID"] = random.choice([0, 0xFFFFFFFF, 0x12345678])
        board.accelerator.ends = np.inf

    return _at(board, random, other)


def unplugged(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    """Whatever is done to it from then on fails."""

    def gone() -> None:
        board.on_use = gone
        raise OSError("no such device")

    return _at(board, random, gone)


def interrupted(board: Any, random: Random) -> tuple[type[BaseException], ...]:
    def key() -> None:
        raise KeyboardInterrupt

    _at(board, random, key)
    return (KeyboardInterrupt,)


def _at(board: Any, random: Random, happen: Callable[[], None]) -> tuple[type[BaseException], ...]:
    """Something happens before one of the uses of the board that are to come, once."""
    left = [random.randrange(AT_MOST)]

    def use() -> None:
        left[0] -= 1
        if left[0] < 0:
            board.on_use = lambda: None
            happen()

    board.on_use = use
    return (DeviceError,)


FAULTS = [
    nothing, slow, late, hanging, stuck, stopped, mute, full, power, exchanged, unplugged, interrupted,
]  # fmt: skip


def heal(board: Any) -> None:
    """The fault is over; what it has left behind is not."""
    board.on_use = lambda: None
    board.memory.fail_at = 0
    accelerator = board.accelerator
    accelerator.takes, accelerator.hangs_at, accelerator.stop_at, accelerator.mute = 50e-6, None, None, False


def play(board: Any, seed: int) -> list[str]:
    """One story. What happened in it: a word per chain."""
    random = Random(seed)
    told = []
    images = np.random.default_rng(seed)
    task_program = compiled(board)

    def right() -> None:
        x = images.integers(-128, 128, SHAPE).astype(np.int8)
        blobs = {"x": x}
        task_program.run(blobs)
        assert np.array_equal(blobs["y"], defined(x)), f"seed {seed}: wrong codes after {told}"

    right()
    left, buffers = Leftovers(), len(board.memory.held)
    for _ in range(STEPS):
        fault = random.choice(FAULTS)
        if random.random() < 0.2:
            program.device.forget(program.device.board(board.overlay))
        if random.random() < 0.2:
            task_program.close()
        expected = fault(board, random)
        told.append(fault.__name__)
        try:
            right()
        except expected as error:
            told[-1] += f" {type(error).__name__}"
            assert not isinstance(error, DeviceError) or error.message
        heal(board)
        try:
            right()
        except expected:
            assert told[-1] in ("exchanged", "unplugged"), "it was told before"
            right()
        if left or len(board.memory.held) != buffers:
            gc.collect()  # a traceback may have held something
        assert not left and len(board.memory.held) == buffers, f"seed {seed}: left behind by {told}"
    task_program.close()
    assert not board.memory.held
    return told


def played(board_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, seeds: range) -> list[str]:
    told = []
    for seed in seeds:
        monkeypatch.setenv("CHAI_PYNQ_WAIT", ["poll", "interrupt"][seed % 2])
        env.cache_clear()
        board = board_of(interrupt=["edge", "level"][seed // 2 % 2])
        told += play(board, seed)
        program.device.forget(program.device.board(board.overlay))
    return told


@pytest.mark.parametrize("first", [0, 20, *(pytest.param(n, marks=pytest.mark.slow) for n in (40, 60, 80))])
def test_any_order_of_faults(board_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    told = played(board_of, monkeypatch, range(first, first + 20))
    assert {word.partition(" ")[0] for word in told} == {fault.__name__ for fault in FAULTS}
    wrong = {word.partition(" ")[0] for word in told if " " in word}
    assert wrong >= {"late", "hanging", "stuck", "stopped"}, "these never go well"
    assert wrong.isdisjoint({"nothing", "slow", "mute", "full"})


@pytest.mark.slow
@pytest.mark.timeout(8 * HANG)
@pytest.mark.parametrize("first", range(1000, 6000, 500))
def test_many_more(board_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    assert len(played(board_of, monkeypatch, range(first, first + 500))) == 500 * STEPS
