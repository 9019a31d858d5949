"""What stages of the pipeline claim: never more than there is, and given back whatever happens."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from chai.runtime.lanes import Pipeline, PipelineStage
from tests.conftest import HANG
from tests.leftovers import Leftovers

from .test_lanes import stage


@pytest.fixture
def left() -> Leftovers:
    """The threads of a test."""
    return Leftovers()


class Sets:
    """So many things to claim, each until it is given back."""

    def __init__(self, count: int) -> None:
        self.free, self.waiting, self.taken = count, list[Any](), list[int]()
        self.lock = threading.Lock()

    def claim(self, state: list[int], again: Any) -> bool:
        with self.lock:
            if not self.free:
                self.waiting.append(again)
                return False
            self.free -= 1
            self.taken.append(state[0])
            state.append(1)  # has one
            return True

    def give(self, state: list[int]) -> None:
        with self.lock:
            while len(state) > 1:
                state.pop()
                self.free += 1
            waiting, self.waiting = self.waiting, []
        for again in waiting:
            again()

    def stages(self, pack: Any = None, work: Any = None, unpack: Any = None) -> list[PipelineStage]:
        """Pack, work and unpack, as a network's: the first claims, the last gives back."""
        nothing = lambda _: None  # noqa: E731

        def last(state: list[int]) -> None:
            (unpack or nothing)(state)
            self.give(state)

        return [
            PipelineStage("host", frozenset(), pack or nothing, self.claim),
            stage("fpga", {0}, work or nothing),
            stage("host", {1}, last),
        ]

    def pipeline(self, depth: int = 4, **work: Any) -> Pipeline:
        return Pipeline(self.stages(**work), depth, self.give)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_no_more_batches_than_sets_are_between_the_first_stage_and_the_last(count: int, left: Leftovers) -> None:
    sets, inside, most = Sets(count), set[int](), [0]

    def pack(state: list[int]) -> None:
        inside.add(state[0])
        most[0] = max(most[0], len(inside))

    states = list(
        sets.pipeline(pack=pack, unpack=lambda state: inside.discard(state[0])).stream([i] for i in range(30))
    )
    assert states == [[i] for i in range(30)]
    assert sets.taken == [*range(30)]  # the oldest first
    assert 1 <= most[0] <= count and sets.free == count
    assert left.threads == []


def test_with_two_sets_the_lanes_overlap() -> None:
    """Both are at work at once, or the barrier breaks."""
    barrier = threading.Barrier(2, timeout=HANG)

    def pack(state: list[int]) -> None:
        if state[0]:
            barrier.wait()

    def work(state: list[int]) -> None:
        if state[0] < 5:
            barrier.wait()

    assert len(list(Sets(2).pipeline(pack=pack, work=work).stream([i] for i in range(6)))) == 6


def test_a_lane_runs_other_stages_while_one_waits() -> None:
    """What is needed to give a set back is a later stage than the one that waits for it, in the same lane."""
    sets, seen = Sets(1), list[tuple[str, int]]()
    stages = sets.stages()
    stages.append(stage("host", set(), lambda state: seen.append(("other", state[0]))))
    other = [1, 1]
    sets.free = 0  # somebody else has it, until all batches in flight have run what they can

    def note(state: list[int]) -> None:
        seen.append(("other", state[0]))
        if state[0] == 2:
            threading.Thread(target=sets.give, args=(other,)).start()

    stages[-1] = stage("host", set(), note)
    assert len(list(Pipeline(stages, 3, sets.give).stream([i] for i in range(5)))) == 5
    assert seen[:3] == [("other", 0), ("other", 1), ("other", 2)]


def test_a_lane_that_is_not_woken_looks_again() -> None:
    sets = Sets(1)
    sets.waiting = Deaf()
    assert len(list(sets.pipeline().stream([i] for i in range(5)))) == 5


class Deaf(list[Any]):
    """A list that forgets whom to wake."""

    def append(self, _: Any) -> None:
        pass


@pytest.mark.parametrize("where", ["pack", "work", "unpack"])
@pytest.mark.parametrize("bad", [0, 1, 4, 6])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_that_fails_gives_back_what_it_has(where: str, bad: int, count: int, left: Leftovers) -> None:
    """And so do those after it, which go no further; those before it are complete."""
    sets = Sets(count)

    def fail(state: list[int]) -> None:
        if state[0] == bad:
            raise ValueError(f"batch {bad}")

    seen = []
    with pytest.raises(ValueError, match=f"batch {bad}"):
        seen.extend(sets.pipeline(**{where: fail}).stream([i] for i in range(7)))
    assert seen == [[i] for i in range(bad)]
    assert sets.free == count
    assert left.threads == []


def test_a_claim_that_fails_is_an_error_of_its_batch() -> None:
    def claim(state: list[int], again: Any) -> bool:
        if state[0] == 2:
            raise ValueError("there is no room")
        return True

    stages = [PipelineStage("host", frozenset(), lambda _: None, claim), stage("fpga", {0}, lambda _: None)]
    seen = []
    with pytest.raises(ValueError, match="there is no room"):
        seen.extend(Pipeline(stages, 3).stream([i] for i in range(7)))
    assert seen == [[0], [1]]


def test_nothing_is_given_back_while_another_lane_works_on_it() -> None:
    """The device may still write there."""
    sets, begun, failed, events = Sets(1), threading.Event(), threading.Event(), list[str]()

    def give(state: list[int]) -> None:
        events.extend(["given back"] if len(state) > 1 else [])
        sets.give(state)

    def work(_: list[int]) -> None:
        begun.set()
        assert failed.wait(HANG)
        time.sleep(0.01)
        events.append("worked")

    def fail(_: list[int]) -> None:
        assert begun.wait(HANG)
        failed.set()
        raise ValueError("now")

    stages = [*sets.stages(work=work), stage("host", {0}, fail)]
    with pytest.raises(ValueError, match="now"):
        list(Pipeline(stages, 2, give).stream([i] for i in range(3)))
    assert events == ["worked", "given back"] and sets.free == 1


def test_a_stream_that_is_left_gives_back_what_is_in_flight(left: Leftovers) -> None:
    sets = Sets(2)
    for taken in range(4):
        stream = sets.pipeline().stream([i] for i in range(20))
        for _ in range(taken):
            next(stream)
        stream.close()
        assert sets.free == 2
    assert left.threads == []
