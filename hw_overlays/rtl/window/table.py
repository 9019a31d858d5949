"""The records of requantisation of an average: one for each window of a plane, in the order of the windows."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import PAD, table_record

RECORDS = 512  # on the chip: the depth of a block RAM of 72 bits
BEATS = 2  # of a record


class Table(wiring.Component):
    """A queue of records, or, if those of a plane fit, a memory that is read anew for each plane.

    ``begin``    empties it for a Task with ``count`` records a plane; ``keeps`` if they stay
    ``beat``     half a record, with ``write``
    ``there``    1 if there is a record that is not yet claimed; ``claim`` claims it
    ``read``     gives the next claimed record in the cycle after
    ``freed``    1 in each cycle in which room for one more record is made
    """

    def __init__(self, overlay: Overlay) -> None:
        self.layout = table_record(overlay)
        self.fields = {name: field.shape for name, field in self.layout if not name.startswith(PAD)}
        super().__init__(
            {
                "begin": In(1),
                "count": In(30),
                "keeps": In(1),
                "beat": In(64),
                "write": In(1),
                "there": Out(1),
                "claim": In(1),
                "read": In(1),
                "record": Out(data.StructLayout(self.fields)),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the memory and its pointers."""
        m = Module()
        m.submodules.records = records = memory.Memory(shape=data.StructLayout(self.fields), depth=RECORDS, init=[])
        write, read = records.write_port(), records.read_port()
        count, keeps = Signal(30), Signal()
        first, second = Signal(64), Signal()  # the first half of a record, and whether it is there
        there, claimed = Signal(range(RECORDS + 1)), Signal(range(RECORDS + 1))
        arrives = self.write & second
        whole = data.View(self.layout, Cat(first, self.beat))
        begins_anew = keeps & (claimed == count - 1)
        m.d.comb += [
            write.en.eq(arrives),
            *(write.data[name].eq(whole[name]) for name in self.fields),
            read.en.eq(self.read),
            self.record.eq(read.data),
            self.there.eq(there.any()),
            self.freed.eq(self.read & ~keeps),
        ]
        with m.If(self.write):
            m.d.sync += [second.eq(~second), first.eq(self.beat)]
        with m.If(arrives):
            m.d.sync += write.addr.eq(write.addr + 1)
        m.d.sync += there.eq(there + arrives - self.claim)
        with m.If(self.claim):
            m.d.sync += claimed.eq(claimed + 1)
            with m.If(begins_anew):  # by then all are there
                m.d.sync += [claimed.eq(0), there.eq(count)]
        with m.If(self.read):
            m.d.sync += read.addr.eq(Mux(keeps & (read.addr == count - 1), 0, read.addr + 1))
        with m.If(self.begin):
            m.d.sync += [count.eq(self.count), keeps.eq(self.keeps), second.eq(0), there.eq(0), claimed.eq(0)]
            m.d.sync += [write.addr.eq(0), read.addr.eq(0)]
        return m
