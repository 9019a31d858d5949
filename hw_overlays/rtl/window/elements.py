"""Elements: copy, eltwise, upsample and interleave, whose results are products of single codes."""

from amaranth import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..streams import later, levels, product, register
from .unit import lanes_of, unit_ports
from .walk import words_read

VALUE = signed(9)  # a code without its zero point
PRODUCT = signed(2 * 9)


class Elements(wiring.Component):
    """Values and their multipliers, in the order in which the lanes multiply and add them.

    A word takes one cycle of a copy or a product of two inputs, two of a sum or a maximum: the products of the first and of the
    second input. A leaky sum takes four: the same with the multipliers for negative sums. An upsample gives each word of a row
    ``stride_w`` times, and takes the row ``stride_h`` times. An interleave gives a word of each input in turn instead.

    ``second``  words of the second input; ``pairs`` if there is one, which is ``vector`` if it has one word for each plane
    ``times``, ``maximum``, ``repeats``  whether it is a product, a maximum, an upsample or an interleave
    ``values``  codes without their zero points, with ``multiplier``; ``more`` if the product is added to the last one
    ``valid``   the result is complete; ``aside`` if it is one of two, of which the other one follows
    """

    def __init__(self, overlay: Overlay) -> None:
        self.lanes = lanes_of(overlay)
        self.has_products = "operation" in overlay.descriptor.values
        self.has_spread = "spread" in overlay.descriptor.values
        factor = signed(overlay.requant.mult_bits + 1)
        super().__init__(
            unit_ports(overlay)
            | {
                "second": In(stream.Signature(8 * self.lanes)),
                **dict.fromkeys(("pairs", "vector", "times", "maximum", "repeats"), In(1)),
                "values": Out(data.ArrayLayout(PRODUCT, self.lanes)),
                "multiplier": Out(factor),
                "more": Out(1),
                "aside": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of words and products, and the choice of what is multiplied."""
        m = Module()
        task = self.task
        words, busy = register(29, "words"), Signal()
        turn, last = Signal(3), register(3, "last")  # products of a word, or copies
        times_left = register(task.stride_h.shape(), "times_left")  # of a row of an upsample, this time included
        last_word, last_time, below = (register(1, name) for name in ("last_word", "last_time", "below"))
        # of a word: its first and its last cycle; and those in which a result begins, which needs room
        begins, ends, opens = (register(1, name) for name in ("begins", "ends", "opens"))
        there, goes = Signal(), Signal()
        products = Mux(self.pairs & ~self.times, Mux(task.leaky & ~self.maximum, 3, 1), 0)
        m.d.sync += last.eq(Mux(self.repeats, task.stride_w - 1, products))
        count = later(m, Mux(self.repeats, task.input_width, words_read(task)), "count")
        single = later(m, last == 0, "single")
        one_word, once = later(m, count == 1, "one_word"), later(m, ~self.repeats | (task.stride_h == 1), "once")
        # products of a word follow each other without a gap: there is a word, or two, when the first one begins
        m.d.comb += [
            there.eq(self.first.valid & (self.second.valid | ~self.pairs)),
            goes.eq(busy & (~opens | (there & self.room))),
            self.ready.eq(~busy),
            self.starved.eq(busy & ~there & opens),
            self.held.eq(busy & opens & ~self.room),
            self.works.eq(goes),
            self.claim.eq(goes & opens),
            self.first.ready.eq(busy & ends & (~opens | (self.room & (self.second.valid | ~self.pairs)))),
            self.second.ready.eq(goes & ends & self.pairs & (~self.vector | last_word)),
        ]
        with m.If(goes):
            m.d.sync += [turn.eq(Mux(ends, 0, turn + 1)), begins.eq(ends), ends.eq(Mux(ends, single, turn + 1 == last))]
            m.d.sync += opens.eq(ends | self.repeats)
            with m.If(ends):
                m.d.sync += [words.eq(words - 1), last_word.eq(words == 2)]
                with m.If(last_word):
                    m.d.sync += [words.eq(count), last_word.eq(one_word), below.eq(1), busy.eq(~last_time)]
                    m.d.sync += [times_left.eq(times_left - 1), last_time.eq(times_left == 2)]
        with m.If(self.start):
            m.d.sync += [
                words.eq(count),
                last_word.eq(one_word),
                below.eq(0),
                busy.eq(1),
                begins.eq(1),
                ends.eq(single),
            ]
            m.d.sync += opens.eq(1)
            m.d.sync += [times_left.eq(task.stride_h), last_time.eq(once)]

        # -- the lanes' operands, some cycles later
        blank = (task.spread & self.repeats & (~begins | below)) if self.has_spread else Const(0)
        delay = 1 + (levels(Signal(VALUE)) if self.has_products else 0)
        second = turn[0] & self.pairs
        for channel in range(self.lanes):
            codes = (stream.payload.word_select(channel, 8) for stream in (self.first, self.second))
            values = [value(code, zero) for code, zero in zip(codes, (task.input_zero, task.second_zero))]
            x = later(m, Mux(blank, 0, Mux(second, values[1], values[0])).as_signed(), f"x_{channel}")
            if self.has_products:
                y = later(m, Mux(self.times, values[1], 1).as_signed(), f"y_{channel}")
                x = product(m, x, y, PRODUCT.width, f"product_{channel}").as_signed()
            m.d.comb += self.values[channel].eq(x)
        factors = Array([task.factor, task.second_factor, task.negative, task.second_negative])
        m.d.comb += [
            self.multiplier.eq(later(m, factors[Mux(self.repeats, 0, turn[:2])], "multiplier_later", delay)),
            self.more.eq(later(m, turn[0] & ~self.repeats & ~self.maximum, "more_later", delay)),
        ]
        aside = Mux(self.maximum, begins, (turn == 1) & ~ends & ~self.repeats)
        for name, now in (("valid", goes & (ends | self.repeats)), ("aside", goes & aside)):
            delayed = Signal(delay, name=f"{name}_delayed")
            m.d.sync += delayed.eq(Cat(now, delayed))
            m.d.comb += getattr(self, name).eq(delayed[-1])
        return m


def value(code: Value, zero: Value) -> Value:
    """Return a code without its zero point, 0 or -128: code + 128 is its other 7 bits, and its sign inverted."""
    return Cat(code[:7], code[7] ^ zero, code[7] & ~zero).as_signed()
