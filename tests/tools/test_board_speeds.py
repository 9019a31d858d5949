"""The table of modelled speeds in docs/rtl.md is what the cycle model says now."""

from __future__ import annotations

import pytest

from tools import board_speeds

LINES = board_speeds.PAGE.read_text().split(board_speeds.BEGIN)[1].split(board_speeds.END)[0].splitlines()
COLUMNS = ["overlay", "images at once", *board_speeds.NETWORKS.values()]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_has_every_overlay() -> None:
    assert cells(LINES[0]) == COLUMNS
    rows = [tuple(cells(line)[:2]) for line in LINES[2:]]
    assert rows == [(name, str(images)) for name in board_speeds.OVERLAYS for images in board_speeds.IMAGES]


@pytest.mark.parametrize("name", board_speeds.OVERLAYS)
def test_squeezenet_is_as_fast_as_the_page_says(name: str) -> None:
    """On each overlay, with as many images at once as differ from one overlay to the next."""
    images = board_speeds.IMAGES[board_speeds.OVERLAYS.index(name) % 2]
    row = next(cells(line) for line in LINES if cells(line)[:2] == [name, str(images)])
    shown = str(board_speeds.speed("squeezenet_v1.1", name, images))
    assert shown == row[COLUMNS.index(board_speeds.NETWORKS["squeezenet_v1.1"])]


def test_what_a_speed_is() -> None:
    """Of 2 images in 400,000 cycles at 250 MHz, three quarters of whose products the array could make."""
    assert str(board_speeds.Speed(400_000, 2 * 250e6 / 400_000, 0.75)) == "400,000: 1250 (75 %)"


@pytest.mark.slow
def test_the_whole_table() -> None:
    assert [*board_speeds.table()] == LINES
