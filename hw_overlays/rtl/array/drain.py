"""The way out: sums of a job to codes, plane by plane, each a single run of words; of pooled ones, a run for each row.

Several planes of a pixel may go together: the manifest's ``requant.lanes``.
"""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import table_fields
from ..lookup import ENTRIES
from ..ports import WritePort, log2, result_words
from ..requantise import LATENCY, Requantise
from ..streams import Queue, difference, later, register
from .constants import COUNT, TABLES
from .jobs import job
from .plan import plan
from .pooling import Maxima, Sweep, alone, columns_of
from .writer import OUTPUTS, Writer, planes_of

SETTLE = 4  # cycles from a new job until what follows from it is in registers
BEATS = 32  # on the way from the accumulators to the port


class Drain(wiring.Component):
    """Requantise and write the jobs whose sums are complete, in order.

    ``plan``      that of ``slot`` one cycle before
    ``jobs``      with ``bank``
    ``lane``, ``address``, ``bank``, ``sums``  read the accumulators, pixel by pixel: two cycles later
    ``table``, ``plane``, ``records``, ``tables``  of Constants
    ``entries``   of tables of codes
    ``drained``   jobs whose accumulators and tables are read, of all Tasks
    ``ended``     1 for one cycle when the last job of a Task is
    ``waits``     there is a job, but a port does not take its beats
    ``finished``  1 for one cycle when all that a Task writes has been answered
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        array = overlay.array
        self.step = overlay.layout.channels_per_word
        self.lanes, self.planes = overlay.requant.lanes, overlay.planes_at_once
        if self.lanes != self.step << log2(self.planes) or array.outputs % self.lanes:
            raise ValueError(
                f"{self.lanes} requantisation lanes: expected 1, 2 or 4 planes of {self.step} among the outputs"
            )
        depth = overlay.buffers.accumulators.depth
        self.parts = array.outputs // self.lanes
        memory = Out(WritePort(overlay.address_bits, result_words(overlay)))
        self.requantise = Requantise(overlay, self.lanes, overlay.array_bits)
        self.pools = columns_of(overlay) > 0
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
                "records": In(data.ArrayLayout(table_fields(overlay, overlay.array_bits), self.lanes)),
                "tables": In(COUNT),
                "entries": In(ENTRIES),
                "drained": Out(COUNT),
                "ended": Out(1),
                "waits": Out(1),
                "finished": Out(1),
                **dict.fromkeys(OUTPUTS[: overlay.ports.outputs], memory),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the counters of runs and of beats, and the lanes that they feed."""
        m = Module()
        plan, job = self.plan, self.jobs.payload
        sweeps = later(m, (job.channels + (self.lanes - 1)) >> log2(self.lanes), "sweeps")
        m.d.comb += [self.slot.eq(job.slot), self.bank.eq(job.bank)]
        # a job's counters are set while what follows from it comes into registers
        settle, settled = Signal(range(SETTLE + 1), init=SETTLE), Signal()
        with m.If(self.jobs.valid & ~settled):
            m.d.sync += [settle.eq(settle - 1), settled.eq(settle == 1)]
        with m.If(self.jobs.ready):
            m.d.sync += [settle.eq(SETTLE), settled.eq(0)]
        part, last_part = register(range(self.parts), "part"), register(1, "last_part")
        sweep = self._sweep(m, self.jobs.valid & (settle == SETTLE - 2), last_part)
        runs, words = self._output(m)
        all_asked = self._ask(m, sweeps, settled, sweep.runs, runs)

        rule = register(self.requantise.rule.shape(), "rule")
        left, end, single = register(len(job.pixels), "left"), register(1, "end"), later(m, job.pixels == 1, "single")
        flying = Signal(range(BEATS + 1))  # beats that are read, but not written
        reading, plane_end, last = Signal(), Signal(), Signal()
        # lanes have one rule at a time: that of the job before it, until all its beats are written
        same = later(m, rule == plan.rule, "same")
        there = later(m, self.tables != self.drained, "there")
        # nothing is read after a job's last sum, nor after a wide one, which is in the lanes for two cycles
        rests = reading & (last | rule.wide)
        able = later(m, settled & there & same & (flying < BEATS - 1) & ~rests, "able")
        place, busy = sweep.place, Signal(range(LATENCY + 4))  # cycles until what is read is out of the lanes
        m.d.sync += busy.eq(Mux(reading, LATENCY + 3, Mux(busy == 0, 0, busy - 1)))
        m.d.comb += [
            plane_end.eq(Mux(plan.pooled, sweep.end, end)),
            last.eq(plane_end & last_part),
            reading.eq(able & Mux(plan.pooled, sweep.open, ~(end & last_part) | all_asked)),
            sweep.goes.eq(reading & plan.pooled),
            self.jobs.ready.eq(reading & last),
            self.ended.eq(self.jobs.ready & job.last),
        ]
        m.d.sync += [self.table.eq(self.drained), self.plane.eq(part)]
        with m.If((flying == 0) & (busy == 0)):
            m.d.sync += rule.eq(plan.rule)
        with m.If(reading & (place.real | ~plan.pooled)):
            m.d.sync += self.lane.eq(self.lane + 1)
            with m.If(self.lane == self.overlay.array.lanes - 1):
                m.d.sync += [self.lane.eq(0), self.address.eq(self.address + 1)]
        with m.If(reading):
            m.d.sync += [left.eq(left - 1), end.eq(left == 2)]
            with m.If(plane_end):
                m.d.sync += [part.eq(part + 1), last_part.eq(part + 2 == sweeps)]
            with m.If(last):
                m.d.sync += self.drained.eq(self.drained + 1)
        with m.If(~settled):
            m.d.sync += [part.eq(0), last_part.eq(sweeps == 1)]
        with m.If(~settled | (reading & plane_end)):
            m.d.sync += [left.eq(job.pixels), end.eq(single), self.lane.eq(0), self.address.eq(0)]
        written = words.valid & words.ready
        writes = reading & (~plan.pooled | (place.ends & place.ends_row))
        m.d.sync += flying.eq(flying + difference(writes, written, len(flying)))
        ports = [getattr(self, name).data for name in OUTPUTS[: self.overlay.ports.outputs]]
        m.d.comb += self.waits.eq(Cat(port.valid & ~port.ready for port in ports).any())
        chosen = Mux(plan.pooled, place.as_value(), alone(self.overlay).as_value())
        channels = later(m, job.channels - (part << log2(self.lanes)), "channels")
        fifo = self._lanes(m, rule, part, channels, reading, chosen)
        m.d.comb += [words.valid.eq(fifo.r_rdy), words.payload.eq(fifo.r_data), fifo.r_en.eq(words.ready)]
        return m

    def _output(self, m: Module) -> tuple[stream.Interface, stream.Interface]:
        """Return what takes runs and words: the port, or what leads several planes to it."""
        if self.planes == 1:
            m.d.comb += self.finished.eq(self.memory.finished)
            return self.memory.request, self.memory.data
        m.submodules.writer = writer = Writer(self.overlay)
        for name in OUTPUTS[: self.overlay.ports.outputs]:
            wiring.connect(m, getattr(writer, name), wiring.flipped(getattr(self, name)))
        m.d.comb += self.finished.eq(writer.finished)
        return writer.runs, writer.codes

    def _sweep(self, m: Module, begins: Value, last_part: Value) -> Sweep:
        """Return the way through the rows of a job's planes if they are pooled. Without the unit nothing drives it."""
        sweep, plan, job = Sweep(self.overlay), self.plan, self.jobs.payload
        if self.pools:
            m.submodules.sweep = sweep
            m.d.comb += [getattr(sweep.plan, name).eq(getattr(plan, name)) for name in plan.signature.members]
            m.d.comb += [sweep.job[name].eq(job[name]) for name in sweep.job.shape().members]
            m.d.comb += [sweep.begins.eq(begins & plan.pooled), sweep.last_part.eq(last_part)]
        return sweep

    def _ask(self, m: Module, sweeps: Value, settled: Value, rows: stream.Interface, port: stream.Interface) -> Value:
        """Request a run for each plane, ahead of the beats or late; return whether all of a job's are requested.

        ``rows`` are the runs of pooled planes, the last of which may still wait when the next job has begun.
        """
        plan, job = self.plan, self.jobs.payload
        bits = len(port.payload.address)
        asked, output = register(range(self.parts + 1), "asked"), register(bits, "output")
        last, done = later(m, asked == sweeps - 1, "last_run"), Signal()
        following = later(m, (output + (plan.output_pitch << log2(self.planes)))[:bits], "next_output")
        waits = Signal()  # for these two
        asks = settled & ~done & ~waits & ~plan.pooled & ~rows.valid
        m.d.comb += [
            port.valid.eq(asks | rows.valid),
            port.payload.address.eq(output),
            port.payload.beats.eq(job.pixels),
            port.payload.last.eq(job.last & last),
            port.payload.tag.eq(plan.tag),
            rows.ready.eq(port.ready),
        ]
        if self.planes > 1:
            some = later(m, planes_of(self.overlay, job.channels - (asked << log2(self.lanes))), "asked_planes")
            m.d.comb += [port.payload.pitch.eq(plan.output_pitch), port.payload.planes.eq(some)]
        with m.If(rows.valid):
            m.d.comb += port.payload.eq(rows.payload)
        m.d.sync += waits.eq(asks & port.ready)
        with m.If(asks & port.ready):
            m.d.sync += [asked.eq(asked + 1), output.eq(following), done.eq(last)]
        with m.If(~settled):
            m.d.sync += [asked.eq(0), output.eq(job.output), done.eq(0)]
        return done

    def _lanes(self, m: Module, rule: Value, part: Value, channels: Value, reading: Value, place: Value) -> Queue:
        """Take sums through the lanes, and their maxima if the Task has them; return the queue of words."""
        m.submodules.requantise = lanes = self.requantise
        m.submodules.beats = fifo = Queue(width=8 * self.lanes, depth=BEATS, block=True)
        # with the sums that are read; channels beyond the last one are zeros
        chosen, some = later(m, part, "part", 2), Cat(channels > k for k in range(self.lanes))
        sums = register(lanes.sums.shape(), "sums")
        of_parts = Array(Cat(self.sums[i * self.lanes + k] for k in range(self.lanes)) for i in range(self.parts))
        m.d.sync += sums.as_value().eq(of_parts[chosen] if self.parts > 1 else of_parts[0])
        m.d.comb += [
            lanes.sums.eq(sums),
            lanes.choice.looks.eq(later(m, self.plan.lookup, "looks", 3)),  # as long as the sums take
            lanes.choice.bank.eq(later(m, self.slot, "bank", 3)),
            lanes.rule.eq(rule),
            lanes.more.eq(later(m, reading & rule.wide, "second", 3)),
            lanes.entries.eq(self.entries),
        ]
        for k in range(self.lanes):
            for name in ("bias", "multiplier", "negative"):
                m.d.comb += getattr(lanes, name)[k].eq(later(m, self.records[k][name], f"{name}_{k}"))
        valid, some = later(m, reading, "valid", LATENCY + 3), later(m, some, "some", LATENCY + 2)
        word = Cat(Mux(some[k], lanes.codes[k], 0)[:8] for k in range(self.lanes))
        m.d.comb += [fifo.w_en.eq(valid), fifo.w_data.eq(word)]
        place = later(m, place, "place", LATENCY + 3)
        for i in range(self.planes if self.pools else 0):
            m.submodules[f"maxima_{i}"] = maxima = Maxima(self.overlay)
            codes = 8 * self.step
            m.d.comb += [maxima.valid.eq(valid), maxima.codes.as_value().eq(word.word_select(i, codes))]
            m.d.comb += [maxima.place.as_value().eq(place), fifo.w_en.eq(maxima.write)]
            m.d.comb += fifo.w_data.word_select(i, codes).eq(maxima.word.as_value())
        return fifo


def complete_job(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a job whose sums are complete."""
    return data.StructLayout({**job(overlay).members, "bank": 1})
