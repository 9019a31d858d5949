"""The tables of speeds in docs/rtl.md: the modelled one is the cycle model's, and the simulated one is compared with it."""

from __future__ import annotations

import re

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
    """With one image on two of the overlays, with two at once on the others."""
    images = board_speeds.IMAGES[board_speeds.OVERLAYS.index(name) % 2]
    row = next(cells(line) for line in LINES if cells(line)[:2] == [name, str(images)])
    shown = str(board_speeds.speed("squeezenet_v1.1", name, images))
    assert shown == row[COLUMNS.index(board_speeds.NETWORKS["squeezenet_v1.1"])]


def test_what_is_simulated_is_compared_with_the_table() -> None:
    """Cycles of the RTL are typed in by hand; images a second, percents and what the page says of all follow from them."""
    section = board_speeds.PAGE.read_text().split("## The larger boards")[1].split(board_speeds.BEGIN)[0]
    modelled = {tuple(cells(line)[:2]): cells(line)[2:] for line in LINES}
    errors = []
    for overlay, images, *speeds in map(cells, re.findall(r"^\| (?!overlay).*$", section, re.M)):
        for speed, model in zip(speeds, modelled[overlay, images]):
            if speed != "-":
                cycles, expected = (int(cell.split(":")[0].replace(",", "")) for cell in (speed, model))
                errors.append(100 * (cycles / expected - 1))
                percent = re.sub(r"\b0\.", ".", f"{errors[-1]:+.1f}")
                assert speed == f"{cycles:,}: {int(images) * 250e6 / cycles:.0f} ({percent} %)"
    assert f"within 3 % of {sum(abs(error) <= 3 for error in errors)} of these {len(errors)}" in section


def test_what_a_speed_is() -> None:
    """Of 2 images in 400,000 cycles at 250 MHz, three quarters of whose products the array could make."""
    assert str(board_speeds.Speed(400_000, 2 * 250e6 / 400_000, 0.75)) == "400,000: 1250 (75 %)"


@pytest.mark.slow
def test_the_whole_table() -> None:
    assert [*board_speeds.table()] == LINES
