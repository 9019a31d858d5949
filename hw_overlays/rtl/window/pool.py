"""Pool: the maximum or the sum of each window of a plane, one word of the input a cycle.

Columns first: the last words of a row are in ``taps``, and a tree of adders or comparisons reduces those of a window.
Then rows: the windows of a column that the current row belongs to are in ``slots`` of the line memory, and the reduced row
goes into all of them at once. Four banks hold four slots of a column side by side; more take more cycles.

Rows above and below the image and columns right of it, where windows begin or end, are gone through without words.
"""

from amaranth import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from .unit import unit_ports

BANKS = 4
LEVELS = 4  # of the tree
TAPS = (1 << LEVELS) - 1  # columns of a window: the kernel_max of every manifest is 15
SUM = signed(16)  # 15 * 15 * 128 = 28,800
DISTANCE = 4  # cycles between two uses of a column's slots
STAGES = LEVELS + 2  # from a step of the scan to the sums: the tree, and the line memory


def combined(average: object, a: object, b: object) -> object:
    """Return the sum or the maximum of two signed values."""
    return Mux(average, a + b, Mux(a > b, a, b))


class Pool(wiring.Component):
    """Sums or maxima of the windows of one plane after the other.

    ``prepare``  begins a Task: 1 for a cycle, with the new ``task``
    ``sums``     the windows row by row, with ``valid``; ``soon`` is 1 in the cycle before
    """

    def __init__(self, overlay: Overlay) -> None:
        self.step = overlay.layout.channels_per_word
        self.depth = overlay.buffers.pool.depth
        super().__init__(
            unit_ports(overlay) | {"prepare": In(1), "soon": Out(1), "sums": Out(data.ArrayLayout(SUM, self.step))}
        )
        self.step_layout = data.StructLayout(  # one step of the scan, on its way through the stages
            {
                "slots": data.ArrayLayout(
                    data.StructLayout({"address": range(self.depth // BANKS), "live": 1, "fresh": 1}), BANKS
                ),
                "update": 1,  # the slots take the reduced columns
                "ends": 1,  # one of the slots has its last row
                "bank": range(BANKS),  # of this slot
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the scan, the tree and the line memory."""
        m = Module()
        step, row_begins, shift = Signal(self.step_layout), Signal(), Signal()
        word_there = Signal()
        self._scan(m, step, row_begins, shift, word_there)
        row = self._columns(m, row_begins, shift, word_there)
        stages = [step]
        for i in range(STAGES):
            stages.append(Signal(self.step_layout, name=f"stage_{i + 1}"))
            m.d.sync += stages[-1].eq(stages[-2])
        self._lines(m, row, *stages[-3:])
        return m

    def _scan(self, m: Module, step: Signal, row_begins: Signal, shift: Signal, word_there: Signal) -> None:
        """Go through rows and columns, and say what happens in each step."""
        task = self.task
        busy, pause = Signal(), Signal(range(DISTANCE))
        slots, groups = (
            Signal(range(TAPS + 1)),
            Signal(range(TAPS // BANKS + 2)),
        )  # of a column; those of all banks at once
        reach, preparing = Signal(9), Signal()
        m.d.comb += [self.ready.eq(~busy & ~preparing), groups.eq((slots + BANKS - 1) // BANKS)]
        with m.If(self.prepare):
            m.d.sync += [preparing.eq(1), slots.eq(0), reach.eq(0)]
        with m.If(preparing):  # slots = kernel / stride, rounded up
            with m.If(reach < task.kernel_h):
                m.d.sync += [reach.eq(reach + task.stride_h), slots.eq(slots + 1)]
            with m.Else():
                m.d.sync += preparing.eq(0)

        # rows: above the image, of the image, below it; windows begin and end every stride rows
        above, rows = Signal(8), Signal(16)
        until_begin, until_end = Signal(8), Signal(8)
        to_begin, to_end = Signal(16), Signal(16)
        oldest, newest, fresh = Signal(range(TAPS)), Signal(range(TAPS)), Signal(TAPS)
        in_image = (above == 0) & (rows != 0)
        row_serves = (until_end == 0) & (to_end != 0)  # windows end in this row

        # columns
        words, outs, until_out = Signal(16), Signal(16), Signal(8)
        base, group = Signal(range(self.depth + TAPS)), Signal(range(TAPS // BANKS + 1))
        first_column = Signal()
        takes, makes, serves = Signal(), Signal(), Signal()  # a word, a column of slots, a sum
        now = Signal.like(group)  # the group of this step
        column_ends, row_ends, plane_ends = Signal(), Signal(), Signal()
        its_group = oldest // BANKS
        with m.If(in_image):
            m.d.comb += [
                takes.eq((words != 0) & (group == 0)),
                makes.eq((until_out == 0) & (outs != 0)),
                now.eq(group),
                serves.eq(makes & row_serves & (group == its_group)),
                column_ends.eq(~makes | (group == groups - 1)),
                row_ends.eq(column_ends & (words <= 1) & (outs == makes)),
                plane_ends.eq(row_ends & (rows == 1) & (to_end == row_serves)),
            ]
        with m.Elif(above != 0):
            m.d.comb += row_ends.eq(1)
        with m.Else():
            m.d.comb += [
                makes.eq(row_serves),
                now.eq(its_group),
                serves.eq(row_serves),
                column_ends.eq(1),
                row_ends.eq(~row_serves | (outs == 1)),
                plane_ends.eq(row_ends & (to_end == row_serves)),
            ]
        go, fire = Signal(), Signal()
        m.d.comb += [
            go.eq(busy & (pause == 0)),
            self.starved.eq(go & takes & ~self.first.valid),
            self.held.eq(go & serves & ~self.room),
            fire.eq(go & ~self.starved & ~self.held),
            self.works.eq(fire),
            self.first.ready.eq(fire & takes),
            self.claim.eq(fire & serves),
            shift.eq(fire & in_image & (group == 0)),
            row_begins.eq(first_column),
            word_there.eq(takes),
        ]

        with m.If(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.If(fire):
            m.d.sync += group.eq(group + makes)
            with m.If(column_ends):
                m.d.sync += [group.eq(0), first_column.eq(0), outs.eq(outs - makes)]
                m.d.sync += until_out.eq(Mux(until_out == 0, task.stride_w - 1, until_out - 1))
                m.d.sync += base.eq(base + Mux(makes, slots, 0))
                with m.If(words != 0):
                    m.d.sync += words.eq(words - 1)
            with m.If(row_ends):
                with m.If(task.output_width < DISTANCE):
                    m.d.sync += pause.eq(DISTANCE - 1)
                with m.If(in_image):
                    m.d.sync += [rows.eq(rows - 1), fresh.eq(0)]
                with m.If(above != 0):
                    m.d.sync += above.eq(above - 1)
                m.d.sync += [until_begin.eq(until_begin - 1), until_end.eq(until_end - 1)]
                with m.If(until_begin == 0):
                    m.d.sync += until_begin.eq(task.stride_h - 1)
                    with m.If(to_begin != 0):
                        m.d.sync += [fresh.bit_select(newest, 1).eq(1), to_begin.eq(to_begin - 1)]
                        m.d.sync += newest.eq(Mux(newest == slots - 1, 0, newest + 1))
                with m.If(until_end == 0):
                    m.d.sync += until_end.eq(task.stride_h - 1)
                    m.d.sync += [oldest.eq(Mux(oldest == slots - 1, 0, oldest + 1)), to_end.eq(to_end - row_serves)]
            with m.If(plane_ends):
                m.d.sync += busy.eq(0)
        with m.If(self.start):  # the first window begins with the first row above the image
            m.d.sync += [busy.eq(1), above.eq(task.pad_h), rows.eq(task.input_height), fresh.eq(1), oldest.eq(0)]
            m.d.sync += [until_begin.eq(task.stride_h - 1), to_begin.eq(task.output_height - 1)]
            m.d.sync += [until_end.eq(task.kernel_h - 1), to_end.eq(task.output_height)]
            m.d.sync += newest.eq(Mux(slots == 1, 0, 1))
        with m.If(self.start | (fire & row_ends)):
            m.d.sync += [words.eq(task.input_width), outs.eq(task.output_width), base.eq(0), group.eq(0)]
            m.d.sync += [until_out.eq(task.kernel_w - 1 - task.pad_w), first_column.eq(1)]

        # slot s of a column is at base + s: which slot is whose bank's
        place = base + BANKS * now
        low = place[:2]
        for bank in range(BANKS):
            slot = Signal(range(BANKS), name=f"slot_{bank}")
            m.d.comb += slot.eq(bank - low)
            number = BANKS * now + slot
            m.d.comb += [
                step.slots[bank].address.eq((place >> 2) + (slot + low >= BANKS)),
                step.slots[bank].live.eq(number < slots),
                step.slots[bank].fresh.eq(fresh.bit_select(number[:4], 1)),
            ]
        m.d.comb += [
            step.update.eq(fire & in_image & makes),
            step.ends.eq(fire & serves),
            step.bank.eq(low + oldest),
        ]

    def _columns(self, m: Module, row_begins: Signal, shift: Signal, word_there: Signal) -> list[object]:
        """Return the sum or maximum of the last ``kernel_w`` words of the row, for each channel, ``LEVELS`` stages later."""
        task, average = self.task, self.task.average
        taps = [Signal(8 * self.step, name=f"tap_{i}") for i in range(TAPS)]
        there = Signal(TAPS)  # taps that hold words of this row
        with m.If(shift):
            m.d.sync += [there.eq(Cat(word_there, Mux(row_begins, 0, there[:-1]))), taps[0].eq(self.first.payload)]
            m.d.sync += [tap.eq(last) for tap, last in zip(taps[1:], taps)]
        neutral = Mux(average, 0, -128)
        rows = []
        for channel in range(self.step):
            values: list[object] = []
            for i, tap in enumerate(taps):
                in_window = there[i] & (task.kernel_w > i)
                values.append(Mux(in_window, tap.word_select(channel, 8).as_signed(), neutral))
            for level in range(LEVELS):
                pairs = [combined(average, *values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
                pairs += values[len(values) & ~1 :]
                values = [Signal(signed(9 + level), name=f"tree_{channel}_{level}_{i}") for i in range(len(pairs))]
                m.d.sync += [signal.eq(pair) for signal, pair in zip(values, pairs)]
            rows.extend(values)
        return rows

    def _lines(self, m: Module, row: list[object], read: Signal, work: Signal, done: Signal) -> None:
        """Read slots, put the row into them, and write them back, in three stages."""
        average = self.task.average
        kept = []
        for bank in range(BANKS):
            line = memory.Memory(shape=SUM.width * self.step, depth=self.depth // BANKS, init=[])
            m.submodules[f"line_{bank}"] = line
            before, after = line.read_port(), line.write_port()
            new = Signal(SUM.width * self.step, name=f"new_{bank}")
            m.d.comb += [before.addr.eq(read.slots[bank].address), after.addr.eq(done.slots[bank].address)]
            m.d.comb += [after.en.eq(done.update & done.slots[bank].live), after.data.eq(new)]
            for channel in range(self.step):
                old = before.data.word_select(channel, SUM.width).as_signed()
                sums = Mux(work.slots[bank].fresh, row[channel], combined(average, old, row[channel]))
                m.d.sync += new.word_select(channel, SUM.width).eq(Mux(work.update, sums, old))
            kept.append(new)
        m.d.comb += [self.soon.eq(work.ends), self.valid.eq(done.ends)]
        m.d.comb += self.sums.as_value().eq(Array(kept)[done.bank])
