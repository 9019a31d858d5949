"""Blob addresses: no blob is overwritten before its last reader, checked by running segments on tracked memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai.blob import Shape, View
from chai.codegen.dependencies import dependencies
from chai.codegen.join_pooling import joined
from chai.codegen.memory_map import BOTH, INPUT, OUTPUT, WORK, Regions, Usage, regions, split
from chai.errors import DeviceError
from chai.offload.schedule import DeviceStep
from chai.overlay import layout, load
from chai.overlay.layout import Placed, blob_bytes, share, spans
from chai.runtime.execution import Execution
from chai.tasks import Task
from tests.conftest import examples, need_models, report

Z2 = load("pynq-z2")
LAYOUT = Z2.layout
NETWORKS = [
    "digits",
    "googlenet",
    "cifar_resnet20",
    "squeezenet_v1.1",
    "synth_fcn8ish",
    "wechat_qr_sr",
    "yuface_v1_ssd",
]
RANDOM = settings(max_examples=examples(40))


@cache
def network(name: str) -> Execution:
    """What a network becomes on the overlay; formats from one image of noise."""
    if name == "digits":
        net = chai.Net("digits", device="emulator")
    else:
        folder = need_models() / name
        net = chai.Net(folder / "deploy.prototxt", folder / "weights.caffemodel", device="emulator", batch=1)
    noise = np.random.default_rng(20)
    net.forward(**{b: (50 * noise.standard_normal(net.shapes[b])).astype(np.float32) for b in net.inputs})
    return net.offload


@dataclass
class Segment:
    """What a layout is made for."""

    shapes: dict[str, Shape]
    views: dict[str, View] = field(default_factory=dict)
    moves: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)  # if some write parts of a blob

    def lay(self, offsets: Mapping[str, int] | None = None) -> Regions:
        """Offsets from elsewhere are checked as those of a file are."""
        memory_map = regions(LAYOUT, self.shapes, self.views, Usage(self.moves, self.reads, self.writes), offsets)
        if offsets is not None:
            tasks = self.tasks or [Task(sources, target, (target,)) for sources, target in self.moves]
            dependencies(Z2, tasks, self.shapes, memory_map)
        return memory_map


def segments(offload: Execution) -> Iterator[Segment]:
    for step in offload.schedule.steps:
        if isinstance(step, DeviceStep):
            work = joined(step.work(offload.overlay, offload.plan.device_shapes, offload.schedule.views))
            shapes, views, tasks = {**work.shapes}, work.views, [*work.tasks]
            moves = [(task.inputs, task.output) for task in tasks]
            yield Segment(shapes, views, moves, list(step.inputs), list(step.outputs), tasks)


def laid_out(offload: Execution) -> int:
    """Bytes of a network's blobs on the device."""
    return sum(sum(segment.lay().sizes.values()) for segment in segments(offload))


def line(names: str, shape: Shape = (1, 16, 4, 4)) -> Segment:
    """Each blob is made of the one before; the first is given, the last is asked for."""
    moves = [((a,), b) for a, b in pairwise(names)]
    return Segment(dict.fromkeys(names, shape), {}, moves, [names[0]], [names[-1]])


# -- a memory that remembers


def words(blob: str, memory_map: Regions, shapes: Mapping[str, Shape]) -> tuple[int, np.ndarray]:
    """Region, and the number of every word of a blob in it, from the README's description."""
    placed, (n, c, h, w) = memory_map.blobs[blob], shapes[blob]
    region, offset = split(placed.offset)
    assert offset % LAYOUT.alignment == 0
    step = LAYOUT.channels_per_word
    per_image = -(-shapes[placed.parent or blob][1] // step)
    numbers = []
    for image in range(n):
        for plane in range(-(-c // step)):
            row = placed.first_channel // step + plane
            begin = offset + image * (-(-per_image * h * w * step // 64) * 64)
            numbers.append(begin // step + row * h * w + np.arange(h * w))
    return region, np.concatenate(numbers)


def run(segment: Segment, memory_map: Regions) -> None:
    """Run a segment on words that remember which blob they belong to; every reader has to find its own, whole."""
    memory = {region: np.zeros(size // LAYOUT.channels_per_word, np.int64) for region, size in memory_map.sizes.items()}
    families = {blob: i for i, blob in enumerate({memory_map.whole(b)[0]: None for b in memory_map.blobs}, 1)}

    def family(blob: str) -> int:
        return families[memory_map.whole(blob)[0]]

    def write(blob: str) -> None:
        region, at = words(blob, memory_map, segment.shapes)
        memory[region][at] = family(blob)

    def check(blob: str) -> None:
        region, at = words(blob, memory_map, segment.shapes)
        assert set(memory[region][at].tolist()) <= {family(blob)}, blob

    for blob in memory_map.given:
        write(blob)
    for sources, target in segment.moves:
        for blob in sources:
            check(blob)
        write(target)
        for blob in sources:  # a Task reads while it writes
            check(blob)
    written = {family(b) for b in (*memory_map.given, *(target for _, target in segment.moves))}
    for blob in segment.writes:
        if family(blob) in written:
            check(blob)


def least(segment: Segment, memory_map: Regions) -> int:
    """The most bytes in WORK that are alive at once, which no layout can do without."""
    hidden = {b for b, p in memory_map.blobs.items() if p.parent is None and split(p.offset)[0] == WORK}
    used = [{memory_map.whole(b)[0] for b in (*sources, target)} & hidden for sources, target in segment.moves]
    alive = [set().union(*used[: t + 1]) & set().union(*used[t:]) for t in range(len(used))]
    return max((sum(memory_map.blobs[b].bytes for b in blobs) for blobs in alive), default=0)


# -- real networks


@pytest.mark.parametrize("name", NETWORKS)
def test_no_blob_of_a_network_is_written_over(name: str) -> None:
    for i, segment in enumerate(segments(network(name))):
        memory_map = segment.lay()
        run(segment, memory_map)
        needed = least(segment, memory_map)
        report(
            f"{name}, segment {i}: {len(memory_map.blobs)} blobs, {memory_map.total / 1e6:.2f} MB side by side, "
            f"{sum(memory_map.sizes.values()) / 1e6:.2f} MB laid out; {memory_map.sizes.get(WORK, 0) / 1e6:.2f} MB out of sight, "
            f"where at least {needed / 1e6:.2f} MB are needed"
        )
        assert memory_map.sizes.get(WORK, 0) <= 1.1 * needed
        assert segment.lay(memory_map.offsets) == memory_map


def test_parts_of_a_concat_lie_in_it() -> None:
    offload = network("digits")
    parts = 0
    for segment in segments(offload):
        memory_map = segment.lay()
        for part, (whole, first) in segment.views.items():  # of one Concat the pooled parts
            if part in memory_map.blobs and whole in memory_map.blobs:
                placed = memory_map.blobs[part]
                assert (placed.parent, placed.first_channel) == (whole, first)
                assert placed.offset == memory_map.blobs[whole].offset
                parts += whole not in offload.schedule.shapes
    assert parts == 8


# -- by hand


@pytest.mark.parametrize(
    ("shape", "bytes"),
    [
        ((2, 3, 5, 7), 2 * 320),  # 35 words of 8 bytes, and room up to the next multiple of 64
        ((2, 16, 5, 7), 2 * 576),
        ((2, 17, 5, 7), 2 * 896),
        ((1, 1, 1, 1), 64),
        ((3, 5), 3 * 64),
    ],
)
def test_bytes_of_a_blob(shape: Shape, bytes: int) -> None:
    assert blob_bytes(shape, LAYOUT) == bytes


def test_as_many_images_as_a_damaged_file_says_take_no_memory() -> None:
    shape = (1 << 40, 3 * LAYOUT.channels_per_word, 1, 1)
    image = blob_bytes((1, *shape[1:]), LAYOUT)
    one = iter(spans(0, shape, (LAYOUT.channels_per_word, 1), (7, shape[0]), None, LAYOUT))
    begin, end = next(one)
    assert next(one) == (begin + image, end + image)
    assert 7 * image < begin < end < 8 * image


def test_a_line_needs_two_blobs_out_of_sight() -> None:
    segment = line("abcdefgh")
    memory_map = segment.lay()
    assert memory_map.sizes == {INPUT: 256, WORK: 2 * 256, OUTPUT: 256}
    assert memory_map.total == 8 * 256
    run(segment, memory_map)


def test_what_is_asked_for_shares_with_nobody() -> None:
    segment = replace(line("abcde"), writes=["e", "b"])
    memory_map = segment.lay()
    assert memory_map.sizes == {INPUT: 256, WORK: 2 * 256, OUTPUT: 2 * 256}
    run(segment, memory_map)


def test_a_piece_of_a_slice_keeps_its_whole() -> None:
    """Its bytes are the whole's: they are not given away while any piece has a reader to come."""
    views = {"front": View("a", 0), "back": View("a", 16)}
    shapes = dict.fromkeys("xabcd", (2, 32, 2, 3)) | dict.fromkeys(views, (2, 16, 2, 3))
    moves = [(("x",), "a"), (("front",), "b"), (("b",), "c"), (("back",), "d")]
    segment = Segment(shapes, views, moves, ["x"], ["d"])
    memory_map = segment.lay()
    assert memory_map.blobs["back"] == Placed(memory_map.blobs["a"].offset, memory_map.blobs["back"].bytes, "a", 16)
    assert memory_map.blobs["c"].offset != memory_map.blobs["a"].offset
    run(segment, memory_map)


def test_an_input_that_is_a_part_of_another_one_is_not_stored_twice() -> None:
    """Of a Concat in a later segment, whose bottom "a" the host has, and a slice of it: a last plane has other channels too."""
    views = {"piece": View("a", 0), "a": View("whole", 0), "rest": View("whole", 32)}
    shapes = {"a": (2, 32, 2, 3), "whole": (2, 64, 2, 3), "rest": (2, 32, 2, 3), "b": (2, 20, 2, 3)}
    moves = [(("piece",), "b"), (("x",), "rest"), (("whole",), "c")]
    segment = Segment(
        {**shapes, "piece": (2, 20, 2, 3), "x": (2, 32, 2, 3), "c": (2, 64, 2, 3)},
        views,
        moves,
        ["piece", "a", "x"],
        ["b", "c"],
    )
    memory_map = segment.lay()
    assert memory_map.given == ["a", "x"]
    run(segment, memory_map)


def test_a_blob_that_is_given_and_asked_for() -> None:
    memory_map = replace(line("ab"), writes=["a", "b"]).lay()
    assert [split(memory_map.blobs[b].offset)[0] for b in "ab"] == [BOTH, OUTPUT]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 7)), max_size=12))
def test_memory_is_shared_as_if_all_pairs_of_blobs_were_compared(blobs: list[tuple[int, int, int]]) -> None:
    """The smallest sufficient gap between blobs alive at the same time, for the better of two orders."""
    lives = {str(i): (first, first + more) for i, (first, more, _) in enumerate(blobs)}
    sizes = {str(i): size for i, (*_, size) in enumerate(blobs)}
    crowds = {
        blob: max(
            sum(sizes[b] for b, (begin, end) in lives.items() if begin <= t <= end) for t in range(first, last + 1)
        )
        for blob, (first, last) in lives.items()
    }
    layouts = []
    for order in (lambda b: (-crowds[b], -sizes[b], lives[b], b), lambda b: (-sizes[b], lives[b], b)):
        offsets: dict[str, int] = {}
        for blob in sorted(lives, key=order):
            together = [b for b in offsets if lives[b][0] <= lives[blob][1] and lives[blob][0] <= lives[b][1]]
            used = sorted((offsets[b], offsets[b] + sizes[b]) for b in together)
            ends = [0, *(max(end for _, end in used[: i + 1]) for i in range(len(used)))]
            gaps = [(start - end, end) for (start, _), end in zip(used, ends) if start - end >= sizes[blob]]
            offsets[blob] = min(gaps, key=lambda gap: gap[0])[1] if gaps else ends[-1]
        layouts.append((max((offsets[b] + sizes[b] for b in offsets), default=0), offsets))
    least = min(size for size, _ in layouts)
    assert share(lives, sizes) == (next(offsets for size, offsets in layouts if size == least), least)


def test_nothing_at_all() -> None:
    assert Segment({}).lay() == Regions({}, [], [], {})


# -- offsets from elsewhere


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"c": 0}, "blob 'c' is written over what it is made of"),
        ({"d": 320}, "blob 'd' is written over what it is made of"),
        ({"b": 32}, "blob 'b': 256 bytes at 32 do not lie"),
        ({"b": -64}, "blob 'b': 256 bytes at -64 do not lie"),
        ({"a": 64}, "blob 'a': 256 bytes at 64 do not lie in 256"),
        ({"f": 1 << 40}, "blob 'f': 256 bytes at 1,099,511,627,776 do not lie in 256"),
        ({"x": 0}, "blob 'x' has a place and no use"),
        ({"b": None}, "blob 'b' has no place"),
    ],
)
def test_offsets_that_no_layout_has(change: dict[str, int | None], words: str) -> None:
    segment = line("abcdef")
    good = {"a": 0, "b": 0, "c": 256, "d": 512, "e": 768, "f": 0}
    run(segment, segment.lay(good))
    offsets = {blob: at for blob, at in {**good, **change}.items() if at is not None}
    with pytest.raises(DeviceError, match=words):
        segment.lay(offsets)


def test_a_blob_written_over_while_it_is_still_read() -> None:
    segment = line("abcde")
    segment.moves[3] = (("d", "b"), "e")
    with pytest.raises(DeviceError, match="another blob is written over 'b', which is still read"):
        segment.lay({"a": 0, "b": 0, "c": 256, "d": 0, "e": 0})


def test_a_blob_that_nothing_wrote() -> None:
    segment = Segment(dict.fromkeys("ab", (1, 1, 1, 1)), {}, [(("a",), "b")], [], ["b"])
    with pytest.raises(DeviceError, match="blob 'a' is read before anything has written it"):
        segment.lay({"a": 0, "b": 0})


# -- random segments


@st.composite
def random_segments(draw: st.DrawFn) -> Segment:
    """Tasks in any order; concats, some inside others, with parts of many sizes; slices; blobs given and asked for."""
    batch = draw(st.integers(1, 3))
    sizes = st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))
    segment = Segment({})
    blobs: list[str] = []

    def new(shape: tuple[int, ...] | None = None) -> str:
        name = f"b{len(segment.shapes)}"
        segment.shapes[name] = (batch, *(shape or draw(sizes)))
        return name

    def task(output: str, most: int = 2) -> None:
        inputs = draw(st.lists(st.sampled_from(blobs), min_size=1, max_size=most))
        segment.moves.append((tuple(inputs), output))

    def concat() -> None:
        h, w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        counts = draw(st.lists(st.sampled_from([16, 32, 48]), min_size=1, max_size=3))
        counts += draw(st.lists(st.integers(1, 20), max_size=1))
        nested = draw(st.booleans())
        whole = new((sum(counts), h, w))
        outer = new((sum(counts) + 16, h, w)) if nested else whole
        first = 0
        for count in counts:
            part = new((count, h, w))
            segment.views[part] = View(whole, first)
            first += count
            task(part)
            if draw(st.booleans()):  # something else in between
                task(new(), 1)
        if nested:
            segment.views[whole] = View(outer, 16)
            rest = new((16, h, w))
            segment.views[rest] = View(outer, 0)
            task(rest, 1)
        blobs.append(outer)
        if draw(st.booleans()):
            blobs.append(whole)

    def slice() -> None:
        whole = draw(st.sampled_from(blobs))
        _, c, h, w = segment.shapes[whole]
        cuts = [0, *sorted(draw(st.sets(st.integers(1, 5), max_size=2))), c]
        cuts = [0, *(16 * cut for cut in cuts[1:-1] if 16 * cut < c), c]
        for first, end in pairwise(cuts):
            piece = new((end - first, h, w))
            segment.views[piece] = View(whole, first)
            blobs.append(piece)

    for _ in range(draw(st.integers(1, 3))):
        segment.reads.append(new())
    blobs += segment.reads
    for _ in range(draw(st.integers(1, 12))):
        choice = draw(st.integers(0, 5))
        if choice == 0:
            concat()
        elif choice == 1:
            slice()
        else:
            output = new()
            task(output)
            blobs.append(output)
    segment.writes = draw(st.lists(st.sampled_from(blobs), max_size=3, unique=True))
    return segment


@RANDOM
@given(segment=random_segments())
def test_no_blob_of_a_random_segment_is_written_over(segment: Segment) -> None:
    memory_map = segment.lay()
    run(segment, memory_map)
    assert set(memory_map.blobs) >= {b for sources, target in segment.moves for b in (*sources, target)}
    assert segment.lay() == memory_map == segment.lay(memory_map.offsets)


@RANDOM
@given(segment=random_segments(), data=st.data())
def test_offsets_that_would_lose_a_blob_are_refused(segment: Segment, data: Any) -> None:
    """Whatever is let through runs on the memory that remembers."""
    memory_map = segment.lay()
    offsets = memory_map.offsets
    for blob in data.draw(st.lists(st.sampled_from(sorted(offsets)), min_size=1, max_size=4, unique=True)):
        offsets[blob] = 64 * data.draw(st.integers(0, 12))
    try:
        other = segment.lay(offsets)
    except DeviceError:
        return
    run(segment, other)


def test_a_blob_between_two_parts_of_another_is_refused() -> None:
    """whole is written part by part; other, over the first word of its second part, would be read as whole."""
    segment = Segment(
        shapes={"x": (1, 1, 1, 1), "whole": (1, 33, 1, 1), "second": (1, 17, 1, 1), "first": (1, 16, 1, 1)}
        | {"other": (1, 1, 1, 3), "y": (1, 1, 1, 1)},
        views={"second": View("whole", 16), "first": View("whole", 0)},
        moves=[(("x",), "second"), (("x",), "other"), (("x",), "first"), (("whole",), "y")],
        reads=["x"],
        writes=[],
    )
    offsets = segment.lay().offsets
    with pytest.raises(DeviceError, match="another blob is written over 'whole', which is still read"):
        segment.lay(offsets | {"other": 0})


def test_blobs_that_are_all_alive_at_once_are_only_put_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the check of a file's Tasks as they are listed: comparing moments would take the square of their number."""
    monkeypatch.setattr(layout, "_crowds", lambda *_: pytest.fail("it compares moments"))
    lives = {str(i): (i, 9 + i) for i in range(9)}
    sizes = {name: 64 * (1 + i % 4) for i, name in enumerate(lives)}
    offsets, total = share(lives, sizes)
    assert total == sum(sizes.values())
    taken = sorted((offsets[name], offsets[name] + sizes[name]) for name in lives)
    assert [begin for begin, _ in taken] == [0, *(end for _, end in taken[:-1])]
