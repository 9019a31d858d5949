"""Garbage is looked for again after ``Uncollected``, as the program wants it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from chai.util.interpreter import FROZEN_BY_PYTHON, Uncollected


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    assert gc.isenabled()
    assert gc.get_freeze_count() < FROZEN_BY_PYTHON
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_meanwhile_and_nothing_stays_frozen() -> None:
    with Uncollected():
        assert not gc.isenabled()
        kept: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert gc.is_tracked(kept)
    assert any(known is kept for known in gc.get_objects(generation=2))


def test_after_an_error_it_is_looked_for_again() -> None:
    with pytest.raises(ValueError, match="no"), Uncollected():
        raise ValueError("no")
    assert gc.isenabled()


def test_a_program_that_collects_nothing_stays_so() -> None:
    gc.disable()
    with Uncollected(), Uncollected():
        pass
    assert not gc.isenabled()


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    with Uncollected():
        pass
    assert gc.get_freeze_count() > FROZEN_BY_PYTHON
    assert gc.isenabled()
