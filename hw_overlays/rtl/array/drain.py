"""The way out: sums of a job to codes, plane by plane, each a single run of beats."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..lookup import CHOICE, ENTRIES
from ..ports import WritePort, address_bits
from ..requantise import LATENCY, Requantise
from .constants import COUNT, TABLES, record
from .jobs import job, pixel_count
from .plan import log2, plan

BEATS = 32  # on the way from the accumulators to the port


class Drain(wiring.Component):
    """Requantise and write the jobs whose sums are complete, in order.

    ``plan``      that of ``slot``
    ``jobs``      with ``pixels`` and ``bank``
    ``lane``, ``address``, ``bank``, ``sums``  read the accumulators, pixel by pixel: in the next cycle
    ``table``, ``plane``, ``records``, ``tables``  of Constants
    ``entries``   of tables of codes
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
                "lane": Out(range(max(2, array.lanes))),
                "address": Out(range(depth)),
                "bank": Out(1),
                "sums": In(data.ArrayLayout(sums.elem_shape, array.outputs)),
                "table": Out(range(TABLES)),
                "plane": Out(range(self.parts)),
                "records": In(data.ArrayLayout(record(overlay), self.step)),
                "tables": In(COUNT),
                "entries": In(ENTRIES),
                "drained": Out(COUNT),
                "ended": Out(1),
                "waits": Out(1),
                "memory": Out(WritePort(address_bits(overlay))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of runs and of beats, and the lanes that they feed."""
        m = Module()
        plan, job, port = self.plan, self.jobs.payload, self.memory.request
        planes = Signal(range(self.parts + 1))
        m.d.comb += [
            self.slot.eq(job.slot),
            planes.eq((job.channels + (self.step - 1)) >> log2(self.step)),
        ]
        # a run for each plane: requests may be ahead of the beats or late
        asked, output, begin = Signal.like(planes), Signal(len(port.payload.address)), Signal(len(port.payload.address))
        m.d.comb += [
            begin.eq(Mux(asked == 0, job.output, output)),
            port.valid.eq(self.jobs.valid & (asked != planes)),
            port.payload.address.eq(begin),
            port.payload.beats.eq(job.pixels),
            port.payload.tag.eq(plan.tag),
            port.payload.last.eq(job.last & (asked == planes - 1)),
        ]
        with m.If(port.valid & port.ready):
            m.d.sync += [asked.eq(asked + 1), output.eq(begin + plan.output_pitch)]

        rule = Signal(self.requantise.rule.shape())
        part, pixel = Signal(range(self.parts)), Signal(len(job.pixels))
        flying = Signal(range(BEATS + 1))  # beats that are read, but not written
        reading, able, end, last = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            # lanes have one rule at a time: that of the job before it, until all its beats are written
            able.eq(self.jobs.valid & (self.tables != self.drained) & (rule == plan.rule)),
            end.eq(pixel == job.pixels - 1),
            last.eq(end & (part == planes - 1)),
            reading.eq(able & (flying != BEATS) & (~last | (asked == planes))),
            self.bank.eq(job.bank),
            self.table.eq(self.drained),
            self.plane.eq(part),
            self.jobs.ready.eq(reading & last),
            self.ended.eq(self.jobs.ready & job.last),
        ]
        with m.If(flying == 0):
            m.d.sync += rule.eq(plan.rule)
        with m.If(reading):
            m.d.sync += [pixel.eq(pixel + 1), self.lane.eq(self.lane + 1)]
            with m.If(self.lane == self.overlay.array.lanes - 1):
                m.d.sync += [self.lane.eq(0), self.address.eq(self.address + 1)]
            with m.If(end):
                m.d.sync += [pixel.eq(0), self.lane.eq(0), self.address.eq(0), part.eq(part + 1)]
            with m.If(last):
                m.d.sync += [part.eq(0), asked.eq(0), self.drained.eq(self.drained + 1)]
        written = self.memory.data.valid & self.memory.data.ready
        m.d.sync += flying.eq(flying + reading - written)
        m.d.comb += self.waits.eq(self.memory.data.valid & ~self.memory.data.ready)
        self._lanes(m, rule, part, job.channels - (part << log2(self.step)), reading)
        return m

    def _lanes(self, m: Module, rule: Value, part: Value, channels: Value, reading: Value) -> None:
        m.submodules.requantise = lanes = self.requantise
        m.submodules.beats = fifo = SyncFIFOBuffered(width=8 * self.step, depth=BEATS)
        chosen, valid, some = Signal.like(part), Signal(), Signal(self.step)  # with the sums that are read
        m.d.sync += [chosen.eq(part), valid.eq(reading)]
        m.d.sync += [some[k].eq(channels > k) for k in range(self.step)]  # beyond the last one are zeros
        with m.Switch(chosen):
            for i in range(self.parts):
                with m.Case(i):
                    m.d.sync += [lanes.sums[k].eq(self.sums[i * self.step + k]) for k in range(self.step)]
        choice = Signal(CHOICE)
        m.d.sync += [choice.looks.eq(self.plan.lookup), choice.bank.eq(self.slot), lanes.choice.eq(choice)]
        m.d.comb += [lanes.rule.eq(rule), lanes.entries.eq(self.entries)]
        for k in range(self.step):
            entry = self.records[k]
            m.d.sync += [
                lanes.bias[k].eq(entry.bias),
                lanes.multiplier[k].eq(entry.multiplier),
                lanes.negative[k].eq(entry.negative),
            ]
        for i in range(LATENCY + 1):
            later, these = Signal(name=f"valid_{i}"), Signal(self.step, name=f"some_{i}")
            m.d.sync += [later.eq(valid), these.eq(some)]
            valid, some = later, these
        m.d.comb += [
            fifo.w_en.eq(valid),
            self.memory.data.valid.eq(fifo.r_rdy),
            self.memory.data.payload.eq(fifo.r_data),
            fifo.r_en.eq(self.memory.data.ready),
        ]
        for k in range(self.step):
            m.d.comb += fifo.w_data.word_select(k, 8).eq(Mux(some[k], lanes.codes[k], 0))


def complete_job(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a job whose sums are complete."""
    return data.StructLayout({**job(overlay).members, "pixels": pixel_count(overlay), "bank": 1})
