"""Requantisation in hardware: sums to codes, bit for bit as ``chai.fixed.requantize``, and through a table of codes.

A lane has one DSP: ``v = sum + bias``; ``value = v * multiplier``, plus the products before it while ``more``;
``code = clamp(((value + R - (value < 0)) >> shift) + zero)`` with ``R = 2^(shift - 1)``, 0 for no shift.
What is added before the shift is one of two words of the Task, R and R - 1, chosen by the sign. At shift 0 both are 0.

A wide sum has more bits than the DSP multiplies, so it comes in two cycles: ``(v mod 2^17) * multiplier``, then, with ``more``,
``(v >> 17) * multiplier`` plus the upper bits of that, whose lower 17 bits are those of the value.
"""

from amaranth import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from . import lookup
from .streams import later, register

CLAMPED = 9  # cycles from ``sums`` to the codes after the clamp
LATENCY = CLAMPED + lookup.LATENCY  # cycles from ``sums`` to the ``codes`` they give
LOW = 17  # bits of the lower part of a wide sum

# fixed for a Task: it changes only while no sum is between ``sums`` and ``codes``
RULE = data.StructLayout(
    {
        "shift": 6,
        "leaky": 1,  # a negative sum is multiplied by ``negative``
        "zero": 1,  # the output's zero point: 1 for -128
        "wide": 1,  # sums come in two cycles, the second with ``more``; of lanes that have the bits
        "low": signed(8),
        "high": signed(8),
    }
)
NIBBLES = 16  # that a value may be shifted by
SATURATED = signed(10)  # beyond it every code is clamped, whatever the zero point


class Requantise(wiring.Component):
    """``lanes`` sums into as many codes, a new set every cycle, ``LATENCY`` cycles later.

    ``sums``, ``bias``  signed, of ``bits``, as is the true sum of both; beyond the manifest's ``accumulator_bits`` if it is wide
    ``multiplier``, ``negative``  signed, one bit more than the manifest's ``mult_bits``; negative: of sums below 0, if leaky
    ``more``            this product is added to that of the cycle before; of a wide sum, it is that of the upper bits
    ``choice``          the table that the codes of these sums go through; ``entries`` of tables are written
    ``codes``, ``below``  the codes, and whether their values were negative
    """

    def __init__(self, overlay: Overlay, lanes: int, bits: int) -> None:
        self.overlay, self.lanes, self.bits = overlay, lanes, bits
        sums = data.ArrayLayout(signed(bits), lanes)
        multipliers = data.ArrayLayout(signed(overlay.requant.mult_bits + 1), lanes)
        super().__init__(
            {
                "rule": In(RULE),
                "sums": In(sums),
                "bias": In(sums),
                "multiplier": In(multipliers),
                "negative": In(multipliers),
                "more": In(1),
                "choice": In(lookup.CHOICE),
                "entries": In(lookup.ENTRIES),
                "codes": Out(data.ArrayLayout(signed(8), lanes)),
                "below": Out(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the lanes, and the words and the delay that they share."""
        m = Module()
        bits = range(1, self.overlay.requant.shift_max + 1)
        half = later(m, Cat(self.rule.shift == bit for bit in bits), "half")  # R: one bit, or none
        less = later(m, Cat(self.rule.shift > bit for bit in bits), "less")  # R - 1: those below it
        # before the zero point is added
        beyond = later(m, Cat(self.rule.shift[2:] <= i for i in range(NIBBLES)), "beyond")
        limits = {name: later(m, self.rule[name] + (self.rule.zero << 7), f"limit_{name}") for name in ("low", "high")}
        upper = later(m, self.more, "more")  # with the register before the DSP's first
        more = later(m, upper, "more_later", 2)  # with the one before its last
        m.submodules.lookup = tables = lookup.Lookup(self.overlay, self.lanes)
        choice = later(m, self.choice.as_value(), "choice", CLAMPED)
        m.d.comb += [tables.entries.eq(self.entries), tables.choice.eq(choice)]
        for i in range(self.lanes):
            m.submodules[f"lane_{i}"] = lane = Lane(self.overlay, self.bits)
            m.d.comb += [lane.rule.eq(self.rule), lane.half.eq(half), lane.less.eq(less), lane.beyond.eq(beyond)]
            m.d.comb += [lane.upper.eq(upper), lane.more.eq(more)]
            m.d.comb += [lane.lowest.eq(limits["low"]), lane.highest.eq(limits["high"])]
            m.d.comb += [lane.sum.eq(self.sums[i]), lane.bias.eq(self.bias[i])]
            m.d.comb += [lane.multiplier.eq(self.multiplier[i]), lane.negative.eq(self.negative[i])]
            m.d.comb += [
                tables.codes[i].eq(lane.code),
                self.codes[i].eq(tables.results[i]),
                self.below[i].eq(lane.below),
            ]
        return m


class Lane(wiring.Component):
    """One sum into one code.

    ``half``, ``less``  what is added before the shift
    ``beyond``  which of a value's nibbles after the lowest 9 bits are beyond a code's bits after the shift
    ``lowest``, ``highest``  the limits of codes before the zero point is added
    ``upper``, ``more`` that of the sums one and three cycles late
    """

    def __init__(self, overlay: Overlay, bits: int) -> None:
        sum, factor = signed(bits), signed(overlay.requant.mult_bits + 1)
        self.factor = signed(overlay.accumulator_bits)  # as the DSP multiplies
        self.product = signed(self.factor.width + factor.width)
        word = unsigned(overlay.requant.shift_max)
        members = {"rule": In(RULE), "half": In(word), "less": In(word), "sum": In(sum), "bias": In(sum)}
        members |= {"upper": In(1), "more": In(1), "beyond": In(NIBBLES)}
        members |= {"lowest": In(SATURATED), "highest": In(SATURATED)}
        members |= {"multiplier": In(factor), "negative": In(factor), "code": Out(signed(8)), "below": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Return the adder, the DSP, the rounding, the shift and the clamp, each with its register."""
        m = Module()
        rule = self.rule
        v = register(self.sum.shape(), "v")
        above, below = later(m, self.multiplier, "above"), later(m, self.negative, "under")
        m.d.sync += v.eq(self.sum + self.bias)

        # the DSP: its registers A and B, M, P
        a, b = register(self.factor, "a"), register(above.shape(), "b")
        product, value = register(self.product, "product"), register(signed(self.product.width + 1), "value")
        m.d.sync += [a.eq(v), b.eq(Mux(rule.leaky & (v < 0), below, above)), product.eq(a * b)]
        whole = value
        if len(v) > len(a):
            low = later(m, value[:LOW], "low")
            whole = Signal(signed(len(v) + len(b) + 1))
            with m.If(rule.wide):
                m.d.sync += a.eq(Mux(self.upper, v >> LOW, v[:LOW]))
            m.d.comb += whole.eq(Mux(rule.wide, Cat(low, value).as_signed(), value))
            m.d.sync += value.eq(product + Mux(self.more & rule.wide, value >> LOW, 0))
        else:
            m.d.sync += value.eq(product + Mux(self.more, value, 0))

        # two bits of the shift a cycle: each bit is one of four; ``large`` if the bits beyond a code's are not all its sign
        rounded, fine, coarse = (register(whole.shape(), name) for name in ("rounded", "fine", "coarse"))
        shifted, clamped, large = register(SATURATED, "shifted"), register(signed(8), "clamped"), register(1, "large")
        bits, sign = SATURATED.width - 1, coarse[-1]
        nibbles = [fine[i : i + 4] for i in range(bits, len(fine) - 1, 4)]
        mixed = Cat(Mux(fine[-1], ~nibble.all(), nibble.any()) for nibble in nibbles)
        m.d.sync += [
            rounded.eq(whole + Mux(value < 0, self.less, self.half)),
            fine.eq(rounded >> rule.shift[:2]),
            coarse.eq(fine >> Cat(Const(0, 2), rule.shift[2:4])),
            large.eq((mixed & self.beyond).any()),
            shifted.eq(
                Cat(Mux(large, ~sign.replicate(bits), (coarse >> Cat(Const(0, 4), rule.shift[4:]))[:bits]), sign)
            ),
        ]
        code = shifted[:8] ^ (rule.zero << 7)  # within the limits, the zero point only inverts the sign
        with m.If(shifted < self.lowest):
            m.d.sync += clamped.eq(rule.low)
        with m.Elif(shifted > self.highest):
            m.d.sync += clamped.eq(rule.high)
        with m.Else():
            m.d.sync += clamped.eq(code)
        sign = later(m, value < 0, "sign", 5 + lookup.LATENCY)  # of the value, until its code is there
        m.d.comb += [self.code.eq(clamped), self.below.eq(sign)]
        return m
