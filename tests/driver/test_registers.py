"""Registers by name: offsets and bits as the manifest's file lists them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chai import overlay as overlays
from chai.driver.registers import Registers
from chai.tasks import Task
from chai.tasks.copy import Copy

Z2 = overlays.load("pynq-z2")
LISTED: dict[str, dict[str, Any]] = {r["name"]: r for r in json.loads(Z2.path.read_text())["registers"]["list"]}
TASKS: list[Task] = [Copy(("a",), "b", (name,), 0, None) for name in ("first", "second", "third")]


class Bus:
    """Values by offset; every access is recorded."""

    def __init__(self, **values: int) -> None:
        self.values = {LISTED[name]["offset"]: value for name, value in values.items()}
        self.accesses: list[tuple[str, int]] = []
        self.writes: list[int] = []

    def read(self, offset: int) -> int:
        self.accesses.append(("read", offset))
        return self.values[offset]

    def write(self, offset: int, value: int) -> None:
        self.accesses.append(("write", offset))
        self.writes.append(value)


def offsets(*names: str) -> list[int]:
    return [LISTED[name]["offset"] for name in names]


def test_a_start_is_written_last() -> None:
    bus = Bus()
    Registers(Z2, bus).start(0x1_2345_6780, 7)
    assert [at for _, at in bus.accesses] == offsets("CHAIN_LO", "CHAIN_HI", "COUNT", "CONTROL")
    assert bus.writes == [0x2345_6780, 1, 7, 1]


def test_the_low_half_of_the_cycles_is_read_first() -> None:
    bus = Bus(CYCLES=5, CYCLES_HI=3)
    assert Registers(Z2, bus).cycles() == 3 * 2**32 + 5
    assert bus.accesses == [("read", at) for at in offsets("CYCLES", "CYCLES_HI")]


def test_a_count_for_each_engine() -> None:
    assert Registers(Z2, Bus(DONE=0x0007_0102)).done() == {"array": 0x102, "window": 7}


@pytest.mark.parametrize(
    ("value", "layer", "words"),
    [
        (0x0001_0002, "second", r"layer 'second' \(copy\): the accelerator stopped: unknown opcode"),
        (0x0002_00FF, "third", "the accelerator stopped: cause 255"),
        (0x0003_0005, None, "^the accelerator stopped: bus error while reading"),  # a tag of no Task
    ],
)
def test_an_error_names_its_layer(value: int, layer: str | None, words: str) -> None:
    error = Registers(Z2, Bus(ERROR=value, STATUS=0)).failed(TASKS)
    assert error.layer == layer
    with pytest.raises(type(error), match=words):
        raise error


def test_the_oldest_task_that_has_not_ended_is_the_late_one() -> None:
    """Of two engines that run apart: the window engine is at its second Task, the array engine has none."""
    assert {task.engine for task in TASKS} == {"window"}
    error = Registers(Z2, Bus(DONE=0x0001_0000)).late(TASKS, "3 s")
    assert error.layer == "second" and "not done after 3 s, 1 of 3 Tasks completed" in str(error)
    assert Registers(Z2, Bus(DONE=0x0003_0000)).late(TASKS).layer is None
