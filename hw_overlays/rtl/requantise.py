"""Requantisation in hardware: sums to codes, bit for bit as ``chai.fixed.requantize``.

A lane has one DSP: ``v = sum + bias``; ``value = v * multiplier``, plus the products before it while ``more``;
``code = clamp(((value + R - (value < 0)) >> shift) + zero)`` with ``R = 2^(shift - 1)``, 0 for no shift.
What is added before the shift is one of two words of the Task, R and R - 1, chosen by the sign. At shift 0 both are 0.
"""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

LATENCY = 8  # cycles from ``sums`` to the ``codes`` they give

# fixed for a Task: it changes only while no sum is between ``sums`` and ``codes``
RULE = data.StructLayout(
    {
        "shift": 6,
        "leaky": 1,  # a negative sum is multiplied by ``negative``
        "zero": 1,  # the output's zero point: 1 for -128
        "low": signed(8),
        "high": signed(8),
    }
)
SATURATED = signed(10)  # beyond it every code is clamped, whatever the zero point


class Requantise(wiring.Component):
    """``lanes`` sums into as many codes, a new set every cycle, ``LATENCY`` cycles later.

    ``sums``, ``bias``  signed, of the manifest's ``accumulator_bits``, as is the true sum of both
    ``multiplier``, ``negative``  signed, one bit more than the manifest's ``mult_bits``; negative: of sums below 0, if leaky
    ``more``            this product is added to that of the cycle before
    ``codes``, ``below``  the codes, and whether their values were negative
    """

    def __init__(self, overlay: Overlay, lanes: int) -> None:
        self.lanes = lanes
        self.product_bits = overlay.accumulator_bits + overlay.requant.mult_bits + 1
        self.shift_max = overlay.requant.shift_max
        sums = data.ArrayLayout(signed(overlay.accumulator_bits), lanes)
        multipliers = data.ArrayLayout(signed(overlay.requant.mult_bits + 1), lanes)
        super().__init__(
            {
                "rule": In(RULE),
                "sums": In(sums),
                "bias": In(sums),
                "multiplier": In(multipliers),
                "negative": In(multipliers),
                "more": In(1),
                "codes": Out(data.ArrayLayout(signed(8), lanes)),
                "below": Out(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the lanes, and the words and the delays that they share."""
        m = Module()
        half = Signal(self.shift_max)  # R: one bit, or none
        less = Signal(self.shift_max)  # R - 1
        m.d.sync += [
            half.eq((1 << self.rule.shift) >> 1),
            less.eq(((1 << self.rule.shift) >> 1) - self.rule.shift.any()),
        ]
        more = [self.more]  # with the DSP's registers
        for i in range(3):
            more.append(Signal(name=f"more_{i}"))
            m.d.sync += more[-1].eq(more[-2])
        for i in range(self.lanes):
            self._lane(m, i, half, less, more[-1])
        return m

    def _lane(self, m: Module, i: int, half: Signal, less: Signal, more: Signal) -> None:
        rule = self.rule

        def register(name: str, value: object, shape: object) -> Signal:
            """Return ``value`` a cycle later."""
            signal = Signal(shape, name=f"{name}_{i}")
            m.d.sync += signal.eq(value)
            return signal

        wide = signed(self.product_bits + 1)
        v = register("v", self.sums[i] + self.bias[i], self.sums[i].shape())
        above = register("above", self.multiplier[i], self.multiplier[i].shape())
        below = register("below", self.negative[i], self.negative[i].shape())
        # the DSP: registers A and B, M, P
        a = register("a", v, v.shape())
        b = register("b", Mux(rule.leaky & (v < 0), below, above), above.shape())
        product = register("product", a * b, signed(self.product_bits))
        value = Signal(wide, name=f"value_{i}")
        m.d.sync += value.eq(product + Mux(more, value, 0))

        rounded = register("rounded", value + Mux(value < 0, less, half), wide)
        fine = register("fine", rounded >> rule.shift[:3], wide)
        coarse = Signal(wide, name=f"coarse_{i}")
        m.d.comb += coarse.eq(fine >> Cat(0, 0, 0, rule.shift[3:]))
        shifted = register("shifted", saturated(coarse, SATURATED), SATURATED)
        code = shifted - (rule.zero << 7)
        clamped = Mux(code < rule.low, rule.low, Mux(code > rule.high, rule.high, code[:8].as_signed()))
        m.d.sync += self.codes[i].eq(clamped)
        sign = value < 0
        for stage in range(3):
            sign = register(f"sign_{stage}", sign, 1)
        m.d.sync += self.below[i].eq(sign)


def saturated(value: Signal, shape: object) -> object:
    """Return a signed value within the range of a narrower signed shape."""
    bits = len(Signal(shape))
    rest = value[bits - 1 :]
    fits = rest.all() | ~rest.any()
    return Mux(fits, value[:bits].as_signed(), Mux(value < 0, -(1 << (bits - 1)), (1 << (bits - 1)) - 1))
