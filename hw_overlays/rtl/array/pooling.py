"""A maximum pooling after the drain: the codes of a plane, row by row, become the largest ones of its windows.

Two windows share a row or a column only where one ends and the other one begins. So each channel has a register for the
window of the current columns, and a column of the output one word in a memory, for its window of the current rows: those of
all planes of a Task, since its tiles have windows in common.
"""

from types import SimpleNamespace

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay
from chai.tasks.conv import Conv
from chai.tasks.pooling import GAP

from ..ports import log2
from ..streams import later, register
from .jobs import job
from .plan import plan
from .writer import planes_of, run_of

SIDE = 3  # bits of sizes of a window


def columns_of(overlay: Overlay) -> int:
    """Return the columns of unfinished windows of each plane that leaves the array with others; 0 without the unit."""
    limits = Conv.limits(overlay)
    return getattr(limits, "pool_columns_max", 0) // overlay.planes_at_once


def place_of(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a word's place in its windows.

    ``real``  it is one of the image; the others, right of it and below it, only end windows
    ``fresh``, ``ends``, ``laps``  it is the first of its row in a window, and the last one; the next window begins with it, too
    ``fresh_row``, ``ends_row``, ``laps_row``  the same of its row
    ``at``    of the column of the output
    """
    flags = "real", "fresh", "ends", "laps", "fresh_row", "ends_row", "laps_row"
    return data.StructLayout({**dict.fromkeys(flags, 1), "at": range(max(2, columns_of(overlay)))})


def alone(overlay: Overlay) -> object:
    """Return the place of a word that is a window of its own."""
    ones = dict.fromkeys(("real", "fresh", "ends", "fresh_row", "ends_row"), 1)
    return place_of(overlay).const(ones)


class Sweep(wiring.Component):
    """The way through the rows and columns of a job's planes, ``GAP`` cycles from row to row.

    ``plan``, ``job``  those that are drained; ``begins``: 1 for a cycle when both, and what follows from a plan, are there
    ``last_part``   the plane is the job's last one
    ``open``        the next word may be read; ``goes``: it is
    ``place``       that word's; ``end`` if it is the last one of its plane
    ``runs``        the rows of the output, each before its first word
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay, self.bits, self.planes = overlay, overlay.address_bits, overlay.planes_at_once
        run = run_of(overlay)
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "job": In(job(overlay)),
                "begins": In(1),
                "last_part": In(1),
                "open": Out(1),
                "goes": In(1),
                "place": Out(place_of(overlay)),
                "end": Out(1),
                "runs": Out(stream.Signature(run)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of rows and columns, and the pause between rows, in which what follows from them settles."""
        m = Module()
        gap, last = Signal(range(GAP + 1)), register(1, "last")
        row_ends = self.goes & last
        row = self._rows(m, later(m, row_ends, "row_ended"))
        self._columns(m, row, gap != 0, last)
        m.d.comb += self.end.eq(last & row.last)
        with m.If(self.runs.ready):
            m.d.sync += self.runs.valid.eq(0)
        with m.If(gap > 1):
            m.d.sync += gap.eq(gap - 1)
        with m.If((gap == 1) & (~row.ends | ~self.runs.valid)):
            m.d.sync += [gap.eq(0), self.open.eq(1)]
            with m.If(row.ends):
                m.d.sync += self.runs.valid.eq(1)
        with m.If(row_ends):
            m.d.sync += [gap.eq(Mux(row.last & self.last_part, 0, GAP)), self.open.eq(0)]
        with m.If(self.begins):
            m.d.sync += gap.eq(GAP)
        return m

    def _rows(self, m: Module, row_ended: Value) -> SimpleNamespace:
        """Set what the place has of its row, and the run that it begins, a cycle after a row's last word.

        Return whether windows end in it, whether it is of the image, the plane's last one, and where its columns begin.
        Each plane of a job begins with the rows that its tile begins with: after those of the tile before, or of the image.
        """
        plan, job, bits, place = self.plan, self.job, self.bits, self.place
        state = data.StructLayout(
            {"until": SIDE, "fresh": 1, "offset": bits}
        )  # rows to the end of a window, that included
        now, start = register(state, "now"), register(state, "start")
        rows, over = register(len(job.rows) + 1, "rows"), later(m, Mux(job.bottom, plan.pool_over_h, 0), "over")
        plane, base = register(bits, "plane"), register(place.at.shape(), "base")
        laps = later(m, plan.pool_stride_h < plan.pool_kernel_h, "laps_row")
        ends, last = later(m, now.until == 1, "ends_row"), later(m, rows == 1, "last_row")
        every = later(m, job.rows + Mux(job.bottom, plan.pool_over_h, 0), "every_row")
        after = register(state, "after")  # the row
        written = later(m, Mux(ends, plan.pooled_width << 3, 0), "written")
        m.d.sync += [
            after.until.eq(Mux(ends, plan.pool_stride_h, now.until - 1)),
            after.fresh.eq(ends & ~laps),
            after.offset.eq(now.offset + written),
        ]
        next_plane = later(m, (plane + (plan.output_pitch << log2(self.planes)))[:bits], "next_plane")
        next_base = later(m, (base + plan.pooled_width)[: len(base)], "next_base")
        first = register(state, "first")  # of an image
        m.d.sync += [first.until.eq(plan.pool_kernel_h - plan.pool_pad_h), first.fresh.eq(1), first.offset.eq(0)]
        goes_on = later(m, ~self.last_part, "goes_on")  # to another plane, if the row was the last of its plane
        with m.If(row_ended):
            m.d.sync += [rows.eq(rows - 1), now.eq(after)]
            with m.If(last):
                m.d.sync += [rows.eq(every), plane.eq(next_plane), base.eq(next_base)]
                with m.If(goes_on):
                    m.d.sync += now.eq(start)
        with m.If(self.begins):
            chosen = Mux(job.top, first.as_value(), Mux(job.again, start.as_value(), now.as_value()))
            m.d.sync += [now.as_value().eq(chosen), start.as_value().eq(chosen)]
            m.d.sync += [rows.eq(every), plane.eq(job.output), base.eq(Mux(job.again, base, 0))]
        real = later(m, rows > over, "real_row")
        m.d.comb += [place.fresh_row.eq(now.fresh), place.ends_row.eq(ends), place.laps_row.eq(laps)]
        run = self.runs.payload
        offered = register(run.shape(), "offered")  # stays while ``runs`` is valid
        if self.planes > 1:
            left = register(job.channels.shape(), "channels_left")  # this plane's and those with it included
            with m.If(row_ended & last):
                m.d.sync += left.eq(left - self.overlay.requant.lanes)
            with m.If(self.begins):
                m.d.sync += left.eq(job.channels)
            with m.If(~self.runs.valid):
                m.d.sync += [offered.planes.eq(planes_of(self.overlay, left)), offered.pitch.eq(plan.output_pitch)]
        with m.If(~self.runs.valid):
            m.d.sync += [offered.address.eq(plane + now.offset), offered.beats.eq(plan.pooled_width)]
            m.d.sync += [offered.last.eq(job.last & self.last_part & last), offered.tag.eq(plan.tag)]
        m.d.comb += run.eq(offered)
        return SimpleNamespace(ends=ends, real=real, last=last, base=base)

    def _columns(self, m: Module, row: SimpleNamespace, pauses: Value, last: Signal) -> None:
        """Set what the place has of its column."""
        plan, place = self.plan, self.place
        left, until = register(17, "left"), register(SIDE, "until")
        ends, fresh, at, real = (register(place[name].shape(), name) for name in ("ends", "fresh", "at", "real"))
        every = later(m, plan.output_width + plan.pool_over_w, "every_column")
        first = later(m, (plan.pool_kernel_w - plan.pool_pad_w)[:SIDE], "first_end")
        over = later(m, plan.pool_over_w + 1, "over_next")
        laps = later(m, plan.pool_stride_w < plan.pool_kernel_w, "laps")
        one, at_once, each = (
            later(m, value == 1, name)
            for value, name in ((every, "one"), (first, "at_once"), (plan.pool_stride_w, "each"))
        )
        with m.If(self.goes):
            m.d.sync += [left.eq(left - 1), last.eq(left == 2), real.eq(left > over), fresh.eq(ends & ~laps)]
            m.d.sync += [until.eq(Mux(ends, plan.pool_stride_w, until - 1)), ends.eq(Mux(ends, each, until == 2))]
            m.d.sync += at.eq(at + ends)
        with m.If(pauses):
            m.d.sync += [left.eq(every), last.eq(one), real.eq(1), fresh.eq(1), until.eq(first), ends.eq(at_once)]
            m.d.sync += at.eq(row.base)
        m.d.comb += [place.real.eq(real & row.real), place.fresh.eq(fresh), place.ends.eq(ends)]
        m.d.comb += [place.laps.eq(laps), place.at.eq(at)]


class Maxima(wiring.Component):
    """The largest codes of each window, one word of all channels four cycles after its last one.

    ``codes``, ``valid``, ``place``  words in the order of a Sweep
    ``word``, ``write``  the maxima
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        codes = data.ArrayLayout(8, overlay.layout.channels_per_word)
        super().__init__(
            {
                "codes": In(codes),
                "valid": In(1),
                "place": In(place_of(overlay)),
                "word": Out(codes),
                "write": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the maxima of columns, then those of rows: a cycle each, and one before them."""
        m = Module()
        shape = self.codes.shape()
        m.submodules.windows = windows = Memory(shape=shape, depth=columns_of(self.overlay), init=[])
        reader, writer = windows.read_port(), windows.write_port()
        lowest = [Mux(self.place.real, self.codes[i], 0x80) for i in range(shape.length)]
        valid, place = (
            later(m, self.valid, "valid"),
            data.View(self.place.shape(), later(m, self.place.as_value(), "place")),
        )
        completes = later(m, valid & place.ends, "completes")
        below = data.View(place.shape(), later(m, place.as_value(), "below"))  # the place of what goes into ``windows``
        held = data.View(shape, later(m, reader.data.as_value(), "held"))  # the memory's output register
        done = later(m, completes, "done")
        under = data.View(place.shape(), later(m, below.as_value(), "under"))
        m.d.comb += [
            reader.addr.eq(place.at),
            writer.addr.eq(later(m, under.at, "written_at")),
            writer.en.eq(later(m, done, "written")),
            self.write.eq(later(m, done & under.ends_row, "complete")),
        ]
        for i in range(shape.length):
            code, across = later(m, lowest[i], f"code_{i}"), register(8, f"across_{i}")
            wide = Mux(place.fresh, code, larger(across, code))
            row = later(m, later(m, wide, f"row_{i}"), f"row_later_{i}")
            with m.If(valid):
                m.d.sync += across.eq(Mux(place.ends & place.laps, code, wide))
            high = Mux(under.fresh_row, row, larger(held[i], row))
            m.d.comb += self.word[i].eq(later(m, high, f"high_{i}"))
            kept = later(m, Mux(under.ends_row & under.laps_row, row, high), f"kept_{i}")
            m.d.comb += writer.data[i].eq(kept)
        return m


def larger(a: Value, b: Value) -> Value:
    """Return the larger of two codes, which a carry chain compares."""
    return Mux((a.as_signed() - b.as_signed())[-1], b, a)
