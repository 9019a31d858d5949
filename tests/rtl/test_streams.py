"""Queue: cycle by cycle what amaranth's queues do, and its words are those that came."""

from __future__ import annotations

import random
from collections import deque

import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")

from amaranth.hdl import Module
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.sim import Simulator

from chai.hw_overlays.rtl.streams import Queue

WIDTH = 7


@pytest.mark.parametrize("depth", [2, 4, 16])
@pytest.mark.parametrize("block", [False, True], ids=["comb", "block"])
def test_a_queue_goes_as_amaranths(depth: int, block: bool) -> None:
    m = Module()
    m.submodules.queue = queue = Queue(width=WIDTH, depth=depth, block=block)
    m.submodules.other = other = (SyncFIFOBuffered if block else SyncFIFO)(width=WIDTH, depth=depth)
    inside: deque[int] = deque()
    levels = set()

    async def drive(simulation):
        chosen = random.Random(f"{depth} {block}")
        for cycle in range(600):
            fill = (1, 5, 9)[cycle // 50 % 3]  # of 10 cycles: it runs empty, goes up and down, and becomes full
            word, puts, takes = chosen.randrange(1 << WIDTH), chosen.randrange(10) < fill, chosen.randrange(10) >= fill
            for each in (queue, other):
                for port, value in ((each.w_data, word), (each.w_en, puts), (each.r_en, takes)):
                    simulation.set(port, value)
            outputs = [[simulation.get(p) for p in (q.w_rdy, q.r_rdy, q.level)] for q in (queue, other)]
            assert outputs[0] == outputs[1], f"cycle {cycle}"
            room, there, level = outputs[0]
            assert level == len(inside)
            levels.add(level)
            if there:
                assert simulation.get(queue.r_data) == inside[0]
                if takes:
                    inside.popleft()
            if puts and room:
                inside.append(word)
            await simulation.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    assert levels == set(range(depth + 1))
