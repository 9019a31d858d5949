"""Scan: walk through the rows and columns of a pooling.

Rows above and below the image and columns right of it, where windows begin or end, are gone through without words.
"""

from types import SimpleNamespace

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..streams import later, register
from .reduce import slot, taps_of
from .unit import unit_ports

BANKS = 4
DISTANCE = 4  # cycles between two uses of a word of a Bank
STEP = 2  # cycles from a column to its ``step``


def step(words: int) -> data.StructLayout:
    """Return the layout of a step: what the banks, of ``words`` each, do with a column of the output.

    ``ends``  the window in slot ``bank`` has its last row
    """
    return data.StructLayout({"slots": data.ArrayLayout(slot(words), BANKS), "ends": 1, "bank": range(BANKS)})


class Scan(wiring.Component):
    """A step a cycle through one plane after the other, and two cycles from row to row.

    What follows from the counters is in registers: of a row when the one before it begins, of a column with the step before. A
    step waits in a register of its own until there is a word, and room for a result.

    ``prepare``  begins a Task: 1 for a cycle, with the new ``task``
    ``step``     of the column of ``STEP`` cycles ago
    ``shift``    the next column goes to the taps, with ``there`` if it is one of the image; ``begins`` if the row's first
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
        """Return the counters of rows and columns, and the step that waits."""
        m = Module()
        slots, preparing = self._slots(m)
        there, fires, turns = Signal(), Signal(), Signal()
        following = self._rows(m, slots, turns)
        row = self._row(m, following, turns)
        columns = self._columns(m, following, row, slots, there, turns)
        layout = data.StructLayout(
            {
                **dict.fromkeys(("takes", "shift", "begins", "update", "ends"), 1),
                "base": len(columns.base),
                "group": len(columns.group),
                "oldest": len(row.oldest),
                "fresh": self.most,
            }
        )
        waiting = register(layout, "waiting")
        m.d.comb += [
            self.ready.eq(~following.busy & ~preparing & ~columns.active & ~there),
            fires.eq(there & (~waiting.takes | self.first.valid) & (~waiting.ends | self.room)),
            columns.go.eq(columns.active & (~there | fires)),
            self.works.eq(fires),
            self.starved.eq(there & waiting.takes & ~self.first.valid),
            self.held.eq(there & waiting.ends & ~self.room),
            self.first.ready.eq(there & waiting.takes & (~waiting.ends | self.room)),
            self.claim.eq(fires & waiting.ends),
            self.shift.eq(fires & waiting.shift),
            self.begins.eq(waiting.begins),
            self.there.eq(waiting.takes),
        ]
        with m.If(~there | fires):
            m.d.sync += [
                there.eq(columns.active),
                waiting.takes.eq(columns.words_some & columns.group_first),
                waiting.shift.eq(row.in_image & columns.group_first),
                waiting.begins.eq(columns.first),
                waiting.update.eq(row.in_image & columns.makes),
                waiting.ends.eq(columns.makes & columns.group_serves),
                waiting.base.eq(columns.base),
                waiting.group.eq(columns.group),
                waiting.oldest.eq(row.oldest),
                waiting.fresh.eq(row.fresh),
            ]
        self._place(m, waiting, fires, slots)
        return m

    def _slots(self, m: Module) -> tuple[Signal, Signal]:
        """Count the slots of a column, kernel / stride rounded up, at the begin of a Task; return them, and 1 meanwhile."""
        task, slots = self.task, register(range(self.most + 1), "slots")
        reach, preparing = register(9, "reach"), Signal()
        with m.If(self.prepare):
            m.d.sync += [preparing.eq(1), slots.eq(0), reach.eq(0)]
        with m.If(preparing):
            with m.If(reach < task.kernel_h):
                m.d.sync += [reach.eq(reach + task.stride_h), slots.eq(slots + 1)]
            with m.Else():
                m.d.sync += preparing.eq(0)
        return slots, preparing

    def _row(self, m: Module, following: SimpleNamespace, turns: Signal) -> SimpleNamespace:
        """Return what the columns need of their row: that of ``following`` when they have begun it."""
        row = {}
        for name in ("is_above", "in_image", "serves", "oldest", "fresh"):
            new = getattr(following, name)
            row[name] = register(new.shape(), f"its_{name}")
            with m.If(turns):
                m.d.sync += row[name].eq(new)
        return SimpleNamespace(**row)

    def _rows(self, m: Module, slots: Signal, turns: Signal) -> SimpleNamespace:
        """Return the row after the current one: above the image, of it, or below it; windows begin and end every stride rows.

        With ``turns`` it becomes the current one. Three cycles later, the soonest that it may again, the next one is right.
        """
        task, most = self.task, self.most
        busy, above, rows = Signal(), register(8, "above"), register(16, "rows")
        until_begin, until_end = register(8, "until_begin"), register(8, "until_end")
        to_begin, to_end = register(16, "to_begin"), register(16, "to_end")
        oldest, newest, fresh = (
            register(range(most), "oldest"),
            register(range(most), "newest"),
            register(most, "fresh"),
        )
        is_above, in_image = later(m, above != 0, "is_above"), later(m, (above == 0) & (rows != 0), "in_image")
        begins, more = later(m, until_begin == 0, "begins_windows"), later(m, to_begin != 0, "more_windows")
        done = later(m, until_end == 0, "ends_windows")
        serves = later(m, (until_end == 0) & (to_end != 0), "serves")  # windows end in this row
        rest_done = later(m, (to_end == 0) | ((until_end == 0) & (to_end == 1)), "rest_done")
        last = later(m, ~is_above & later(m, rows <= 1, "rows_done") & rest_done, "last_row")
        next_begin = later(m, (task.stride_h - 1)[:8], "next_begin")
        newest_wraps, oldest_wraps = (
            later(m, newest + 1 == slots, "newest_wraps"),
            later(m, oldest + 1 == slots, "oldest_wraps"),
        )
        with m.If(later(m, turns & busy, "turned")):
            with m.If(in_image):
                m.d.sync += [rows.eq(rows - 1), fresh.eq(0)]
            with m.If(is_above):
                m.d.sync += above.eq(above - 1)
            m.d.sync += [until_begin.eq(until_begin - 1), until_end.eq(until_end - 1), busy.eq(~last)]
            with m.If(begins):
                m.d.sync += until_begin.eq(next_begin)
                with m.If(more):
                    m.d.sync += [fresh.bit_select(newest, 1).eq(1), to_begin.eq(to_begin - 1)]
                    m.d.sync += newest.eq(Mux(newest_wraps, 0, newest + 1))
            with m.If(done):
                m.d.sync += until_end.eq(next_begin)
                m.d.sync += [oldest.eq(Mux(oldest_wraps, 0, oldest + 1)), to_end.eq(to_end - serves)]
        with m.If(self.start):  # the first window begins with the first row above the image
            m.d.sync += [busy.eq(1), above.eq(task.pad_h), rows.eq(task.input_height), fresh.eq(1), oldest.eq(0)]
            m.d.sync += [until_begin.eq(next_begin), to_begin.eq(task.output_height - 1)]
            m.d.sync += [until_end.eq(task.kernel_h - 1), to_end.eq(task.output_height)]
            m.d.sync += newest.eq(Mux(slots == 1, 0, 1))
        return SimpleNamespace(
            busy=busy,
            is_above=is_above,
            in_image=in_image,
            serves=serves,
            oldest=oldest,
            fresh=fresh,
        )

    def _columns(
        self,
        m: Module,
        following: SimpleNamespace,
        row: SimpleNamespace,
        slots: Signal,
        waits: Signal,
        turns: Signal,
    ) -> SimpleNamespace:
        """Return the place in a row: columns of the image and of the output, and the groups of a column's slots.

        ``go``     the step of this cycle is taken; ``active`` if there is one
        ``waits``  there is an earlier step: narrow rows begin ``DISTANCE`` cycles after the last one's end
        ``turns``  is set when the row that follows begins
        """
        task, most, go = self.task, self.most, Signal()
        active, pause = Signal(), Signal(range(DISTANCE - 1))
        words, outs, until_out = register(16, "words"), register(16, "outs"), register(8, "until_out")
        # of the image: there are words left, at most one
        words_some, words_last = register(1, "words_some"), register(1, "words_last")
        # sums: some, one, none after this column
        outs_some, outs_one, outs_last = (register(1, f"outs_{name}") for name in ("some", "one", "last"))
        # a window's last column: this one, the next; with a sum
        out_now, out_next, makes = register(1, "out_now"), register(1, "out_next"), register(1, "makes")
        base, group = register(range(self.depth + most), "base"), register(range(most // BANKS + 1), "group")
        flags = "group_first", "group_last", "group_serves", "first"
        group_first, group_last, group_serves, first = (register(1, name) for name in flags)
        groups = later(m, (slots + BANKS - 1) // BANKS, "groups")  # of slots that are side by side
        its_group = row.oldest // BANKS
        # of the Task
        narrow, one_word = later(m, task.output_width < DISTANCE, "narrow"), later(m, task.input_width == 1, "one_word")
        one_out, one_group = later(m, task.output_width == 1, "one_out"), later(m, groups == 1, "one_group")
        offset = later(m, (task.kernel_w - 1 - task.pad_w)[:8], "offset")
        at_once, soon = later(m, offset == 0, "at_once"), later(m, offset == 1, "soon")
        each, second = later(m, task.stride_w == 1, "each"), later(m, task.stride_w == 2, "second")
        to_next = later(m, (task.stride_w - 1)[:8], "to_next")
        # of this row: the first group, whether it is the only one, and whether each column makes a sum
        begin, alone, every = register(group.shape(), "begin"), register(1, "alone"), register(1, "every")
        before = register(group.shape(), "before")  # the group before the one whose windows end

        column_ends = ~makes | group_last
        next_some, next_one = Mux(makes, ~outs_one, outs_some), Mux(makes, outs == 2, outs_one)
        next_now = Mux(out_now, every, out_next)
        with m.If(go):
            m.d.sync += [
                group.eq(group + 1),
                group_first.eq(0),
                group_last.eq(group + 2 == groups),
                group_serves.eq(row.serves & (group == before)),
            ]
            with m.If(column_ends):
                m.d.sync += [group.eq(begin), group_first.eq(1), group_last.eq(alone)]
                m.d.sync += group_serves.eq(row.serves & (begin == its_group))
                m.d.sync += [first.eq(0), words.eq(words - 1), outs.eq(outs - makes)]
                m.d.sync += [words_last.eq(words_last | (words == 2)), words_some.eq(words_some & ~words_last)]
                m.d.sync += [until_out.eq(Mux(out_now, to_next, until_out - 1)), out_now.eq(next_now)]
                m.d.sync += out_next.eq(Mux(out_now, second, until_out == 2))
                m.d.sync += [outs_some.eq(next_some), outs_one.eq(next_one), makes.eq(next_now & next_some)]
                m.d.sync += outs_last.eq(~next_some | (next_now & next_one))
                m.d.sync += base.eq(base + Mux(makes, slots, 0))
        m.d.comb += turns.eq((pause == 1) & ~(narrow & waits))  # the flags of the row are right
        with m.If((pause != 0) & ~(narrow & waits)):
            m.d.sync += pause.eq(pause - 1)
        with m.If((go & column_ends & words_last & outs_last) | self.start):
            m.d.sync += [active.eq(0), pause.eq(DISTANCE - 2)]
        with m.If(turns):
            below, its_group = ~following.in_image & ~following.is_above, following.oldest // BANKS
            some, now = following.in_image | (below & following.serves), below | at_once
            m.d.sync += [active.eq(following.busy), first.eq(1), base.eq(0)]
            m.d.sync += [
                words.eq(task.input_width),
                words_some.eq(following.in_image),
                words_last.eq(~following.in_image | one_word),
            ]
            m.d.sync += [outs.eq(task.output_width), outs_some.eq(some), outs_one.eq(one_out)]
            m.d.sync += [makes.eq(some & now), outs_last.eq(~some | (now & one_out))]
            m.d.sync += [until_out.eq(offset), out_now.eq(now), out_next.eq(soon), every.eq(each | below)]
            m.d.sync += [begin.eq(Mux(below, its_group, 0)), group.eq(Mux(below, its_group, 0)), group_first.eq(1)]
            m.d.sync += [group_last.eq(one_group | below), alone.eq(one_group | below)]
            m.d.sync += group_serves.eq(following.serves & (below | (its_group == 0)))
            m.d.sync += before.eq(its_group - 1)
        return SimpleNamespace(
            go=go,
            active=active,
            words_some=words_some,
            makes=makes,
            base=base,
            group=group,
            group_first=group_first,
            group_serves=group_serves,
            first=first,
        )

    def _place(self, m: Module, waiting: data.View, fires: Signal, slots: Signal) -> None:
        """Set ``step``: slot s of a column is at base + s, and each bank has some of them."""
        low = waiting.base[:2]
        place, carry = later(m, (waiting.base >> 2) + waiting.group, "place"), later(m, low, "low")
        first, second = register(self.step.shape(), "placed"), register(self.step.shape(), "step")
        m.d.sync += [first.ends.eq(fires & waiting.ends), first.bank.eq(low + waiting.oldest), second.eq(first)]
        for bank in range(BANKS):
            of_bank = first.slots[bank]
            number = Cat((bank - low)[:2], waiting.group)  # of the slot
            m.d.sync += [
                of_bank.live.eq(number < slots),
                of_bank.update.eq(fires & waiting.update),
                of_bank.fresh.eq(waiting.fresh.bit_select(number, 1)),
                second.slots[bank].address.eq(place + (carry > bank)),
            ]
        m.d.comb += self.step.eq(second)
