"""Plans: no blob is written over before its last reader; checked by running schedules on a memory that remembers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.errors import ModelError
from chai.fixed import Format
from chai.graph import Shape
from chai.offload import Offload
from chai.overlay import Layout, load
from chai.plan import Placed, Plan, blob_bytes, plan
from chai.schedule import Convert, DeviceStep, HostStep, Schedule
from chai.tasks import Task
from chai.tasks.pool import Pool
from chai.window import Window
from tests.conftest import need_models, report

OVERLAY = load("pynq-z2")
FORMAT = Format("Xilinx", 8, 1.0)
NETWORKS = [
    "digits",
    "googlenet",
    "cifar_resnet20",
    "squeezenet_v1.1",
    "synth_fcn8ish",
    "wechat_qr_sr",
    "yuface_v1_ssd",
]
RANDOM = settings(max_examples=150, derandomize=True, deadline=None)


@cache
def network(name: str) -> Offload:
    """What a network becomes on the overlay; formats from one image of noise."""
    if name == "digits":
        net = chai.Net("digits", device="emulator")
    else:
        folder = need_models() / name
        net = chai.Net(folder / "deploy.prototxt", folder / "weights.caffemodel", device="emulator", batch=1)
    noise = np.random.default_rng(20)
    net.forward(**{b: (50 * noise.standard_normal(net.shapes[b])).astype(np.float32) for b in net.inputs})
    return net.offload


# -- an independent view of a schedule: what is read and written, one moment after the other


@dataclass
class Moment:
    step: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def moments(steps: Iterable[tuple[int, object]]) -> Iterator[Moment]:
    for i, step in steps:
        if isinstance(step, Convert) and step.kind == "Pack":
            yield Moment(i, (), (step.blob,))
        elif isinstance(step, Convert):
            yield Moment(i, (step.blob,), ())
        elif isinstance(step, DeviceStep):
            for task in step.tasks:
                yield Moment(i, task.inputs, (task.output,))


def words(blob: str, found: Plan, shapes: Mapping[str, Shape], layout: Layout) -> np.ndarray:
    """Every word of a blob, as the number of the alignment unit or word it lies in, from the README's description."""
    placed, (n, c, h, w) = found.blobs[blob], shapes[blob]
    per_image = -(-shapes[placed.parent or blob][1] // layout.channels_per_word)
    assert placed.offset % layout.alignment == 0
    base = placed.offset // layout.channels_per_word
    numbers = []
    for image in range(n):
        for plane in range(-(-c // layout.channels_per_word)):
            row = image * per_image + placed.first_channel // layout.channels_per_word + plane
            numbers.append(base + row * h * w + np.arange(h * w))
    return np.concatenate(numbers)


def run(
    order: Iterable[int],
    schedule: Schedule,
    shapes: Mapping[str, Shape],
    found: Plan,
    layout: Layout,
    keep: Collection[str] = (),
) -> None:
    """Run steps on words that remember who wrote them; every reader has to find its own blob, whole."""
    memory = np.zeros(found.peak // layout.channels_per_word, np.int64)
    names = {blob: i for i, blob in enumerate(found.blobs, 1)}
    parts: dict[str, set[int]] = {blob: {i} for blob, i in names.items()}
    for blob in names:
        outer = blob
        while outer in schedule.places:  # what is written into a part is written into all that it is a part of
            outer = schedule.places[outer][0]
            if outer in parts:
                parts[outer].add(names[blob])
    filled = {blob for moment in moments(enumerate(schedule.steps)) for blob in moment.writes}
    for blob in list(filled):
        while blob in schedule.places:
            blob = schedule.places[blob][0]
            filled.add(blob)
    for blob in names:
        outer = blob
        while outer not in filled:  # a piece of a slice holds what its whole was given
            outer = schedule.places[outer][0]
            parts[blob] |= parts[outer]

    def check(blob: str) -> None:
        owners = set(memory[words(blob, found, shapes, layout)].tolist())
        assert owners <= parts[blob], f"{blob}: found {owners}"

    for moment in moments((i, schedule.steps[i]) for i in order):
        for blob in moment.reads:
            check(blob)
        for blob in moment.writes:
            memory[words(blob, found, shapes, layout)] = names[blob]
        for blob in moment.reads:  # a Task reads while it writes
            check(blob)
    for blob in keep:
        if blob in names:
            check(blob)


def alive(schedule: Schedule, found: Plan, keep: Collection[str] = ()) -> list[set[str]]:
    """Blobs of their own that are alive at each moment: written by now, read now or later."""
    listed = list(moments(enumerate(schedule.steps)))
    own = [{found.blobs[b].parent or b for b in (*m.reads, *m.writes)} for m in listed]
    kept = {found.blobs[b].parent or b for b in keep if b in found.blobs}
    return [
        {b for b in set().union(*own[: t + 1]) if b in kept or b in set().union(*own[t:])} for t in range(len(listed))
    ]


def check(schedule: Schedule, shapes: Mapping[str, Shape], found: Plan, keep: Collection[str] = ()) -> int:
    """No two blobs alive at once overlap. Returns the most bytes alive at once, which no plan can do without."""
    least = 0
    for blobs in alive(schedule, found, keep):
        spans = sorted((found.blobs[b].offset, found.blobs[b].offset + found.blobs[b].bytes) for b in blobs)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert all(a >= 0 and b <= found.peak for a, b in spans)
        least = max(least, sum(b - a for a, b in spans))
    whole = [p for p in found.blobs.values() if p.parent is None]
    assert found.total == sum(p.bytes for p in whole)
    assert found.peak == max((p.offset + p.bytes for p in whole), default=0)
    assert least <= found.peak <= found.total
    run(range(len(schedule.steps)), schedule, shapes, found, OVERLAY.layout, keep)
    return least


# -- real networks


@pytest.mark.parametrize("name", NETWORKS)
def test_blobs_of_a_network_never_overlap(name: str) -> None:
    offload = network(name)
    found = plan(offload.schedule, offload.shapes, OVERLAY)
    least = check(offload.schedule, offload.shapes, found)
    report(
        f"{name}: {len(found.blobs)} blobs on the device, {found.total / 1e6:.2f} MB side by side, "
        f"plan {found.peak / 1e6:.2f} MB, at least {least / 1e6:.2f} MB are needed"
    )
    assert found.peak < found.total
    assert found.peak <= 1.1 * least


@pytest.mark.parametrize("name", ["digits", "cifar_resnet20"])
def test_every_blob_has_bytes_of_its_own_when_all_are_kept(name: str) -> None:
    offload = network(name)
    keep = list(offload.shapes)
    found = plan(offload.schedule, offload.shapes, OVERLAY, keep)
    check(offload.schedule, offload.shapes, found, keep)
    spans = sorted((p.offset, p.offset + p.bytes) for p in found.blobs.values() if p.parent is None)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert found.peak == found.total


def test_parts_of_a_concat_lie_in_it() -> None:
    offload = network("digits")
    found = plan(offload.schedule, offload.shapes, OVERLAY)
    branches = [part for part, (whole, _) in offload.schedule.places.items() if whole not in offload.schedule.shapes]
    assert len(branches) == 8
    for part, (whole, first) in offload.schedule.places.items():
        placed = found.blobs[part]
        assert (placed.parent, placed.first_channel) == (whole, first)
        assert placed.offset == found.blobs[whole].offset


def test_a_plan_at_an_address() -> None:
    found = Plan({"a": Placed(64, 128), "b": Placed(64, 64, "a", 16)}, 192, 128)
    assert found.at(0x1000) == {"a": Placed(0x1040, 128), "b": Placed(0x1040, 64, "a", 16)}


# -- by hand


def task(inputs: tuple[str, ...], output: str) -> Task:
    return Pool(inputs, output, (output,), Window((1, 1), (1, 1), (0, 0)), (1, 1), None)


def segment(*tasks: Task) -> DeviceStep:
    return DeviceStep(tasks, (), (), ())


@pytest.mark.parametrize(
    ("shape", "bytes"),
    [
        ((2, 3, 5, 7), 2 * 1 * 35 * 16),
        ((2, 16, 5, 7), 2 * 1 * 35 * 16),
        ((2, 17, 5, 7), 2 * 2 * 35 * 16),
        ((1, 1, 1, 1), 64),
        ((3, 5), 64),
    ],
)
def test_bytes_of_a_blob(shape: Shape, bytes: int) -> None:
    assert blob_bytes(shape, OVERLAY.layout) == -(-bytes // 64) * 64


def test_image_pairs_take_whole_words() -> None:
    assert blob_bytes((3, 5, 2, 2), Layout("planes", 8, 2, 64)) == 2 * 2 * 2 * 16


def test_a_chain_needs_two_blobs() -> None:
    names = "abcdefgh"
    steps = [Convert("Pack", "a", FORMAT), segment(*(task((x,), y) for x, y in pairwise(names)))]
    schedule = Schedule([*steps, Convert("Unpack", "h", FORMAT)])
    shapes = dict.fromkeys(names, (1, 16, 4, 4))
    found = plan(schedule, shapes, OVERLAY)
    assert (found.peak, found.total) == (2 * 256, 8 * 256)
    check(schedule, shapes, found)


def test_a_blob_lives_until_a_later_segment_has_read_it() -> None:
    first, second = segment(task(("a",), "b"), task(("b",), "c")), segment(task(("d",), "e"), task(("e", "b"), "f"))
    steps = [Convert("Pack", "a", FORMAT), first, Convert("Unpack", "c", FORMAT), Convert("Pack", "d", FORMAT), second]
    shapes = dict.fromkeys("abcdef", (1, 16, 4, 4))
    found = plan(Schedule(steps), shapes, OVERLAY)
    check(Schedule(steps), shapes, found)
    assert found.blobs["b"].offset not in {found.blobs[x].offset for x in "cdef"}


def test_a_piece_of_a_slice_keeps_its_whole() -> None:
    """Its bytes are the whole's: they are not given away while any piece has a reader to come."""
    places = {"front": ("a", 0), "back": ("a", 16)}
    steps = [
        Convert("Pack", "x", FORMAT),
        segment(task(("x",), "a"), task(("front",), "b"), task(("b",), "c")),
        Convert("Unpack", "back", FORMAT),
    ]
    shapes = dict.fromkeys("xabc", (2, 32, 2, 3)) | dict.fromkeys(places, (2, 16, 2, 3))
    found = plan(Schedule(steps, places), shapes, OVERLAY)
    assert (found.blobs["back"].parent, found.blobs["back"].first_channel) == ("a", 16)
    check(Schedule(steps, places), shapes, found)
    assert found.blobs["c"].offset != found.blobs["a"].offset


def test_a_kept_blob_is_not_written_over() -> None:
    steps = [Convert("Pack", "a", FORMAT), segment(*(task((x,), y) for x, y in zip("abcd", "bcde")))]
    shapes = dict.fromkeys("abcde", (1, 16, 4, 4))
    found = plan(Schedule(steps), shapes, OVERLAY, keep=["b", "not on the device"])
    check(Schedule(steps), shapes, found, keep=["b"])
    assert found.peak == 3 * 256


def test_a_schedule_without_a_device() -> None:
    assert plan(Schedule(), {}, OVERLAY) == Plan({}, 0, 0)


def test_a_blob_that_nothing_wrote() -> None:
    with pytest.raises(ModelError, match="blob 'a' is read on the device before anything has written it"):
        plan(Schedule([segment(task(("a",), "b"))]), dict.fromkeys("ab", (1, 1, 1, 1)), OVERLAY)


@pytest.mark.parametrize(
    ("first", "shape", "message"),
    [
        (8, (1, 16, 2, 2), "begins at channel 8 of 'w', which is not a multiple of 16"),
        (32, (1, 16, 2, 2), "does not fit 'w'"),
        (16, (1, 16, 2, 3), "does not fit 'w'"),
    ],
)
def test_parts_that_do_not_fit(first: int, shape: Shape, message: str) -> None:
    steps = [Convert("Pack", "a", FORMAT), segment(task(("a",), "p"), task(("p",), "w"))]
    with pytest.raises(ModelError, match=message):
        plan(Schedule(steps, {"p": ("w", first)}), {"a": shape, "p": shape, "w": (1, 32, 2, 2)}, OVERLAY)


# -- random schedules


def host_step() -> HostStep:
    return HostStep(chai.graph.Layer("host"), "random")


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, dict[str, Shape], list[str]]:
    """Packs, Unpacks and segments in any order; concats, some inside others, with parts of many sizes; slices."""
    batch = draw(st.integers(1, 3))
    sizes = st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))
    schedule, shapes = Schedule(), {}
    made: list[str] = []

    def new(shape: tuple[int, int, int] | None = None) -> str:
        name = f"b{len(shapes)}"
        shapes[name] = (batch, *(shape or draw(sizes)))
        return name

    def concat() -> list[Task]:
        h, w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        counts = draw(st.lists(st.sampled_from([16, 32, 48]), min_size=1, max_size=3))
        counts += draw(st.lists(st.integers(1, 20), max_size=1))
        nested = draw(st.booleans())
        whole = new((sum(counts), h, w))
        outer = new((sum(counts) + 16, h, w)) if nested else whole
        tasks, first = [], 0
        for count in counts:
            part = new((count, h, w))
            schedule.places[part] = (whole, first)
            first += count
            tasks.append(task(tuple(draw(st.lists(st.sampled_from(made), min_size=1, max_size=2))), part))
            if draw(st.booleans()):  # something else in between
                aside = new()
                tasks.append(task((draw(st.sampled_from(made)),), aside))
        if nested:
            schedule.places[whole] = (outer, 16)
            rest = new((16, h, w))
            schedule.places[rest] = (outer, 0)
            tasks.append(task((draw(st.sampled_from(made)),), rest))
        made.append(outer)
        if draw(st.booleans()):
            made.append(whole)
        return tasks

    def slice() -> None:
        whole = draw(st.sampled_from(made))
        _, c, h, w = shapes[whole]
        cuts = [0, *sorted(draw(st.sets(st.integers(1, 5), max_size=2))), c]
        cuts = [0, *(16 * cut for cut in cuts[1:-1] if 16 * cut < c), c]
        for first, end in pairwise(cuts):
            piece = new((end - first, h, w))
            schedule.places[piece] = (whole, first)
            made.append(piece)

    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["pack", "unpack", "segment", "segment", "host"]))
        if kind == "pack" or not made:
            made.append(new())
            schedule.steps.append(Convert("Pack", made[-1], FORMAT))
        elif kind == "unpack":
            schedule.steps.append(Convert("Unpack", draw(st.sampled_from(made)), FORMAT))
        elif kind == "host":
            schedule.steps.append(host_step())
        else:
            tasks: list[Task] = []
            for _ in range(draw(st.integers(1, 5))):
                choice = draw(st.integers(0, 5))
                if choice == 0:
                    tasks += concat()
                    continue
                if choice == 1:
                    slice()
                    continue
                inputs = tuple(draw(st.lists(st.sampled_from(made), min_size=1, max_size=2)))
                output = new()
                tasks.append(task(inputs, output))
                made.append(output)
            schedule.steps.append(segment(*tasks))
    return schedule, shapes, draw(st.lists(st.sampled_from(made), max_size=2))


@RANDOM
@given(case=schedules())
def test_blobs_of_a_random_schedule_never_overlap(case: tuple[Schedule, dict[str, Shape], list[str]]) -> None:
    schedule, shapes, keep = case
    found = plan(schedule, shapes, OVERLAY, keep)
    check(schedule, shapes, found, keep)
    assert set(found.blobs) >= {b for m in moments(enumerate(schedule.steps)) for b in (*m.reads, *m.writes)}
    assert plan(schedule, shapes, OVERLAY, keep) == found
