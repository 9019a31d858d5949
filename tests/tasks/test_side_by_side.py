"""What the cycle model says of a window engine that takes planes side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chai import overlay as overlays
from chai.fixed import Requantization
from chai.tasks.eltwise import Eltwise
from chai.tasks.pool import Pool
from chai.tasks.upsample import UpsampleTask
from chai.tasks.window import Window


@pytest.mark.parametrize(("planes", "groups"), [(1, 5), (2, 3), (4, 2)])
def test_the_last_group_of_planes_takes_as_long_as_a_whole_one(planes: int, groups: int) -> None:
    """A leaky sum multiplies four times for each pixel of a group; an upsample takes one plane after the other."""
    z2 = overlays.load()
    overlay = replace(z2, window=z2.window._replace(read_bytes=8 * planes, write_bytes=8 * planes))
    shapes = dict.fromkeys(("x", "z", "y"), (3, 35, 7, 9))
    r = Requantization(np.array(1), 9, -128, 127)
    leaky = Eltwise(("x", "z"), "y", ("sum",), (300, 200), (30, 20), r, (0, 0))
    port = 2 * 3 * 5 * 63  # which reads a word of each blob for each pixel and plane
    assert leaky.working_cycles(overlay, shapes) == max(port, 4 * 3 * groups * 63)
    upsample = UpsampleTask(("x",), "y", ("upsample",), (2, 2), False, None, 0)
    shapes["y"] = (3, 35, 14, 18)
    assert upsample.working_cycles(overlay, shapes) == 3 * 5 * 4 * 63


def test_the_busiest_port_reads_both_inputs_of_a_sum_or_one() -> None:
    """An upsample reads each row as often as it writes it."""
    z2 = overlays.load()
    shapes = {"x": (3, 35, 7, 9), "z": (3, 35, 7, 9), "y": (3, 35, 14, 18)}
    plane = 3 * 5 * 63 * 8
    total = Eltwise(("x", "z"), "z", ("sum",), (1, 1), None, Requantization(np.array(1), 9, -128, 127), (0, 0))
    upsample = UpsampleTask(("x",), "y", ("upsample",), (2, 2), False, None, 0)
    for window, of_sum in ((1, 2 * plane), (2, plane)):
        overlay = replace(z2, ports=z2.ports._replace(window=window))
        assert max(total.reads(overlay, shapes)) == of_sum and total.moved(overlay, shapes) == (2 * plane, plane)
        assert max(upsample.reads(overlay, shapes)) == 2 * plane == upsample.moved(overlay, shapes)[0]


def test_pieces_of_odd_planes_are_runs_of_their_own() -> None:
    """A plane of 143 words is read in pieces of 64; where a beat has two words, those of every other plane begin within one."""
    window = Window((1, 1), (1, 1), (0, 0))
    for name, height, run in (("kv260", 11, 64), ("kv260", 12, 156), ("pynq-z2", 11, 143)):
        overlay, shapes = overlays.load(name), dict.fromkeys("xy", (2, 16, height, 13))
        pool = Pool(("x",), "y", ("y",), window, (height, 13), None)
        assert pool.runs(overlay, shapes, "x") == pool.runs(overlay, shapes, "y") == (run, 13 * height)
        band = replace(pool, rows=(4, 3))
        assert band.runs(overlay, shapes, "y") == (39, 13 if height == 11 else 52)
