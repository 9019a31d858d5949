"""The places of pixels alone: which words of the input ring each lane reads, cycle by cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")

from amaranth import Module, Mux, Signal
from amaranth.sim import Simulator

from chai import overlay as overlays
from chai.hw_overlays.rtl.array.passes import PREPARE, Passes, Pixels
from chai.overlay import Overlay
from chai.overlay.sections import Array as Size, OnChipBuffer

RING, PIXELS = 256, 16


def overlay(lanes: int) -> Overlay:
    base = overlays.load()
    buffers = base.buffers._replace(
        input=OnChipBuffer(64, RING, 1, lanes, "block"),
        accumulators=OnChipBuffer(8 * base.array_bits, PIXELS, 2, lanes, "block"),
    )
    return replace(base, array=Size(8, 8, lanes, 4, 17), buffers=buffers)


class Tile:
    """A tile of a convolution with one block of inputs: its sizes, the input's, and where it begins."""

    def __init__(self, random: np.random.Generator, lanes: int) -> None:
        def number(low: int, high: int) -> int:
            return int(random.integers(low, high + 1))

        self.columns = number(1, min(11, PIXELS * lanes))
        self.rows = number(1, PIXELS * lanes // self.columns)
        self.height, self.width = number(1, 20), number(1, 20)
        self.kernel, self.stride, self.dilation = ((number(1, 2), number(1, most))[::-1] for most in (2, 4, 3))
        self.y, self.x, self.address = number(-3, 9), number(-3, 9), number(0, RING - 1)

    def plan(self) -> dict[str, int]:
        axes = {"kernel": self.kernel, "stride": self.stride, "dilation": self.dilation}
        values = {f"{name}_{axis}": of[i] for name, of in axes.items() for i, axis in enumerate("hw")}
        steps = {"row_step": self.stride[0] * self.width, "tap_step": self.dilation[0] * self.width, "blocks": 1}
        return {**values, **steps, "input_height": self.height, "input_width": self.width}

    def job(self) -> dict[str, int]:
        names = ("columns", "rows", "y", "x", "address")
        return {name: getattr(self, name) for name in names} | {"pixels": self.rows * self.columns}

    def reads(self) -> list[list[int | None]]:
        """The address of each pixel in each pass, None for padding."""
        passes = []
        for i, j in np.ndindex(self.kernel):
            here: list[int | None] = []
            for row, column in np.ndindex(self.rows, self.columns):
                down = row * self.stride[0] + i * self.dilation[0]
                across = column * self.stride[1] + j * self.dilation[1]
                inside = 0 <= self.y + down < self.height and 0 <= self.x + across < self.width
                here.append((self.address + down * self.width + across) % RING if inside else None)
            passes.append(here)
        return passes


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 6, 8])
def test_every_pixel_is_read_once_in_each_pass(lanes: int) -> None:
    small_overlay = overlay(lanes)
    m = Module()
    m.submodules.passes = passes = Passes(small_overlay)
    m.submodules.pixels = pixels = Pixels(small_overlay)
    # a pass is offered some cycles after its payload is there, as the feeder does
    waited = Signal(range(PREPARE + 1))
    due = waited == PREPARE
    m.d.comb += [
        pixels.fed.payload.eq(passes.passes.payload),
        pixels.fed.valid.eq(passes.passes.valid & due),
        passes.passes.ready.eq(pixels.fed.ready & due),
    ]
    m.d.sync += waited.eq(Mux(passes.passes.valid & ~(due & pixels.fed.ready), Mux(due, PREPARE, waited + 1), 0))
    random = np.random.default_rng(lanes)
    tiles = [Tile(random, lanes) for _ in range(12)]
    reads: list[list[list[int | None]]] = []

    async def bench(ctx: Any) -> None:
        ctx.set(pixels.segments[0], 1)
        for done, tile in enumerate(tiles):
            for part in (passes, pixels):
                for name, value in tile.plan().items():
                    ctx.set(getattr(part.plan, name), value)
            for name, value in tile.job().items():
                ctx.set(passes.jobs.payload[name], value)
            ctx.set(pixels.drained, done)
            ctx.set(passes.jobs.valid, 1)
            now: list[list[int | None]] = []
            final = 0
            while not final:
                if ctx.get(passes.jobs.ready & passes.jobs.valid):
                    await ctx.tick()
                    ctx.set(passes.jobs.valid, 0)
                    continue
                if ctx.get(pixels.valid):
                    if ctx.get(pixels.swap):
                        now.append([])
                    assert ctx.get(pixels.address) == len(now[-1]) // lanes
                    inside, words = ctx.get(pixels.inside), [ctx.get(word) for word in pixels.words]
                    now[-1] += [word if inside >> lane & 1 else None for lane, word in enumerate(words)]
                    final = ctx.get(pixels.final)
                await ctx.tick()
            reads.append(now)

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    for tile, passed in zip(tiles, reads):
        assert {len(one) for one in passed} == {-(-tile.rows * tile.columns // lanes) * lanes}
        assert [one[: tile.rows * tile.columns] for one in passed] == tile.reads()
