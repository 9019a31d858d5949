"""The passes of a job, one for each tap of the kernel and block of inputs, and the pixels of a pass."""

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from .constants import COUNT
from .jobs import job, pixel_count
from .loader import CHUNKS
from .plan import SIDE, WORDS, log2, multiplied, plan


def place_layout(overlay: Overlay) -> data.StructLayout:
    """Return the layout of the place of a lane's first pixel.

    ``row``, ``column``  in the tile
    ``begin``, ``y``     address in the input ring, and row of the input, of what its row begins with
    ``ahead``            columns of the input from there
    """
    few = (max(2, overlay.array.lanes) - 1).bit_length()
    ring = log2(overlay.buffers.input.depth)
    return data.StructLayout({"row": few, "column": few, "begin": ring, "y": signed(SIDE), "ahead": few + 8})


def pass_layout(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a pass: its job's, from where it begins, and whether it is the job's first or final one."""
    places = data.ArrayLayout(place_layout(overlay), overlay.array.lanes)
    return data.StructLayout({**job(overlay).members, "places": places, "first": 1, "final": 1})


def place(pixel: int, columns: Value) -> tuple[Value, Value]:
    """Return row and column of a pixel of a tile whose rows have so many columns."""
    row, column = Const(0), Const(pixel)
    for size in range(1, pixel + 1):
        row = Mux(columns == size, pixel // size, row)
        column = Mux(columns == size, pixel % size, column)
    return row, column


class Passes(wiring.Component):
    """Turn jobs into passes: blocks of inputs, rows of the kernel, columns.

    ``plan``  that of ``slot``
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
        layout = self.passes.payload.shape()
        members = {name: shape for name, shape in layout.members.items() if name != "places"}
        current = Signal(data.StructLayout(members), reset_less=True)
        plan = self.plan
        m.d.comb += self.slot.eq(current.slot)
        m.d.comb += [self.passes.payload[name].eq(current[name]) for name in members]
        for lane in range(self.overlay.array.lanes):
            first = self.passes.payload.places[lane]
            row = Signal.like(first.row, name=f"row_{lane}")
            column = Signal.like(first.column, name=f"column_{lane}")
            m.d.comb += [
                *(signal.eq(value) for signal, value in zip((row, column), place(lane, current.columns))),
                first.row.eq(row),
                first.column.eq(column),
                first.begin.eq(current.address + multiplied(plan.row_step, row)),
                first.y.eq(current.y + multiplied(plan.stride_h, row)),
                first.ahead.eq(multiplied(plan.stride_w, column)),
            ]
        ring = layout["address"].shape
        block, block_address = Signal(13), Signal(ring)
        row, row_address, top = Signal(8), Signal(ring), Signal(signed(SIDE))
        column, left = Signal(8), Signal(signed(SIDE))
        column_end, row_end, block_end = Signal(), Signal(), Signal()
        m.d.comb += [
            column_end.eq(column == plan.kernel_w - 1),
            row_end.eq(row == plan.kernel_h - 1),
            block_end.eq(plan.depthwise | (block == plan.blocks - 1)),
            current.final.eq(column_end & row_end & block_end),
        ]
        with m.FSM():
            with m.State("JOB"):
                m.d.comb += self.jobs.ready.eq(1)
                new = self.jobs.payload
                m.d.sync += [current[name].eq(new[name]) for name in new.shape().members]
                m.d.sync += [current.first.eq(1), block.eq(0), row.eq(0), column.eq(0)]
                m.d.sync += [block_address.eq(new.address), row_address.eq(new.address)]
                m.d.sync += [top.eq(new.y), left.eq(new.x)]
                with m.If(self.jobs.valid):
                    m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += self.passes.valid.eq(1)
                with m.If(self.passes.ready):
                    m.d.sync += [
                        current.first.eq(0),
                        column.eq(column + 1),
                        current.address.eq(current.address + plan.dilation_w),
                        current.x.eq(current.x + plan.dilation_w),
                    ]
                    with m.If(column_end):
                        m.d.sync += [
                            column.eq(0),
                            row.eq(row + 1),
                            row_address.eq(row_address + plan.tap_step),
                            current.address.eq(row_address + plan.tap_step),
                            current.x.eq(left),
                            current.y.eq(current.y + plan.dilation_h),
                        ]
                        with m.If(row_end):
                            m.d.sync += [
                                row.eq(0),
                                block.eq(block + 1),
                                current.segment.eq(current.segment + 1),
                                block_address.eq(block_address + plan.input_width),
                                row_address.eq(block_address + plan.input_width),
                                current.address.eq(block_address + plan.input_width),
                                current.y.eq(top),
                            ]
                            with m.If(block_end):
                                m.next = "JOB"
        return m


class Feeder(wiring.Component):
    """Load the weights of the pass that comes next; a pass goes on when the last row is on its way.

    ``plan``  that of ``slot``
    ``written``, ``freed``, ``word``, ``weights``  of Constants
    ``row``, ``at``, ``load``  of Multipliers
    ``waits``  a pass is there, but its weights are not
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        array = overlay.array
        passes = stream.Signature(pass_layout(overlay))
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "slot": Out(1),
                "passes": In(passes),
                "fed": Out(passes),
                "written": In(COUNT),
                "freed": Out(COUNT),
                "word": Out(COUNT),
                "weights": In(8 * array.outputs),
                "row": Out(data.ArrayLayout(signed(8), array.outputs)),
                "at": Out(range(array.inputs)),
                "load": Out(1),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counter of rows, and their way to the array."""
        m = Module()
        array = self.overlay.array
        here, busy = Signal(self.fed.payload.shape(), reset_less=True), Signal()
        depthwise = self.plan.depthwise
        m.d.comb += self.slot.eq(here.slot)
        begin = Signal(COUNT)  # the pass's first word
        row = Signal(range(array.inputs))
        running, reading, done = Signal(), Signal(), Signal()
        there = Signal(COUNT)
        needed = Mux(depthwise, 1, array.inputs)
        last = array.inputs - 1
        m.d.comb += [
            there.eq(self.written - begin),
            reading.eq(busy & ~done & (running | (there >= needed))),
            self.waits.eq(busy & ~done & ~reading),
            self.word.eq(begin + Mux(depthwise, 0, row)),
            self.fed.payload.eq(here),
            self.fed.valid.eq(busy & (done | (reading & (row == last)))),
            self.passes.ready.eq(~busy | (self.fed.valid & self.fed.ready)),
        ]
        with m.If(reading):
            m.d.sync += [running.eq(1), row.eq(row + 1)]
            with m.If(row == last):
                m.d.sync += [row.eq(0), running.eq(0), done.eq(1), begin.eq(begin + needed)]
                with m.If(here.free):
                    m.d.sync += self.freed.eq(begin + needed)
                with m.Elif(here.rewind & here.final):
                    m.d.sync += begin.eq(self.freed)
        with m.If(self.passes.ready):
            m.d.sync += [busy.eq(self.passes.valid), here.eq(self.passes.payload), done.eq(0)]

        # the ring's word in the next cycle, a register for the way, then the array
        at, load, narrow = Signal.like(row), Signal(), Signal()
        m.d.sync += [at.eq(row), load.eq(reading), narrow.eq(depthwise), self.at.eq(at), self.load.eq(load)]
        codes = data.View(self.row.shape(), self.weights)
        for output in range(array.outputs):
            m.d.sync += self.row[output].eq(Mux(narrow & (at != output), 0, codes[output]))
        return m


class Pixels(wiring.Component):
    """Issue the pixels of passes, one for each lane in each cycle: the next ones of a tile, row by row.

    ``plan``          that of ``slot``
    ``chunks``, ``segments``  of the loader, as far as all planes are there
    ``drained``       jobs whose accumulators are read
    ``words``         addresses in the input ring
    ``inside``        which of the pixels are in the image; the others are padding with code ``zero``
    ``swap``          the pixels are the first ones of a pass
    ``address``, ``bank``, ``first``  of the accumulators
    ``job``, ``pixels``, ``final``  the pass's job, the pixels of its tile, and whether the last one is among these
    ``release``       words of the input ring
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        depth, lanes = overlay.buffers.accumulators.depth, overlay.array.lanes
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "slot": Out(1),
                "fed": In(stream.Signature(pass_layout(overlay))),
                "chunks": In(CHUNKS),
                "segments": In(13),
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
                "pixels": Out(pixel_count(overlay)),
                "final": Out(1),
                "release": Out(WORDS),
                "waits_input": Out(1),
                "waits_bank": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of rows and columns."""
        m = Module()
        fed = self.fed.payload
        here = Signal(fed.shape(), reset_less=True)
        plan = self.plan
        m.d.comb += self.slot.eq(here.slot)

        ahead, input_there, bank_free, ready = Signal(signed(CHUNKS)), Signal(), Signal(), Signal()
        started, flying = Signal(COUNT), Signal(COUNT)  # jobs
        m.d.comb += [
            ahead.eq(self.chunks - fed.chunk),
            input_there.eq((ahead > 0) | ((ahead == 0) & (self.segments > fed.segment))),
            flying.eq(started - self.drained),
            bank_free.eq(~fed.first | (flying < 2)),
            ready.eq(input_there & bank_free),
            self.waits_input.eq(self.fed.valid & ~input_there & ~self.valid),
            self.waits_bank.eq(self.fed.valid & input_there & ~bank_free & ~self.valid),
        ]
        new, end = Signal(), Signal()
        m.d.comb += [
            new.eq(self.fed.valid & self.fed.ready),
            self.fed.ready.eq(ready & (~self.valid | end)),
            self.zero.eq(plan.input_zero),
            self.first.eq(here.first),
            self.job.eq(Cat(here[name] for name in self.job.shape().members)),
            self.final.eq(self.valid & end & here.final),
            self.release.eq(Mux(self.final, here.release, 0)),
        ]
        m.d.sync += self.swap.eq(new)
        with m.If(self.valid):
            m.d.sync += [self.address.eq(self.address + 1), self.valid.eq(~end)]
        with m.If(new):
            m.d.sync += [here.eq(fed), self.valid.eq(1), self.address.eq(0)]
            with m.If(fed.first):
                m.d.sync += [started.eq(started + 1), self.bank.eq(~self.bank)]
        self._lanes(m, here, new, end)
        return m

    def _lanes(self, m: Module, here: data.View, new: Value, end: Value) -> None:
        """Add the place of each lane's pixel, and the number of pixels."""
        plan, fed, lanes = self.plan, self.fed.payload, self.overlay.array.lanes
        # from a pixel to the lane's next one: some rows, and one more where its row ends
        whole, rest = place(lanes - 1, here.columns)
        step, step_words, step_y = Signal(range(lanes + 1)), Signal(len(self.words[0])), Signal(SIDE)
        m.d.comb += [
            step.eq(rest + 1),
            step_words.eq(multiplied(plan.row_step, whole)),
            step_y.eq(multiplied(plan.stride_h, whole)),
        ]
        passed = Signal.like(self.pixels)
        with m.If(self.valid):
            m.d.sync += passed.eq(passed + lanes)
        with m.If(new):
            m.d.sync += passed.eq(0)
        for lane in range(lanes):
            first = fed.places[lane]
            row, column = Signal(len(here.rows), name=f"row_{lane}"), Signal(len(here.columns), name=f"column_{lane}")
            begin = Signal.like(first.begin, name=f"begin_{lane}")
            y, x = Signal(signed(SIDE), name=f"y_{lane}"), Signal(signed(SIDE), name=f"x_{lane}")
            word, after, ahead = self.words[lane], Signal(len(column) + 1), Signal.like(first.ahead)
            m.d.comb += [
                after.eq(column + step),
                ahead.eq(multiplied(plan.stride_w, (after - here.columns)[: len(first.column)])),
                self.inside[lane].eq((y >= 0) & (y < plan.input_height) & (x >= 0) & (x < plan.input_width)),
            ]
            with m.If((column == here.columns - 1) & (row == here.rows - 1)):
                m.d.comb += [end.eq(1), self.pixels.eq(passed + lane + 1)]
            with m.If(after >= here.columns):
                next_begin = begin + step_words + plan.row_step
                m.d.sync += [
                    column.eq(after - here.columns),
                    row.eq(row + whole + 1),
                    begin.eq(next_begin),
                    word.eq(next_begin + ahead),
                    y.eq(y + step_y + plan.stride_h),
                    x.eq(here.x + ahead),
                ]
            with m.Else():
                across = multiplied(plan.stride_w, step)
                m.d.sync += [
                    column.eq(after),
                    row.eq(row + whole),
                    begin.eq(begin + step_words),
                    word.eq(word + step_words + across),
                    y.eq(y + step_y),
                    x.eq(x + across),
                ]
            with m.If(new):
                m.d.sync += [
                    row.eq(first.row),
                    column.eq(first.column),
                    begin.eq(first.begin),
                    word.eq(first.begin + first.ahead),
                    y.eq(first.y),
                    x.eq(fed.x + first.ahead),
                ]
