"""LRN across channels: the factor of each code, from the sum of squares of the channels around it.

A plane is read ``RUN`` pixels at a time, before the same pixels of the next plane. So all channels around a pixel are there when
one plane later arrives: squares of two planes are in memories of ``RUN`` words, those of the third arrive. What arrives first of
the next part of the image lets the last plane of this part leave; after the last part as many cycles pass without words.
"""

from collections.abc import Callable

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from chai import tasks
from chai.overlay import Overlay
from chai.tasks.lrn import FACTOR_BITS, OCTAVES, REST_BITS, SEGMENT, SEGMENTS, STEPS, SUM_BITS

from ..descriptor import layout
from ..streams import later, register
from .unit import unit_ports
from .walk import RUN, words_read

VALUE = signed(9)  # a code without its zero point
SQUARE = unsigned(16)
MIDDLE = data.StructLayout({"square": SQUARE, "value": VALUE})
PLACE = data.StructLayout({"pixel": range(RUN), "after": 1, "before": 1})
TABLE = layout(SEGMENT)
LINE = data.StructLayout({"base": unsigned(FACTOR_BITS), "slope": signed(FACTOR_BITS)})
SHORT = (STEPS - 1).bit_length()  # bits of the number of a segment in its octave


class LRN(wiring.Component):
    """A whole image after each ``start``: the planes of its first part, then of the next part.

    ``begin``   the table of a Task follows; ``beat`` is one of its segments, with ``write``
    ``values``  codes without their zero points, and ``factors`` to multiply them with, with ``valid``
    """

    def __init__(self, overlay: Overlay) -> None:
        self.step = overlay.layout.channels_per_word
        self.reach = tasks.find("lrn").limits(overlay).local_size_max // 2  # channels on each side
        super().__init__(
            unit_ports(overlay)
            | {
                "begin": In(1),
                "beat": In(64),
                "write": In(1),
                "values": Out(data.ArrayLayout(VALUE, self.step)),
                "factors": Out(data.ArrayLayout(unsigned(FACTOR_BITS), self.step)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the scan over an image, and the stages from words to factors."""
        m = Module()
        m.submodules.scan = scan = Scan(self.task.shape(), self.step)
        m.submodules.planes = planes = Planes(self.task.shape(), self.step, self.reach)
        loaded, written = Signal(range(SEGMENTS + 1)), Signal()
        word, number = register(TABLE, "word"), register(range(SEGMENTS), "number")
        with m.If(self.begin):
            m.d.sync += loaded.eq(0)
        with m.Elif(self.write):
            m.d.sync += loaded.eq(loaded + 1)
        m.d.sync += [written.eq(self.write), word.eq(self.beat), number.eq(loaded)]
        complete = loaded[-1] & ~written
        go = scan.busy
        m.d.comb += [
            scan.task.eq(self.task),
            scan.start.eq(self.start),
            scan.go.eq(self.works),
            self.ready.eq(scan.ready & complete),
            self.starved.eq(go & scan.takes & ~self.first.valid),
            self.held.eq((go & scan.leaves & ~self.room) | ~complete),
            self.works.eq(go & (self.first.valid | ~scan.takes) & (self.room | ~scan.leaves)),
            self.first.ready.eq(go & scan.takes & (self.room | ~scan.leaves)),
            self.claim.eq(self.works & scan.leaves),
            planes.task.eq(self.task),
            planes.word.eq(self.first.payload),
            planes.place.eq(scan.place),
            planes.tail.eq(scan.tail),
            planes.works.eq(self.works),
        ]
        for channel in range(self.step):
            m.submodules[f"factor_{channel}"] = factor = Factor()
            m.d.comb += [factor.sum.eq(planes.sums[channel]), self.factors[channel].eq(factor.factor)]
            m.d.comb += [factor.write.eq(written), factor.number.eq(number)]
            m.d.comb += [factor.line.base.eq(word.base), factor.line.slope.eq(word.slope)]
        m.d.comb += self.values.eq(later(m, planes.values, "values", Factor.LATENCY))
        valid = Signal(planes.latency + Factor.LATENCY)
        m.d.sync += valid.eq(Cat(self.claim, valid))
        m.d.comb += self.valid.eq(valid[-1])
        return m


class Scan(wiring.Component):
    """Counts the pixels of a part, its planes and the parts of an image; a step forward with ``go``.

    ``ready``   1 if ``start``, for one cycle, may begin an image; ``busy`` while there are steps
    ``takes``   a word arrives, at ``place`` in its part; ``tail`` if it is one of the last plane
    ``leaves``  the word of the plane before, at the same place, leaves
    ``place``   ``after``, ``before``: whether the plane that leaves has one after and one before it
    """

    def __init__(self, task: object, step: int) -> None:
        self.step = step
        super().__init__(
            {
                "task": In(task),
                "start": In(1),
                "go": In(1),
                "ready": Out(1),
                "busy": Out(1),
                "takes": Out(1),
                "tail": Out(1),
                "leaves": Out(1),
                "place": Out(PLACE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters."""
        m = Module()
        task, now = self.task, self.place
        of_image = later(m, (task.input_channels + self.step - 1) >> (self.step.bit_length() - 1), "of_image")
        one_plane = later(m, of_image == 1, "one_plane")
        starts, begins = Signal(), Signal()  # one and two cycles after ``start``
        words = range(RUN + 1)
        rest, more = register(30, "rest"), register(1, "more")  # words of a plane after this part, if there are some
        # words of the next part, of this one
        part, length = register(words, "part"), register(words, "length")
        one_word, another = later(m, rest == 1, "one_word"), later(m, rest > RUN, "another")
        planes, whole = (
            register(16, "planes"),
            register(1, "whole"),
        )  # that have not arrived of this part; only one has not
        left, steps = register(words, "left"), register(words, "steps")  # words that arrive, and steps, of this plane
        # whether words arrive in this plane's steps; this step is the last one
        arrives, ends = register(1, "arrives"), register(1, "ends")
        m.d.sync += [part.eq(Mux(rest[RUN.bit_length() - 1 :].any(), RUN, rest[: len(part)])), starts.eq(self.start)]
        m.d.sync += begins.eq(starts)
        m.d.comb += [self.tail.eq(whole), self.ready.eq(~self.busy & ~starts & ~begins)]
        next_part = begins | (self.go & ends & arrives & whole)
        with m.If(self.go):
            m.d.sync += [steps.eq(steps - 1), ends.eq(steps == 2), now.pixel.eq(now.pixel + 1)]
            m.d.sync += [left.eq(left - 1), self.takes.eq(self.takes & (left != 1))]
            with m.If(ends):
                m.d.sync += [now.pixel.eq(0), self.leaves.eq(arrives), self.busy.eq(arrives)]
                m.d.sync += [steps.eq(length), ends.eq(length == 1), left.eq(length), self.takes.eq(arrives)]
                m.d.sync += [
                    now.after.eq(~whole),
                    now.before.eq(now.after),
                    planes.eq(planes - 1),
                    whole.eq(planes == 2),
                ]
                with m.If(whole):
                    m.d.sync += [self.takes.eq(arrives & more), arrives.eq(more)]
        with m.If(next_part):
            m.d.sync += [length.eq(part), left.eq(part), planes.eq(of_image), whole.eq(one_plane)]
            m.d.sync += more.eq(another)
        with m.If(later(m, next_part, "part_begun")):  # no other part begins in the cycles after that
            m.d.sync += rest.eq(rest - RUN)
        with m.If(begins):
            m.d.sync += [self.busy.eq(1), self.leaves.eq(0), arrives.eq(1), self.takes.eq(1), now.eq(0)]
            m.d.sync += [steps.eq(part), ends.eq(one_word)]
        with m.If(self.start):
            m.d.sync += rest.eq(words_read(task))
        return m


class Planes(wiring.Component):
    """The sums of squares around the channels of the plane that leaves, and their values, ``latency`` cycles after its step.

    ``word``  arrives, with ``works``; ``place`` and ``tail`` as a Scan has them
    """

    def __init__(self, task: object, step: int, reach: int) -> None:
        self.step, self.reach = step, reach
        # word, value, parts of its square, square, memories; pairs of squares, and the tree over them and the channel's own
        self.latency = 5 + 1 + reach.bit_length()
        super().__init__(
            {
                "task": In(task),
                "word": In(8 * step),
                "place": In(PLACE),
                "tail": In(1),
                "works": In(1),
                "values": Out(data.ArrayLayout(VALUE, step)),
                "sums": Out(data.ArrayLayout(unsigned(SUM_BITS), step)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the squares, the memories of two planes, and the adders of each channel."""
        m = Module()
        zero, count = self.task.input_zero, self.task.input_channels[: self.step.bit_length() - 1]
        place, works = self.place, self.works
        word, tail = register(self.word.shape(), "word"), register(1, "tail_1")
        m.d.sync += [word.eq(self.word), tail.eq(self.tail)]
        for i in range(4):
            last, place = place, register(PLACE, f"place_{i + 1}")
            m.d.sync += place.eq(last)
            last, works = works, Signal(name=f"works_{i + 1}")
            m.d.sync += works.eq(last)
        squares, values = [], []
        for channel in range(self.step):
            code = word.word_select(channel, 8)
            sign = code[7] & ~zero  # as in Elements
            value, magnitude = register(VALUE, f"value_{channel}"), register(8, f"magnitude_{channel}")
            m.d.sync += value.eq(Cat(code[:7], code[7] ^ zero, sign).as_signed())
            m.d.sync += magnitude.eq((Cat(code[:7], code[7] ^ zero) ^ sign.replicate(8)) + sign)
            beyond = later(m, (count != 0) & (count <= channel), f"beyond_{channel}")
            absent = later(m, tail & beyond, f"absent_{channel}")  # the blob does not have it
            # (16 high + low)^2: the squares of both, side by side, and 32 times their product, each by a small table
            low, high = magnitude[:4], magnitude[4:]
            both = Cat(table(low, 8, lambda i: i * i), table(high, 8, lambda i: i * i))
            both = later(m, Mux(absent, 0, both), f"squares_{channel}")
            product = later(m, Mux(absent, 0, table(magnitude, 8, lambda i: (i >> 4) * (i & 15))), f"product_{channel}")
            squares.append(later(m, (both + (product << 5))[: SQUARE.width], f"square_{channel}"))
            values.append(later(m, value, f"value_{channel}_later", 2))

        middle, before = self._memories(m, place.pixel, works, squares, values)
        near = [*before, *(part.square for part in middle), *squares[: self.reach]]
        valid = [place.before] * self.reach + [Const(1, 1)] * self.step + [place.after] * self.reach
        there = []
        for i, (square, is_there) in enumerate(zip(near, valid)):
            there.append(register(SQUARE, f"near_{i}"))
            m.d.sync += there[-1].eq(Mux(is_there, square, 0))
        half = self.task.kernel_h >> 1
        for channel in range(self.step):
            around = there[channel : channel + 2 * self.reach + 1]
            m.d.comb += self.sums[channel].eq(self._sum(m, around, half, f"sum_{channel}"))
            value = register(VALUE, f"middle_{channel}")
            m.d.sync += value.eq(middle[channel].value)
            m.d.comb += self.values[channel].eq(later(m, value, f"middle_{channel}_later", self.latency - 5))
        return m

    def _memories(self, m: Module, pixel: Value, works: Value, squares: list, values: list) -> tuple[list, list]:
        """Return a pixel of the plane before, and its squares in the plane before that; put the new one in."""
        one = data.ArrayLayout(MIDDLE, self.step)
        two = data.ArrayLayout(SQUARE, self.reach)  # of the last channels
        m.submodules.one_before = one_before = memory.Memory(shape=one, depth=RUN, init=[])
        m.submodules.two_before = two_before = memory.Memory(shape=two, depth=RUN, init=[])
        middle, before = one_before.read_port(domain="comb"), two_before.read_port(domain="comb")
        arrives, stays = one_before.write_port(), two_before.write_port()
        m.d.comb += [port.addr.eq(pixel) for port in (middle, before, arrives, stays)]
        m.d.comb += [port.en.eq(works) for port in (arrives, stays)]
        for i, (square, value) in enumerate(zip(squares, values)):
            m.d.comb += [arrives.data[i].square.eq(square), arrives.data[i].value.eq(value)]
        for i in range(self.reach):
            m.d.comb += stays.data[i].eq(middle.data[self.step - self.reach + i].square)
        return [middle.data[i] for i in range(self.step)], [before.data[i] for i in range(self.reach)]

    def _sum(self, m: Module, around: list, half: Value, name: str) -> Value:
        """Return the sum of the channels that are ``half`` from the middle one at most: those of one distance, then of all."""
        own = register(SQUARE, f"{name}_own")
        m.d.sync += own.eq(around[self.reach])
        terms = [own]
        for distance in range(1, self.reach + 1):
            terms.append(register(unsigned(SQUARE.width + 1), f"{name}_{distance}"))
            pair = around[self.reach - distance] + around[self.reach + distance]
            m.d.sync += terms[-1].eq(Mux(half >= distance, pair, 0))
        level = 0
        while len(terms) > 1:
            level += 1
            pairs = [sum(terms[i : i + 2], Const(0)) for i in range(0, len(terms), 2)]
            terms = [register(unsigned(SUM_BITS), f"{name}_level_{level}_{i}") for i in range(len(pairs))]
            m.d.sync += [signal.eq(pair) for signal, pair in zip(terms, pairs)]
        return terms[0]


def table(value: Value, bits: int, entry: Callable[[int], int]) -> Value:
    """Return the entry, of so many bits, that belongs to an unsigned value."""
    return Array(Const(entry(i), bits) for i in range(1 << len(value)))[value]


class Factor(wiring.Component):
    """The factor of a sum, ``LATENCY`` cycles later, by a table of its own, into which all segments are written."""

    LATENCY = 10

    def __init__(self) -> None:
        super().__init__(
            {
                "sum": In(SUM_BITS),
                "factor": Out(FACTOR_BITS),
                "write": In(1),
                "number": In(range(SEGMENTS)),
                "line": In(LINE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the search for the sum's octave, the table, and the DSP that goes along the line."""
        m = Module()
        octave, shift = register(range(OCTAVES), "octave"), register(range(OCTAVES), "shift")
        pairs = [
            (Const(0, 1), Const(0, 0)),
            *((bit, Const(0, 0)) for bit in self.sum[SHORT:]),
        ]  # whether, and which of 1, 2, 4, ...
        while len(pairs) > 1:
            pairs = [
                (low | high, Cat(Mux(high, above, below), high))
                for (low, below), (high, above) in zip(pairs[::2], pairs[1::2])
            ]
        m.d.sync += octave.eq(pairs[0][1])
        m.d.sync += shift.eq(Mux(octave == 0, OCTAVES - 2, OCTAVES - 1 - octave))
        # the highest bits are the number in the octave, after the 1 that all sums but those of the first octave begin with
        coarse, normal = register(SUM_BITS, "coarse"), register(SUM_BITS, "normal")
        m.d.sync += coarse.eq(later(m, self.sum, "sum_later", 2) << Cat(Const(0, 2), shift[2:]))
        m.d.sync += normal.eq(coarse << later(m, shift[:2], "fine"))

        m.submodules.table = table = memory.Memory(shape=LINE, depth=SEGMENTS, init=[])
        write, read = table.write_port(), table.read_port()
        # the memory's output register, and the two that a DSP has before its multiplier. One of the others has a reset: synthesis
        # would make a shift register of all, the memory's too
        line, rest = data.View(LINE, later(m, read.data.as_value(), "line")), later(m, normal[:REST_BITS], "rest", 4)
        slope, base = later(m, line.slope, "slope", 2), Signal(FACTOR_BITS)
        product = register(signed(FACTOR_BITS + REST_BITS + 1), "product")
        value = register(signed(FACTOR_BITS + REST_BITS + 2), "value")
        m.d.comb += [
            write.en.eq(self.write),
            write.addr.eq(self.number),
            write.data.eq(self.line),
            read.addr.eq(Cat(normal[REST_BITS : REST_BITS + SHORT], later(m, octave, "octave_later", 3))),
            self.factor.eq(value[REST_BITS:]),
        ]
        m.d.sync += [
            product.eq(slope * rest),
            base.eq(line.base),
            value.eq(product + Cat(Const(1 << (REST_BITS - 1), REST_BITS), later(m, base, "base_later", 2))),
        ]
        return m
