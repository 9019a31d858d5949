"""Rounding, union-find and numbers of things, against the obvious."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from chai.text import number_of
from chai.util.rounding import ceil_div, round_up
from chai.util.union_find import UnionFind
from tests.conftest import examples

FEW = settings(max_examples=examples(50))


@FEW
@given(st.integers(-(10**20), 10**20), st.integers(1, 10**6))
def test_rounded_up_is_the_least_multiple_that_is_enough(value: int, step: int) -> None:
    multiple = round_up(value, step)
    assert multiple % step == 0 and value <= multiple < value + step
    assert ceil_div(value, step) * step == multiple


@FEW
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"))))
def test_groups_are_what_a_naive_search_reaches(pairs: list[tuple[str, str]]) -> None:
    finder = UnionFind()
    for name, other in pairs:
        group = finder.root(other)
        finder.join(name, other)
        assert finder.root(name) == group  # the group of the other gives the name
    groups = [{name} for name in "abcdefgh"]
    for pair in pairs:
        first, second = (next(g for g in groups if name in g) for name in pair)
        if first is not second:
            groups.remove(second)
            first |= second
    for name in "abcdefgh":
        same = {other for other in "abcdefgh" if finder.root(other) == finder.root(name)}
        assert same == next(g for g in groups if name in g)


@pytest.mark.parametrize(
    ("count", "what", "text"),
    [
        (1, "image", "1 image"),
        (0, "image", "0 images"),
        (2, "more layer", "2 more layers"),
        (1, "axis", "1 axis"),
        (3, "axis", "3 axes"),
        (2, "class", "2 classes"),
        (2, "box", "2 boxes"),
        (2, "batch", "2 batches"),
        (2, "bias", "2 biases"),
        ("1", "number", "1 number"),
        ("1,234", "number", "1,234 numbers"),
    ],
)
def test_one_thing_is_singular(count: int | str, what: str, text: str) -> None:
    assert number_of(count, what) == text
