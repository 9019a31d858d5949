"""Views: blobs that are channels of others."""

from __future__ import annotations

import numpy as np

from chai.blob import View, bases, codes_of, outermost

VIEWS = {"piece": View("branch", 3), "branch": View("concat", 16), "other": View("concat", 0)}


def test_first_channels_add_up_outwards() -> None:
    assert list(bases("piece", VIEWS)) == [("piece", 0), ("branch", 3), ("concat", 19)]
    assert list(bases("concat", VIEWS)) == [("concat", 0)]


def test_the_outermost_blob_is_itself_where_it_is_no_part() -> None:
    assert outermost("piece", VIEWS) == View("concat", 19)
    assert outermost("other", VIEWS) == View("concat", 0)
    assert outermost("alone", VIEWS) == View("alone", 0)


def test_only_blobs_in_use_count() -> None:
    assert outermost("piece", VIEWS, {"piece", "branch"}) == View("branch", 3)
    assert outermost("piece", VIEWS, {"piece", "concat"}) == View("concat", 19)
    assert outermost("piece", VIEWS, {"piece"}) == View("piece", 0)


def test_the_codes_of_parts_of_parts_are_one_array() -> None:
    depth = 3000  # beyond Python's recursion
    views = {f"b{i}": View(f"b{i + 1}", 1) for i in range(depth)}
    shapes = {f"b{i}": (1, i + 1, 1, 1) for i in range(depth + 1)}
    blobs: dict[str, np.ndarray] = {}
    codes_of("b0", blobs, shapes, views)[...] = 5
    assert blobs[f"b{depth}"][0, depth, 0, 0] == blobs["b7"][0, 7, 0, 0] == 5
    assert len(blobs) == len(shapes)
