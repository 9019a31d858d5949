"""Registers that cut long paths: in streams, and of values that have some cycles to settle."""

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value
from amaranth.lib import stream
from amaranth.lib.data import View
from amaranth.lib.wiring import Component, In, Out


class Slice(Component):
    """A stream a cycle later, with registers before ``valid``, ``ready`` and the payload; it transfers in each cycle."""

    def __init__(self, shape: object) -> None:
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Return the register, and the one for what came when it could not go on."""
        m = Module()
        before, after = self.input, self.output
        payload, spare = (register(Shape.cast(before.payload.shape()), name) for name in ("payload", "spare"))
        full = Signal()  # the second register
        m.d.comb += [before.ready.eq(~full), Value.cast(after.payload).eq(payload)]
        with m.If(~after.valid | after.ready):
            m.d.sync += [after.valid.eq(before.valid | full), full.eq(0)]
            m.d.sync += payload.eq(Mux(full, spare, Value.cast(before.payload)))
        with m.Elif(before.valid):
            m.d.sync += full.eq(1)
        with m.If(~full):
            m.d.sync += spare.eq(Value.cast(before.payload))
        return m


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
    signed = Value.cast(a).shape().signed
    parts: list[Value] = [Mux(bit, Value.cast(a), 0) << i for i, bit in enumerate(Value.cast(b))]
    if signed:
        parts[-1] = -parts[-1]  # of the bit that is the sign
    level = 0
    while level == 0 or len(parts) > 1:
        sums = [sum(parts[i + 1 : i + 2], start=parts[i]) for i in range(0, len(parts), 2)]
        cut = [
            value[:bits].as_signed() if signed and len(value) > bits else value if signed else value[:bits]
            for value in sums
        ]
        parts = [later(m, value, f"{name}_{level}_{i}") for i, value in enumerate(cut)]
        level += 1
    return parts[0]


def levels(b: Value) -> int:
    """Return the cycles that ``product`` takes."""
    return max(1, (len(Value.cast(b)) - 1).bit_length())


def counted(m: Module, queue: object, layout: object, taken: Value) -> tuple[Signal, Signal, Value]:
    """Count the beats of the runs in a queue; ``taken`` is 1 for each beat.

    Return whether there is a run, the run (whose ``beats`` are at least 1), and whether its next beat is the last one.
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
    if wanted is not None:
        two = register(1, "run_two")
        pair = wanted & ~last
        ends = Mux(pair, two, last)
        m.d.sync += two.eq(Mux(queue.r_en, head.beats == 2, Mux(taken, left == 3 + pair, two)))
    m.d.comb += queue.r_en.eq(~there | (taken & ends))
    with m.If(taken):
        m.d.sync += [left.eq(left - 1 - pair), last.eq(left == 2 + pair)]
    with m.If(queue.r_en):
        m.d.sync += [there.eq(queue.r_rdy), run.eq(head), left.eq(head.beats), last.eq(head.beats == 1)]
    return there, run, ends, pair
