"""Start a chain, count what the engines finish, raise the interrupt, and stop everything at an error or a reset."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from chai.overlay import Overlay
from chai.overlay.sections import MEMORY_PORTS

from .descriptor import descriptor
from .fetch import AHEAD, ENGINES, Fetch
from .ports import TAG, ReadPort, Stall
from .registers import AxiLite, Registers, register_bits
from .resets import DRAIN, LEVELS, with_reset
from .streams import Queue, later, register
from .watch import Watch

SETTLE = 3  # cycles from a start until it is known what has been fetched and finished of this chain
UNFINISHED = AHEAD + 4  # Tasks of an engine that are in its queue or in itself, at most


class Control(Component):
    """The registers, and what they do.

    ``array``, ``window``    descriptors for the engines
    ``array_done``           Tasks that an engine has finished; ``array_finished`` is its pulse
    ``read_failed``, ``read_tags``    1 for a cycle when a read of a memory port ended with an error, and its Task's tag
    ``write_failed``, ``write_tags``  the same of writes
    ``moves``                a beat is transferred, or an engine computes
    ``stop``                 memory ports end what is open and begin nothing
    ``idle``                 a bit for each that has nothing open
    ``clear``                reset the engines, while memory ports stop: at the end of every chain, so that the next one
                             finds them as after power-up
    ``clear_memory``         reset the memory ports, when they are idle
    """

    def __init__(self, overlay: Overlay, reads: int, writes: int) -> None:
        self.overlay = overlay
        members: dict[str, object] = {
            "bus": In(AxiLite(register_bits(overlay))),
            "interrupt": Out(1),
            "memory": Out(ReadPort(overlay.address_bits)),
            "read_failed": In(reads),
            "read_tags": In(data.ArrayLayout(TAG, reads)),
            "write_failed": In(writes),
            "write_tags": In(data.ArrayLayout(TAG, writes)),
            "moves": In(1),
            "stop": Out(1),
            "idle": In(len(MEMORY_PORTS)),
            "clear": Out(1),
            "clear_memory": Out(1),
            "mac": In(1),
            "stall": In(Stall),
        }
        for engine in ENGINES:
            members |= {
                engine: Out(stream.Signature(descriptor(overlay))),
                f"{engine}_finished": In(1),
                f"{engine}_done": Out(16),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        overlay = self.overlay
        m.submodules.registers = registers = Registers(overlay)
        fetch = Fetch(overlay)
        m.submodules.fetch = with_reset(m, fetch, "fetch", self.clear)
        connect(m, flipped(self.bus), registers.bus)
        connect(m, fetch.memory, flipped(self.memory))

        def bit(register: str, part: str) -> int:
            mask = overlay.registers[register].mask(part)
            return (mask & -mask).bit_length() - 1

        begin, reset = (registers.CONTROL[bit("CONTROL", part)] for part in ("start", "reset"))
        started, busy, complete, done, failed = Signal(), Signal(), Signal(), Signal(), Signal()
        cause, tag = Signal(8), Signal(16)
        oldest = self._oldest(m, fetch)
        m.submodules.watch = watch = Watch()
        m.d.comb += [
            fetch.start.eq(started),
            fetch.address.eq(Cat(registers.CHAIN_LO, registers.CHAIN_HI)),
            fetch.count.eq(registers.COUNT),
            self.interrupt.eq((registers.IRQ & registers.IRQ_ENABLE).any()),
            watch.on.eq(busy),
            watch.moves.eq(self.moves),
        ]

        causes = overlay.registers.errors.index
        reading, writing = causes("bus error while reading"), causes("bus error while writing")
        # a response that is an error is seen here no later than the end of its Task
        fault, fault_cause, fault_tag = Signal(), Signal(8), Signal(TAG)
        problems = [(watch.stuck, causes("no progress"), oldest), (fetch.error, fetch.cause, fetch.tag)]
        problems += [(failed, reading, self.read_tags[i]) for i, failed in enumerate(self.read_failed)]
        problems += [(failed, writing, self.write_tags[i]) for i, failed in enumerate(self.write_failed)]
        m.d.sync += fault.eq(0)
        for happened, number, whose in problems:
            with m.If(happened):
                m.d.sync += [fault.eq(1), fault_cause.eq(number), fault_tag.eq(whose)]

        finished = later(m, (self.array_done + self.window_done)[:16], "finished")
        all_fetched = later(m, fetch.fetched == registers.COUNT, "all_fetched")
        all_done = later(m, all_fetched & (finished == registers.COUNT[:16]), "all_done")
        told, forgets = {"done": Signal(), "error": Signal()}, Signal()
        m.d.sync += forgets.eq(started)
        with m.If(forgets):
            m.d.sync += [getattr(self, f"{engine}_done").eq(0) for engine in ENGINES]
        dead = Signal()  # a memory port owes an answer, for good: only a new bitstream helps
        stops, clears, clears_memory = Signal(), Signal(), Signal()
        m.d.sync += [self.stop.eq(stops), self.clear.eq(clears), self.clear_memory.eq(clears_memory)]
        idle = later(m, self.idle, "idle_ports")
        settle, settled = Signal(range(DRAIN), name="settle"), Signal(init=1, name="settled")
        m.d.sync += [settle.eq(Mux(settled, 0, settle - 1)), settled.eq(settle <= 1)]

        def go(state: str, cycles: int) -> None:
            m.d.sync += [settle.eq(cycles), settled.eq(0)]
            m.next = state

        with m.FSM():
            with m.State("IDLE"):
                with m.If(reset):
                    m.d.sync += [done.eq(0), failed.eq(0), cause.eq(0), tag.eq(0), forgets.eq(1)]
                with m.Elif(begin):
                    m.d.comb += started.eq(1)
                    m.d.sync += [complete.eq(0), done.eq(0), failed.eq(0), cause.eq(0), tag.eq(0)]
                    go("RUN", SETTLE)
            with m.State("RUN"):
                m.d.comb += busy.eq(1)
                with m.If(all_done & settled):
                    m.d.sync += complete.eq(1)
                    go("STOP", DRAIN - 1)
                with m.If(fault):
                    m.d.sync += [complete.eq(0), failed.eq(1), cause.eq(fault_cause), tag.eq(fault_tag)]
                    go("STOP", DRAIN - 1)
                with m.If(reset):
                    m.d.sync += [complete.eq(0), failed.eq(0), cause.eq(0), tag.eq(0)]
                    go("STOP", DRAIN - 1)
            with m.State("STOP"):
                m.d.comb += [busy.eq(1), stops.eq(1), clears.eq(1)]
                with m.If(reset):
                    m.d.sync += [complete.eq(0), failed.eq(0), cause.eq(0), tag.eq(0)]
                with m.If(idle.all() & settled):
                    go("CLEAR", 2 * LEVELS)
                with m.Elif(watch.stuck):
                    for port in reversed(range(len(MEMORY_PORTS))):
                        with m.If(~idle[port]):
                            m.d.sync += cause.eq(causes(f"memory port m{port} does not answer"))
                    m.d.comb += told["error"].eq(1)
                    m.d.sync += dead.eq(1)
                    m.next = "DEAD"
            with m.State("DEAD"):
                m.d.comb += [busy.eq(1), stops.eq(1), clears.eq(1), told["error"].eq(begin)]
            with m.State("CLEAR"):  # memory ports too; all have left the reset at the end
                m.d.comb += [busy.eq(1), stops.eq(clears_memory), clears.eq(clears_memory)]
                m.d.comb += clears_memory.eq(settle > LEVELS)
                with m.If(reset):
                    m.d.sync += [complete.eq(0), failed.eq(0), cause.eq(0), tag.eq(0)]
                with m.Elif(settled):
                    m.d.comb += [told["done"].eq(complete), told["error"].eq(failed)]
                    m.d.sync += done.eq(complete)
                    with m.If(~complete & ~failed):
                        m.d.sync += forgets.eq(1)
                    m.next = "IDLE"

        self._counters(m, registers, started, busy)
        states = {"busy": busy, "done": done, "error": (failed & ~busy) | dead}
        for part, state in states.items():
            m.d.comb += registers.STATUS[bit("STATUS", part)].eq(state)
        for part, event in told.items():
            m.d.comb += registers.set_IRQ[bit("IRQ", part)].eq(event)
        for part, value in {"cause": cause, "tag": tag}.items():
            at = bit("ERROR", part)
            m.d.comb += registers.ERROR[at : at + len(value)].eq(value)
        for engine in ENGINES:
            at = bit("DONE", engine)
            m.d.comb += registers.DONE[at : at + 16].eq(getattr(self, f"{engine}_done"))
        m.d.comb += registers.BUILD.eq(overlay.build)
        return m

    def _oldest(self, m: Module, fetch: Fetch) -> Value:
        """Pass descriptors on and count; return the tag of the oldest unfinished Task.

        Tasks wait only for earlier ones: so it is the oldest of both engines' that holds up a chain.
        """
        oldest, waiting = fetch.tag, Const(0)
        for engine in ENGINES:
            fetched, task = getattr(fetch, engine), getattr(self, engine)
            finished, done = getattr(self, f"{engine}_finished"), getattr(self, f"{engine}_done")
            queue = Queue(width=16, depth=UNFINISHED)
            m.submodules[f"{engine}_tags"] = with_reset(m, queue, f"{engine}_tags", self.clear)
            m.d.comb += [
                task.payload.eq(fetched.payload),
                task.valid.eq(fetched.valid & queue.w_rdy),
                fetched.ready.eq(task.ready & queue.w_rdy),
                queue.w_data.eq(fetched.payload.tag),
                queue.w_en.eq(task.valid & task.ready),
                queue.r_en.eq(finished),
            ]
            with m.If(finished & ~self.clear):
                m.d.sync += done.eq(done + 1)
            there, its_tag = later(m, queue.r_rdy, f"{engine}_there"), later(m, queue.r_data, f"{engine}_tag")
            first = Mux(there & (~waiting | (its_tag < oldest)), its_tag, oldest)
            waiting, oldest = waiting | there, first
        return later(m, oldest, "oldest")

    def _counters(self, m: Module, registers: Registers, started: Signal, busy: Signal) -> None:
        """Count cycles, and what the array does in them, a cycle late."""
        cycles, held = register(64, "cycles"), register(32, "held")
        started, busy = later(m, started, "started"), later(m, busy, "busy")
        with m.If(started):
            m.d.sync += cycles.eq(0)
        with m.Elif(busy):
            m.d.sync += cycles.eq(cycles + 1)
        with m.If(registers.read_CYCLES):
            m.d.sync += held.eq(cycles[32:])
        m.d.comb += [registers.CYCLES.eq(cycles[:32]), registers.CYCLES_HI.eq(held)]
        counted = {"MAC_CYCLES": self.mac} | {
            f"STALL_{reason.name}": self.stall == reason for reason in Stall if reason is not Stall.NONE
        }
        for name, happens in counted.items():
            counter, happens = register(32, name.lower()), later(m, happens, f"{name.lower()}_now")
            with m.If(started):
                m.d.sync += counter.eq(0)
            with m.Elif(busy & happens):
                m.d.sync += counter.eq(counter + 1)
            m.d.comb += getattr(registers, name).eq(counter)
