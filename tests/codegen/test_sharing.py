"""Weights that are fetched once for the pieces of a Task that follow one another on the array."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chai import overlay as overlays
from chai.codegen.chain import Piece, arranged, sharing
from chai.codegen.cycles import effort
from chai.fixed import Requantization
from chai.overlay import Overlay
from chai.tasks.conv import Conv
from chai.tasks.pool import Pool
from chai.tasks.tiling import WEIGHTS, weight_words
from chai.tasks.window import POINT, Window

Z2 = overlays.load("pynq-z2")
SHAPES = dict.fromkeys("abcd", (1, 40, 11, 7))
BANDS = (0, 4), (4, 4), (8, 3)


def conv(source: str, target: str, kernel: int = 1, group: int = 1) -> Conv:
    weights = np.ones((40, 40 // group, kernel, kernel), np.int8)
    r = Requantization(np.ones((40, 1, 1), np.int64), 6, -128, 127)
    window = Window((kernel, kernel), (1, 1), (kernel // 2, kernel // 2))
    return Conv((source,), target, (target,), weights, np.zeros(40, np.int64), window, group, r)


TASKS = conv("a", "b"), Pool(("b",), "c", ("c",), POINT, (11, 7), None), conv("c", "d")


def with_buffer(words: int) -> Overlay:
    """Return the overlay with a weight buffer of so many words."""
    buffer = Z2.buffers.weights._replace(depth=words // 2, banks=2)
    return replace(Z2, buffers=Z2.buffers._replace(weights=buffer))


@pytest.mark.parametrize(
    ("order", "shared", "shares"),
    [
        ("000", "011", "110"),
        ("0101010", "0010101", "1010100"),
        ("002", "010", "100"),
        ("02020", "00000", "00000"),
        ("00222", "01011", "10110"),
    ],
)
def test_pieces_share_their_weights_with_the_next_one_on_the_array(order: str, shared: str, shares: str) -> None:
    """Whatever the window engine does between them."""
    counts: dict[int, int] = {}
    pieces = []
    for i in map(int, order):
        counts[i] = counts.get(i, -1) + 1
        pieces.append(Piece(i, rows=(counts[i], 1)))
    result = sharing(Z2, TASKS, pieces)
    assert "".join(str(int(piece.shared)) for piece in result) == shared
    assert "".join(str(int(piece.shares)) for piece in result) == shares
    assert [piece[:4] for piece in result] == [piece[:4] for piece in pieces]
    assert sharing(Z2, TASKS, result) == result


@pytest.mark.parametrize(("kernel", "group"), [(1, 1), (3, 1), (3, 40), (1, 5)])
def test_weights_are_shared_if_the_buffer_has_room_for_all(kernel: int, group: int) -> None:
    """A word has weights of all outputs; on the diagonal, of one of the inputs each: it has few bytes then."""
    task = conv("a", "b", kernel, group)
    words = weight_words(Z2, task.weights.shape, group)
    assert words == {(1, 1): 2 * 48, (3, 1): 9 * 2 * 48, (3, 40): 9 * 3, (1, 5): 5 * 16}[kernel, group]
    even = words + words % 2
    assert task.may_share(with_buffer(even)) and not task.may_share(with_buffer(even - 2))
    pieces = [Piece(0, rows=rows) for rows in BANDS]
    assert sharing(with_buffer(even - 2), [task], pieces) == pieces


def test_an_overlay_whose_descriptors_do_not_say_it_shares_nothing() -> None:
    fields = tuple(field for field in Z2.descriptor.fields if field.name != "shares")
    older = replace(Z2, descriptor=replace(Z2.descriptor, fields=fields))
    assert sharing(older, TASKS, [Piece(0, rows=rows) for rows in BANDS]) == [Piece(0, rows=rows) for rows in BANDS]
    assert not TASKS[1].may_share(Z2)


def test_shared_weights_are_fetched_once() -> None:
    """Their tables are fetched for each; and tiles are the outer loop, so that all weights stay."""
    work = arranged(TASKS, sharing(Z2, TASKS, [Piece(0, rows=rows) for rows in BANDS]))
    whole, table = TASKS[0].constant_traffic(Z2, SHAPES), 40 * Z2.table.bytes
    assert [task.constant_traffic(Z2, SHAPES) for task in work] == [whole, table, table]
    assert whole == table + 2 * 48 * 24
    efforts = [effort(Z2, task, SHAPES).waits.constants for task in work]
    assert efforts == [whole / 8, table / 8, table / 8]
    for task, alone in zip(work, arranged(TASKS, [Piece(0, rows=rows) for rows in BANDS])):
        assert isinstance(task, Conv) and isinstance(alone, Conv)
        tile, other = (some._convolved(Z2, SHAPES).tiling(Z2) for some in (task, alone))
        assert tile.stays == WEIGHTS != other.stays and tile.rows == other.rows
