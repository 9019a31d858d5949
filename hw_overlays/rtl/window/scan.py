"""Scan: the way of a pooling through rows and columns.

Rows above and below the image and columns right of it, where windows begin or end, are gone through without words.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from .reduce import slot, taps_of
from .unit import unit_ports

BANKS = 4
DISTANCE = 4  # cycles between two uses of a word of a Bank


def step(words: int) -> data.StructLayout:
    """Return the layout of a step: what the banks, of ``words`` each, do with a column of the output.

    ``ends``  the window in slot ``bank`` has its last row
    """
    return data.StructLayout({"slots": data.ArrayLayout(slot(words), BANKS), "ends": 1, "bank": range(BANKS)})


class Scan(wiring.Component):
    """A step a cycle through one plane after the other.

    ``prepare``  begins a Task: 1 for a cycle, with the new ``task``
    ``step``     of this cycle
    ``shift``    the next column enters the taps, with ``there`` if it is one of the image; ``begins`` if the row's first
    """

    def __init__(self, overlay: Overlay) -> None:
        self.depth = overlay.buffers.pool.depth
        self.most = taps_of(overlay)  # rows of a window, thus slots of a column
        ports = unit_ports(overlay)
        del ports["valid"]
        layout = step(self.depth // BANKS)
        super().__init__(
            ports | {"prepare": In(1), "step": Out(layout), "shift": Out(1), "begins": Out(1), "there": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of rows and columns, and the slots of windows."""
        m = Module()
        task = self.task
        busy, pause = Signal(), Signal(range(DISTANCE))
        most = self.most
        slots = Signal(range(most + 1))  # of a column
        groups = Signal(range(most // BANKS + 2))  # of slots that are side by side
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
        oldest, newest, fresh = Signal(range(most)), Signal(range(most)), Signal(most)
        in_image = (above == 0) & (rows != 0)
        row_serves = (until_end == 0) & (to_end != 0)  # windows end in this row

        # columns
        words, outs, until_out = Signal(16), Signal(16), Signal(8)
        base, group = Signal(range(self.depth + most)), Signal(range(most // BANKS + 1))
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
            self.shift.eq(fire & in_image & (group == 0)),
            self.begins.eq(first_column),
            self.there.eq(takes),
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
        place = Signal(range(self.depth + 2 * most))
        m.d.comb += place.eq(base + BANKS * now)
        low = place[:2]
        for bank in range(BANKS):
            of_bank = self.step.slots[bank]
            number = Signal(range(most + BANKS), name=f"number_{bank}")  # of the slot
            m.d.comb += [
                number.eq(BANKS * now + (bank - low)[:2]),
                of_bank.address.eq((place >> 2) + (low > bank)),
                of_bank.live.eq(number < slots),
                of_bank.update.eq(fire & in_image & makes),
                of_bank.fresh.eq(fresh.bit_select(number, 1)),
            ]
        m.d.comb += [
            self.step.ends.eq(fire & serves),
            self.step.bank.eq(low + oldest),
        ]
        return m
