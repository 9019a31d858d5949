"""Depthwise: a filter of 3 x 3 for each channel, a column of the image a cycle, in all channels side by side.

Rows first: a line memory has the codes of the two rows above, so a column of three codes is there with each word that comes.
Three columns are a window. Its products are trees of sums in look-up tables, since the DSPs multiply for the array.

The weights and records of the next group of planes come while the current one is computed.
"""

from itertools import pairwise
from math import prod
from types import SimpleNamespace

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay
from chai.tasks.depthwise import KERNEL

from ..streams import later, levels_of, ram_style, register, total
from .unit import lanes_of, unit_ports

TAPS = prod(KERNEL)
COLUMN = 3  # cycles from a word to its column in the window
PRODUCTS = COLUMN + 1 + levels_of(8)  # to its products
SUMS = PRODUCTS + levels_of(TAPS + 1)  # to their sums with the bias


class Side:
    """The positions of a row of columns, or of rows: those in the image, and those after it until the last output.

    ``inside``  it is in the image; ``serves`` if a window ends there; ``first`` and ``last`` of all
    ``follows_inside``  the next one is in the image
    ``first_serves``, ``next_serves``  whether the first one does, and the one after this
    """

    def __init__(self, m: Module, name: str, sizes: tuple[Value, Value], window: tuple[Value, Value]) -> None:
        (size, outputs), (pad, stride) = sizes, window
        self.sizes = sizes
        flags = ("first", "inside", "serves", "one", "some", "one_output", "now", "soon")
        self.first, self.inside, self.serves, self._one, self._some, self._one_output, self._now, self._soon = (
            register(1, f"{name}_{flag}") for flag in flags
        )
        self._left, self._outputs = register(size.shape(), f"{name}s"), register(outputs.shape(), f"{name}_outputs")
        self._until = register(8, f"{name}s_until")
        self._only = later(m, size == 1, f"{name}_only"), later(m, outputs == 1, f"{name}_only_output")
        self._offset = later(m, (KERNEL[0] - 1 - pad)[:8], f"{name}_offset")  # positions to the first output
        self._at_once, self._at_second = (
            later(m, pad == KERNEL[0] - 1, f"{name}_at_once"),
            later(m, pad == KERNEL[0] - 2, f"{name}_at_second"),
        )
        self._each, self._other = later(m, stride == 1, f"{name}_each"), later(m, stride == 2, f"{name}_other")
        self._to_next = later(m, (stride - 1)[:8], f"{name}_to_next")
        self.follows_inside = self.inside & ~self._one
        self._more = self._some & ~(self._now & self._one_output)  # outputs after this position
        self.last = ~self.follows_inside & ~self._more
        self._follows = Mux(self._now, self._each, self._soon)
        self.first_serves, self.next_serves = self._at_once, later(m, self._follows & self._more, f"{name}_next_serves")

    def step(self, m: Module, goes: Value) -> None:
        """Go on to the next position."""
        with m.If(goes):
            m.d.sync += [self.first.eq(0), self.inside.eq(self.follows_inside), self._some.eq(self._more)]
            m.d.sync += [self.serves.eq(self._follows & self._more), self._now.eq(self._follows)]
            m.d.sync += [self._left.eq(self._left - 1), self._one.eq(self._left == 2)]
            m.d.sync += self._until.eq(Mux(self._now, self._to_next, self._until - 1))
            m.d.sync += self._soon.eq(Mux(self._now, self._other, self._until == 2))
            with m.If(self._now):
                m.d.sync += [self._outputs.eq(self._outputs - 1), self._one_output.eq(self._outputs == 2)]

    def begin(self, m: Module, begins: Value, serves: Value) -> None:
        """Begin with the first position, in the place of a step; ``serves`` is whether any window ends there."""
        with m.If(begins):
            size, outputs = self.sizes
            m.d.sync += [self.first.eq(1), self.inside.eq(1), self._one.eq(self._only[0]), self._left.eq(size)]
            m.d.sync += [self._some.eq(serves), self._one_output.eq(self._only[1]), self._outputs.eq(outputs)]
            m.d.sync += [self._until.eq(self._offset), self._now.eq(self._at_once), self._soon.eq(self._at_second)]
            m.d.sync += self.serves.eq(self._at_once & serves)


class Depthwise(wiring.Component):
    """Sums of the windows of one group of planes after the other, row by row.

    ``prepare``  begins a Task: 1 for a cycle, with the new ``task``; ``more`` while it has planes that have not begun
    ``second``   weights: a word of all planes for each tap
    ``there``    1 if a record can be taken; ``takes`` takes it, and two cycles later it is the ``record``
    ``unset``    1 if the next planes wait for weights or records
    ``sums``     with ``valid``, and in the cycle after that the ``records`` of their channels, whose bias they have; 0 while
                 ``active`` is 0
    """

    def __init__(self, overlay: Overlay, record: data.Layout) -> None:
        self.overlay, self.lanes = overlay, lanes_of(overlay)
        limits = next(dict(section.limits) for section in overlay.tasks if section.kind == "depthwise")
        self.columns, self.sum = int(limits["columns_max"]), signed(overlay.accumulator_bits)
        super().__init__(
            unit_ports(overlay)
            | {
                "active": In(1),
                "prepare": In(1),
                "more": In(1),
                "second": In(stream.Signature(8 * self.lanes)),
                "there": In(1),
                "takes": Out(1),
                "record": In(record),
                "unset": Out(1),
                "sums": Out(data.ArrayLayout(self.sum, self.lanes)),
                "records": Out(data.ArrayLayout(record, self.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the scan of rows and columns, the windows of the channels, and the numbers of their filters."""
        m = Module()
        weights, (biases, records_there) = self._filters(m), self._records(m)
        busy, set_up = Signal(), later(m, weights.there & records_there, "set_up")
        m.d.comb += [self.ready.eq(~busy & (set_up | ~self.more)), self.unset.eq(~busy & self.more & ~set_up)]

        task, goes, row_ends, plane_ends = self.task, Signal(), Signal(), Signal()
        rows = Side(m, "row", (task.input_height, task.output_height), (task.pad_h, task.stride_h))
        columns = Side(m, "column", (task.input_width, task.output_width), (task.pad_w, task.stride_w))
        takes, serves = register(1, "takes_word"), columns.serves
        m.d.comb += [
            goes.eq(busy & (~takes | self.first.valid) & (~serves | self.room)),
            row_ends.eq(goes & columns.last),
            plane_ends.eq(row_ends & rows.last),
            self.works.eq(goes),
            self.starved.eq(busy & takes & ~self.first.valid),
            self.held.eq(busy & serves & ~self.room),
            self.first.ready.eq(busy & takes & (~serves | self.room)),
            self.claim.eq(goes & serves),
        ]
        rows.step(m, row_ends)
        columns.step(m, goes)
        with m.If(goes):
            m.d.sync += takes.eq(Mux(columns.last, rows.follows_inside, rows.inside & columns.follows_inside))
        with m.If(plane_ends):
            m.d.sync += busy.eq(0)
        with m.If(self.start):
            m.d.sync += [busy.eq(1), takes.eq(1)]
        rows.begin(m, self.start, Const(1))
        columns.begin(m, self.start | row_ends, Mux(self.start, rows.first_serves, rows.next_serves))

        window = self._window(m, goes, takes, rows, columns)
        sums = Cat(self._sum(m, channel, window, weights.codes, bias) for channel, bias in enumerate(biases))
        m.d.comb += [self.sums.as_value().eq(sums), self.valid.eq(later(m, self.claim, "claimed", SUMS))]
        return m

    def _window(self, m: Module, goes: Value, takes: Value, rows: Side, columns: Side) -> list[list[Value]]:
        """Return the codes of all channels, of each column from the last one on, in each row from the lowest one on."""
        word = 8 * self.lanes
        style = ram_style(self.overlay.buffers.input)
        m.submodules.line = line = memory.Memory(shape=2 * word, depth=self.columns, init=[], attrs=style)
        reader, writer = line.read_port(), line.write_port()
        padding = later(m, self.task.input_zero, "padding")  # the code of 0 is -128, or 0
        pad = Cat(Const(0, 7), padding).replicate(self.lanes)
        place = register(range(self.columns), "place")
        with m.If(goes):
            m.d.sync += place.eq(Mux(columns.last, 0, place + 1))
        with m.If(self.start):
            m.d.sync += place.eq(0)
        code = later(m, Mux(takes, self.first.payload, pad), "code", COLUMN - 1)
        above = later(m, reader.data, "above")  # the memory's output register
        shift, begins, inside, top = (
            later(m, flag, name, COLUMN - 1)
            for flag, name in (
                (goes, "shift"),
                (columns.first, "begins"),
                (columns.inside, "inside"),
                (rows.first, "top"),
            )
        )
        column = [code, *(Mux(inside & ~top, above[i * word :][:word], pad) for i in range(2))]
        m.d.comb += [
            reader.addr.eq(place),
            writer.addr.eq(later(m, place, "written", COLUMN - 1)),
            writer.data.eq(Cat(column[:2])),
            writer.en.eq(shift & inside),
        ]
        window = [[register(word, f"tap_{i}_{j}") for i in range(KERNEL[0])] for j in range(KERNEL[1])]
        with m.If(shift):
            m.d.sync += [tap.eq(new) for tap, new in zip(window[0], column)]
            for before, after in pairwise(window):
                m.d.sync += [tap.eq(Mux(begins, pad, old)) for tap, old in zip(after, before)]
        return window

    def _sum(self, m: Module, channel: int, window: list[list[Value]], weights: Signal, bias: Value) -> Value:
        """Return a channel's bias and the products of its window, added ``SUMS`` cycles after the word that completes it."""
        # in the order of the weights: rows from above
        taps = [column[i] for i in reversed(range(KERNEL[0])) for column in reversed(window)]
        values: list[Value] = []
        for tap, codes in enumerate(taps):
            code, weight = (word.word_select(channel, 8).as_signed() for word in (codes, weights[tap]))
            values.append(self._product(m, code, weight, f"product_{channel}_{tap}"))
        return total(m, [*values, bias], self.sum.width, f"sum_{channel}")

    def _product(self, m: Module, code: Value, weight: Value, name: str) -> Value:
        """Return a product; bits of the weight are resets of the first registers, which takes no look-up tables."""
        parts = [later(m, Mux(bit, code, 0), f"{name}_bit_{i}").as_signed() << i for i, bit in enumerate(weight)]
        return total(m, [*parts[:-1], -parts[-1]], 16, name)

    def _filters(self, m: Module) -> SimpleNamespace:
        """Return the weights of the current planes, a word for each tap, and whether those of the next ones are ``there``.

        Until those of the current ones are copied, no further ones are taken.
        """
        word = 8 * self.lanes
        layout = data.ArrayLayout(word, TAPS)
        # inverted, as the resets that they are in products
        inverted, following = register(layout, "weights"), register(layout, "next_weights")
        left, last, there = register(range(TAPS), "left"), register(1, "last_tap"), register(1, "there")
        taking, comes, copies = Signal(), Signal(), later(m, self.start, "copies", COLUMN - 1)
        m.d.comb += [self.second.ready.eq(self.more & taking), comes.eq(self.second.ready & self.second.valid)]
        with m.If(comes):
            m.d.sync += following.eq(Cat(following.as_value()[word:], self.second.payload))
            m.d.sync += [left.eq(left - 1), last.eq(left == 1), taking.eq(~last), there.eq(last)]
        with m.If(copies):
            m.d.sync += inverted.as_value().eq(~following.as_value())
        with m.If(self.start | self.prepare):
            m.d.sync += there.eq(0)
        with m.If(copies | self.prepare):
            m.d.sync += [left.eq(TAPS - 1), last.eq(0), taking.eq(1)]
        return SimpleNamespace(codes=[~codes for codes in inverted], there=there)

    def _records(self, m: Module) -> tuple[list[Value], Value]:
        """Take the records of the channels of the next planes; return the current biases, and whether the next ones are there.

        Until those of the current ones are copied, which is when the last sum of the planes before has left, none are taken.
        """
        following = register(self.records.shape(), "next_records")
        left, last = register(16, "channels"), register(1, "last_channel")  # of the image, the next one included
        lane, arriving = register(self.lanes, "lane"), register(self.lanes, "arriving")  # one bit: the next one's
        taking, there = Signal(name="taking_records"), register(1, "records_there")
        copies = later(m, self.start, "copies_records", SUMS)
        channels, one = self.task.input_channels, later(m, self.task.input_channels == 1, "one_channel")
        ends = later(m, self.takes & (lane[-1] | last), "ends", 2)
        m.d.comb += self.takes.eq(taking & self.more & self.there)
        with m.If(self.takes):
            m.d.sync += [lane.eq(lane << 1), left.eq(left - 1), last.eq(left == 2)]
            with m.If(lane[-1] | last):
                m.d.sync += taking.eq(0)
            with m.If(last):
                m.d.sync += [left.eq(channels), last.eq(one)]
        m.d.sync += arriving.eq(Mux(self.takes, lane, 0))
        arrived = later(m, arriving, "arrived")
        for i in range(self.lanes):
            with m.If(arrived[i]):
                m.d.sync += following[i].eq(self.record)
        with m.If(ends):
            m.d.sync += there.eq(1)
        biases = [register(record.bias.shape(), f"bias_{i}") for i, record in enumerate(following)]
        with m.If(later(m, self.start, "copies_bias", PRODUCTS - 1)):
            m.d.sync += [bias.eq(record.bias) for bias, record in zip(biases, following)]
        with m.If(copies):
            m.d.sync += self.records.eq(following)
        with m.If(~self.active):
            m.d.sync += self.records.as_value().eq(0)
        with m.If(self.start):
            m.d.sync += there.eq(0)
        with m.If(self.prepare):
            m.d.sync += [there.eq(0), left.eq(channels), last.eq(one)]
        with m.If(copies | self.prepare):
            m.d.sync += [lane.eq(1), taking.eq(1)]
        return biases, there
