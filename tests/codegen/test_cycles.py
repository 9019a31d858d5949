"""The cycle model of a chain: two engines side by side, in order, with one memory; what a Task waits for at its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, strategies as st

from chai import overlay as overlays
from chai.codegen.cycles import LEAST, Effort, chain_cycles, makespan
from chai.codegen.dependencies import Finished
from chai.tasks.pool import Pool
from chai.tasks.waits import Waits
from chai.tasks.window import Window

Z2 = overlays.load("pynq-z2")
SHAPES = dict.fromkeys("abc", (2, 16, 5, 7))


def made(
    engine: str,
    work: float,
    moving: float = 0.0,
    lead: float = 0.0,
    tail: float = 0.0,
    port: float = 0.0,
    **more: float,
) -> Effort:
    """The effort of a Task that works so long, ``moving`` cycles of them at the memory's full rate, ``port`` at a port's."""
    return Effort(engine, (moving / work, port / work), Waits(lead, work, tail, **more), fetching=(0.0, 0.0))


def stepped(tasks: Sequence[Effort], after: Sequence[Finished], step: float) -> float:
    """The same in small steps of time, in each of which the memory is dealt out: the one that asks for least is first."""
    queues = {e: [i for i, task in enumerate(tasks) if task.engine == e] for e in ("array", "window")}
    ready: dict[int, float] = {}  # when a Task that leads may work
    left = [float(task.waits.work) for task in tasks]
    works: dict[str, int] = {}
    ends = dict[int, float]()
    now = 0.0
    while len(ends) < len(tasks) or max(ends.values()) > now:
        done = {e: sum(tasks[i].engine == e and end <= now for i, end in ends.items()) for e in queues}
        for engine, queue in queues.items():
            if queue and queue[0] not in ready and all(done[e] >= n for e, n in after[queue[0]]._asdict().items()):
                ready[queue[0]] = now + tasks[queue[0]].waits.lead
            if queue and engine not in works and ready.get(queue[0], now + 1) <= now:
                works[engine] = queue.pop(0)
        speeds = dict.fromkeys(works.values(), 1.0)
        for rate in range(2):  # of the memory, of a port
            loads = {i: tasks[i].loads[rate] for i in works.values()}
            free = 1.0
            for place, i in enumerate(sorted(loads, key=loads.__getitem__)):
                has = min(loads[i], free / (len(loads) - place))
                free -= has
                speeds[i] = min(speeds[i], has / loads[i] if loads[i] else 1)
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
    150, its beats twice, and 18. A plane's run of 35 beats is 3 bursts, or 4 at the end of a page of 512. In 30 of 780 cycles
    memory is refreshed, and nothing moves.
    """
    tasks = [Pool(("a",), top, (top,), Window((1, 1), (1, 1), (0, 0)), (5, 7), None) for top in "bc"]
    unlimited = replace(Z2, memory_port=None)
    assert tasks[0].cycles(unlimited, SHAPES) == -(-2 * 2 * 16 * 35 // 15) + 64
    burst = 35 / (3 + 35 / 512 * 15 / 16)
    one = ceil(140 * (150 + 2 * burst + 18) / (8 * burst) / (1 - 30 / 780))
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
    tasks = [made("array", *array), made("window", *window)]
    assert makespan(tasks, [NONE, NONE]) == cycles
    assert makespan(tasks[::-1], [NONE, NONE]) == cycles
    assert makespan(tasks, [NONE, Finished(1, 0)]) == array[0] + window[0]  # one after the other
    assert makespan(tasks[::-1], [NONE, Finished(0, 1)]) == array[0] + window[0]


def test_a_task_leads_while_the_one_before_it_works() -> None:
    """By hand, for a lead of 30 cycles and a tail of 20."""
    one, two = made("array", 100, lead=30, tail=20), made("array", 50, lead=30, tail=20)
    assert makespan([one, two], [NONE, NONE]) == 30 + 100 + 50 + 20
    assert makespan([one, two], [NONE, Finished(1, 0)]) == (30 + 100 + 20) + (30 + 50 + 20)
    window = made("window", 60, lead=30, tail=20)
    assert makespan([one, window, two], [NONE, NONE, Finished(0, 1)]) == 110 + 30 + 50 + 20
    assert makespan([one, window, two], [NONE, Finished(1, 0), Finished(0, 1)]) == 150 + 110 + 100


def test_first_rows_wait_for_room_beside_those_of_the_task_before() -> None:
    one, two = made("array", 100, lead=30, tail=20, keeps=0.5), made("array", 50, lead=30, tail=20, rows=0.5)
    assert makespan([one, two], [NONE, NONE]) == 30 + 100 + 50 + 20
    assert makespan([one, made("array", 50, lead=30, tail=20, rows=0.6)], [NONE, NONE]) == 30 + 100 + 30 + 50 + 20


def test_every_other_run_of_odd_planes_is_a_burst_more() -> None:
    """By hand, of 64 words: 2 bursts of 32, or 3 from within a beat; and some that end with a page. 8 in flight, 150 cycles."""
    for odd, bursts in ((False, 2), (True, 2.5)):
        words = 64 / (bursts + 64 / 512 * 31 / 32)
        moving = 1 - 88 / 1950  # of all cycles; in the others memory is refreshed
        assert overlays.load("kv260").rates(odd=odd)[0] == pytest.approx(words * 8 / (150 + words / 2) * moving)
    assert Z2.rates(odd=True) == Z2.rates()


def test_constants_come_a_task_ahead() -> None:
    """By hand: those of the third Task are asked for when the first one has worked; what its port has accepted is before rows."""
    first, third = made("array", 100), made("array", 10, constants=500, held=400)
    assert makespan([first, third], [NONE, NONE]) == 500  # from the start on, and no more than 400 before it works
    second = made("array", 50, lead=10, tail=5)
    assert makespan([first, second, third], [NONE, NONE, NONE]) == 100 + 500
    waits = replace(second, queue=30, rate=0.5)
    assert makespan([first, waits, third], [NONE, Finished(1, 0), NONE]) == 100 + 500
    assert waits.lead(250, 0) == 10 + 30 / 0.5 and waits.lead(7, 0) == 10 + 7 / 0.5
    other = replace(waits, stored=1.5, ports=3)  # of 10 cycles of constants, 5 words are its port's
    assert other.lead(10, 0) == 10 + 5 / 0.5


def test_rows_and_constants_take_turns_while_the_array_has_work() -> None:
    """By hand: rows that take 40 cycles take as many again while others' constants come and the Task before them works."""
    one = replace(made("array", 50, lead=40), queue=1, rate=1.0)
    assert one.lead(0, 100) == 40 and one.lead(100, 0) == 40 + 1
    assert one.lead(100, 30) == one.lead(30, 100) == 40 + 15
    assert one.lead(200, 200) == 40 + 40
    assert replace(one, queue=0).lead(200, 200) == 40  # its port has no constants


def test_rows_that_come_before_a_task_works_are_not_waited_for() -> None:
    """By hand: a Task of 60 cycles for its bytes computes for 40. Each cycle before it works saves half of one of those."""
    last = replace(made("array", 60, lead=10), early=(20, 0.5))
    assert makespan([last], [NONE]) == 10 + 60 - 5
    assert makespan([made("array", 30), last], [NONE, NONE]) == 30 + 60 - 15
    assert makespan([made("array", 300), last], [NONE, NONE]) == 300 + 40


def test_constants_on_their_way_share_rates_with_the_tasks() -> None:
    """By hand: 100 cycles of constants that use all of the memory, and a Task of 100 that uses .8 of it while it works.

    Each has half until the Task has worked, after 160 cycles. The Task of 50, whose constants they are, ends when they are there.
    """
    window, array = made("window", 100, 80), replace(made("array", 50, constants=100, held=100), fetching=(1.0, 0.0))
    assert makespan([window], [NONE]) == 100
    assert makespan([array], [NONE]) == 100
    assert makespan([array, window], [NONE, NONE]) == 160 + (100 - 160 / 2)
    first = made("array", 70)  # meanwhile 70 of the 100 cycles of constants pass, and 30 more while the next one works
    assert makespan([first, array], [NONE, NONE]) == 70 + 50


def test_rows_go_before_constants_that_are_not_waited_for() -> None:
    """By hand: a Task of 100 cycles uses .8 of a port, of which 60 cycles of another one's constants have the rest."""
    first, last = made("array", 100, port=80), replace(made("array", 10, constants=60, held=60), fetching=(0.0, 1.0))
    assert makespan([first, last], [NONE, NONE]) == 100 + (60 - 0.2 * 100)
    all_of_it = made("array", 100, port=100)  # what the port has accepted comes in order
    assert makespan([all_of_it, last], [NONE, NONE]) == 100 + (60 - LEAST * 100)


def test_rows_and_sums_of_the_task_before_come_first() -> None:
    """By hand: a port reads a Task's rows after those of the one before, the drain takes its sums after that one's."""
    slow = made("array", 30, lead=20, reading=90)
    assert makespan([slow, slow], [NONE, NONE]) == 20 + 90 + 30
    assert makespan([slow, made("array", 100, lead=20)], [NONE, NONE]) == 90 + 20 + 100
    drains = made("array", 60, tail=50, draining=50, first_sums=30)
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
        tasks.append(made(draw(st.sampled_from(("array", "window"))), alone, draw(st.integers(0, alone)), *waits))
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
