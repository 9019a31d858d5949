"""Registers that cut long paths: in streams, in queues, and of values that have some cycles to settle."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import stream
from amaranth.lib.data import View
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from chai.overlay.sections import OnChipBuffer


class Slice(Component):
    """A stream a cycle later, with registers before ``valid``, ``ready`` and the payload; it transfers in each cycle."""

    def __init__(self, shape: object) -> None:
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Return the register, and the one for what came when it could not go on."""
        m = Module()
        before, after = self.input, self.output
        payload, spare = (register(Shape.cast(before.payload.shape()), name) for name in ("payload", "spare"))
        free = Signal(init=1)  # the second register
        m.d.comb += [before.ready.eq(free), Value.cast(after.payload).eq(payload)]
        with m.If(~after.valid | after.ready):
            m.d.sync += [after.valid.eq(before.valid | ~free), free.eq(1)]
            m.d.sync += payload.eq(Mux(free, Value.cast(before.payload), spare))
        with m.Elif(before.valid):
            m.d.sync += free.eq(0)
        with m.If(free):
            m.d.sync += spare.eq(Value.cast(before.payload))
        return m


class Queue(Component):
    """Words in the order in which they come, at most ``depth`` of them, a power of two; registers before both ``rdy``.

    ``w_data``, ``w_en``  a word that comes, if ``w_rdy``
    ``r_data``, ``r_rdy``  the oldest one, which leaves with ``r_en``
    ``level``             words that are there
    ``block``             the memory may be a block RAM, whose word is there a cycle later: in the register of its output
    ``style``             attributes by which synthesis chooses the kind of memory
    """

    def __init__(self, *, width: int, depth: int, block: bool = False, style: Mapping[str, str] | None = None) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"queue of {depth} words: expected a power of two")
        self.width, self.depth, self.block, self.style = width, depth, block, style or {}
        written, read = {"w_data": In(width), "w_en": In(1), "w_rdy": Out(1, init=1)}, {"r_en": In(1), "r_rdy": Out(1)}
        super().__init__({**written, "r_data": Out(width), **read, "level": Out(range(depth + 1))})

    def elaborate(self, platform: object) -> Module:
        """Return the memory, where it is written and read, and what is known of the number of its words."""
        m = Module()
        m.submodules.storage = storage = Memory(shape=self.width, depth=self.depth, init=[], attrs=self.style)
        writer, reader = storage.write_port(), storage.read_port(domain="sync" if self.block else "comb")
        at_end, at_begin = (Signal(range(self.depth), name=name) for name in ("at_end", "at_begin"))
        some = Signal()  # the memory has words
        held, most = self.level, self.depth - self.block  # how many it has, and at most
        puts, takes, there = self.w_en & self.w_rdy, some & self.r_en, some
        if self.block:
            there = Signal()  # the memory's output is a word
            held = Signal(range(self.depth))
            takes = some & (self.r_en | ~there)
            m.d.sync += [there.eq(takes | (there & ~self.r_en)), held.eq(held + difference(puts, takes, len(held)))]
            m.d.comb += reader.en.eq(takes)
        m.d.comb += [writer.addr.eq(at_end), writer.data.eq(self.w_data), writer.en.eq(puts)]
        m.d.comb += [reader.addr.eq(at_begin), self.r_data.eq(reader.data), self.r_rdy.eq(there)]
        with m.If(puts):
            m.d.sync += at_end.eq(at_end + 1)
        with m.If(takes):
            m.d.sync += at_begin.eq(at_begin + 1)
        m.d.sync += self.level.eq(self.level + difference(puts, there & self.r_en, len(self.level)))
        m.d.sync += some.eq(puts | (some & ~(takes & (held == 1))))
        m.d.sync += self.w_rdy.eq(takes | (self.w_rdy & ~(puts & (held == most - 1))))
        return m


def ram_style(buffer: OnChipBuffer) -> dict[str, str]:
    """Return the attributes by which synthesis chooses UltraRAM for a memory, if the manifest says so."""
    return {"ram_style": "ultra"} if buffer.memory == "ultra" else {}


def difference(more: Value, less: Value, bits: int) -> Value:
    """Return ``more - less`` of two bits, modulo 2^bits, in a look-up table a bit: what a count is then added to in one chain."""
    return Cat(more ^ less, (less & ~more).replicate(bits - 1))


def register(shape: object, name: str) -> Signal:
    """Return a register of data, which no reset empties: what comes before it says whether it counts."""
    return Signal(shape, name=name, reset_less=True)


def later(m: Module, value: Value, name: str, cycles: int = 1) -> Value:
    """Return a value some cycles later, in registers without reset. Not for use within a condition: it would hold too."""
    for i in range(cycles):
        after = register(Value.cast(value).shape(), f"{name}_{i}" if i else name)
        m.d.sync += after.eq(value)
        value = after
    return value


def product(m: Module, a: Value, b: Value, bits: int, name: str) -> Signal:
    """Return a product of two unsigned or two signed values as a tree of sums with a register after each level.

    It is there ``levels(b)`` cycles later, modulo 2^bits. Not as ``*``, for which yosys takes a DSP: those multiply pixels.
    """
    parts: list[Value] = [Mux(bit, Value.cast(a), 0) << i for i, bit in enumerate(Value.cast(b))]
    if Value.cast(a).shape().signed:
        parts[-1] = -parts[-1]  # of the bit that is the sign
    return total(m, parts, bits, name)


def levels(b: Value) -> int:
    """Return the cycles that ``product`` takes."""
    return levels_of(len(Value.cast(b)))


def total(m: Module, values: list[Value], bits: int, name: str) -> Signal:
    """Return the sum of values, all unsigned or all signed, ``levels_of`` their number cycles later, modulo 2^bits."""
    for level in range(levels_of(len(values))):
        sums = [sum(values[i + 1 : i + 2], start=values[i]) for i in range(0, len(values), 2)]
        cut = [_cut(Value.cast(value), bits) for value in sums]
        values = [later(m, value, f"{name}_{level}_{i}") for i, value in enumerate(cut)]
    return values[0]


def levels_of(count: int) -> int:
    """Return the levels of a tree of sums of so many values, at least 1."""
    return max(1, (count - 1).bit_length())


def _cut(value: Value, bits: int) -> Value:
    """Return a value modulo 2^bits, signed if it was."""
    if not value.shape().signed:
        return value[:bits]
    return value[:bits].as_signed() if len(value) > bits else value


def counted(m: Module, queue: object, layout: object, taken: Value) -> tuple[Signal, Signal, Value]:
    """Count the beats of the runs in a queue; ``taken`` is 1 for each beat.

    Return whether there is a run, the run (whose ``beats`` are at least 1, ``single`` if they are 1, where it has that),
    and whether its next beat is the last one.
    """
    there, run, last, _ = counted_pairs(m, queue, layout, taken, None)
    return there, run, last


def counted_pairs(
    m: Module, queue: object, layout: object, taken: Value, wanted: Value | None
) -> tuple[Signal, Signal, Value, Value]:
    """Count the same where two beats are taken if that is ``wanted`` and the run has them.

    Return what ``counted`` does, of what is taken next, and whether that is two beats.
    """
    there, last, run = Signal(name="run_there"), register(1, "run_last"), register(layout, "run")
    left = register(run.beats.shape(), "run_left")
    head, pair, ends = View(layout, queue.r_data), Const(0), last
    single = head.single if "single" in head.shape().members else head.beats == 1
    if wanted is not None:
        two = register(1, "run_two")
        pair = wanted & ~last
        ends = Mux(pair, two, last)
        m.d.sync += two.eq(Mux(queue.r_en, head.beats == 2, Mux(taken, left == 3 + pair, two)))
    m.d.comb += queue.r_en.eq(~there | (taken & ends))
    with m.If(taken):
        m.d.sync += [left.eq(left - 1 - pair), last.eq(left == 2 + pair)]
    with m.If(queue.r_en):
        m.d.sync += [there.eq(queue.r_rdy), run.eq(head), left.eq(head.beats), last.eq(single)]
    return there, run, ends, pair
