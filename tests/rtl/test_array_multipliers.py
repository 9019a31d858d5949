"""The multipliers and accumulators alone: extremes of packed weights, and weights that change between pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")

from amaranth.sim import Simulator

from chai import overlay as overlays
from chai.hw_overlays.rtl.array.multipliers import Multipliers, sum_latency
from chai.hw_overlays.rtl.array.sums import LATENCY, Accumulators
from chai.overlay import Overlay
from chai.overlay.sections import Array as Size, OnChipBuffer


def small(size: Size, in_logic: int = 0, rows: int = 1) -> Overlay:
    """An overlay of this array; so many chains are made of look-up tables, and a word has the weights of ``rows`` inputs."""
    overlay, logic = overlays.load(), in_logic * size.chain
    sums = OnChipBuffer(overlay.array_bits * size.outputs, 8, 2, 1, "block")
    dsp = overlay.dsp._replace(array=size.inputs * size.outputs * size.lanes // 2 - logic, logic=logic)
    weights = overlay.buffers.weights._replace(word_bits=8 * size.outputs * rows)
    return replace(overlay, array=size, dsp=dsp, buffers=overlay.buffers._replace(accumulators=sums, weights=weights))


def simulate(dut: Any, bench: Any) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    ("size", "in_logic", "rows"),
    [
        (Size(8, 6, 1, 4, 17), 0, 1),
        (Size(8, 6, 1, 4, 17), 6, 2),
        (Size(16, 2, 2, 8, 18), 1, 1),
        (Size(16, 2, 2, 8, 18), 1, 2),
        (Size(4, 4, 3, 4, 17), 0, 1),
        (Size(4, 4, 3, 4, 17), 4, 1),
    ],
)
def test_sums_of_extremes_and_of_random_codes(size: Size, in_logic: int, rows: int) -> None:
    """Two sets of weights, the second loaded while the first one multiplies."""
    overlay, random = small(size, in_logic, rows), np.random.default_rng(size.inputs)
    weights = random.integers(-127, 128, (2, size.inputs, size.outputs))
    weights[0] = np.where(np.arange(size.outputs) % 2, 127, -127)  # both halves of a DSP at opposite ends
    weights[0, :, -1] = -127
    codes = random.integers(-128, 128, (2, size.inputs + 5, size.lanes, size.inputs))
    codes[0, :3] = np.array([-128, 127, 0])[:, None, None]
    dut = Multipliers(overlay)
    sums = []

    async def bench(ctx: Any) -> None:
        def load(word: int, values: np.ndarray) -> None:
            ctx.set(dut.load, 1)
            ctx.set(dut.at, word)
            for (row, output), weight in np.ndenumerate(values[word * rows : (word + 1) * rows]):
                ctx.set(dut.row[row][output], int(weight))

        for word in range(overlay.load_cycles):
            load(word, weights[0])
            await ctx.tick()
        pixels = [*codes[0], *codes[1]]
        for cycle in range(len(pixels) + sum_latency(overlay)):
            first = cycle % len(codes[0]) == 0 and cycle < len(pixels)
            ctx.set(dut.swap, int(first))
            ctx.set(dut.load, 0)
            if cycle < overlay.load_cycles:  # the words of the other pass, from the cycle of the swap on
                load(cycle, weights[1])
            for lane, i in np.ndindex(size.lanes, size.inputs):
                ctx.set(dut.codes[lane][i], int(pixels[min(cycle, len(pixels) - 1)][lane][i]))
            if cycle >= sum_latency(overlay):
                sums.append([ctx.get(dut.sums[lane][o]) for lane, o in np.ndindex(size.lanes, size.outputs)])
            await ctx.tick()

    simulate(dut, bench)
    assert np.array_equal(np.array(sums).reshape(*codes.shape[:3], size.outputs), codes @ weights[:, None])


def test_accumulators_add_in_one_bank_while_the_other_is_read() -> None:
    overlay, random = small(Size(8, 4, 1, 4, 17)), np.random.default_rng(3)
    dut = Accumulators(overlay)
    expected = np.zeros((2, 8, 4), np.int64)
    steps = [(0, pixel, turn == 0) for turn in range(3) for pixel in range(5)]
    steps += [(1, pixel, turn == 0) for turn in range(2) for pixel in range(7)]
    values = random.integers(-(1 << 17), 1 << 17, (len(steps), 4))
    values[0], values[5] = 1 << 16, -(1 << 17)
    for (bank, pixel, first), added in zip(steps, values):
        expected[bank, pixel] = added + (0 if first else expected[bank, pixel])
    sums = np.zeros_like(expected)

    async def bench(ctx: Any) -> None:
        drained: list[tuple[int, int]] = []
        reads = iter([(0, pixel) for pixel in range(5)])
        for cycle in range(len(steps) + 20):
            ctx.set(dut.enable, int(cycle < len(steps)))
            if cycle < len(steps):
                bank, pixel, first = steps[cycle]
                ctx.set(dut.bank, bank)
                ctx.set(dut.address, pixel)
                ctx.set(dut.first, int(first))
            if 1 < cycle <= len(steps) + 1:
                for output in range(4):
                    ctx.set(dut.sums[output], int(values[cycle - 2, output]))
            if len(drained) == 2:
                bank, pixel = drained.pop(0)
                sums[bank, pixel] = [ctx.get(dut.drained[output]) for output in range(4)]
            if cycle >= 14 + LATENCY:  # the last sums of the first bank are in it
                drain = next(reads, (0, 0))
                drained.append(drain)
                ctx.set(dut.drain_bank, drain[0])
                ctx.set(dut.drain_address, drain[1])
                if cycle == len(steps) + LATENCY:
                    reads = iter([(1, pixel) for pixel in range(7)])
            await ctx.tick()

    simulate(dut, bench)
    assert np.array_equal(sums[0, :5], expected[0, :5])
    assert np.array_equal(sums[1, :7], expected[1, :7])


def test_a_dsp_multiplies_two_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit too many in the packed weights would take a second DSP."""
    pytest.importorskip("pyosys", reason="the extra rtl is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "tools"))
    import synthesise

    for family, cell, size in (
        ("zynq7000", "DSP48E1", Size(8, 4, 1, 4, 17)),
        ("zynqmp", "DSP48E2", Size(8, 4, 2, 8, 18)),
    ):
        netlist = synthesise.netlist(synthesise.rtlil(Multipliers(small(size))), family, whole=False)
        assert synthesise.cells(netlist)[cell] == size.lanes * size.inputs * size.outputs // 2
