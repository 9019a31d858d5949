"""The way out: sums of a job to codes, plane by plane, each a single run of beats."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..ports import WritePort, address_bits
from ..requantise import LATENCY, Requantise
from .constants import COUNT, TABLES, record
from .jobs import job
from .plan import log2, plan

BEATS = 32  # on the way from the accumulators to the port


class Drain(wiring.Component):
    """Requantise and write the jobs whose sums are complete, in order.

    ``plan``      that of ``slot``
    ``jobs``      with ``pixels`` and ``bank``
    ``address``, ``bank``, ``sums``  read the accumulators: in the next cycle
    ``table``, ``plane``, ``records``, ``tables``  of Constants
    ``drained``   jobs whose accumulators and tables are read, of all Tasks
    ``ended``     1 for one cycle when the last job of a Task is
    ``waits``     there is a job, but the port does not take its beats
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        array = overlay.array
        self.step = overlay.layout.channels_per_word
        if overlay.requant.lanes != self.step:
            raise ValueError(f"{overlay.requant.lanes} requantisation lanes, expected {self.step}: a plane's channels")
        depth = overlay.buffers.accumulators.depth
        self.parts = array.outputs // self.step
        self.requantise = Requantise(overlay, self.step)
        sums = self.requantise.sums.shape()
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "slot": Out(1),
                "jobs": In(stream.Signature(complete_job(overlay))),
                "address": Out(range(depth)),
                "bank": Out(1),
                "sums": In(data.ArrayLayout(sums.elem_shape, array.outputs)),
                "table": Out(range(TABLES)),
                "plane": Out(range(self.parts)),
                "records": In(data.ArrayLayout(record(overlay), self.step)),
                "tables": In(COUNT),
                "drained": Out(COUNT),
                "ended": Out(1),
                "waits": Out(1),
                "memory": Out(WritePort(address_bits(overlay))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the loop over planes and pixels, and the lanes behind it."""
        m = Module()
        job, port = self.jobs.payload, self.memory.request
        rule = Signal(self.requantise.rule.shape())
        part = Signal(range(self.parts + 1))
        pixel = Signal(len(self.address))
        output, channels = Signal(len(port.payload.address)), Signal(len(job.channels))
        plan = self.plan
        reading, last_plane, last_pixel = Signal(), Signal(), Signal()
        flying = Signal(range(BEATS + 1))  # beats that are read, but not written
        m.d.comb += [
            self.slot.eq(job.slot),
            port.payload.address.eq(output),
            port.payload.beats.eq(job.pixels),
            port.payload.last.eq(job.last & last_plane),
            last_plane.eq(channels <= self.step),
            last_pixel.eq(pixel == job.pixels - 1),
            self.address.eq(pixel),
            self.bank.eq(job.bank),
            self.table.eq(self.drained),
            self.plane.eq(part),
        ]
        with m.FSM():
            with m.State("JOB"):
                m.d.sync += [part.eq(0), pixel.eq(0), output.eq(job.output), channels.eq(job.channels)]
                # lanes have one rule at a time: that of the job before it, until all its beats are written
                with m.If(self.jobs.valid & (self.tables != self.drained) & ((rule == plan.rule) | (flying == 0))):
                    m.d.sync += rule.eq(plan.rule)
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                m.d.comb += port.valid.eq(1)
                with m.If(port.ready):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += reading.eq(flying < BEATS)
                with m.If(reading):
                    m.d.sync += pixel.eq(pixel + 1)
                    with m.If(last_pixel):
                        m.d.sync += [
                            pixel.eq(0),
                            part.eq(part + 1),
                            channels.eq(channels - self.step),
                            output.eq(output + plan.output_pitch),
                        ]
                        m.next = "REQUEST"
                        with m.If(last_plane):
                            m.d.comb += [self.jobs.ready.eq(1), self.ended.eq(job.last)]
                            m.d.sync += self.drained.eq(self.drained + 1)
                            m.next = "JOB"
        written = self.memory.data.valid & self.memory.data.ready
        m.d.sync += flying.eq(flying + reading - written)
        m.d.comb += self.waits.eq(self.memory.data.valid & ~self.memory.data.ready)
        self._lanes(m, rule, part, channels, reading)
        return m

    def _lanes(self, m: Module, rule: Value, part: Value, channels: Value, reading: Value) -> None:
        m.submodules.requantise = lanes = self.requantise
        m.submodules.beats = fifo = SyncFIFOBuffered(width=8 * self.step, depth=BEATS)
        chosen, valid, some = Signal.like(part), Signal(), Signal.like(channels)
        m.d.sync += [chosen.eq(part), valid.eq(reading), some.eq(channels)]
        with m.Switch(chosen):
            for i in range(self.parts):
                with m.Case(i):
                    m.d.sync += [lanes.sums[k].eq(self.sums[i * self.step + k]) for k in range(self.step)]
        m.d.comb += lanes.rule.eq(rule)
        for k in range(self.step):
            given = self.records[k]
            m.d.sync += [
                lanes.bias[k].eq(given.bias),
                lanes.multiplier[k].eq(given.multiplier),
                lanes.negative[k].eq(given.negative),
            ]
        # channels beyond the last are written as zeros
        used = [Mux(some > k, 1, 0) for k in range(self.step)]
        valid_at, used_at = valid, Signal(self.step)
        m.d.comb += [used_at[k].eq(used[k]) for k in range(self.step)]
        for i in range(LATENCY + 1):
            later, these = Signal(name=f"valid_{i}"), Signal(self.step, name=f"used_{i}")
            m.d.sync += [later.eq(valid_at), these.eq(used_at)]
            valid_at, used_at = later, these
        m.d.comb += [
            fifo.w_en.eq(valid_at),
            self.memory.data.valid.eq(fifo.r_rdy),
            self.memory.data.payload.eq(fifo.r_data),
            fifo.r_en.eq(self.memory.data.ready),
        ]
        for k in range(self.step):
            m.d.comb += fifo.w_data.word_select(k, 8).eq(Mux(used_at[k], lanes.codes[k], 0))


def complete_job(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a job whose sums are complete."""
    return data.StructLayout(
        {**job(overlay).members, "pixels": log2(overlay.buffers.accumulators.depth) + 1, "bank": 1}
    )
