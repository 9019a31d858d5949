"""The order of operations: each waits for those whose bytes it disturbs, and for no others."""

from __future__ import annotations

import itertools

from hypothesis import given, settings, strategies as st

from chai.kernels.native.order import OperationBlobs, after
from tests.conftest import examples

SIZES = st.integers(1, 40)
USES = st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=2), st.integers(-1, 5), SIZES, SIZES), max_size=14)


@settings(max_examples=examples(80))
@given(uses=USES, places=st.lists(st.tuples(st.integers(0, 60), SIZES), min_size=6, max_size=6))
def test_an_operation_waits_for_all_that_it_disturbs(
    uses: list[tuple[list[int], int, int, int]], places: list[tuple[int, int]]
) -> None:
    """Each pair of operations is compared. Blobs that share bytes come one after the other, as ``share`` lays them out."""
    blobs = {str(i): (start, start + size) for i, (start, size) in enumerate(places)}
    listed = [
        OperationBlobs(tuple(map(str, reads)), str(target) if target >= 0 else "", range(first, first + count))
        for reads, target, first, count in uses
    ]
    touched = [{*use.reads, use.writes} - {""} for use in listed]
    lives = {
        blob: [i for i, names in enumerate(touched) if blob in names]
        for blob in {b for names in touched for b in names}
    }
    for a, b in itertools.combinations(lives, 2):  # leave out layouts in which two live blobs share bytes
        if overlap(blobs[a], blobs[b]) and lives[a][0] <= lives[b][-1] and lives[b][0] <= lives[a][-1]:
            del blobs[b]
            blobs[b] = (1000 * (int(b) + 1), 1000 * (int(b) + 1) + 40)
    order = [*after(listed, blobs)]
    for (i, one), (k, other) in itertools.combinations(enumerate(listed), 2):
        clash = one.writes in other.reads or other.writes in one.reads
        if one.writes == other.writes and one.writes:
            pair = [(use.channels.start, use.channels.stop) for use in (one, other)]
            clash |= overlap(*pair)
        clash |= any(a != b and overlap(blobs[a], blobs[b]) for a in touched[i] for b in touched[k])
        assert not clash or i < order[k] <= k


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def test_branches_do_not_wait_for_each_other() -> None:
    uses = [
        OperationBlobs((), "x", range(8)),
        OperationBlobs(("x",), "whole", range(3)),
        OperationBlobs(("x",), "narrow", range(2)),
        OperationBlobs(("narrow",), "whole", range(3, 7)),
        OperationBlobs(("whole",), "x2", range(5)),
    ]
    places = {"x": (0, 9), "whole": (10, 20), "narrow": (20, 30), "x2": (5, 9)}
    assert [*after(uses, places)] == [0, 1, 1, 3, 4]
