"""Elements: copy and eltwise, whose results are products of single codes."""

from amaranth import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..ports import BEAT
from ..streams import register
from .unit import unit_ports


class Elements(wiring.Component):
    """Values and their multipliers, in the order in which the lanes multiply and add them.

    A word takes one cycle of a copy, two of an eltwise: the products of the first and of the second input. A leaky eltwise
    takes four: the same with the multipliers for negative sums.

    ``second``  words of the second input; ``pairs`` if there is one
    ``values``  codes without their zero points, with ``multiplier``; ``more`` if the product is added to the last one
    ``valid``   the result is complete; ``aside`` if it is that of sums that are not negative, and the other one follows
    """

    def __init__(self, overlay: Overlay) -> None:
        self.step = overlay.layout.channels_per_word
        factor = signed(overlay.requant.mult_bits + 1)
        super().__init__(
            unit_ports(overlay)
            | {
                "second": In(stream.Signature(8 * self.step)),
                "pairs": In(1),
                "values": Out(data.ArrayLayout(signed(9), self.step)),
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
        product, last = Signal(2), Signal(2)
        last_word, there = register(1, "last_word"), Signal()
        begins, ends = product == 0, product == last
        # products of a word follow each other without a gap: there is a word, or two, when the first one begins
        m.d.comb += there.eq(self.first.valid & (self.second.valid | ~self.pairs))
        m.d.sync += last.eq(Mux(self.pairs, Mux(task.leaky, 3, 1), 0))
        m.d.comb += [
            self.ready.eq(~busy),
            self.starved.eq(busy & ~there & begins),
            self.held.eq(busy & begins & ~self.room),
            self.works.eq(busy & (~begins | (there & self.room))),
            self.claim.eq(self.works & begins),
            self.first.ready.eq(self.works & ends),
            self.second.ready.eq(self.works & ends & self.pairs),
            self.valid.eq(self.works & ends),
            self.aside.eq(self.works & (product == 1) & ~ends),
            self.more.eq(product[0]),
            self.multiplier.eq(Array([task.factor, task.second_factor, task.negative, task.second_negative])[product]),
        ]
        with m.If(self.works):
            m.d.sync += product.eq(Mux(ends, 0, product + 1))
            with m.If(ends):
                m.d.sync += [words.eq(words - 1), last_word.eq(words == 2), busy.eq(~last_word)]
        with m.If(self.start):
            count = task.input_pitch // BEAT
            m.d.sync += [words.eq(count), last_word.eq(count == 1), busy.eq(1)]

        word = Mux(product[0], self.second.payload, self.first.payload)
        zero = Mux(product[0], task.second_zero, task.input_zero)
        for channel in range(self.step):
            code = word.word_select(channel, 8)
            sign = code[7] & ~zero  # code + 128 = the code's other 7 bits, and its sign inverted
            m.d.comb += self.values[channel].eq(Cat(code[:7], code[7] ^ zero, sign).as_signed())
        return m
