"""Whole: the maximum or the sum of a plane, in a register of its own."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from chai.overlay import Overlay

from ..streams import later, register
from .reduce import combined
from .unit import lanes_of, unit_ports
from .walk import words_read


class Whole(wiring.Component):
    """Global pooling: one result a plane, ``sums`` with ``valid``; ``soon`` is 1 in the cycle before."""

    def __init__(self, overlay: Overlay) -> None:
        self.lanes = lanes_of(overlay)
        self.sum = signed(overlay.accumulator_bits)
        super().__init__(unit_ports(overlay) | {"soon": Out(1), "sums": Out(data.ArrayLayout(self.sum, self.lanes))})

    def elaborate(self, platform: object) -> Module:
        """Return the register and the counter of words."""
        m = Module()
        words, begun = register(29, "words"), register(1, "begun")
        busy, last = Signal(), register(1, "last")
        totals = register(self.sums.shape(), "totals")
        count = later(m, words_read(self.task), "count")
        one_word = later(m, count == 1, "one_word")
        m.d.comb += [
            self.sums.eq(totals),
            self.ready.eq(~busy),
            self.starved.eq(busy & ~self.first.valid),
            self.held.eq(busy & last & ~self.room),
            self.works.eq(busy & self.first.valid & (~last | self.room)),
            self.first.ready.eq(busy & (~last | self.room)),
            self.claim.eq(self.works & last),
            self.soon.eq(self.claim),
        ]
        m.d.sync += self.valid.eq(self.claim)
        with m.If(self.works):
            m.d.sync += [words.eq(words - 1), begun.eq(1), last.eq(words == 2), busy.eq(~last)]
            for channel in range(self.lanes):
                code = self.first.payload.word_select(channel, 8).as_signed()
                total = totals[channel]
                m.d.sync += total.eq(Mux(begun, combined(self.task.average, total, code), code))
        with m.If(self.start):
            m.d.sync += [words.eq(count), begun.eq(0), last.eq(one_word), busy.eq(1)]
        return m
