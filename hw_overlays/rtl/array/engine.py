"""The array engine: its parts, and the two Tasks that they work on at a time."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, wiring

from chai.overlay import Overlay

from ..ports import CONSTANTS, Stall, array_ports
from ..resets import with_reset
from ..streams import later, register
from . import multipliers, sums
from .constants import Constants
from .drain import Drain, complete_job
from .jobs import Jobs
from .loader import Loader
from .multipliers import Multipliers
from .passes import Feeder, Passes, Pixels
from .plan import Planner, plan
from .sums import Accumulators

TASKS = 2  # bits of a count of Tasks


class ArrayEngine(wiring.Component):
    """Run the Tasks conv and affine, in order; the ports are those of ``array_ports``."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        super().__init__(array_ports(overlay))

    def elaborate(self, platform: object) -> Module:
        """Return the parts and the wires between them."""
        m = Module()
        overlay = self.overlay
        members = plan(overlay).members.items()
        plans = [{name: register(member.shape, f"plan_{i}_{name}") for name, member in members} for i in range(2)]
        ports = [self.even, self.odd] if hasattr(self, "odd") else [self.even]
        planner, constants, jobs, passes = Planner(overlay), Constants(overlay), Jobs(overlay), Passes(overlay)
        feeder, pixels, drain = Feeder(overlay), Pixels(overlay), Drain(overlay)
        loaders = [Loader(overlay, i) for i in range(len(ports))]
        parts = {"planner": planner, "constants": constants, "jobs": jobs, "passes": passes, "feeder": feeder}
        parts |= {"pixels": pixels, "drain": drain, **{f"loader_{i}": loader for i, loader in enumerate(loaders)}}
        for name, part in parts.items():
            m.submodules[name] = with_reset(m, part, name)
        m.submodules.multipliers = array = Multipliers(overlay)  # these and the accumulators have no resets
        accumulators = [Accumulators(overlay) for _ in range(overlay.array.lanes)]
        for lane, part in enumerate(accumulators):
            m.submodules[f"accumulators_{lane}"] = part
        for loader, port in zip(loaders, ports):
            wiring.connect(m, loader.memory, wiring.flipped(port))
        for name, port in zip(constants.sides, CONSTANTS):
            wiring.connect(m, getattr(constants, name), wiring.flipped(getattr(self, port)))
        wiring.connect(m, drain.memory, wiring.flipped(self.output))
        if hasattr(self, "output_too"):
            wiring.connect(m, drain.memory_too, wiring.flipped(self.output_too))
        wiring.connect(m, wiring.flipped(self.task), planner.task)
        wiring.connect(m, jobs.jobs, passes.jobs)
        wiring.connect(m, passes.passes, feeder.passes)
        wiring.connect(m, feeder.fed, pixels.fed)
        for part in (passes, pixels, drain):
            choose(m, part, plans, part.slot)
        self._tasks(m, plans, planner, [*loaders, constants, jobs], drain.ended)
        self._weights_and_tables(m, constants, feeder, drain, array)
        self._pixels(m, loaders, pixels, array, accumulators)
        self._jobs(m, pixels, accumulators, drain)
        m.d.comb += self.finished.eq(drain.finished)
        self._report(m, loaders[0], pixels, feeder, drain)
        return m

    def _tasks(
        self, m: Module, plans: list[dict[str, Signal]], planner: Planner, parts: list[wiring.Component], ended: Value
    ) -> None:
        """Keep two plans; each part starts the next one as soon as it has taken all of the last."""
        planned = Signal(TASKS)
        counts = [Signal(TASKS, name=f"task_{i}") for i in range(len(parts))]
        drained = Signal(TASKS)
        m.d.sync += drained.eq(drained + ended)
        free = [(planned - count)[:TASKS] != 2 for count in (*counts, drained)]
        m.d.comb += planner.ready.eq(later(m, Cat(free).all(), "free"))  # a plan takes more than a cycle
        with m.If(planner.valid & planner.ready):
            m.d.sync += planned.eq(planned + 1)
            for slot, kept in enumerate(plans):
                with m.If(planned[0] == slot):
                    m.d.sync += [signal.eq(getattr(planner.plan, name)) for name, signal in kept.items()]
        for part, count in zip(parts, counts):
            m.d.sync += count.eq(count + part.taken)
            choose(m, part, plans, count[0])
            # one more register than the plan: what may be done by it is known by then
            due = later(m, (count != planned) & ~part.taken, f"{count.name}_due")
            m.d.sync += part.start.eq(due & ~part.taken)
            if isinstance(part, Loader):
                counts_reached = (self.array_done >= part.plan.after_array) & (
                    self.window_done >= part.plan.after_window
                )
                m.d.sync += part.allowed.eq(counts_reached)
            if isinstance(part, (Jobs, Constants)):
                m.d.comb += part.slot.eq(count[0])

    def _weights_and_tables(
        self, m: Module, constants: Constants, feeder: Feeder, drain: Drain, array: Multipliers
    ) -> None:
        m.d.comb += [
            feeder.written.eq(constants.written),
            feeder.weights.eq(constants.weights),
            constants.word.eq(feeder.word),
            constants.freed.eq(feeder.freed),
            array.row.eq(feeder.row),
            array.at.eq(feeder.at),
            array.load.eq(feeder.load),
            drain.tables.eq(constants.tables),
            drain.records.eq(constants.records),
            drain.entries.eq(constants.entries),
            constants.tables_used.eq(drain.drained),
            constants.table.eq(drain.table),
            constants.plane.eq(drain.plane),
        ]

    def _pixels(
        self, m: Module, loaders: list[Loader], pixels: Pixels, array: Multipliers, accumulators: list[Accumulators]
    ) -> None:
        """Take pixels from the input ring through the array to the accumulators."""
        for i, loader in enumerate(loaders):
            m.d.comb += [pixels.chunks[i].eq(loader.chunks), pixels.segments[i].eq(loader.segments)]
        for loader in loaders:
            m.d.comb += [loader.address.eq(pixels.words), loader.release.eq(pixels.release)]

        # the ring's words two cycles later, a register for them or the padding, then the array
        inside = later(m, pixels.inside, "inside", 2)
        zero = later(m, pixels.zero, "zero", 2)
        for lane, codes in enumerate(array.codes):
            word = Cat(loader.data[lane] for loader in loaders)
            for i in range(self.overlay.array.inputs):
                code = Mux(inside[lane], word.word_select(i, 8), zero << 7)
                m.d.comb += codes[i].eq(later(m, code, f"code_{lane}_{i}"))
        m.d.comb += array.swap.eq(later(m, pixels.swap, "swap", 3))
        cycles = 3 + multipliers.sum_latency(self.overlay) - 2
        names = {"address": "address", "bank": "bank", "first": "first", "valid": "enable"}
        then = {to: later(m, getattr(pixels, name), name, cycles) for name, to in names.items()}
        for lane, part in enumerate(accumulators):
            m.d.comb += [getattr(part, name).eq(value) for name, value in then.items()]
            m.d.comb += part.sums.eq(array.sums[lane])

    def _jobs(self, m: Module, pixels: Pixels, accumulators: list[Accumulators], drain: Drain) -> None:
        """Give the drain the jobs whose sums are complete: at most one in each bank."""
        complete = register(data.ArrayLayout(complete_job(self.overlay), 2), "complete")
        count = Signal(TASKS)  # jobs whose sums are complete, but not drained
        bank = Signal()  # of the oldest
        with m.If(pixels.final):
            for i in range(2):
                with m.If(pixels.bank == i):
                    m.d.sync += [complete[i][name].eq(pixels.job[name]) for name in pixels.job.shape().members]
                    m.d.sync += complete[i].bank.eq(i)
        cycles = 3 + multipliers.sum_latency(self.overlay) - 2 + sums.LATENCY
        summed = later(m, pixels.final, "final", cycles)
        taken = drain.jobs.valid & drain.jobs.ready
        m.d.sync += [count.eq(count + summed - taken), bank.eq(bank ^ taken)]
        m.d.comb += [
            drain.jobs.valid.eq(count != 0),
            drain.jobs.payload.eq(complete[bank]),
            drain.sums.as_value().eq(
                Array(part.drained.as_value() for part in accumulators)[later(m, drain.lane, "lane", 2)]
            ),
            pixels.drained.eq(drain.drained),
        ]
        for part in accumulators:
            m.d.comb += [part.drain_bank.eq(drain.bank), part.drain_address.eq(drain.address)]

    def _report(self, m: Module, loader: Loader, pixels: Pixels, feeder: Feeder, drain: Drain) -> None:
        """Say why there was no pixel in the cycle before: the last part that could not go on, is the reason."""
        m.d.sync += [self.mac.eq(pixels.valid), self.stall.eq(Stall.NONE)]
        with m.If(~pixels.valid):
            with m.If(pixels.waits_bank):
                m.d.sync += self.stall.eq(Mux(drain.waits, Stall.OUTPUT, Stall.ACCUMULATORS))
            with m.Elif(pixels.waits_input):
                m.d.sync += self.stall.eq(Mux(loader.waits, Stall.DEPENDENCY, Stall.INPUT))
            with m.Elif(feeder.waits):
                m.d.sync += self.stall.eq(Stall.WEIGHTS)
            with m.Elif(drain.jobs.valid):
                m.d.sync += self.stall.eq(Stall.OUTPUT)


def choose(m: Module, part: wiring.Component, plans: list[dict[str, Signal]], slot: Value) -> None:
    """Give a part the plan of a slot, one cycle later."""
    for name in part.plan.signature.members:
        chosen = Mux(slot, plans[1][name], plans[0][name])
        m.d.comb += getattr(part.plan, name).eq(later(m, chosen, f"chosen_{name}"))
