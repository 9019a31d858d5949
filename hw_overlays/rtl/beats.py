"""Words in the beats of a memory port: a beat of 128 bits has two, and a run begins and ends with either of them.

A *word* has 8 bytes: 8 codes of a pixel, a part of a record. In a port's *group* the first word of a run is always word 0.
"""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from .ports import BEAT
from .streams import register

WORD = 8 * BEAT  # bits


def place(words: int) -> data.StructLayout:
    """Return where a burst is in its run, for beats of so many words.

    ``begins``, ``ends``  it is the run's first one, its last one
    ``skips``   the run's first word is the upper one of its first beat
    ``leaves``  its last word is the lower one of its last beat
    """
    flags = ("begins", "ends", "skips", "leaves") if words > 1 else ()
    return data.StructLayout(dict.fromkeys(flags, 1))


def beat(words: int) -> data.StructLayout:
    """Return a beat, with whether it is a run's first or last one, and what that leaves out; see ``place``."""
    return data.StructLayout({"words": words * WORD, **place(words).members})


class Aligned(Component):
    """Beats of two words become groups of two, or single words: those of a run, the last of which may have one word less."""

    def __init__(self, words: int) -> None:
        self.words = words
        super().__init__({"beats": In(stream.Signature(beat(2))), "groups": Out(stream.Signature(words * WORD))})

    def elaborate(self, platform: object) -> Module:
        """Return the words that are left of a beat."""
        m = Module()
        beats, groups = self.beats, self.groups
        here = beats.payload
        low, high = here.words[:WORD], here.words[WORD:]
        first, last = here.begins & here.skips, here.ends & here.leaves
        if self.words == 1:
            upper = Signal()  # the lower word has gone
            at = upper | first
            m.d.comb += [groups.valid.eq(beats.valid), groups.payload.eq(Mux(at, high, low))]
            m.d.comb += beats.ready.eq(groups.ready & (at | last))
            with m.If(groups.valid & groups.ready):
                m.d.sync += upper.eq(~beats.ready)
            return m
        held, rest = register(WORD, "held"), Signal()  # an upper word; it is a group of its own
        gives = ~first | here.ends
        m.d.comb += groups.payload.eq(Mux(here.skips, Cat(Mux(here.begins, high, held), low), here.words))
        with m.If(rest):
            m.d.comb += [groups.valid.eq(1), groups.payload.eq(held)]
            with m.If(groups.ready):
                m.d.sync += rest.eq(0)
        with m.Else():
            m.d.comb += [groups.valid.eq(beats.valid & gives), beats.ready.eq(groups.ready | ~gives)]
            with m.If(beats.valid & beats.ready):
                m.d.sync += [held.eq(high), rest.eq(here.skips & here.ends & ~here.leaves & ~here.begins)]
        return m
