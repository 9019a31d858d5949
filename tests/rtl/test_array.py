"""The array engine against the definitions of its Tasks, bit for bit, in all of memory."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

from chai import overlay as overlays
from chai.codegen.dependencies import Finished
from chai.devices.rtlsim.tools import missing
from chai.fixed import Requantization
from chai.hw_overlays.rtl.ports import Stall
from chai.overlay import Overlay
from chai.overlay.records import pack, unpack
from chai.overlay.sections import PortSize
from chai.tasks import tiling
from chai.tasks.conv import Conv
from chai.tasks.window import POINT, Window

from .array_bench import KINDS, Bench, pick, pooled, random_conv, random_strips, small

if missing():
    pytest.skip(missing(), allow_module_level=True)

SMALL = small(16, 16)


def wide(overlay: Overlay, lanes: int, outputs: int = 1) -> Overlay:
    """An overlay with ports of 128 bits, where the codes of so many channels of a pixel leave the array together.

    With two ports for ``outputs`` it has three for constants.
    """
    return replace(overlay, ports=PortSize(16, outputs, outputs + 1), requant=overlay.requant._replace(lanes=lanes))


def two_rows(overlay: Overlay) -> Overlay:
    """An overlay that loads the weights of two inputs in a cycle."""
    weights = overlay.buffers.weights
    return replace(
        overlay,
        buffers=overlay.buffers._replace(
            weights=weights._replace(word_bits=2 * weights.word_bits, depth=weights.depth // 2)
        ),
    )


WIDE = two_rows(
    wide(replace(small(16, 16, lanes=2), wide_bits=27), 16, 2)
)  # narrower than kv260, which is among those below
OVERLAYS = (
    *(small(8, 8), SMALL, small(8, 24, 32, 256, 64)),
    *(replace(small(8, 8, lanes=2), wide_bits=None), small(8, 16, 16, 256, 64, lanes=5), small(16, 16, lanes=3)),
    *(WIDE, wide(replace(small(16, 32, lanes=2), wide_bits=27), 32, 2), wide(SMALL, 8)),
    *(wide(small(16, 32, 32, 256, 64), 16, 2), wide(small(16, 32, 32, 256, 64, lanes=3), 32)),
    *(two_rows(SMALL), two_rows(wide(small(32, 32, 32, 256, 64, lanes=2), 16, 2))),
)
ROOMY = [
    o for o in OVERLAYS if o.wide_bits and o.array.inputs * o.buffers.input.depth >= 3 * 512
]  # three rows of 512 channels
FIRST = [o if o in (SMALL, WIDE) else pytest.param(o, marks=pytest.mark.slow) for o in OVERLAYS]
LATENCIES = (1, 1), (1, 20), (150, 150), (1, 300)


def run(overlay: Overlay, seed: int, tasks: int = 5) -> tuple[set[int], int]:
    """Run a chain of random Tasks of all kinds; some read what the one before them writes.

    Return what stays on chip, and how many Tasks have the weights of the one before them.
    """
    bench = Bench(overlay, seed)
    random = np.random.default_rng(seed)
    target = None
    for _ in range(tasks):
        kind = KINDS[int(random.integers(len(KINDS)))]
        follows = target is not None and random.random() < 0.5
        task, codes = random_conv(overlay, random, kind, target.shape if follows else None)
        if follows and codes.shape == target.shape:
            after = Finished(array=len(bench.descriptors), window=0)
            target = bench.add(task, bench.codes(target), after, target, pick(random, 1, 1, 2, 3, 9))
        else:
            after = Finished(array=int(random.integers(0, len(bench.descriptors) + 1)), window=0)
            target = bench.add(task, codes, after, bands=pick(random, 1, 1, 2, 3, 9))
    stays = {unpack(overlay.descriptor, descriptor)["stays"] for descriptor in bench.descriptors}
    bench.run(LATENCIES[int(random.integers(len(LATENCIES)))], pick(random, 0, 0, 40, 200))
    return stays, bench.shared


@pytest.mark.parametrize("part", range(6))
def test_chains_of_random_tasks_are_their_definitions(part: int) -> None:
    stays, shared = zip(*(run(SMALL, 1000 * part + seed) for seed in range(4)))
    assert len(set().union(*stays)) >= 2 and sum(shared)


def test_chains_with_wide_ports_and_sums_of_27_bits() -> None:
    assert sum(run(WIDE, 6000 + seed)[1] for seed in range(6)) > 2


def test_shared_weights_are_fetched_once() -> None:
    """By the first of three bands of several tiles; the addresses of the others are of no memory. Then come other weights."""
    random = np.random.default_rng(3)
    bench = Bench(SMALL, 2)
    weights, r = (32, 24, 1, 1), Requantization(np.ones((32, 1, 1), np.int64), 6, -128, 127)
    task = Conv(("x",), "y", ("c",), random.integers(-127, 128, weights).astype(np.int8), np.arange(32), POINT, 1, r)
    codes = random.integers(-128, 128, (1, 24, 13, 7)).astype(np.int8)
    bench.add(task, codes, bands=3, shares=True)
    stored = [unpack(SMALL.descriptor, each) for each in bench.descriptors]
    assert [values["shares"] for values in stored] == [1, 1, 0] and min(values["tiles"] for values in stored) > 1
    bench.descriptors[1:] = [pack(SMALL.descriptor, {**values, "weights": 1 << 20}) for values in stored[1:]]
    bench.add(*random_conv(SMALL, random, "conv"))
    bench.run((1, 40))


@pytest.mark.parametrize("overlay", FIRST)
def test_codes_go_through_tables(overlay: Overlay) -> None:
    """Those of some of the Tasks, each through its own; tables come while codes of the Tasks before go through theirs."""
    for seed in range(8):
        bench, random = Bench(overlay, 7000 + seed), np.random.default_rng(seed)
        for _ in range(6):
            task, codes = random_conv(overlay, random, KINDS[int(random.integers(len(KINDS)))])
            if random.random() < 0.7:
                task = replace(task, lookup=random.integers(-128, 128, 256).astype(np.int8))
            bench.add(task, codes)
        bench.run(LATENCIES[seed % len(LATENCIES)], pick(random, 0, 0, 40, 200))


@pytest.mark.parametrize("overlay", [SMALL, *(pytest.param(o, marks=pytest.mark.slow) for o in ROOMY if o != SMALL)])
def test_wide_sums_are_exact(overlay: Overlay) -> None:
    """Of 4,608 products, as many as VGG's, between narrow Tasks; accumulators of both signs at their ends with the bias."""
    end = overlay.array_bound - 1
    largest = min(127, end // (128 * 4608))
    bench, random = Bench(overlay, 5), np.random.default_rng(5)
    window, shape = Window((3, 3), (1, 1), (1, 1)), (21, 512, 3, 3)
    weights = random.choice([-largest, largest], shape).astype(np.int8)
    weights[0], weights[1], weights[2] = largest, -largest, 0
    codes = random.integers(-128, 128, (1, 512, 9, 1)).astype(np.int8)
    codes[:, :, :5] = -128
    edge = end - 128 * largest * 4608
    usual = min(edge, 1 << 23)
    bias = random.integers(-usual, usual, 21)
    bias[:4] = -edge, edge, end, -end
    weights[3] = 0
    for shift in (usual.bit_length() + 9, 17, 0):
        multiplier = np.clip(random.uniform(0.5, 2, (21, 1, 1)) * 2.0**shift * 64 / usual, 1, (1 << 17) - 1)
        r = Requantization(multiplier.astype(np.int64), shift, -128, 127)
        wide = Conv(("x",), "y", ("wide",), weights, bias, window, 1, r, wide=True)
        assert len(np.unique(wide.define(codes))) > (60 if shift else 1)
        bench.add(wide, codes)
        bench.add(*random_conv(overlay, random, "conv"))
    bench.run((1, 40))


@pytest.mark.parametrize("overlay", FIRST)
def test_codes_are_pooled_before_they_are_written(overlay: Overlay) -> None:
    """Those of most Tasks, of several images, tiles and blocks in every order, some through tables, some read by the next one."""
    stays, several, beyond = set(), 0, set()
    for seed in range(12):
        bench, random = Bench(overlay, 9000 + seed), np.random.default_rng(seed)
        target = None
        for _ in range(6):
            kind, follows = KINDS[int(random.integers(len(KINDS) - 1))], target is not None and random.random() < 0.4
            task, codes = random_conv(overlay, random, kind, target.shape if follows else None)
            if random.random() < 0.8:
                task = pooled(overlay, random, task, codes)
            if random.random() < 0.2:
                task = replace(task, lookup=random.integers(-128, 128, 256).astype(np.int8))
            if follows and codes.shape == target.shape:
                after = Finished(array=len(bench.descriptors), window=0)
                target = bench.add(task, bench.codes(target), after, target, pick(random, 1, 1, 2, 4))
            else:
                target = bench.add(task, codes, bands=pick(random, 1, 1, 2, 4))
            if task.pooling is not None:
                stored = unpack(overlay.descriptor, bench.descriptors[-1])
                stays.add(stored["stays"])
                several += stored["tiles"] > 1
                beyond.add((stored["pool_over_h"] > 0, stored["pool_over_w"] > 0))
        bench.run(LATENCIES[seed % len(LATENCIES)], pick(random, 0, 0, 40, 200))
    assert len(stays) >= 3 and several > 5 and len(beyond) == 4


@pytest.mark.parametrize("overlay", FIRST)
def test_strips_have_the_codes_of_the_whole(overlay: Overlay) -> None:
    """Columns of images at a time, with every kind of window and padding, among Tasks of whole rows."""
    stays, most = set(), 0
    for seed in range(8):
        bench, random = Bench(overlay, 7000 + seed), np.random.default_rng(seed)
        for i in range(3):
            first = len(bench.descriptors)
            bench.add(*random_strips(overlay, random, KINDS[(seed + i) % 3]))
            strips = [unpack(overlay.descriptor, each) for each in bench.descriptors[first:]]
            stays |= {strip["stays"] for strip in strips}
            most = max(most, len(strips))
            bench.add(*random_conv(overlay, random, "conv"))
        bench.run(LATENCIES[seed % len(LATENCIES)], pick(random, 0, 0, 40, 200))
    assert len(stays) >= 2 and most > 2


@pytest.mark.parametrize("stays", [tiling.NOTHING, tiling.IMAGE, tiling.IMAGES, tiling.WEIGHTS])
def test_each_order_of_tiles_and_blocks(stays: int) -> None:
    """Convolutions of several images, tiles and blocks of outputs."""
    random = np.random.default_rng(stays)
    runs = 0
    for seed in range(400):
        task, codes = random_conv(SMALL, random, KINDS[seed % 2])
        bench = Bench(SMALL, seed)
        bench.add(task, codes)
        stored = unpack(SMALL.descriptor, bench.descriptors[0])
        of = [stored[name] for name in ("stays", "tiles", "batch")]
        if of[0] == stays and min(of[1:]) > 1 and task.weights.shape[0] > SMALL.array.outputs:
            bench.run((1, 40), pick(random, 0, 60))
            runs += 1
            if runs == 3:
                return
    pytest.fail("too few Tasks")


def test_nothing_is_read_or_written_before_the_counts_are_reached() -> None:
    random = np.random.default_rng(0)
    bench = Bench(SMALL, 0)
    bench.add(*random_conv(SMALL, random, "conv"))
    bench.add(*random_conv(SMALL, random, "conv"), after=Finished(array=1, window=3))
    before = bench.memory.copy()
    simulation = bench.simulation()
    simulation.run("finished", 50_000)
    simulation.set("window_done", 3)
    simulation.tick(2000)
    first = bench.memory.copy()
    assert (first != before).any()
    assert simulation.get("stall") == Stall.DEPENDENCY.value
    simulation.set("window_done", 2)
    simulation.set("array_done", 1)
    simulation.tick(2000)
    assert simulation.get("stall") == Stall.DEPENDENCY.value
    assert (bench.memory == first).all()
    simulation.set("window_done", 3)
    simulation.run("finished", 50_000)
    bench.check()


@pytest.mark.parametrize(
    ("port", "stall"),
    [("constants", Stall.WEIGHTS), ("even", Stall.INPUT), ("odd", Stall.INPUT), ("output", Stall.ACCUMULATORS)],
)
def test_the_reason_of_a_stall_is_the_part_that_is_slow(port: str, stall: Stall) -> None:
    random = np.random.default_rng(1)
    bench = Bench(SMALL, 1)
    while True:  # large enough for every part to matter
        task, codes = random_conv(SMALL, random, "conv")
        pixels = codes.shape[0] * prod(task.window.sizes(codes.shape[2:]))
        if codes.shape[1] > 32 and task.weights.shape[0] > 32 and codes.size > 8000 and pixels > 200:
            break
    bench.add(task, codes)
    simulation = bench.simulation(slow=port)
    counts = simulation.histogram("stall")
    working = simulation.histogram("mac")
    cycles = simulation.run("finished", 500_000)
    bench.check()
    stalls = {reason: counts[reason.value] for reason in Stall if reason is not Stall.NONE}
    if port == "output":  # full accumulators are seen first, or that the port holds them up
        stalls[stall] += stalls.pop(Stall.OUTPUT)
    assert max(stalls, key=lambda reason: stalls[reason]) is stall
    assert stalls[stall] > cycles / 3
    assert working[1] + sum(stalls.values()) <= cycles


def test_passes_follow_each_other_without_a_pause() -> None:
    """Passes as short as loading weights takes, and memory that is fast enough."""
    random = np.random.default_rng(2)
    weights = random.integers(-127, 128, (16, 16, 4, 1)).astype(np.int8)
    r = Requantization(random.integers(0, 1 << 17, (16, 1, 1)), 30, -128, 127)
    window = Window((4, 1), (1, 1), (2, 0))
    task = Conv(("x",), "y", ("conv",), weights, random.integers(-99, 99, 16), window, 1, r)
    bench = Bench(SMALL, 2)
    bench.add(task, random.integers(-128, 128, (2, 16, 14, 16)).astype(np.int8))
    assert unpack(SMALL.descriptor, bench.descriptors[0])["stays"] == tiling.WEIGHTS
    simulation = bench.simulation()
    working = simulation.histogram("mac")
    cycles = simulation.run("finished", 50_000)
    bench.check()
    assert working[1] == 2 * 15 * 16 * 4
    assert cycles - working[1] < 330  # the plan (140), the first weights and rows, the last tile


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_thousands_of_random_tasks(overlay: Overlay, part: int) -> None:
    for seed in range(20):
        run(overlay, 100_000 + 1000 * part + seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("name", ["pynq-z2", "ultra96", "kv260", "zcu104", "zcu102"])
def test_the_arrays_of_the_boards(name: str, part: int) -> None:
    """500 chains on each, with the widths and memories of the manifest."""
    for seed in range(50):
        run(overlays.load(name), 1000 * part + seed)
