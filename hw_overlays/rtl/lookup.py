"""Tables of codes after the lanes: any function of one code, a table of 256 codes for each of two Tasks.

A beat of a table has 8 codes, as in memory: that of code c is byte c + 128. Each lane has a copy, a RAM of LUTs: it reads
8 codes, then chooses one.
"""

from amaranth import Cat, Module, Mux, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from .ports import BEAT
from .streams import register

LATENCY = 2  # cycles from a code to what it becomes
CODES = 256
BEATS = CODES // BEAT  # of a table

# a beat of a table that has arrived: which one, and of which of two tables
ENTRIES = data.StructLayout({"write": 1, "bank": 1, "beat": range(BEATS), "codes": unsigned(8 * BEAT)})
# which table codes go through, if ``looks``
CHOICE = data.StructLayout({"looks": 1, "bank": 1})


def has_lookups(overlay: Overlay) -> bool:
    """Return whether the codes of some kinds of Task may go through tables."""
    return "lookup" in overlay.descriptor.values


class Lookup(wiring.Component):
    """``codes`` become ``results``, a new set every cycle, ``LATENCY`` cycles later.

    ``entries``  written into the tables: two cycles later they can be read
    ``choice``   the table of these codes
    """

    def __init__(self, overlay: Overlay, lanes: int) -> None:
        self.tables, self.lanes = has_lookups(overlay), lanes
        codes = data.ArrayLayout(signed(8), lanes)
        super().__init__({"entries": In(ENTRIES), "codes": In(codes), "choice": In(CHOICE), "results": Out(codes)})

    def elaborate(self, platform: object) -> Module:
        """Return a memory and a choice for each lane; only a delay if no kind has tables."""
        m = Module()
        entries, choice = register(ENTRIES, "entries"), register(CHOICE, "choice")
        m.d.sync += [entries.eq(self.entries), choice.eq(self.choice)]
        for i in range(self.lanes):
            code, result = register(8, f"code_{i}"), register(8, f"result_{i}")
            m.d.sync += [code.eq(self.codes[i]), result.eq(code)]
            m.d.comb += self.results[i].eq(result)
            if self.tables:
                ram = memory.Memory(
                    shape=unsigned(8 * BEAT), depth=2 * BEATS, init=[], attrs={"ram_style": "distributed"}
                )
                m.submodules[f"table_{i}"] = ram
                writer, reader = ram.write_port(), ram.read_port()
                place = Cat(self.codes[i][3:7], ~self.codes[i][7])  # the beat of code + 128
                m.d.comb += [
                    writer.addr.eq(Cat(entries.beat, entries.bank)),
                    writer.data.eq(entries.codes),
                    writer.en.eq(entries.write),
                    reader.addr.eq(Cat(place, self.choice.bank)),
                ]
                m.d.sync += result.eq(Mux(choice.looks, reader.data.word_select(code[:3], 8), code))
        return m
