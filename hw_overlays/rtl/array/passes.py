"""The passes of a job, one for each tap of the kernel and block of inputs, and the pixels of a pass."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..ports import log2
from ..streams import later, product, register
from .constants import COUNT
from .jobs import job
from .loader import CHUNKS
from .plan import SIDE, WORDS, plan

SETTLE = 4  # cycles from a new job, or a step, until what follows from it is in registers
PREPARE = 7  # cycles before the first pixel of a pass in which it is offered


def pass_layout(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a pass: its job, with the place where the pass begins, and whether it is the first or final one."""
    return data.StructLayout({**job(overlay).members, "first": 1, "final": 1})


def place(pixel: int, columns: Value) -> tuple[Value, Value]:
    """Return row and column of a pixel of a tile whose rows have so many columns."""
    row, column = Const(0), Const(pixel)
    for size in range(1, pixel + 1):
        row = Mux(columns == size, pixel // size, row)
        column = Mux(columns == size, pixel % size, column)
    return row, column


class Passes(wiring.Component):
    """Turn jobs into passes: blocks of inputs, rows of the kernel, columns. A pass is ready some cycles after the last one.

    ``plan``  that of ``slot`` one cycle before
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "slot": Out(1),
                "jobs": In(stream.Signature(job(overlay))),
                "passes": Out(stream.Signature(pass_layout(overlay))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the loops; each level remembers the address where its next step begins from."""
        m = Module()
        plan, payload = self.plan, self.passes.payload
        current = register(payload.shape(), "current")
        m.d.comb += [self.slot.eq(current.slot), payload.eq(current)]
        ring = payload.shape()["address"].shape
        block, block_address = register(13, "block"), register(ring, "block_address")
        row, row_address, top = register(8, "row"), register(ring, "row_address"), register(signed(SIDE), "top")
        column, left = register(8, "column"), register(signed(SIDE), "left")
        # what follows from these: whether the step is the last one, and where the next one begins
        last_column = later(m, plan.kernel_w - 1, "last_column")
        last_row = later(m, plan.kernel_h - 1, "last_row")
        last_block = later(m, plan.blocks - 1, "last_block")
        column_end = later(m, column == last_column[:8], "column_end")
        row_end = later(m, row == last_row[:8], "row_end")
        block_end = later(m, plan.depthwise | (block == last_block[:13]), "block_end")
        next_row = later(m, (row_address + plan.tap_step)[:ring], "next_row")
        next_block = later(m, (block_address + plan.input_width)[:ring], "next_block")
        m.d.comb += payload.final.eq(column_end & row_end & block_end)
        settle = register(range(SETTLE + 1), "settle")
        with m.FSM():
            with m.State("JOB"):
                m.d.comb += self.jobs.ready.eq(1)
                new = self.jobs.payload
                m.d.sync += [current[name].eq(new[name]) for name in new.shape().members]
                m.d.sync += [current.first.eq(1), block.eq(0), row.eq(0), column.eq(0)]
                m.d.sync += [block_address.eq(new.address), row_address.eq(new.address)]
                m.d.sync += [top.eq(new.y), left.eq(new.x), settle.eq(SETTLE)]
                with m.If(self.jobs.valid):
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += settle.eq(settle - 1)
                with m.If(settle == 1):
                    m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += self.passes.valid.eq(1)
                m.d.sync += settle.eq(2)
                with m.If(self.passes.ready):
                    m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += [
                    current.first.eq(0),
                    column.eq(column + 1),
                    current.address.eq(current.address + plan.dilation_w),
                    current.x.eq(current.x + plan.dilation_w),
                ]
                m.next = "SETTLE"
                with m.If(column_end):
                    m.d.sync += [
                        column.eq(0),
                        row.eq(row + 1),
                        row_address.eq(next_row),
                        current.address.eq(next_row),
                        current.x.eq(left),
                        current.y.eq(current.y + plan.dilation_h),
                    ]
                with m.If(column_end & row_end):
                    m.d.sync += [
                        row.eq(0),
                        block.eq(block + 1),
                        current.segment.eq(current.segment + 1),
                        block_address.eq(next_block),
                        row_address.eq(next_block),
                        current.address.eq(next_block),
                        current.y.eq(top),
                    ]
                    with m.If(block_end):
                        m.next = "JOB"
        return m


class Feeder(wiring.Component):
    """Load the weights of the pass that comes next; it is offered when the last row is on its way.

    ``fed``  its payload stays from ``load_cycles - 1`` cycles before ``valid`` on, so that the next part prepares it
    ``written``, ``freed``, ``word``, ``weights``  of Constants
    ``row``, ``at``, ``load``  of Multipliers
    ``waits``  a pass is there, but its weights are not
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        array = overlay.array
        passes = stream.Signature(pass_layout(overlay))
        if overlay.load_cycles <= PREPARE:
            raise ValueError(f"weights are loaded in {overlay.load_cycles} cycles: expected more than {PREPARE}")
        super().__init__(
            {
                "passes": In(passes),
                "fed": Out(passes),
                "written": In(COUNT),
                "freed": Out(COUNT),
                "word": Out(COUNT),
                "weights": In(overlay.buffers.weights.word_bits),
                "row": Out(data.ArrayLayout(data.ArrayLayout(signed(8), array.outputs), overlay.weight_rows)),
                "at": Out(range(overlay.load_cycles)),
                "load": Out(1),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counter of words, and their way to the array."""
        m = Module()
        words = self.overlay.load_cycles
        here, busy, offered = register(self.fed.payload.shape(), "here"), Signal(), Signal()
        begin = Signal(COUNT)  # the first word of the pass that is loaded next; of this one until its first row is read
        row, running, starts, reading, ends = Signal(range(words)), Signal(), Signal(), Signal(), Signal()
        there = later(m, (self.written - begin)[:COUNT], "there")
        enough, some = later(m, there >= words, "enough"), later(m, there != 0, "some")
        m.d.comb += [
            starts.eq(busy & ~running & ~offered & Mux(here.narrow, some, enough)),
            reading.eq(starts | running),
            ends.eq(running & (row == words - 1)),
            self.waits.eq(busy & ~reading & ~offered),
            self.fed.payload.eq(here),
            self.fed.valid.eq(offered),
            self.passes.ready.eq(~busy | (offered & self.fed.ready)),
        ]
        following = (begin + Mux(here.narrow, 1, words))[:COUNT]
        m.d.sync += self.word.eq(Mux(reading & ~ends, self.word + ~here.narrow, begin))
        with m.If(starts):
            m.d.sync += [running.eq(1), begin.eq(Mux(here.rewind & here.final & ~here.free, self.freed, following))]
        with m.If(reading):
            m.d.sync += row.eq(row + 1)
        with m.If(running & (row == words - 2)):
            m.d.sync += offered.eq(1)
        with m.If(ends):
            m.d.sync += [row.eq(0), running.eq(0)]
            with m.If(here.free):
                m.d.sync += self.freed.eq(begin)
        with m.If(self.passes.ready):
            m.d.sync += [busy.eq(self.passes.valid), here.eq(self.passes.payload), offered.eq(0)]
        self._rows(m, row, reading, here.narrow)
        return m

    def _rows(self, m: Module, row: Value, reading: Value, narrow: Value) -> None:
        """Take a word from the ring two cycles later, and give it to the array in the next one."""
        load = reading
        for i in range(2):
            row, narrow, load = (
                later(m, value, f"{name}_{i}") for value, name in ((row, "at"), (narrow, "narrow"), (load, "load"))
            )
        m.d.sync += [self.at.eq(row), self.load.eq(load)]
        codes, rows = data.View(self.row.shape(), self.weights), self.overlay.weight_rows
        for i in range(rows):
            for output in range(self.overlay.array.outputs):
                # a narrow word has the diagonal, one weight of each input, where other words have the first input's weights
                away = row != output // rows if output % rows == i else Const(1)
                code = Mux(narrow, codes[0][output], codes[i][output]) if i else codes[0][output]
                m.d.comb += self.row[i][output].eq(later(m, Mux(narrow & away, 0, code), f"row_{i}_{output}"))


class Pixels(wiring.Component):
    """Issue the pixels of passes, one for each lane in each cycle: the next ones of a tile, row by row.

    ``plan``          that of ``slot`` one cycle before
    ``fed``           a pass whose payload stays from ``PREPARE`` cycles before ``valid`` on
    ``chunks``, ``segments``  of each loader
    ``drained``       jobs whose accumulators are read
    ``words``         addresses in the input ring
    ``inside``        which of the pixels are in the image; the others are padding with code ``zero``
    ``swap``          the pixels are the first ones of a pass
    ``address``, ``bank``, ``first``  of the accumulators
    ``job``, ``final``  the pass's job, and whether the last one is among these
    ``release``       words of the input ring
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        depth, lanes = overlay.buffers.accumulators.depth, overlay.array.lanes
        loaders = overlay.array.inputs // overlay.layout.channels_per_word
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "slot": Out(1),
                "fed": In(stream.Signature(pass_layout(overlay))),
                "chunks": In(data.ArrayLayout(CHUNKS, loaders)),
                "segments": In(data.ArrayLayout(13, loaders)),
                "drained": In(COUNT),
                "words": Out(data.ArrayLayout(log2(overlay.buffers.input.depth), lanes)),
                "valid": Out(1),
                "inside": Out(lanes),
                "zero": Out(1),
                "swap": Out(1),
                "address": Out(range(depth)),
                "bank": Out(1, init=1),
                "first": Out(1),
                "job": Out(job(overlay)),
                "final": Out(1),
                "release": Out(WORDS),
                "waits_input": Out(1),
                "waits_bank": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of pixels, and what is prepared of the next pass."""
        m = Module()
        fed = self.fed.payload
        here = register(fed.shape(), "here")
        lanes = self.overlay.array.lanes
        m.d.comb += self.slot.eq(fed.slot)
        started = Signal(COUNT)  # jobs
        input_there, bank_free = self._conditions(m, started)
        goes = later(m, input_there & bank_free, "goes")
        new, end = Signal(), Signal()
        left = register(fed.pixels.shape(), "left")  # of the tile, these included
        m.d.comb += [
            self.waits_input.eq(self.fed.valid & ~input_there & ~self.valid),
            self.waits_bank.eq(self.fed.valid & input_there & ~bank_free & ~self.valid),
            new.eq(self.fed.valid & self.fed.ready),
            self.fed.ready.eq(goes & (~self.valid | end)),
            self.first.eq(here.first),
            self.job.eq(Cat(here[name] for name in self.job.shape().members)),
            self.final.eq(self.valid & end & here.final),
            self.release.eq(Mux(self.final, here.release, 0)),
        ]
        m.d.sync += self.swap.eq(new)
        with m.If(self.valid):
            m.d.sync += [self.address.eq(self.address + 1), self.valid.eq(~end)]
            m.d.sync += [left.eq(left - lanes), end.eq(left <= 2 * lanes)]
        few = later(m, fed.pixels <= lanes, "few")
        with m.If(new):
            m.d.sync += [here.eq(fed), self.valid.eq(1), self.address.eq(0), left.eq(fed.pixels), end.eq(few)]
            with m.If(fed.first):
                m.d.sync += [started.eq(started + 1), self.bank.eq(~self.bank)]
        self._lanes(m, new)
        return m

    def _conditions(self, m: Module, started: Value) -> tuple[Value, Value]:
        """Return whether the input of the pass that is offered is there, and the accumulators of its job are free."""
        fed, there = self.fed.payload, []
        for i, (chunks, segments) in enumerate(zip(self.chunks, self.segments)):
            ahead = register(signed(CHUNKS), f"ahead_{i}")
            m.d.sync += ahead.eq(chunks - fed.chunk)
            more = later(m, segments > fed.segment, f"more_{i}")
            there.append(later(m, (ahead > 0) | ((ahead == 0) & more), f"there_{i}"))
        flying = later(m, (started - self.drained)[:COUNT], "flying")
        return Cat(there).all(), later(m, ~fed.first | (flying < 2), "bank_free")

    def _lanes(self, m: Module, new: Value) -> None:
        """Add the place of each lane's pixel: a step is some columns, or to a later row and some columns back."""
        plan, fed, lanes = self.plan, self.fed.payload, self.overlay.array.lanes
        ring, few = len(self.words[0]), (max(2, lanes) - 1).bit_length()
        wide = max(SIDE, ring)
        # of the plan and the pass that is offered; then of the one whose pixels these are
        offered = {name: later(m, getattr(plan, name), name) for name in ("input_height", "input_width", "input_zero")}
        step_rows, rest = (
            later(m, value[:few], name) for value, name in zip(place(lanes - 1, fed.columns), ("rows", "rest"))
        )
        step = later(m, rest + 1, "step")
        back = later(m, fed.columns - step, "back")
        across = product(m, plan.stride_w, step, few + 8, "across")
        returns = product(m, back, plan.stride_w, wide, "returns")
        down = product(m, plan.stride_h, step_rows, SIDE, "down")
        words_down = product(m, plan.row_step, step_rows, ring, "words_down")
        offered |= {
            "back": back,
            "step": step,
            "soon": later(m, back - step, "soon"),  # the column from which on the step after a step goes to a later row
            "again": later(m, back << 1, "again"),  # the same after a step that does
            "step_word": later(m, (words_down + across)[:ring], "step_word"),
            "wrap_word": later(m, (words_down + plan.row_step - returns)[:ring], "wrap_word"),
            "step_y": down,
            "wrap_y": later(m, (down + plan.stride_h)[:SIDE], "wrap_y"),
            "step_x": across,
            "wrap_x": later(m, (-returns)[:SIDE], "wrap_x"),
        }
        here = {name: register(value.shape(), f"here_{name}") for name, value in offered.items()}
        with m.If(new):
            m.d.sync += [value.eq(offered[name]) for name, value in here.items()]
        m.d.comb += self.zero.eq(here["input_zero"])
        for lane in range(lanes):
            self._lane(m, lane, new, here, back)

    def _lane(self, m: Module, lane: int, new: Value, here: dict[str, Signal], back: Value) -> None:
        plan, fed, word = self.plan, self.fed.payload, self.words[lane]
        ring, bits = len(word), len(fed.columns)
        first_row, first_column = (
            later(m, value, f"first_{name}_{lane}") for value, name in zip(place(lane, fed.columns), ("row", "column"))
        )
        first_x = product(m, plan.stride_w, first_column, max(SIDE, ring), f"first_x_{lane}")
        first_y = product(m, plan.stride_h, first_row, SIDE, f"first_y_{lane}")
        first_word = product(m, plan.row_step, first_row, ring, f"first_word_{lane}")
        begin = later(m, (first_word + first_x)[:ring], f"begin_{lane}")
        at = later(m, (fed.address + begin)[:ring], f"at_{lane}")
        column, wraps = register(bits, f"column_{lane}"), register(1, f"wraps_{lane}")
        y, x, top, side = (register(signed(SIDE), f"{name}_{lane}") for name in ("y", "x", "top", "side"))
        m.d.sync += [top.eq(fed.y + first_y), side.eq(fed.x + first_x)]
        first_wraps = later(m, first_column >= back, f"first_wraps_{lane}")
        m.d.comb += self.inside[lane].eq((y >= 0) & (y < here["input_height"]) & (x >= 0) & (x < here["input_width"]))
        m.d.sync += [
            column.eq(Mux(wraps, column - here["back"], column + here["step"])),
            wraps.eq(Mux(wraps, column >= here["again"], column >= here["soon"])),
            word.eq(word + Mux(wraps, here["wrap_word"], here["step_word"])),
            y.eq(y + Mux(wraps, here["wrap_y"], here["step_y"])),
            x.eq(x + Mux(wraps, here["wrap_x"], here["step_x"])),
        ]
        with m.If(new):
            m.d.sync += [column.eq(first_column), wraps.eq(first_wraps), word.eq(at), y.eq(top), x.eq(side)]
