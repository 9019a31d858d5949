"""What Tasks wait for: enough for every interleaving of two engines, no more than needed, and derived from bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import overlay as overlays
from chai.blob import Shape, View
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.codegen.dependencies import Budget, Finished, check_listed, dependencies
from chai.codegen.memory_map import Usage, regions
from chai.errors import DeviceError
from chai.limits import limits
from chai.offload.schedule import DeviceStep
from chai.overlay.records import unpack
from chai.tasks import Task
from chai.tasks.affine import Affine
from chai.tasks.copy import Copy
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.tasks.work import Work
from chai.zoo import networks
from tests.conftest import examples
from tests.reference.engines import ENGINES, Choice, Move, Stuck, Traffic, delaying, run, shuffled
from tests.tasks.common import factors

Z2 = overlays.load("pynq-z2")
RANDOM = settings(max_examples=examples(30))
ONE = Window((1, 1), (1, 1), (0, 0))


def traffic(segment: Chain) -> Traffic:
    return Traffic(segment.overlay, [unpack(segment.overlay.descriptor, d) for d in segment.descriptors])


@cache
def chains(name: str, batch: int) -> list[Chain]:
    """The chains of a shipped network."""
    net = chai.Net(name, device="null", overlay="pynq-z2", batch=batch)
    net.plan()
    steps = [step for step in net.schedule.steps if isinstance(step, DeviceStep)]
    views, shapes = net.schedule.views, net.offload.plan.device_shapes
    return [chain(step.work(Z2, shapes, views)) for step in steps]


def lowered(counts: Sequence[dict[str, int]], i: int, name: str, to: int) -> list[dict[str, int]]:
    return [{**count, name: to} if k == i else count for k, count in enumerate(counts)]


# -- every network


@pytest.mark.parametrize("name", ["digits", "lenet"])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_no_interleaving_of_a_small_network_reads_other_bytes(name: str, batch: int) -> None:
    for segment in chains(name, batch):
        accesses = traffic(segment)
        assert accesses.races() == []
        assert [accesses.replay(shuffled(seed)) for seed in range(200)] == [None] * 200
        assert [accesses.replay(delaying(i)) for i in range(len(segment.tasks))] == [None] * len(segment.tasks)


@pytest.mark.slow
@pytest.mark.parametrize("name", networks.names())
def test_no_interleaving_of_a_network_reads_other_bytes(name: str) -> None:
    for batch in (1, 2, 3):
        for segment in chains(name, batch):
            accesses = traffic(segment)
            assert accesses.races() == []
            assert [accesses.replay(shuffled(seed)) for seed in range(200)] == [None] * 200
            assert [accesses.replay(delaying(i)) for i in range(len(segment.tasks))] == [None] * len(segment.tasks)


def line() -> Chain:
    """Each Task reads what the one before it wrote; all of them are the window engine's."""
    return chain(Work(Z2, [pool("a", "b"), pool("b", "c"), pool("c", "d"), pool("d", "e")], ALONE, {}, ["a"], ["e"]))


@pytest.mark.parametrize("name", ["digits", "line"])
def test_without_a_needed_dependency_some_interleaving_fails(name: str) -> None:
    """Each count, lowered by one: either the Task that is no longer waited for is still known to have finished through
    another, or the adversary finds it. The counts of the Task's own engine are among them."""
    needed = dict.fromkeys([(mine, name) for mine in ENGINES for name in ENGINES], 0)
    for segment in [line()] if name == "line" else chains(name, 2):
        accesses = traffic(segment)
        for i, counts in enumerate(accesses.counts):
            for engine in (e for e in ENGINES if counts[e]):
                changed = lowered(accesses.counts, i, engine, counts[engine] - 1)
                races = accesses.races(changed)
                caught = [pair for pair in races if accesses.replay(delaying(pair[0]), changed)]
                assert bool(caught) == bool(races)
                needed[accesses.engines[i], engine] += bool(races)
    if name == "line":
        assert needed["window", "window"] == 3
    else:
        assert needed["array", "array"] and needed["array", "window"] and needed["window", "array"], needed


def test_without_the_counts_of_its_own_engine_an_adversary_gets_between() -> None:
    (segment,) = chains("digits", 2)
    accesses = traffic(segment)
    none = [{**counts, engine: 0} for counts, engine in zip(accesses.counts, accesses.engines)]
    races = accesses.races(none)
    assert races and all(accesses.replay(delaying(i), none) for i, _ in races[:5])


# -- queues


def order(kinds: str, counts: Sequence[tuple[int, int]], choose: Choice, depth: float) -> list[Move]:
    """The moves of a run of Tasks that do one thing each, "a" of the array and "w" of the window engine."""
    moves: list[Move] = []

    def chosen(options: Sequence[Move]) -> Move:
        moves.append(choose(options))
        return moves[-1]

    engines = [{"a": "array", "w": "window"}[kind] for kind in kinds]
    after = [Finished(*count)._asdict() for count in counts]
    ended = list(run(engines, after, lambda _: iter([None]), chosen, depth))
    assert sorted(ended) == list(range(len(kinds)))
    assert all([i for i in ended if engines[i] == e] == [i for i, x in enumerate(engines) if x == e] for e in ENGINES)
    return moves


def test_a_full_queue_holds_the_fetch_back() -> None:
    """The last Task waits for nothing, and its engine has nothing else to do."""

    def last(moves: Sequence[Move]) -> Move:
        return max(moves, key=lambda move: move[1])

    for depth, before in ((1, 2), (2, 1), (3, 0), (inf, 0)):
        events = order("aaaw", [(0, 0)] * 4, last, depth)
        started = [i for what, i in events if what == "start"]
        assert started.index(3) == before, depth


@st.composite
def counted(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """Tasks of both engines, each with counts of earlier ones."""
    kinds = draw(st.text("aw", min_size=1, max_size=24))
    before = [(kinds[:i].count("a"), kinds[:i].count("w")) for i in range(len(kinds))]
    return kinds, [(draw(st.integers(0, a)), draw(st.integers(0, w))) for a, w in before]


@RANDOM
@given(counted(), st.integers(0, 2**32))
def test_nothing_locks_up(engines_and_counts: tuple[str, list[tuple[int, int]]], seed: int) -> None:
    for depth in (1, 4):
        order(*engines_and_counts, shuffled(seed), depth)
        for victim in range(len(engines_and_counts[0])):
            order(*engines_and_counts, delaying(victim), depth)


def test_a_count_of_a_later_task_locks_up() -> None:
    with pytest.raises(Stuck):
        order("aw", [(0, 1), (1, 0)], shuffled(0), 4)
    order("aaw", [(0, 0), (0, 1), (1, 0)], shuffled(0), 4)  # the array's second Task waits for what is fetched after it
    with pytest.raises(Stuck):
        order("aaaw", [(0, 0), (0, 1), (0, 0), (1, 0)], shuffled(0), 1)  # and here it is not: the queue is full


@pytest.mark.parametrize("depth", [1, 4])
def test_a_network_runs_through_short_queues(depth: int) -> None:
    for name in ("digits", "squeezenet_v1.1"):
        for segment in chains(name, 2):
            accesses = traffic(segment)
            assert accesses.replay(shuffled(depth), depth=depth) is None
            assert not any(accesses.replay(delaying(i), depth=depth) for i in range(0, len(segment.tasks), 9))


# -- random chains


@st.composite
def random_chains(draw: st.DrawFn) -> Chain:
    """Tasks of both engines over few blobs of few bytes, into concats and from slices."""
    batch = draw(st.integers(1, 3))
    size = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    shapes: dict[str, Shape] = {"x": (batch, 16, *size)}
    views: dict[str, View] = {}
    sources, tasks = ["x"], list[Task]()
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    for i in range(draw(st.integers(2, 9))):
        source = draw(st.sampled_from(sources))
        channels = shapes[source][1]
        name = f"b{i}"
        shapes[name] = (batch, channels, *size)
        kind = draw(st.integers(0, 3))
        if kind == 0 and f"whole{i}" not in shapes:  # two Tasks write a concat
            whole = f"whole{i}"
            shapes[whole] = (batch, channels + 16, *size)
            shapes[f"{name}.rest"] = (batch, 16, *size)
            views[name], views[f"{name}.rest"] = View(whole, 0), View(whole, channels // 8 * 8)
            if channels % 8 == 0 and channels + 16 < 80:
                tasks += [task(random, source, name, shapes), task(random, "x", f"{name}.rest", shapes)]
                sources.append(whole)
                continue
            del views[name], views[f"{name}.rest"]
        tasks.append(task(random, source, name, shapes))
        sources.append(name)
    asked = draw(st.lists(st.sampled_from(sources[1:] or sources), min_size=1, max_size=2, unique=True))
    return chain(Work(Z2, tasks, shapes, views, ["x"], asked))


def task(random: np.random.Generator, source: str, target: str, shapes: dict[str, Shape]) -> Task:
    """A Task of either engine that keeps the shape."""
    channels = shapes[source][1]
    if random.integers(2):
        return Pool((source,), target, (target,), ONE, shapes[source][2:], None)  # type: ignore[arg-type]
    r = chai.fixed.Requantization(factors(random, (channels, 1, 1), 9), 9, -128, 127)
    weights = np.ones((channels, 1, 1, 1), np.int8)
    return Affine((source,), target, (target,), weights, np.zeros(channels, np.int64), ONE, channels, r)


@RANDOM
@given(segment=random_chains(), seed=st.integers(0, 99))
def test_no_interleaving_of_a_random_chain_reads_other_bytes(segment: Chain, seed: int) -> None:
    accesses = traffic(segment)
    assert accesses.races() == []
    assert accesses.replay(shuffled(seed)) is None


@RANDOM
@given(segment=random_chains())
def test_counts_are_the_least(segment: Chain) -> None:
    """The last Task of each engine that a Task conflicts with, by comparing every pair; tags and counts as in README."""
    accesses = traffic(segment)
    for j, counts in enumerate(accesses.counts):
        for engine in ENGINES:
            mates = [i for i in range(j) if accesses.engines[i] == engine]
            last = max((n for n, i in enumerate(mates, 1) if accesses.conflicts(i, j)), default=0)
            assert counts[engine] <= last  # a Task that wrote after it stands for an earlier one
            assert segment.after[j]._asdict()[engine] == counts[engine]


# -- by hand


def pool(source: str, target: str) -> Pool:
    return Pool((source,), target, (target,), ONE, (5, 7), None)


SHAPES: dict[str, Shape] = dict.fromkeys("abcdef", (2, 16, 5, 7)) | {"whole": (2, 32, 5, 7)}
ALONE = {blob: (1, *shape[1:]) for blob, shape in SHAPES.items()}  # of one image


def test_a_reader_waits_for_its_writers_and_a_writer_for_the_readers_of_what_it_overwrites() -> None:
    segment = chain(
        Work(Z2, [pool("a", "b"), pool("a", "c"), pool("c", "d"), pool("b", "e")], ALONE, {}, ["a"], ["e", "d"])
    )
    assert [task.output for task in segment.tasks] == [
        "b",
        "c",
        "e",
        "d",
    ]  # the first response comes before the second one
    assert segment.after == [Finished(), Finished(), Finished(0, 1), Finished(0, 2)]
    chain_of_pools = line()
    assert chain_of_pools.regions.offsets["d"] == chain_of_pools.regions.offsets["b"]
    assert chain_of_pools.after == [Finished(), Finished(0, 1), Finished(0, 2), Finished(0, 3)]


def test_the_branches_of_a_concat_do_not_wait_for_each_other() -> None:
    views = {"b": View("whole", 0), "c": View("whole", 16)}
    tasks = [pool("a", "b"), pool("a", "c"), Pool(("whole",), "f", ("f",), ONE, (5, 7), None)]
    segment = chain(Work(Z2, tasks, {**ALONE, "f": (1, 32, 5, 7)}, views, ["a"], ["f"]))
    assert segment.after == [Finished(), Finished(), Finished(0, 2)]


def test_the_engines_are_counted_apart() -> None:
    weights, bias = np.ones((16, 1, 1, 1), np.int8), np.zeros(16, np.int64)
    r = chai.fixed.Requantization(np.ones((16, 1, 1), np.int64), 1, -128, 127)
    array = Affine(("b",), "c", ("c",), weights, bias, ONE, 16, r)
    segment = chain(Work(Z2, [pool("a", "b"), array, pool("a", "d"), pool("c", "e")], ALONE, {}, ["a"], ["d", "e"]))
    assert [task.output for task in segment.tasks] == ["b", "d", "c", "e"]  # "d" waits for the window engine only
    assert segment.after == [Finished(), Finished(), Finished(0, 1), Finished(1, 0)]


def test_more_images_than_the_overlay_runs_are_refused() -> None:
    shapes = dict.fromkeys("ab", (257, 1, 5, 7))
    with pytest.raises(DeviceError, match="257 images: overlay pynq-z2 runs 256 at a time"):
        chain(Work(Z2, [pool("a", "b")], shapes, {}, ["a"], ["b"]))


def test_work_without_end_is_refused() -> None:
    """Many Copies into one blob of many images: each read of the blob examines all of their pieces."""
    shapes: dict[str, Shape] = {"a": (64, 8, 1, 1), **dict.fromkeys(("whole", *"bcd"), (64, 64, 1, 1))}
    tasks: list[Task] = [Copy(("a",), "whole", ("copy",), 8 * i, None) for i in range(8)]
    tasks += [pool("whole", blob) for blob in "bcd"]
    laid = regions(Z2.layout, shapes, {}, Usage([(t.inputs, t.output) for t in tasks], ["a"], [*"bcd"]))
    budget = Budget()
    dependencies(Z2, tasks, shapes, laid, budget)
    assert budget.spent >= 8 * 64 + 3 * 8 * 64
    budget.spent = limits().accesses - 1
    with pytest.raises(DeviceError, match=r"too many pieces of memory: .* exceeds the limit accesses=5,000,000"):
        check_listed(Z2.layout, tasks, shapes, laid, budget)
    budget.spent = limits().accesses - 1000
    with pytest.raises(DeviceError, match=r"too many pieces of memory: .* exceeds the limit accesses=5,000,000"):
        dependencies(Z2, tasks, shapes, laid, budget)


def test_what_is_written_twice_is_refused() -> None:
    """By two Tasks, over an input of the host, and by one over what it reads."""
    views = {"b": View("whole", 0), "c": View("whole", 16)}
    copies: list[Task] = [Copy(("a",), "whole", ("copy",), first, None) for first in (0, 16, 8)]
    for tasks, reads, blob in (
        ([pool("a", "b"), pool("b", "d"), pool("a", "b")], ["a"], "whole"),
        (copies, ["a"], "whole"),
        ([pool("a", "c")], ["a", "c"], "whole"),
        ([pool("a", "d"), pool("d", "d")], ["a"], "d"),
        (copies[:2], ["a"], None),
    ):
        moves = [(task.inputs, task.output) for task in tasks]
        laid = regions(Z2.layout, SHAPES, views, Usage(moves, reads, ["whole"]), apart=len(tasks))
        if blob is None:
            dependencies(Z2, tasks, SHAPES, laid)
        else:
            with pytest.raises(DeviceError, match=f"blob '{blob}' is written twice"):
                dependencies(Z2, tasks, SHAPES, laid)


MOVES = [(source, target) for source in ("a", "b", "c", "d", "whole") for target in ("b", "c", "d")]
COPIES: list[Task] = [Copy((source,), "whole", ("copy",), first, None) for source in "ad" for first in (0, 8, 16)]


@RANDOM
@given(tasks=st.lists(st.sampled_from([pool(*move) for move in MOVES] + COPIES), min_size=1, max_size=6))
def test_the_listed_order_is_judged_as_that_of_a_chain_whose_blobs_share_no_bytes(tasks: list[Task]) -> None:
    """However the blobs of the file share them."""
    views = {"b": View("whole", 0), "c": View("whole", 16)}
    shapes = SHAPES | {"d": (2, 24, 5, 7)}
    moves = [(task.inputs, task.output) for task in tasks]
    wrote = list(dict.fromkeys(task.output for task in tasks))

    def refused(check: Callable[..., Any], apart: int, *more: Any) -> str:
        laid = regions(Z2.layout, shapes, views, Usage(moves, ["a"], wrote[-1:]), apart=apart)
        try:
            check(laid, *more)
        except DeviceError as error:
            return error.message
        return ""

    wanted = refused(lambda laid: dependencies(Z2, tasks, shapes, laid), len(tasks))
    for apart in (0, len(tasks)):
        assert refused(lambda laid: check_listed(Z2.layout, tasks, shapes, laid, Budget()), apart) == wanted


def test_a_copy_waits_for_nobody_beside_it() -> None:
    """Into the second half of a blob, while a pool of its first half runs."""
    views = {"b": View("whole", 0)}
    tasks: list[Any] = [pool("a", "b"), Copy(("a",), "whole", ("copy",), 16, None), pool("b", "c")]
    segment = chain(Work(Z2, tasks, SHAPES, views, ["a"], ["whole", "c"]))
    assert segment.after == [Finished(), Finished(), Finished(0, 1)]
