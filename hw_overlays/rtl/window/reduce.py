"""The two reductions of a window: along a row, in a tree, and along the columns, in the line memory."""

from amaranth import Cat, Module, Mux, Shape, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..streams import later, levels_of, register

SUM = signed(16)  # of a window's codes: 15 * 15 * 128 = 28,800


def taps_of(overlay: Overlay) -> int:
    """Return the columns of the widest window: the manifest's ``kernel_max``."""
    limits = next((dict(section.limits) for section in overlay.tasks if section.kind == "pool"), {"kernel_max": 1})
    return int(limits["kernel_max"])


def row_shape(taps: int) -> Shape:
    """Return the shape of the sum of so many codes."""
    return signed(8 + levels_of(taps))


def combined(average: object, a: object, b: object) -> object:
    """Return the sum or the maximum of two signed values, which a carry chain compares."""
    return Mux(average, a + b, Mux((Value.cast(a) - b)[-1], b, a))


class Taps(wiring.Component):
    """The last codes of one channel of a row; ``row`` is the sum or maximum of those of a window, a cycle per level later.

    ``code``    goes into the first tap with ``shift``, as the first of its row with ``begins``
    ``there``   0 for a column after the row's last, which has no code
    ``width``   columns of the window
    """

    def __init__(self, taps: int) -> None:
        self.taps = taps
        members = {"average": In(1), "width": In(8), "code": In(signed(8)), "shift": In(1), "begins": In(1)}
        super().__init__(members | {"there": In(1), "row": Out(row_shape(taps))})

    def elaborate(self, platform: object) -> Module:
        """Return the shift register and the tree."""
        m = Module()
        # a tap without a code of this row, or beyond the window, has what changes no result
        taps = [register(signed(8), f"tap_{i}") for i in range(self.taps)]
        neutral = Mux(self.average, 0, -128)
        used = later(m, Cat(self.width > i for i in range(self.taps)), "used")  # fixed for a Task
        with m.If(self.shift):
            for i, tap in enumerate(taps):
                is_code = used[i] & ~self.begins if i else self.there
                m.d.sync += tap.eq(Mux(is_code, taps[i - 1] if i else self.code, neutral))
        values: list[object] = [*taps]
        for level in range(levels_of(self.taps)):
            pairs = [combined(self.average, *values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
            pairs += values[len(values) & ~1 :]
            values = [register(signed(9 + level), f"level_{level}_{i}") for i in range(len(pairs))]
            m.d.sync += [signal.eq(pair) for signal, pair in zip(values, pairs)]
        m.d.comb += self.row.eq(values[0])
        return m


def slot(words: int) -> data.StructLayout:
    """Return the layout of what happens to a word of a bank of ``words``.

    ``live``   it is a slot of the column; ``update`` if the row goes into it
    ``fresh``  it belongs to a window that has had no row before
    """
    return data.StructLayout({"address": range(words), "live": 1, "update": 1, "fresh": 1})


class Bank(wiring.Component):
    """A part of the line memory: each word has one unfinished window of all channels of a word.

    ``step``  the slot to read, three cycles before ``sums`` is what it then holds
    ``row``   reduced columns of each channel, two cycles after ``step``
    """

    def __init__(self, words: int, channels: int, taps: int) -> None:
        self.words, self.channels = words, channels
        super().__init__(
            {
                "average": In(1),
                "step": In(slot(words)),
                "row": In(data.ArrayLayout(row_shape(taps), channels)),
                "sums": Out(data.ArrayLayout(SUM, channels)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the memory, and the stages: read, the memory's output register, reduce, write."""
        m = Module()
        m.submodules.line = line = memory.Memory(shape=self.sums.shape(), depth=self.words, init=[])
        before, after = line.read_port(), line.write_port()
        stages = [register(self.step.shape(), name) for name in ("reads", "work", "done")]
        _, work, done = stages
        m.d.sync += [stage.eq(before) for stage, before in zip(stages, [self.step, *stages])]
        olds = data.View(self.sums.shape(), later(m, before.data.as_value(), "old"))
        m.d.comb += [
            before.addr.eq(self.step.address),
            after.addr.eq(done.address),
            after.data.eq(self.sums),
            after.en.eq(done.update & done.live),
        ]
        for channel in range(self.channels):
            old, row = olds[channel], self.row[channel]
            new = Mux(work.fresh, row, combined(self.average, old, row))
            m.d.comb += self.sums[channel].eq(later(m, Mux(work.update, new, old)[:16], f"sum_{channel}").as_signed())
        return m
