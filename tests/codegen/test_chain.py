"""What a board is given for a segment: the layout of blobs to the byte, memory that two blobs never share in time,
and descriptors that say the Tasks at any address."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from chai import overlay as overlays
from chai.blob import View
from chai.codegen.chain import Chain
from chai.codegen.compile import chain
from chai.codegen.encoding import constants_at, encode
from chai.codegen.memory_map import BOTH, FIXED, INPUT, OUTPUT, READ, REGION, WORK
from chai.offload.schedule import DeviceStep
from chai.overlay.layout import DeviceBlob, Placed, blob_bytes, spaced
from chai.overlay.records import unpack
from chai.tasks.copy import Copy
from chai.tasks.fields import Operands
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.tasks.work import Work
from tests.codegen.cases import decoded
from tests.codegen.equality import equal
from tests.codegen.test_memory_map import network
from tests.conftest import examples

Z2 = overlays.load("pynq-z2")
RANDOM = settings(max_examples=examples(25))
ONE = Window((1, 1), (1, 1), (0, 0))


def pool(source: str, target: str, size: tuple[int, int] = (5, 7)) -> Pool:
    return Pool((source,), target, (target,), ONE, size, None)


# -- the layout


@RANDOM
@given(
    st.integers(1, 3), st.integers(1, 40), st.integers(1, 5), st.integers(1, 7), st.integers(0, 2), st.integers(0, 20),
    st.sampled_from([8, 4]), st.integers(0, 2**32),
)  # fmt: skip
def test_every_code_lies_where_the_words_say(
    n: int, c: int, h: int, w: int, planes: int, more: int, word: int, seed: int
) -> None:
    """Against a loop over README's sentence: a word is so many channels of one pixel, a plane is row by row, an image
    its planes in order and begins at a multiple of 64 bytes; channels beyond the last are zero."""
    layout = Z2.layout._replace(channels_per_word=word)
    first, channels = word * planes, word * planes + c + more
    random = np.random.default_rng(seed)
    codes = random.integers(-128, 128, (n, c, h, w)).astype(np.int8)
    memory = random.integers(0, 256, blob_bytes((n, channels, h, w), layout) + 64).astype(np.uint8)
    wanted = memory.copy()
    per_image = -(-channels // word)
    for i, k, y, x in np.ndindex(n, -(-c // word) * word, h, w):
        plane = (first + k) // word
        image = -(-per_image * h * w * word // 64) * 64
        byte = i * image + ((plane * h + y) * w + x) * word + k % word
        wanted[byte] = int(codes[i, k, y, x]) & 255 if k < c else 0
    blob = DeviceBlob(memory, layout, channels, codes.shape, first)
    blob.store(codes)
    assert np.array_equal(memory, wanted)  # and no byte beside
    out = np.zeros((n, c + 3, h, w), np.int8)
    blob.fetch(out[:, 1 : c + 1])  # into a part of another array
    assert np.array_equal(out[:, 1 : c + 1], codes)
    assert not out[:, :1].any() and not out[:, c + 1 :].any()


# -- regions

SHAPES = dict.fromkeys("abcdef", (2, 16, 5, 7)) | {"whole": (2, 48, 5, 7), "odd": (2, 3, 5, 7)}


def region(segment: Chain, blob: str) -> int:
    return segment.regions.blobs[blob].offset >> REGION


def test_what_the_host_never_sees_lies_apart_and_shares_bytes() -> None:
    tasks = [pool("a", "b"), pool("b", "c"), pool("c", "d"), pool("d", "e")]
    segment = chain(Work(Z2, tasks, SHAPES, {}, ["a"], ["e"]))
    size = blob_bytes(SHAPES["a"], Z2.layout)
    assert [region(segment, blob) for blob in "abcde"] == [INPUT, WORK, WORK, WORK, OUTPUT]
    assert {r: segment.sizes[r] for r in (INPUT, WORK, OUTPUT)} == {
        INPUT: size,
        WORK: spaced(size) + size,
        OUTPUT: size,
    }
    assert segment.regions.given == ["a"] and segment.wanted == [("e", 0, 16)]
    assert (segment.written, segment.read) == ([INPUT], [OUTPUT])


def test_a_blob_that_is_kept_is_read() -> None:
    segment = chain(Work(Z2, [pool("a", "b"), pool("b", "c")], SHAPES, {}, ["a"], ["c", "b"]))
    assert [region(segment, blob) for blob in "abc"] == [INPUT, OUTPUT, OUTPUT]
    assert [w[0] for w in segment.wanted] == ["c", "b"]


def test_parts_lie_in_their_whole_where_somebody_has_a_use_for_it() -> None:
    views = {"b": View("whole", 0), "c": View("whole", 16), "d": View("whole", 32)}
    tasks = [pool("a", "b"), pool("a", "c"), pool("a", "d"), pool("whole", "f")]
    segment = chain(Work(Z2, tasks, {**SHAPES, "f": (2, 48, 5, 7)}, views, ["a"], ["f"]))
    begin = segment.regions.blobs["whole"].offset
    assert [segment.regions.blobs[b] for b in "bcd"] == [
        Placed(begin, segment.regions.blobs["b"].bytes, "whole", first) for first in (0, 16, 32)
    ]
    alone = chain(Work(Z2, [pool("a", "b")], SHAPES, views, ["a"], ["b"]))
    assert alone.regions.blobs["b"].parent is None and "whole" not in alone.regions.blobs


def test_a_branch_that_was_made_elsewhere_is_given_into_its_whole() -> None:
    views = {"b": View("whole", 0), "c": View("whole", 16)}
    shapes = {**SHAPES, "whole": (2, 32, 5, 7)}
    segment = chain(Work(Z2, [pool("a", "c")], shapes, views, ["b", "a"], ["whole"]))
    assert segment.regions.given == ["b", "a"] and region(segment, "whole") == BOTH
    assert segment.wanted == [("whole", 0, 32)]
    assert sorted(segment.written) == sorted([INPUT, BOTH])
    assert segment.read == [BOTH]


def test_only_what_was_written_is_read_back() -> None:
    """A Copy into a concat on its own: the other branches are not its."""
    task = Copy(("odd",), "whole", ("copy",), 16, None)
    segment = chain(Work(Z2, [task], SHAPES, {}, ["odd"], ["whole"]))
    assert segment.wanted == [("whole", 16, 3)]


def test_a_segment_without_tasks_moves_codes() -> None:
    views = {"b": View("whole", 0), "c": View("whole", 16), "d": View("whole", 32)}
    segment = chain(Work(Z2, [], SHAPES, views, ["b", "c", "d"], ["whole"]))
    assert segment.regions.given == ["b", "c", "d"] and segment.wanted == [("whole", 0, 48)] and not segment.descriptors


# -- descriptors


@pytest.mark.parametrize("name", ["digits", "cifar_resnet20", "googlenet", "squeezenet_v1.1"])
def test_descriptors_say_the_tasks_wherever_the_regions_lie(name: str) -> None:
    offload = network(name)
    base = {r: 0x1000 * 7**r + (r << 33) & ~63 for r in range(1, 6)}  # beyond 32 bits too
    for step in (s for s in offload.schedule.steps if isinstance(s, DeviceStep)):
        views = offload.schedule.views
        segment = chain(step.work(offload.overlay, offload.shapes, views))
        memory = np.full(segment.sizes[FIXED], 0xA5, np.uint8)  # as it was left by somebody else
        segment.fix(base, memory)
        fixed = memory.tobytes()
        size = offload.overlay.descriptor.bytes
        for i, task in enumerate(segment.tasks):
            descriptor = fixed[i * size : (i + 1) * size]
            assert unpack(offload.overlay.descriptor, descriptor)["tag"] == i
            address = {b: segment.regions.blobs[b] for b in (*task.inputs, task.output)}
            address |= {p.parent: segment.regions.blobs[p.parent] for p in address.values() if p.parent}
            real = {
                b: p._replace(offset=base[p.offset >> REGION] + (p.offset & (1 << REGION) - 1))
                for b, p in address.items()
            }
            if segment.pieces[i].begins:  # of the others all but the padding before them is that of their Task
                again = decoded(descriptor, fixed, offload.overlay, real, segment.shapes, base[FIXED], task)
                assert equal(again, task)
            where = constants_at(unpack(offload.overlay.descriptor, descriptor))
            operands = Operands(offload.overlay, real, segment.shapes)
            assert encode(task, operands, where, tag=i, after=segment.after[i])[0] == descriptor


@pytest.mark.parametrize("name", ["digits", "googlenet"])
def test_no_blob_is_written_over_before_its_last_reader(name: str) -> None:
    """A memory of bytes that remembers whose they are."""
    offload = network(name)
    for step in (s for s in offload.schedule.steps if isinstance(s, DeviceStep)):
        segment = chain(step.work(offload.overlay, offload.shapes, offload.schedule.views))
        owner = {r: np.zeros(size, np.int32) for r, size in segment.sizes.items()}
        names = {b: i + 1 for i, b in enumerate(segment.regions.blobs)}

        def span(blob: str, segment: Chain = segment, owner: dict[int, np.ndarray] = owner) -> tuple[np.ndarray, str]:
            whole = segment.regions.blobs[blob].parent or blob
            placed = segment.regions.blobs[whole]
            offset = placed.offset & (1 << REGION) - 1
            return owner[placed.offset >> REGION][offset : offset + placed.bytes], whole

        for blob in segment.regions.given:
            bytes, whole = span(blob)
            bytes[:] = names[whole]
        for task in segment.tasks:
            for blob in task.inputs:
                bytes, whole = span(blob)
                assert (bytes == names[whole]).all(), f"{blob} is gone when {task.output} needs it"
            bytes, whole = span(task.output)
            bytes[:] = names[whole]
        for blob, _, _ in segment.wanted:
            bytes, whole = span(blob)
            assert (bytes == names[whole]).all()
        assert set(segment.read) <= set(READ)
