"""Order and cut of a segment's Tasks: sooner done in the model, and the same codes from fewer images at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import overlay as overlays
from chai.blob import View, outermost
from chai.codegen import cut, join_pooling
from chai.codegen.arrange import Arrangement, Arranger, best_arrangement
from chai.codegen.chain import Chain, Piece, arranged, sharing
from chai.codegen.compile import chain
from chai.codegen.cut import PIECES
from chai.codegen.cycles import Effort, chain_cycles, effort
from chai.codegen.dependencies import dependencies
from chai.codegen.encoding import encode
from chai.codegen.memory_map import FIXED, WORK, Usage, regions
from chai.errors import DeviceError
from chai.offload.schedule import DeviceStep
from chai.overlay.layout import Placed
from chai.overlay.records import unpack
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands
from chai.tasks.pool import Pool
from chai.tasks.waits import Waits
from chai.tasks.window import Window
from chai.tasks.work import Work
from chai.util import log
from tests.artifact.common import compiled, data, load
from tests.codegen.cases import decoded
from tests.codegen.equality import equal
from tests.conftest import ROOT, examples, report
from tests.tasks.common import joined

Z2 = overlays.load("pynq-z2")


def step_of(net: chai.Net) -> DeviceStep:
    (step,) = (step for step in net.schedule.steps if isinstance(step, DeviceStep))
    return step


def chain_of(net: chai.Net, step: DeviceStep) -> Chain:
    return step.chain or chain(step.work(Z2, net.offload.plan.device_shapes, net.schedule.views))


# -- the goals


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "batch", "goal"),
    [("googlenet_nolrn", 2, 4.50e6), ("googlenet_nolrn", 1, 4.55e6), ("squeezenet_v1.1", 2, 1.26e6)],
)
def test_networks_are_as_fast_as_the_hardware_is_built_for(name: str, batch: int, goal: float) -> None:
    """At 1,500 MB/s and 100 MHz, with a window engine that reads 8 and writes 8 bytes a cycle, and one memory for both."""
    assert (Z2.memory_mb_per_s, Z2.clock_mhz) == (1500, 100)
    assert (Z2.window.read_bytes, Z2.window.write_bytes) == (8, 8)
    net = chai.Net(name, device="null", overlay="pynq-z2", batch=batch)
    net.plan()
    (segment,) = (chain_of(net, s) for s in net.schedule.steps if isinstance(s, DeviceStep))
    cycles, serial = segment.cycles, sum(task.cycles(Z2, segment.shapes) for task in segment.tasks)
    busy = sum(task.cycles(Z2, segment.shapes) for task in segment.tasks if task.engine == "array")
    report(
        f"{name}, batch {batch}: {cycles / batch:,.0f} cycles an image, the array alone {busy / batch:,.0f}, "
        f"one Task after the other {serial / batch:,.0f}"
    )
    assert busy < cycles <= goal * batch < 1.11 * cycles
    assert cycles < serial


# -- arrangements


def arrangements(work: Work) -> list[Arrangement]:
    """Those of each way to cut all Tasks, by each priority."""
    arranger = Arranger(work)
    return [arranger.arrangement(way, by_paths) for way in arranger.cuts.ways() for by_paths in (False, True)]


def pool(source: str, target: str, size: tuple[int, int] = (3, 5)) -> Pool:
    return Pool((source,), target, (target,), Window((1, 1), (1, 1), (0, 0)), size, None)


def tall_pool(source: str, target: str) -> Pool:
    return pool(source, target, (5, 7))


def _array(source: str, target: str) -> Conv:
    r = chai.fixed.Requantization(np.ones((16, 1, 1), np.int64), 1, -128, 127)
    weights = np.ones((16, 16, 1, 1), np.int8)
    return Conv((source,), target, (target,), weights, np.zeros(16, np.int64), Window((1, 1), (1, 1), (0, 0)), 1, r)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Tasks begin and finish without waits, which would be longer than Tasks of such small blobs."""

    def working(*arguments: Any) -> Effort:
        one = effort(*arguments)
        return replace(one, waits=Waits(0, one.waits.work, 0))

    monkeypatch.setattr(cut, "effort", working)


@pytest.mark.usefixtures("at_once")
def test_an_engine_takes_what_it_can_begin() -> None:
    """By hand: 5 begins beside 0, as nothing has to be there but "a"; 4 does not wait for 2; 3 begins before both end."""
    shapes = dict.fromkeys("abcdefgh", (1, 16, 3, 5))
    tasks = [
        _array("a", "b"),
        pool("b", "c"),
        _array("c", "d"),
        pool("b", "e"),
        _array("b", "f"),
        pool("a", "g"),
        _array("f", "h"),
    ]
    array, window = (task.cycles(Z2, shapes) for task in tasks[:2])
    assert window < array < 2 * window
    for rule in arrangements(Work(Z2, tasks, shapes)):
        assert [piece.task for piece in rule.pieces] == [5, 0, 1, 4, 3, 2, 6]
    assert all(piece.images is None for rule in arrangements(Work(Z2, tasks, shapes)) for piece in rule.pieces)


@pytest.mark.usefixtures("at_once")
def test_what_most_work_waits_for_goes_first() -> None:
    shapes = dict.fromkeys("abcdef", (1, 16, 3, 5))
    tasks = [_array("a", "b"), _array("a", "c"), pool("c", "d"), pool("d", "e"), pool("b", "f")]
    task_order, path_order = ([piece.task for piece in rule.pieces] for rule in arrangements(Work(Z2, tasks, shapes)))
    assert task_order == [0, 4, 1, 2, 3]
    assert path_order == [1, 2, 0, 3, 4]


@pytest.mark.usefixtures("at_once")
def test_the_longest_way_counts_in_cycles() -> None:
    """One long Task outweighs two short ones, also where a shorter way begins at the same blob."""
    shapes = {**dict.fromkeys("abcdeg", (1, 16, 3, 5)), "f": (1, 96, 3, 5)}
    wide = replace(_array("b", "f"), weights=np.ones((96, 16, 1, 1), np.int8), bias=np.zeros(96, np.int64))
    wide = replace(wide, requantization=chai.fixed.Requantization(np.ones((96, 1, 1), np.int64), 1, -128, 127))
    tasks = [_array("a", "c"), _array("a", "b"), pool("b", "g"), pool("c", "d"), wide, pool("d", "e")]
    array, window = (tasks[i].cycles(Z2, shapes) for i in (0, 2))
    assert wide.cycles(Z2, shapes) > array + 2 * window and array > window
    task_order, path_order = ([piece.task for piece in rule.pieces] for rule in arrangements(Work(Z2, tasks, shapes)))
    assert task_order == [0, 3, 1, 5, 4, 2]  # the window engine is still busy when the second convolution has ended
    assert path_order == [1, 2, 4, 0, 3, 5]


@pytest.mark.parametrize(("batch", "step"), [(2, 1), (3, 1), (8, 1), (11, 2), (256, 32)])
def test_a_cut_task_names_every_image_once(batch: int, step: int) -> None:
    shapes = dict.fromkeys("abc", (batch, 16, 3, 5))
    tasks = [_array("a", "b"), pool("b", "c")]
    whole, _, cut, *_ = (rule.pieces for rule in arrangements(Work(Z2, tasks, shapes)))
    assert whole == [Piece(0), Piece(1)]
    for i in range(2):
        pieces = [piece.images for piece in cut if piece.task == i]
        assert len(pieces) <= PIECES
        assert [n for first, count in filter(None, pieces) for n in range(first, first + count)] == list(range(batch))
        assert pieces[0] == (0, step)
    assert [task.images for task in arranged(tasks, cut)] == [piece.images for piece in cut]


@pytest.mark.usefixtures("at_once")
def test_an_image_that_waits_lets_the_other_pass() -> None:
    """While the second image is pooled twice, the first one is convolved twice."""
    shapes = dict.fromkeys("abcdef", (2, 16, 3, 5))
    tasks = [_array("a", "b"), pool("b", "c"), pool("c", "d"), _array("d", "e"), _array("e", "f")]
    one, two = (0, 1), (1, 1)
    order = [(0, one), (1, one), (0, two), (2, one), (1, two), (3, one), (2, two), (4, one), (3, two), (4, two)]
    assert [*arrangements(Work(Z2, tasks, shapes))][2].pieces == sharing(Z2, tasks, [Piece(*piece) for piece in order])


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any], dict[str, View]]:
    """Tasks of blobs that are there, some of them halves of another one; a few shapes, so that Tasks differ in length."""
    batch = draw(st.integers(1, 4))
    shapes, views, tasks = {"0": (batch, 16, 5, 7)}, dict[str, View](), list[Any]()
    for i in range(1, draw(st.integers(2, 9))):
        source = draw(st.sampled_from([*shapes]))
        make = draw(st.sampled_from((_array, tall_pool)))
        if shapes[source][1] == 16:
            shapes[str(i)] = shapes[source]
            tasks.append(make(source, str(i)))
            if draw(st.booleans()):
                half = _array if make is tall_pool else tall_pool
                shapes |= {f"{i} other": shapes[source], f"{i} both": (batch, 32, 5, 7)}
                views |= {str(i): View(f"{i} both", 0), f"{i} other": View(f"{i} both", 16)}
                tasks.append(half(draw(st.sampled_from([b for b in shapes if shapes[b][1] == 16][:-1])), f"{i} other"))
        else:
            shapes[str(i)] = shapes[source]
            tasks.append(tall_pool(source, str(i)))
    return tasks, shapes, views


@settings(max_examples=examples(40))
@given(networks())
def test_the_cycles_are_those_of_the_chain_where_no_blobs_share_bytes(network: Any) -> None:
    """Also: in that order every byte is written before it is read, says what looks at bytes; nothing is left out."""
    tasks, shapes, views = network
    rows, batch = shapes["0"][2], shapes["0"][0]
    wrote = {outermost(task.output, views).base for task in tasks}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "BANDINGS", ((16, 1, 9), (2, 20, 9)))
        ways = [*arrangements(Work(Z2, tasks, shapes, views))]
        best = best_arrangement(Work(Z2, tasks, shapes, views))
    assert any(piece.rows for way in ways for piece in way.pieces)
    assert best.cost <= min(way.cost for way in ways)
    for arrangement in (*ways, best):
        work = arranged(tasks, arrangement.pieces)
        moves = [(task.inputs, task.output) for task in work]
        laid = regions(Z2.layout, shapes, views, Usage(moves, ["0"], [*wrote]), apart=len(work))
        after = dependencies(Z2, work, shapes, laid)
        assert chain_cycles(Z2, work, shapes, after) == arrangement.cycles
        every = [(i, _of(images, batch), _of(some, rows)) for i, images, some, *_ in arrangement.pieces]
        places = sorted((i, n, row) for i, images, some in every for n in range(*images) for row in range(*some))
        assert places == [(i, n, row) for i in range(len(tasks)) for n in range(batch) for row in range(rows)]


def _of(some: tuple[int, int] | None, size: int) -> tuple[int, int]:
    return (0, size) if some is None else (some[0], sum(some))


def test_digits_stays_whole() -> None:
    """With several images few of its Tasks are cut."""
    for batch in (1, 2, 3):
        net = chai.Net("digits", device="null", overlay="pynq-z2", batch=batch)
        net.plan()
        pieces = chain_of(net, step_of(net)).pieces
        cut_ones = {piece.task for piece in pieces if piece.rows or piece.images}
        assert len(cut_ones) <= (0 if batch == 1 else 5)


def test_parts_of_a_network_are_cut_in_several_ways() -> None:
    net = chai.Net("squeezenet_v1.1", device="null", overlay="pynq-z2")
    net.plan()
    work = join_pooling.joined(step_of(net).work(Z2, net.offload.plan.device_shapes, net.schedule.views))
    ways = [*arrangements(work)]
    best = best_arrangement(work)
    assert best.cycles < min(way.cycles for way in ways)
    assert {*best.pieces} not in [{*way.pieces} for way in ways]
    assert chain_of(net, step_of(net)).pieces == tuple(best.pieces)
    # in another process, where a set has another order
    again = """
import chai
from tests.codegen.test_arrange import *
net = chai.Net("squeezenet_v1.1", device="null", overlay="pynq-z2")
net.plan()
print(*(tuple(piece) for piece in chain_of(net, step_of(net)).pieces))
"""
    done = subprocess.run([sys.executable, "-c", again], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == " ".join(map(str, map(tuple, best.pieces)))


def test_planning_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of ResNet-50 takes seconds, on a board a minute."""
    told: list[tuple[int, int | None]] = []

    @contextmanager
    def recorder(work: str) -> Iterator[Callable[[int, int | None], None]]:
        assert work == "steps of planning"
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr(log, "_meter", recorder)
    net = chai.Net("squeezenet_v1.1", device="null", overlay="pynq-z2")
    net.plan()
    work = step_of(net).work(Z2, net.offload.plan.device_shapes, net.schedule.views)
    best_arrangement(work)
    assert len(told) > 20
    assert told == [(done, len(told)) for done in range(len(told))]


# -- descriptors of some images


def test_a_descriptor_of_some_images() -> None:
    """The address of the first one, and their number; everything else is as for all of them."""
    shapes = {"x": (5, 20, 5, 7), "y": (5, 16, 5, 7), "whole": (5, 40, 5, 7)}
    address = {"x": Placed(0x1000, 64), "y": Placed(0x20000, 64, "whole", 24), "whole": Placed(0x20000, 64)}
    whole = replace(_array("x", "y"), weights=np.ones((16, 20, 1, 1), np.int8))
    values_of = {}
    for images in (None, (0, 5), (2, 1), (1, 3)):
        task = replace(whole, images=images)
        descriptor, constants = encode(task, Operands(Z2, address, shapes), 64)
        assert equal(decoded(descriptor, joined(constants), Z2, address, shapes, 64, task), task)
        values_of[images] = unpack(Z2.descriptor, descriptor)
    image, part = -(-3 * 35 * 8 // 64) * 64, 5 * 35 * 8
    assert part % 64 and values_of[None]["output_image"] == -(-part // 64) * 64
    for images, first, count in (((2, 1), 2, 1), ((1, 3), 1, 3)):
        values = values_of[images]
        assert (values["batch"], values["input"]) == (count, 0x1000 + first * image)
        assert values["output"] == 0x20000 + first * values["output_image"] + 3 * 35 * 8
        same = {"batch", "input", "output", "stays"}
        assert {k: v for k, v in values.items() if k not in same} == {
            k: v for k, v in values_of[None].items() if k not in same
        }
    with pytest.raises(DeviceError, match="images: 2 from 4 on, blob 'x' has 5"):
        encode(replace(whole, images=(4, 2)), Operands(Z2, address, shapes), 64)


def test_a_network_is_cut_and_its_constants_are_not_repeated(tmp_path: Path) -> None:
    net, path = compiled(tmp_path, "pieces")
    step = step_of(net)
    cut_segment = chain_of(net, step)
    assert {piece.images for piece in cut_segment.pieces} >= {(0, 1), (1, 1)}
    whole = chain(
        Work(
            Z2,
            step.tasks,
            {b: (1, *s[1:]) for b, s in net.offload.plan.device_shapes.items()},
            {},
            step.inputs,
            step.outputs,
        )
    )
    more = len(cut_segment.tasks) - len(whole.tasks)
    assert cut_segment.sizes[FIXED] - whole.sizes[FIXED] == more * Z2.descriptor.bytes  # a multiple of 64
    again = load(path, device="emulator")
    read = step_of(again)
    assert read.chain is not None and read.chain.pieces == cut_segment.pieces
    assert [t.images for t in read.tasks] == [None] * len(step.tasks)
    assert all(map(equal, read.tasks, step.tasks)) and all(map(equal, read.chain.tasks, cut_segment.tasks))
    assert read.chain.after == cut_segment.after and read.chain.cycles == cut_segment.cycles
    wanted, codes = net.forward(data(3)), again.forward(data(3))
    assert all(np.array_equal(codes[b], wanted[b]) for b in wanted)


def test_blobs_are_kept_apart_where_that_pays() -> None:
    """No layout of the choice is faster, and with less memory none is as fast."""
    net = chai.Net("squeezenet_v1.1", device="null", overlay="pynq-z2", batch=2)
    net.plan()
    step = max((s for s in net.schedule.steps if isinstance(s, DeviceStep)), key=lambda s: len(s.tasks))
    kept: list[Arrangement] = []  # the first one, which takes most of the time, does for all layouts

    def arrangement(work: Work) -> Arrangement:
        if not kept:
            kept.append(best_arrangement(work))
        return kept[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chai.codegen.compile.best_arrangement", arrangement)
        best, choices = chain_of(net, step), []
        for apart in (0, 1, 2, 4, 8):
            patch.setattr("chai.codegen.compile.APART", (apart,))
            segment = chain_of(net, step)
            choices.append((segment.cycles, segment.regions.sizes[WORK]))
    assert (best.cycles, best.regions.sizes[WORK]) == min(choices)
    assert choices[0][1] == min(size for _, size in choices)


def test_pieces_are_tuples_of_a_task_and_images() -> None:
    assert Piece(3)[:4] == (3, None, None, None) and Piece(3, (0, 2)).images == (0, 2)
