"""The accumulators of a lane: two banks of one word per pixel, so that one is drained while the other sums."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..streams import later, register
from .multipliers import sums_layout

LATENCY = 4  # cycles from ``enable`` until the word can be read with the sums added


class Accumulators(wiring.Component):
    """Add the sums of a pixel to its word.

    ``enable``, ``bank``, ``address``, ``first``  of the sums that come two cycles later; ``first`` replaces the word
    ``sums``    of the address two cycles before
    ``drain_bank``, ``drain_address``  a word to read, of the bank that is not summing
    ``drained``  that word two cycles later

    A word is next summed at least four cycles later: a pass lasts that long.
    """

    def __init__(self, overlay: Overlay) -> None:
        self.depth = overlay.buffers.accumulators.depth
        self.word = data.ArrayLayout(signed(overlay.array_bits), overlay.array.outputs)
        super().__init__(
            {
                "enable": In(1),
                "bank": In(1),
                "address": In(range(self.depth)),
                "first": In(1),
                "sums": In(sums_layout(overlay)),
                "drain_bank": In(1),
                "drain_address": In(range(self.depth)),
                "drained": Out(self.word),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the banks and their adders."""
        m = Module()
        names = "enable", "first", "bank", "address", "drain_bank"
        enable, first, bank, address, drain_bank = (later(m, getattr(self, name), name, 2) for name in names)
        words = []
        write, write_bank, write_address = (
            later(m, value, f"write_{name}")
            for value, name in ((enable, "enable"), (bank, "bank"), (address, "address"))
        )
        total = register(self.word, "total")
        for i in range(2):
            m.submodules[f"bank_{i}"] = memory = Memory(shape=self.word, depth=self.depth, init=[])
            reader, writer = memory.read_port(), memory.write_port()
            m.d.comb += [
                reader.addr.eq(Mux(self.enable & (self.bank == i), self.address, self.drain_address)),
                writer.addr.eq(write_address),
                writer.data.eq(total),
                writer.en.eq(write & (write_bank == i)),
            ]
            words.append(later(m, reader.data.as_value(), f"word_{i}"))  # the memory's output register
        held = Signal(self.word)
        m.d.comb += [held.eq(Mux(bank, words[1], words[0])), self.drained.eq(Mux(drain_bank, words[1], words[0]))]
        added = [self.sums[i] + Mux(first, 0, held[i]) for i in range(self.word.length)]
        bits = self.word.elem_shape.width
        m.d.sync += total.eq(Cat(value[:bits] for value in added))
        return m
