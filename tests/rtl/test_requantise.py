"""The requantisation lanes against ``chai.fixed.requantize``: ties of both signs, every shift, zero points, leaky, pairs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from chai import overlay
from chai.fixed import Requantization, requantize

pytest.importorskip("amaranth")

from amaranth.sim import Simulator

from chai.hw_overlays.rtl.requantise import LATENCY, Requantise

OVERLAY = overlay.load()
LANES = 3
LARGEST = OVERLAY.accumulator_bound - 1
MULTIPLIER = (1 << OVERLAY.requant.mult_bits) - 1
Array = np.ndarray


@cache  # an elaboration takes longer than what is simulated
def simulated(wide: bool) -> tuple[Simulator, dict[str, Any]]:
    """Lanes, and the values that enter them after a reset; ``codes`` and ``below`` are what comes out."""
    dut = Requantise(OVERLAY, LANES, OVERLAY.array_bits if wide else OVERLAY.accumulator_bits)
    values: dict[str, Any] = {}

    async def bench(ctx: Any) -> None:
        for name, value in values["rule"].items():
            ctx.set(getattr(dut.rule, name), value)
        await ctx.tick().repeat(2)
        count = len(values["more"])
        for i in range(count + LATENCY):
            if i < count:
                for lane in range(LANES):
                    for name in ("sums", "bias", "multiplier", "negative"):
                        ctx.set(getattr(dut, name)[lane], int(values[name][i, lane]))
                ctx.set(dut.more, int(values["more"][i]))
            if i >= LATENCY:
                values["codes"].append([ctx.get(dut.codes[lane]) for lane in range(LANES)])
                values["below"].append([ctx.get(dut.below) >> lane & 1 for lane in range(LANES)])
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    return simulator, values


def run(
    rule: dict[str, int], sums: Array, bias: Array, multiplier: Array, negative: Array, more: Array, wide: bool = False
) -> tuple[Array, Array]:
    """Codes and signs (n, lanes) of sums and multipliers (n, lanes) that enter one after the other, into ``wide`` lanes."""
    simulator, values = simulated(wide)
    if values:  # of a run before
        simulator.reset()
    values |= {"rule": rule, "sums": sums, "bias": bias, "multiplier": multiplier, "negative": negative, "more": more}
    values |= {"codes": [], "below": []}
    simulator.run()
    return np.array(values["codes"]), np.array(values["below"], bool)


def hard_sums(random: np.random.Generator, shift: int, most: int = LARGEST) -> tuple[Array, Array, Array, Array]:
    """Sums, biases and multipliers (n, lanes): random magnitudes, the extremes, and values that end in exactly a half."""
    shape = 36, LANES
    sums = random.integers(-most, most + 1, shape) >> random.integers(0, 25, shape)
    bias = random.integers(-most, most + 1, shape) >> random.integers(0, 25, shape)
    multiplier, negative = (random.integers(0, MULTIPLIER + 1, shape) for _ in range(2))
    sums[0], bias[0], multiplier[0], negative[0] = [most, -most, 0], 0, MULTIPLIER, MULTIPLIER
    if shift:  # odd multiples of 2^(shift - 1), while sum and multiplier can make them
        ones = min(shift - 1, OVERLAY.requant.mult_bits - 1)
        odd = 2 * random.integers(-64, 64, (18, LANES)) + 1
        ties = odd << min(shift - 1 - ones, 16)
        multiplier[1:19] = negative[1:19] = 1 << ones
        bias[1:19] = random.integers(-5000, 5000, ties.shape)
        sums[1:19] = ties - bias[1:19]
    sums = np.where(np.abs(sums + bias) > most, sums // 2, sums)
    bias = np.where(np.abs(sums + bias) > most, 0, bias)
    return sums, bias, multiplier, negative


def cases(shift: int) -> tuple[np.random.Generator, dict[str, int], int]:
    """A seed, a rule with this shift, and its zero point."""
    zero = -128 * (shift // 2 % 2)
    low, high = [(-128, 127), (zero, 127), (zero, zero + 31)][shift % 3]
    rule = {"shift": shift, "leaky": shift % 2, "zero": int(zero != 0), "low": low, "high": high}
    return np.random.default_rng(shift), rule, zero


@pytest.mark.parametrize("shift", range(OVERLAY.requant.shift_max + 1))
def test_wide_sums_take_two_cycles(shift: int) -> None:
    """Among them sums that are lowered by one or not at all in either part: -1, 2^17 - 1, 2^17, -2^17 and the ends."""
    random, rule, zero = cases(shift)
    most = OVERLAY.array_bound - 1
    arrays = hard_sums(random, shift, most)
    arrays[0][19:25] = np.array([-1, (1 << 17) - 1, 1 << 17, -1 << 17, most, -most])[:, None]
    arrays[1][19:25] = 0
    sums, bias, multiplier, negative = arrays
    arrays = [np.repeat(array, 2, 0) for array in arrays]
    codes, below = run({**rule, "wide": 1}, *arrays, np.arange(2 * len(sums)) % 2, wide=True)
    r = Requantization(multiplier, shift, rule["low"], rule["high"], negative if rule["leaky"] else None, zero)
    assert (codes[1::2] == requantize(sums + bias, r)).all()
    value = (sums + bias) * np.where((sums + bias < 0) & bool(rule["leaky"]), negative, multiplier)
    assert (below[1::2] == (value < 0)).all()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("shift", range(OVERLAY.requant.shift_max + 1))
def test_codes_are_those_of_the_fixed_point_definition(shift: int, wide: bool) -> None:
    """In lanes for wide sums as well, where ``more`` means nothing to a narrow one."""
    random, rule, zero = cases(shift)
    leaky, low, high = rule["leaky"], rule["low"], rule["high"]
    sums, bias, multiplier, negative = hard_sums(random, shift)
    more = random.integers(0, 2, len(sums)) * wide
    codes, below = run(rule, sums, bias, multiplier, negative, more, wide)
    r = Requantization(multiplier, shift, low, high, negative if leaky else None, zero)
    assert (codes == requantize(sums + bias, r)).all()
    value = (sums + bias) * np.where((sums + bias < 0) & bool(leaky), negative, multiplier)
    assert (below == (value < 0)).all()


def test_products_of_signed_factors_are_summed_before_they_are_rounded() -> None:
    """An eltwise: x * factor, then y * second_factor with ``more``."""
    random = np.random.default_rng(0)
    shift, zero, pairs = 9, -128, 60
    values = random.integers(-128, 256, (2 * pairs, LANES))
    factors = random.integers(-MULTIPLIER - 1, MULTIPLIER + 1, (2 * pairs, LANES)) >> random.integers(
        0, 14, (2 * pairs, 1)
    )
    factors[:20] = [[1 << shift - 1, -1 << shift - 1, 0]]  # ties
    more = np.arange(2 * pairs) % 2
    rule = {"shift": shift, "leaky": 0, "zero": 1, "low": -128, "high": 127}
    bias = np.where(random.integers(0, 2, values.shape), 128, 0)
    codes, below = run(rule, values - bias, bias, factors, np.zeros_like(factors), more)
    totals = (values * factors).reshape(pairs, 2, LANES).sum(1)
    r = Requantization(np.array(1), shift, -128, 127, zero=zero)
    assert (codes[1::2] == requantize(totals, r)).all()
    assert (below[1::2] == (totals < 0)).all()
