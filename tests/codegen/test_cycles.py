"""The cycle model of a chain: two engines side by side, in order, with one memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from chai import overlay as overlays
from chai.codegen.cycles import chain_cycles
from chai.codegen.dependencies import Finished
from chai.overlay import Overlay
from chai.tasks.pool import Pool
from chai.tasks.window import Window

Z2 = overlays.load("pynq-z2")
SHAPES = dict.fromkeys("abc", (2, 16, 5, 7))


@dataclass
class Made:
    """A Task that takes ``alone`` cycles, and ``moving`` of them at the memory's full rate."""

    engine: str
    alone: int
    moving: float = 0.0

    def cycles(self, *_: Any) -> int:
        return self.alone

    def moving_cycles(self, *_: Any) -> float:
        return self.moving


def modelled(tasks: Sequence[Any], after: Sequence[Finished]) -> int:
    return chain_cycles(Z2, tasks, SHAPES, after)


def apart(overlay: Overlay, tasks: Sequence[Any], shapes: Mapping[str, Any], after: Sequence[Finished]) -> int:
    """The same with a memory for each engine: a Task starts when the one before it, and those it waits for, have ended."""
    ends: dict[str, list[int]] = {engine: [0] for engine in Finished._fields}
    for task, finished in zip(tasks, after):
        begin = max(ends[task.engine][-1], ends["array"][finished.array], ends["window"][finished.window])
        ends[task.engine].append(begin + task.cycles(overlay, shapes))
    return max(end[-1] for end in ends.values())


def stepped(tasks: Sequence[Made], after: Sequence[Finished], step: float) -> float:
    """The same in small steps of time, in each of which the memory is dealt out: the one that asks for least is first."""
    queues = {e: [i for i, task in enumerate(tasks) if task.engine == e] for e in ("array", "window")}
    total, done = {e: len(queue) for e, queue in queues.items()}, {"array": 0, "window": 0}
    left = [float(task.alone) for task in tasks]
    now = 0.0
    while done != total:
        heads = [queue[0] for queue in queues.values() if queue]
        ready = [i for i in heads if all(done[e] >= count for e, count in after[i]._asdict().items())]
        asked = sorted(ready, key=lambda i: tasks[i].moving / tasks[i].alone)
        free = 1.0
        for place, i in enumerate(asked):
            wanted = tasks[i].moving / tasks[i].alone
            has = min(wanted, free / (len(asked) - place))
            free -= has
            left[i] -= step * (has / wanted if wanted else 1)
        now += step
        for i in ready:
            if left[i] <= 1e-9:
                queues[tasks[i].engine].remove(i)
                done[tasks[i].engine] += 1
    return now


NONE = Finished()


def test_one_engine_takes_the_sum_of_its_tasks() -> None:
    """By hand: 2 images of 16 channels, 35 pixels, move as many bytes twice at 15 a cycle, and take 64 more.

    A memory port writes their 140 beats no faster than 8 bursts of 16 in the 182 cycles from an address to its response.
    """
    tasks = [Pool(("a",), top, (top,), Window((1, 1), (1, 1), (0, 0)), (5, 7), None) for top in "bc"]
    unlimited = replace(Z2, memory_port=None)
    assert tasks[0].cycles(unlimited, SHAPES) == -(-2 * 2 * 16 * 35 // 15) + 64
    one = -(-140 * (150 + 16 + 16) // (8 * 16)) + 64
    assert tasks[0].cycles(Z2, SHAPES) == one
    assert modelled(tasks, [NONE, NONE]) == 2 * one
    assert modelled([], []) == 0


@pytest.mark.parametrize(
    ("array", "window", "cycles"),
    [
        ((100, 30), (80, 56), 100),  # 0.3 + 0.7 of the rate: nobody is slower
        ((100, 0), (80, 80), 100),
        ((100, 100), (100, 100), 200),  # half of the rate each
        ((100, 90), (40, 40), 136),  # half each: 40 take 80, in which 100 advance by 80 * 5/9; 55.6 remain
        ((100, 20), (100, 100), 120),  # the array needs 0.2 and has it; the window engine has 0.8 for 100 cycles
    ],
)
def test_two_engines_share_the_memory(array: tuple[int, int], window: tuple[int, int], cycles: int) -> None:
    tasks = [Made("array", *array), Made("window", *window)]
    assert modelled(tasks, [NONE, NONE]) == cycles
    assert modelled(tasks[::-1], [NONE, NONE]) == cycles
    assert modelled(tasks, [NONE, Finished(1, 0)]) == array[0] + window[0]  # one after the other
    assert modelled(tasks[::-1], [NONE, Finished(0, 1)]) == array[0] + window[0]


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Made], list[Finished]]:
    tasks: list[Made] = []
    after: list[Finished] = []
    before = {"array": 0, "window": 0}
    for _ in range(draw(st.integers(1, 6))):
        alone = draw(st.integers(1, 30))
        tasks.append(Made(draw(st.sampled_from(("array", "window"))), alone, draw(st.integers(0, alone))))
        after.append(Finished(*(draw(st.integers(0, count)) for count in before.values())))
        before[tasks[-1].engine] += 1
    return tasks, after


@given(chains())
def test_equal_to_small_steps(made: tuple[list[Made], list[Finished]]) -> None:
    tasks, after = made
    step = 1 / 32
    found = modelled(tasks, after)
    # a Task ends at the end of a step, and the next one begins there
    assert found - 1 - 2 * step <= stepped(tasks, after, step) <= found + 2 * len(tasks) * step
    alone = apart(Z2, tasks, SHAPES, after)
    assert alone <= found <= sum(task.alone for task in tasks)
    assert found == alone or sum(task.moving for task in tasks) > 0
