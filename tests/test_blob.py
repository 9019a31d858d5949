"""Views: blobs that are channels of others."""

from __future__ import annotations

from chai.blob import View, bases, outermost

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
