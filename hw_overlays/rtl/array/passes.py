"""The passes of a job, one for each tap of the kernel and block of inputs, and the pixels of a pass."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from .constants import COUNT
from .jobs import job
from .loader import CHUNKS
from .plan import SIDE, WORDS, log2, plan


def pass_layout(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a pass: its job's, from where it begins, and whether it is the job's first or final one."""
    return data.StructLayout({**job(overlay).members, "first": 1, "final": 1})


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
        current = Signal(layout, reset_less=True)
        plan = self.plan
        m.d.comb += [self.slot.eq(current.slot), self.passes.payload.eq(current)]
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
    """Issue the pixels of passes, one in each cycle.

    ``plan``          that of ``slot``
    ``chunks``, ``segments``  of the loader, as far as all planes are there
    ``drained``       jobs whose accumulators are read
    ``word``          address in the input ring
    ``pixel``         of this cycle: ``inside`` the image or padding with code ``zero``
    ``swap``          the pixel is the first one of a pass
    ``address``, ``bank``, ``first``  of the accumulator
    ``job``, ``pixels``, ``final``  the pass's job, the pixels so far, and whether this one is the job's last
    ``release``       words of the input ring
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        depth = overlay.buffers.accumulators.depth
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "slot": Out(1),
                "fed": In(stream.Signature(pass_layout(overlay))),
                "chunks": In(CHUNKS),
                "segments": In(13),
                "drained": In(COUNT),
                "word": Out(log2(overlay.buffers.input.depth)),
                "valid": Out(1),
                "inside": Out(1),
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
        row, column, end = Signal(len(here.rows)), Signal(len(here.columns)), Signal()
        row_word = Signal(len(self.word))
        y, x = Signal(signed(SIDE)), Signal(signed(SIDE))
        m.d.comb += [
            end.eq((column == here.columns - 1) & (row == here.rows - 1)),
            self.fed.ready.eq(ready & (~self.valid | end)),
            self.inside.eq((y >= 0) & (y < plan.input_height) & (x >= 0) & (x < plan.input_width)),
            self.zero.eq(plan.input_zero),
            self.first.eq(here.first),
            self.job.eq(Cat(here[name] for name in self.job.shape().members)),
            self.final.eq(self.valid & end & here.final),
            self.release.eq(Mux(self.final, here.release, 0)),
        ]
        m.d.sync += self.swap.eq(0)
        with m.If(self.valid):
            m.d.sync += [
                column.eq(column + 1),
                self.word.eq(self.word + plan.stride_w),
                x.eq(x + plan.stride_w),
                self.address.eq(self.address + 1),
            ]
            with m.If(column == here.columns - 1):
                m.d.sync += [
                    column.eq(0),
                    row.eq(row + 1),
                    row_word.eq(row_word + plan.row_step),
                    self.word.eq(row_word + plan.row_step),
                    x.eq(here.x),
                    y.eq(y + plan.stride_h),
                ]
                with m.If(end):
                    m.d.sync += self.valid.eq(0)
        with m.If(self.fed.valid & self.fed.ready):
            m.d.sync += [
                here.eq(fed),
                self.valid.eq(1),
                self.swap.eq(1),
                row.eq(0),
                column.eq(0),
                row_word.eq(fed.address),
                self.word.eq(fed.address),
                y.eq(fed.y),
                x.eq(fed.x),
                self.address.eq(0),
            ]
            with m.If(fed.first):
                m.d.sync += [started.eq(started + 1), self.bank.eq(~self.bank)]
        return m
