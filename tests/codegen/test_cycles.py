"""The cycle model of a chain: two engines side by side, in order, with one memory; what a Task waits for at its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import given, strategies as st

from chai import overlay as overlays
from chai.codegen.cycles import Effort, chain_cycles, makespan
from chai.codegen.dependencies import Finished
from chai.tasks.pool import Pool
from chai.tasks.waits import Waits
from chai.tasks.window import Window

Z2 = overlays.load("pynq-z2")
SHAPES = dict.fromkeys("abc", (2, 16, 5, 7))


def effort(
    engine: str,
    work: float,
    moving: float = 0.0,
    delay: float = 0.0,
    tail: float = 0.0,
    port: float = 0.0,
    **more: Any,
) -> Effort:
    """The effort of a Task that works so long, ``moving`` cycles of them at the memory's full rate, ``port`` at a port's.

    Rows and constants take all of that port while they come, and nothing of the memory.
    """
    waits = Waits(delay, work, tail, **more)
    return Effort(engine, waits, work, (moving / work, port / work), (0.0, 1.0), (0.0, 1.0))


def stepped(tasks: Sequence[Effort], after: Sequence[Finished], step: float) -> float:
    """The same in small steps of time, in each of which the memory is dealt out: the one that asks for least is first.

    No Task has rows or constants that take time. The window engine's next Task leads when the one before it works; the array's
    one after the other, as long as no more than two have not worked.
    """
    orders = {e: [i for i, task in enumerate(tasks) if task.engine == e] for e in ("array", "window")}
    queues = {e: [*order] for e, order in orders.items()}
    there: dict[int, float] = {}  # when a Task that leads may work
    left = [float(task.waits.work) for task in tasks]
    works: dict[str, int] = {}
    ends = dict[int, float]()
    now = 0.0
    while len(ends) < len(tasks) or max(ends.values()) > now:
        done = {e: sum(tasks[i].engine == e and end <= now for i, end in ends.items()) for e in queues}
        for engine, order in orders.items():
            for place, i in enumerate(order):
                if engine == "window":
                    leads = i in queues[engine][:1]
                else:
                    before = all(there.get(k, inf) <= now for k in order[:place])
                    leads = before and sum(k in ends for k in order) >= place - 1
                if leads and i not in there and all(done[e] >= n for e, n in after[i]._asdict().items()):
                    there[i] = now + tasks[i].waits.delay
                if i in queues[engine][:1] and engine not in works and there.get(i, inf) <= now:
                    works[engine] = queues[engine].pop(0)
        speeds = dict.fromkeys(works.values(), 1.0)
        loads = {i: tasks[i].loads[0] for i in works.values()}
        free = 1.0
        for place, i in enumerate(sorted(loads, key=loads.__getitem__)):
            has = min(loads[i], free / (len(loads) - place))
            free -= has
            speeds[i] = has / loads[i] if loads[i] else 1
        for i, speed in speeds.items():
            left[i] -= step * speed
        now += step
        for i in speeds:
            if left[i] <= 1e-9:
                del works[tasks[i].engine]
                ends[i] = max(
                    [now + tasks[i].waits.tail, *(ends[k] for k in ends if tasks[k].engine == tasks[i].engine)]
                )
    return now


NONE = Finished()


def test_one_engine_takes_the_sum_of_its_tasks() -> None:
    """By hand: 2 images of 16 channels, 35 pixels, move as many bytes twice at 15 a cycle, and take 64 more.

    A memory port writes their 140 beats no faster than 8 bursts in the cycles from an address to the next burst's first beat:
    150, its beats twice, and 10. A plane's run of 35 beats is 3 bursts, or 4 at the end of a page of 512.
    """
    tasks = [Pool(("a",), top, (top,), Window((1, 1), (1, 1), (0, 0)), (5, 7), None) for top in "bc"]
    unlimited = replace(Z2, memory_port=None)
    assert tasks[0].cycles(unlimited, SHAPES) == -(-2 * 2 * 16 * 35 // 15) + 64
    burst = 35 / (3 + 35 / 512 * 15 / 16)
    one = ceil(140 * (150 + 2 * burst + 10) / (8 * burst))
    assert tasks[0].cycles(Z2, SHAPES) == one + 64
    # 320 cycles until the first descriptor is there, 150 until the first word is, and until the last response is
    assert chain_cycles(Z2, tasks, SHAPES, [NONE, NONE]) == 320 + 150 + 2 * one + 150
    assert chain_cycles(Z2, tasks, SHAPES, [NONE, Finished(0, 1)]) == 320 + 2 * (150 + one + 150)
    assert chain_cycles(Z2, [], SHAPES, []) == 0


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
    tasks = [effort("array", *array), effort("window", *window)]
    assert makespan(tasks, [NONE, NONE]) == cycles
    assert makespan(tasks[::-1], [NONE, NONE]) == cycles
    assert makespan(tasks, [NONE, Finished(1, 0)]) == array[0] + window[0]  # one after the other
    assert makespan(tasks[::-1], [NONE, Finished(0, 1)]) == array[0] + window[0]


def test_a_task_leads_while_the_one_before_it_works() -> None:
    """By hand, for a lead of 30 cycles and a tail of 20."""
    one, two = effort("array", 100, delay=30, tail=20), effort("array", 50, delay=30, tail=20)
    assert makespan([one, two], [NONE, NONE]) == 30 + 100 + 50 + 20
    assert makespan([one, two], [NONE, Finished(1, 0)]) == (30 + 100 + 20) + (30 + 50 + 20)
    window = effort("window", 60, delay=30, tail=20)
    assert makespan([one, window, two], [NONE, NONE, Finished(0, 1)]) == 110 + 30 + 50 + 20
    assert makespan([one, window, two], [NONE, Finished(1, 0), Finished(0, 1)]) == 150 + 110 + 100


def test_first_rows_wait_for_room_beside_those_of_the_task_before() -> None:
    one, two = effort("array", 100, delay=30, tail=20, keeps=0.5), effort("array", 50, delay=30, tail=20, rows=0.5)
    assert makespan([one, two], [NONE, NONE]) == 30 + 100 + 50 + 20
    assert makespan([one, effort("array", 50, delay=30, tail=20, rows=0.6)], [NONE, NONE]) == 30 + 100 + 30 + 50 + 20


@pytest.mark.parametrize(
    ("step", "bursts", "pages"),
    [
        (0, 2, 0),  # begin with bursts, of which one ends with each page
        (96, 2, 0),
        (16, 2, 64 / 512 * 1 / 2),  # every other one ends within a burst
        (2, 2, 64 / 512 * 15 / 16),
        (7, 2.5, 64 / 512 * 31 / 32),  # every other one begins within a beat
    ],
)
def test_runs_are_cut_into_bursts(step: int, bursts: float, pages: float) -> None:
    """By hand, of 64 words that begin at multiples of ``step``: bursts of 32, and more at ends of pages; 8 in flight, 150 cycles.

    In 88 of 1950 cycles memory is refreshed. The room that a port has for what is written is enough for those.
    """
    words = 64 / (bursts + pages)
    reads, writes = overlays.load("kv260").rates(64, step)
    assert reads == pytest.approx(words * 8 / (150 + words / 2) * (1 - 88 / 1950))
    assert writes == pytest.approx(words * 8 / (150 + 2 * words / 2 + 10))


def test_odd_runs_of_a_port_of_single_words_are_no_others() -> None:
    assert Z2.rates(64, 7) == Z2.rates(64, 1)


def test_constants_are_stored_while_memory_is_refreshed() -> None:
    """By hand: three ports bring more than the 4 words that zcu104 stores, two of pynq-z2 half more than its one."""
    wide = overlays.load("zcu104")
    come = 3 * 8 * 32 / (150 + 16)
    waiting = (150 + 16) * (come / 4 - 1)  # cycles that the room of the ports bridges, of 88
    assert wide.constants_rate == pytest.approx(4 * (1 - (88 - waiting) / 1950))
    assert Z2.constants_rate == 1
    assert overlays.load("kv260").constants_rate == pytest.approx(come * (1 - 88 / 1950))  # it stores 8
    assert replace(Z2, memory_port=None).constants_rate == 1


def test_constants_come_a_task_ahead() -> None:
    """By hand: those of the third Task are asked for when the first one has worked, and no more than .8 before it works."""
    first, third = effort("array", 100), effort("array", 10, constants=500, held=0.8)
    assert makespan([first, third], [NONE, NONE]) == 500  # from the start on
    assert makespan([first, effort("array", 10, delay=7, constants=500, held=0.8)], [NONE, NONE]) == 507
    second = effort("array", 50, delay=10, tail=5)
    assert makespan([first, second, third], [NONE, NONE, NONE]) == 100 + 500
    late = effort("array", 10, constants=50, held=0.8)
    assert makespan([first, late], [NONE, NONE]) == 110 + 0  # 40 before, 10 while it works
    assert makespan([first, effort("array", 10, constants=50, held=0.2)], [NONE, NONE]) == 100 + 40


def test_constants_come_a_few_blocks_ahead() -> None:
    """By hand: of a Task of 10 blocks, 10 cycles each, 3 are left after 70, when the constants of the next one may come."""
    second = effort("array", 10, constants=50)
    assert makespan([effort("array", 100, blocks=10), second], [NONE, NONE]) == 70 + 50
    assert makespan([effort("array", 100, blocks=3), second], [NONE, NONE]) == 100 + 10
    assert makespan([effort("array", 100, blocks=4), second], [NONE, NONE]) == 100 + 10  # 25 to 75


def test_rows_and_constants_take_turns_until_the_array_waits() -> None:
    """By hand: each has half of the port for 60 cycles. Then the array is free, and the last 10 cycles of rows come first."""
    second = effort("array", 10, first=40, reading=40, constants=40)
    assert makespan([effort("array", 100), second], [NONE, NONE]) == 100 + 10
    assert makespan([effort("array", 60), second], [NONE, NONE]) == 60 + 10 + 10


def test_constants_that_the_array_waits_for_do_not_go_first() -> None:
    """By hand: the first Task ends when its 60 cycles of constants have come, 20 of them at half speed beside others' rows."""
    first, window, last = (
        effort("array", 10, constants=60),
        effort("window", 50),
        effort("array", 10, first=20, reading=20),
    )
    assert makespan([first, window, last], [NONE, Finished(1, 0), NONE]) == 40 + 40 + 50


def test_the_window_engine_has_its_share_of_a_port() -> None:
    """By hand: half of it, also beside constants that the array waits for."""
    first, window = effort("array", 10, constants=60), effort("window", 40, port=40)
    assert makespan([first, window], [NONE, NONE]) == 2 * 40 + 20


def test_a_task_ends_when_its_last_rows_are_computed() -> None:
    """By hand: 60 cycles of rows, of which it needs 10 to begin, and 40 of work: 10 after the last ones if the first are 30."""
    last = effort("array", 40, delay=5, first=10, reading=60)
    assert makespan([last], [NONE]) == 5 + 60
    assert makespan([effort("array", 40, delay=5, first=30, reading=60)], [NONE]) == 5 + 60 + 10
    assert makespan([effort("array", 20), last], [NONE, NONE]) == 5 + 60
    assert makespan([effort("array", 30), last], [NONE, NONE]) == 30 + 40
    assert makespan([effort("array", 300), last], [NONE, NONE]) == 300 + 40


def test_rows_come_as_far_as_the_input_buffer_has_room() -> None:
    """By hand: rows that take the buffer twice, a tenth of it at first and .3 at a time: 1.0 of it fits before the Task works.

    Beside .4 that the Task before it keeps, .4 fit.
    """
    room = {"rows": 0.1, "chunk": 0.3, "all": 2.0}
    last = effort("array", 10, first=5, reading=200, **room)
    assert makespan([effort("array", 300), last], [NONE, NONE]) == 300 + 200 * (1 - 1.0 / 2)
    assert makespan([effort("array", 300, keeps=0.4), last], [NONE, NONE]) == 300 + 200 * (1 - 0.4 / 2)
    all_first = replace(last, waits=last.waits._replace(first=200))
    assert makespan([effort("array", 300), all_first], [NONE, NONE]) == 300 + 200 * (1 - 1.0 / 2) + 10


def test_constants_on_their_way_share_rates_with_the_tasks() -> None:
    """By hand: 100 cycles of constants that use all of the memory, and a Task of 100 that uses .8 of it while it works.

    Each has half until the Task has worked, after 160 cycles. The Task of 50, whose constants they are, ends when they are there.
    """
    window, array = effort("window", 100, 80), replace(effort("array", 50, constants=100), constants=(1.0, 0.0))
    assert makespan([window], [NONE]) == 100
    assert makespan([array], [NONE]) == 100
    assert makespan([array, window], [NONE, NONE]) == 160 + (100 - 160 / 2)
    first = effort(
        "array", 70
    )  # meanwhile 70 of the 100 cycles of constants pass, and 30 more while the next one works
    assert makespan([first, array], [NONE, NONE]) == 70 + 50


def test_rows_and_sums_of_the_task_before_come_first() -> None:
    """By hand: a port reads a Task's rows after those of the one before, the drain takes its sums after that one's."""
    slow = effort("array", 30, delay=20, reading=90)
    assert makespan([slow, slow], [NONE, NONE]) == 20 + 90 + 90
    assert makespan([slow, effort("array", 100, delay=20)], [NONE, NONE]) == 20 + 90 + 100
    drains = effort("array", 60, tail=50, draining=50, first_sums=30)
    assert makespan([drains], [NONE]) == 110
    assert makespan([drains, drains], [NONE, NONE]) == 60 + (50 - 30) + 60 + 50
    assert makespan([drains, replace(drains, waits=drains.waits._replace(first_sums=55))], [NONE, NONE]) == 60 + 60 + 50


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Effort], list[Finished]]:
    tasks: list[Effort] = []
    after: list[Finished] = []
    before = {"array": 0, "window": 0}
    for _ in range(draw(st.integers(1, 6))):
        alone = draw(st.integers(1, 30))
        waits = draw(st.integers(0, 9)), draw(st.integers(0, 9))
        tasks.append(effort(draw(st.sampled_from(("array", "window"))), alone, draw(st.integers(0, alone)), *waits))
        after.append(Finished(*(draw(st.integers(0, count)) for count in before.values())))
        before[tasks[-1].engine] += 1
    return tasks, after


@given(chains())
def test_equal_to_small_steps(tasks_and_waits: tuple[list[Effort], list[Finished]]) -> None:
    tasks, after = tasks_and_waits
    step = 1 / 32
    total = makespan(tasks, after)
    # a Task ends at the end of a step, and the next one begins there
    assert total - 1 - 2 * step <= stepped(tasks, after, step) <= total + 3 * len(tasks) * step
    assert total <= sum(task.cycles for task in tasks)
