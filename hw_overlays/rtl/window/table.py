"""The records of requantisation of an average: one for each window of a plane, in the order of the windows."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import table_fields, table_record
from ..streams import later, register

RECORDS = 512  # on the chip: the depth of a block RAM of 72 bits
BEATS = 2  # of a record


class Table(wiring.Component):
    """A queue of records, or, if those of a plane fit, a memory that is read anew for each plane.

    ``begin``    empties it for a Task with ``count`` records a plane; ``keeps`` if they stay
    ``beat``     half a record, with ``write``
    ``there``    1 if there is a record that is not yet claimed, ``two_there`` for two; ``claim`` claims one
    ``read``     gives the next claimed record two cycles later
    ``freed``    1 in each cycle in which room for one more record is made
    """

    def __init__(self, overlay: Overlay) -> None:
        self.layout = table_record(overlay)
        self.fields = table_fields(overlay, overlay.accumulator_bits)
        super().__init__(
            {
                "begin": In(1),
                "count": In(30),
                "keeps": In(1),
                "beat": In(64),
                "write": In(1),
                "there": Out(1),
                "two_there": Out(1),
                "claim": In(1),
                "read": In(1),
                "record": Out(self.fields),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the memory and its pointers."""
        m = Module()
        m.submodules.records = records = memory.Memory(shape=self.fields, depth=RECORDS, init=[])
        write, read = records.write_port(), records.read_port()
        count, keeps = register(30, "count"), register(1, "keeps")
        first, second = register(64, "first"), Signal()  # the first half of a record, and whether it is there
        there, claimed = Signal(range(RECORDS + 1)), Signal(range(RECORDS + 1))  # a cycle before the last one
        claim = later(m, self.claim, "claim_later")
        arrives = self.write & second
        whole = data.View(self.layout, Cat(first, self.beat))
        last = later(m, (count - 1)[: len(claimed)], "last")  # of the records that stay: they are few
        two, three = there[1:].any(), there[2:].any() | there[:2].all()
        # the next claim is that of the last record that stays: the one after it is the first again
        one = later(m, keeps & (count == 1), "one")
        begins_anew, before_last = register(1, "begins_anew"), later(m, (count - 2)[: len(claimed)], "before_last")
        m.d.comb += [
            write.en.eq(arrives),
            *(write.data[name].eq(whole[name]) for name in self.fields.members),
            read.en.eq(self.read),
            self.record.as_value().eq(later(m, read.data.as_value(), "record_read")),  # the memory's output register
            self.there.eq(Mux(claim, two, there.any())),
            self.two_there.eq(Mux(claim, three, two)),
            self.freed.eq(self.read & ~keeps),
        ]
        with m.If(self.write):
            m.d.sync += [second.eq(~second), first.eq(self.beat)]
        with m.If(arrives):
            m.d.sync += write.addr.eq(write.addr + 1)
        m.d.sync += there.eq(there + arrives - claim)
        with m.If(claim):
            m.d.sync += [claimed.eq(claimed + 1), begins_anew.eq(keeps & (claimed == before_last))]
            with m.If(begins_anew):  # by then all are there
                m.d.sync += [claimed.eq(0), there.eq(count), begins_anew.eq(one)]
        with m.If(self.read):
            m.d.sync += read.addr.eq(Mux(keeps & (read.addr == last), 0, read.addr + 1))
        with m.If(later(m, self.begin, "begins", 2)):  # no record is there yet
            m.d.sync += begins_anew.eq(one)
        with m.If(self.begin):
            m.d.sync += [count.eq(self.count), keeps.eq(self.keeps), second.eq(0), there.eq(0), claimed.eq(0)]
            m.d.sync += [write.addr.eq(0), read.addr.eq(0)]
        return m
