"""Marks: the last STORE of each Task tells the host that the Task has ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chai.codegen.memory_map import FIXED, MARKS
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.tasks.copy import Copy
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.tasks.work import Work
from chai.vta.isa import Instruction, Store
from chai.vta.program import MARK, VtaSegment
from chai.vta.segment import segment
from chai.vta.simulator import Chip

from .random_tasks import MACHINE, VTA, buffers

SHAPES = {"x": (1, 3, 6, 5), "y": (1, 3, 6, 5), "z": (1, 3, 4, 2)}


@pytest.fixture
def vta_segment() -> VtaSegment:
    """A copy and a pooling: one STORE of each, and one of its mark."""
    copy = Copy(("x",), "y", ("copy",), 0, Requantization(np.array(1), 1, -128, 127))
    pool = Pool(("y",), "z", ("pool",), Window((3, 3), (1, 2), (0, 0)), (4, 2), None)
    return segment(Work(VTA, [copy, pool], SHAPES, {}, ["x"], ["z"]))


def stores(vta_segment: VtaSegment) -> list[int]:
    return [i for i, each in enumerate(vta_segment.program) if isinstance(each, Store)]


def altered(vta_segment: VtaSegment, number: int, instruction: Instruction) -> VtaSegment:
    program = [*vta_segment.program]
    program[number] = instruction
    return replace(vta_segment, program=program)


def placed(vta_segment: VtaSegment) -> tuple[dict[int, int], dict[int, np.ndarray]]:
    base, memory = buffers(vta_segment)
    vta_segment.fix(base, memory[FIXED])
    return base, memory


def test_each_task_that_has_ended_has_the_mark_of_this_run(vta_segment: VtaSegment) -> None:
    base, memory = placed(vta_segment)
    steps = vta_segment.checked(base, memory)
    chip = Chip(MACHINE)
    for seed in (1, 2):
        mark = np.random.default_rng(seed).integers(-128, 128, 16)
        memory[MARKS][:MARK] = mark.astype(np.int32).view(np.uint8)
        chip.run(steps)
        assert memory[MARKS][MARK:].view(np.int8).reshape(-1, 16).tolist() == [mark.tolist()] * 2
    last = stores(vta_segment)[-1]
    ended = max(i for i, step in enumerate(steps) if step.step.number < vta_segment.ends[0])
    memory[MARKS][MARK:] = 0
    chip.run(steps[: ended + 1])
    assert memory[MARKS][MARK:].view(np.int8).reshape(-1, 16).tolist() == [mark.tolist(), [0] * 16]
    assert vta_segment.ends[0] < last < vta_segment.ends[1]


def test_the_last_mark_is_the_last_store(vta_segment: VtaSegment) -> None:
    """Otherwise the host takes a program for done that still writes."""
    first, one, second, two = stores(vta_segment)
    program = vta_segment.program
    twice = altered(vta_segment, one, program[two]._replace(tokens=program[one].tokens))
    swapped = altered(twice, two, program[one]._replace(tokens=program[two].tokens))
    absent = altered(vta_segment, two, program[one]._replace(tokens=program[two].tokens))
    for wrong in (twice, swapped, absent):  # the last mark
        with pytest.raises(DeviceError, match="layers copy to pool: the mark of the last Task is not written by the"):
            wrong.checked(*placed(wrong))
    assert first < one < second < two
    vta_segment.checked(*placed(vta_segment))


def test_the_bytes_of_a_mark_are_not_overwritten(vta_segment: VtaSegment) -> None:
    last = stores(vta_segment)[-1]
    store = vta_segment.program[last]
    assert isinstance(store, Store)
    wrong = altered(vta_segment, last, store._replace(dram=store.dram - 2))
    with pytest.raises(DeviceError, match=r"STORE\): bytes .* are not all of one buffer that may be stored to"):
        wrong.checked(*placed(wrong))
