"""Weights and tables, fetched ahead through ports in turns: what is requested always has room, so it never blocks others.

Small maps need a beat of weights in nearly each cycle, and a port of the processor has too few bursts open for that.
Weights that are used once come as fast as all ports together: each makes units of its groups while others' are stored.
"""

from amaranth import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay
from chai.util.rounding import ceil_div

from ..beats import WORD
from ..descriptor import table_fields, table_record
from ..lookup import BEATS as LOOKUP_BEATS, ENTRIES
from ..ports import BEAT, BEATS_BITS, ReadPort, log2
from ..requantise import LATENCY
from ..streams import Queue, counted, later, ram_style, register
from .plan import plan

TABLES = 4  # blocks whose tables are there or on the way
REQUESTS = 16  # on the way
UNITS = 32  # of a port that wait: all of a table, two pieces of weights
CLEAR = LATENCY + 8  # cycles from the last sum that a Task's drain reads to the last code that it looks up, or more
SETTLE = 4  # cycles from a request until what follows from it is in registers
COUNT = 16  # bits of a count of words, which runs over all Tasks
SIDES = "memory", "memory_too", "memory_three"  # ports, which take requests in turns


def store_layout(bits: int) -> data.StructLayout:
    """Return what has come: a unit of so many bits, of what it is, and its number (of a table of codes, a word's)."""
    flags = dict.fromkeys(("weights", "table", "lookup", "slot", "narrow", "end"), 1)
    return data.StructLayout({"payload": bits, **flags, "beat": BEATS_BITS})


class Units(wiring.Component):
    """Make units of a port's groups, and keep them until they are stored.

    ``runs``    as they are requested: how many ``groups``, and how many of them make a unit besides the ``last``
    ``groups``  of the port
    ``units``   the first group is the lowest one; others than a run's are noise
    """

    def __init__(self, bits: int, words: int) -> None:
        self.count = bits // (words * WORD)
        self.run = data.StructLayout({"beats": BEATS_BITS, "last": range(self.count)})
        super().__init__(
            {
                "runs": In(stream.Signature(self.run, always_ready=True)),
                "groups": In(stream.Signature(words * WORD)),
                "units": Out(stream.Signature(bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the groups before a unit's last one, and the queue."""
        m = Module()
        m.submodules.runs = runs = Queue(width=self.run.size, depth=REQUESTS, block=True)
        m.submodules.units = units = Queue(width=len(self.units.payload), depth=UNITS, block=True)
        m.d.comb += [runs.w_data.eq(self.runs.payload), runs.w_en.eq(self.runs.valid)]
        taken, at = Signal(), Signal(range(self.count))
        there, run, _ = counted(m, runs, self.run, taken)
        group, held = self.groups.payload, register(data.ArrayLayout(len(self.groups.payload), self.count - 1), "held")
        ends = at == run.last
        m.d.comb += [
            self.groups.ready.eq(there & units.w_rdy),
            taken.eq(self.groups.valid & self.groups.ready),
            units.w_en.eq(taken & ends),
            units.w_data.eq(Cat(*(Mux(at == i, group, held[i]) for i in range(self.count - 1)), group)),
            self.units.valid.eq(units.r_rdy),
            self.units.payload.eq(units.r_data),
            units.r_en.eq(self.units.ready),
        ]
        with m.If(taken):
            m.d.sync += [at.eq(Mux(ends, 0, at + 1)), held[at].eq(group)]
        return m


class Constants(wiring.Component):
    """Fetch the constants of a Task in the order in which its blocks are computed.

    ``plan``, ``start``  of the next Task; ``taken``: 1 for one cycle when all its requests are made
    ``written``          words of weights that have come, of all Tasks
    ``freed``            words of them that are not needed any more
    ``word``, ``weights``  read a word (its count): two cycles later
    ``tables``, ``tables_used``  tables that have come and that are drained, of all Tasks
    ``slot``             of the plan; ``entries`` are beats of its table of codes
    ``plane``, ``records``  read the records of a plane, or of all that leave the array together (the table's number, and
                         theirs in its block): in the next cycle
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        array, weights = overlay.array, overlay.buffers.weights
        self.depth = weights.depth * weights.banks
        self.step = overlay.layout.channels_per_word
        self.parts = weights.word_bits // WORD  # words of 8 bytes of one of weights
        self.load = overlay.load_cycles  # words of weights of a pass
        self.words, self.lanes = overlay.ports.words, overlay.requant.lanes
        self.sides = SIDES[: overlay.ports.constants]
        self.unit = overlay.constants_at_once * WORD  # what is stored in a cycle
        log2(self.depth)  # addresses wrap around
        if array.outputs % self.step or array.outputs < array.inputs:
            raise ValueError(f"array of {array.inputs} x {array.outputs}: outputs are no whole planes, or too few")
        if array.inputs % (self.words * self.step) or array.outputs % (self.words * self.step):
            raise ValueError(
                f"array of {array.inputs} x {array.outputs}: no whole beats of {overlay.ports.bytes} bytes"
            )
        self.record = table_fields(overlay, overlay.array_bits)
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "start": In(1),
                "slot": In(1),
                "entries": Out(ENTRIES),
                "taken": Out(1),
                "written": Out(COUNT),
                "freed": In(COUNT),
                "word": In(COUNT),
                "weights": Out(weights.word_bits),
                "tables": Out(COUNT),
                "tables_used": In(COUNT),
                "table": In(range(TABLES)),
                "plane": In(range(array.outputs // self.lanes)),
                "records": Out(data.ArrayLayout(self.record, self.lanes)),
                **{name: Out(ReadPort(overlay.address_bits, self.words)) for name in self.sides},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the part that requests, and the ones that store."""
        m = Module()
        flags = dict.fromkeys(("table", "narrow", "lookup", "slot"), 1)
        layout = data.StructLayout({"beats": BEATS_BITS, "side": range(len(self.sides)), **flags})
        m.submodules.runs = fifo = Queue(width=layout.size, depth=REQUESTS, block=True)
        self._request(m, fifo, layout)
        # in the store a beat is a cycle later
        beat, taken, stored = register(BEATS_BITS, "beat"), Signal(), Signal()
        store = register(store_layout(self.unit), "store")
        there, run, last = counted(m, fifo, layout, taken)
        with m.If(stored):
            m.d.sync += beat.eq(beat + 1)
        with m.If(fifo.r_en):
            m.d.sync += beat.eq(0)
        m.d.sync += [store.weights.eq(taken & ~run.table & ~run.lookup), store.table.eq(taken & run.table)]
        m.d.sync += [store.lookup.eq(stored & run.lookup), store.slot.eq(run.slot)]
        m.d.sync += [store.narrow.eq(run.narrow), store.beat.eq(beat), store.end.eq(taken & last & run.table)]
        half = run.lookup & ~beat[0] if self.words > 1 else Const(0)  # codes go into their tables a word at a time
        m.d.comb += taken.eq(stored & ~half)
        for side, name in enumerate(self.sides):
            units = self._units(m, name, data.View(layout, fifo.w_data))
            mine = there & (run.side == side)
            m.d.comb += units.ready.eq(mine & ~half)
            with m.If(mine):
                m.d.comb += stored.eq(units.valid)
                m.d.sync += store.payload.eq(units.payload)
        m.d.comb += [self.entries.write.eq(store.lookup), self.entries.bank.eq(store.slot)]
        m.d.comb += self.entries.beat.eq(store.beat)
        m.d.comb += self.entries.codes.eq(store.payload.word_select(store.beat[: log2(self.words)], WORD))
        self._store_weights(m, store)
        self._store_tables(m, store)
        return m

    def _units(self, m: Module, name: str, run: data.View) -> stream.Interface:
        """Return the units that come through a port, at whose requests ``run`` is what they are; single groups need no queue."""
        port, groups = getattr(self, name), self.unit // (self.words * WORD)
        if groups <= 1:
            return port.data
        m.submodules[f"{name}_units"] = units = Units(self.unit, self.words)
        wiring.connect(m, wiring.flipped(port.data), units.groups)
        narrow = self.overlay.array.inputs // self.step // self.words
        m.d.comb += [
            units.runs.valid.eq(port.request.valid & port.request.ready),
            units.runs.payload.beats.eq(port.request.payload.beats >> log2(self.words)),
            units.runs.payload.last.eq(Mux(run.table | run.lookup, 1, Mux(run.narrow, narrow, groups)) - 1),
        ]
        return units.units

    def _request(self, m: Module, fifo: Queue, layout: data.StructLayout) -> None:
        """Ask for weights and tables; a state waits until what follows from the one before is in registers."""
        plan, port, array = self.plan, Signal(self.memory.request.payload.shape()), self.overlay.array
        asks = data.View(port.shape(), later(m, port.as_value(), "asks"))
        valid, ready, side = Signal(), Signal(), Signal(range(len(self.sides)))
        for number, name in enumerate(self.sides):
            request = getattr(self, name).request
            m.d.comb += [request.payload.eq(asks), request.valid.eq(valid & (side == number))]
            with m.If(side == number):
                m.d.comb += ready.eq(request.ready)
        taken = Signal()  # a request, a cycle later
        m.d.sync += taken.eq(valid & ready)
        with m.If(valid & ready):
            m.d.sync += side.eq(Mux(side == len(self.sides) - 1, 0, side + 1))
        bits = len(port.address)
        runs = register(24, "runs")  # through all blocks: one for each tile, if tiles are the outer loop
        uses = register(24, "uses")  # of a block, one after the other
        first, again = register(1, "first"), register(1, "again")  # run; use
        groups, left, words = register(16, "groups"), register(16, "left"), register(24, "words")
        weights, at, table = (register(bits, f"{name}_at") for name in ("weights", "piece", "table"))
        asked, tables_asked = Signal(COUNT), Signal(COUNT)
        # cycles until no code of the last Task in this slot can be on its way
        clear = register(range(CLEAR + 1), "clear")
        size = self.overlay.table.bytes
        block = block_size(plan, array.inputs, array.outputs)
        channels = later(m, Mux(left > block, block, left)[: array.outputs.bit_length()], "channels")
        most = Mux(plan.depthwise, array.inputs, self.load)  # words of a request
        piece = later(m, Mux(words > most, most, words)[: array.inputs.bit_length()], "piece")
        words_end, block_end = later(m, words <= most, "words_end"), later(m, left <= block, "block_end")
        groups_end, runs_end = later(m, groups == 1, "groups_end"), later(m, runs == 1, "runs_end")
        uses_end = later(m, uses == 1, "uses_end")
        # these weights are not in the ring
        fresh = later(m, ~plan.shared & (~plan.keep | (~again & (first | plan.outside | plan.between))), "fresh")
        parts = Mux(plan.depthwise, piece * (array.inputs // self.step), piece * self.parts)
        beats = later(m, parts[:BEATS_BITS], "beats")
        held = later(m, (asked - self.freed)[:COUNT], "held")
        fits = later(m, later(m, (held + piece)[:COUNT], "needed") <= self.depth, "fits")
        few = later(m, later(m, (tables_asked - self.tables_used)[:COUNT], "tables_held") < TABLES, "few")
        next_at = later(m, (at + beats * BEAT)[:bits], "next_at")
        next_table = later(m, (table + channels * size)[:bits], "next_table")
        outer = later(m, Mux(plan.outside, 1, Mux(plan.between, plan.batch, plan.runs)), "outer")
        inner = later(m, Mux(plan.outside, plan.runs, Mux(plan.between, plan.tiles, 1)), "inner")
        all_words = later(m, Mux(plan.depthwise, plan.taps, plan.passes << log2(self.load))[: len(words)], "all_words")
        run = Signal(layout)
        m.d.comb += [
            run.beats.eq(asks.beats >> log2(self.words)),
            run.narrow.eq(plan.depthwise),
            run.side.eq(side),
            run.slot.eq(self.slot),
            fifo.w_data.eq(run),
            port.address.eq(table),
            port.beats.eq(channels * (size // BEAT)),
            port.tag.eq(plan.tag),
            fifo.w_en.eq(valid & ready),
        ]
        settle, settled = Signal(range(SETTLE + 1), init=SETTLE), Signal()
        # only this part fills the queue, and not for ``SETTLE`` cycles after a request
        may_weights, may_table = later(m, fits & fifo.w_rdy, "may_weights"), later(m, few & fifo.w_rdy, "may_table")
        may_lookup = later(m, (clear == 0) & fifo.w_rdy, "may_lookup")
        lookup_at = later(m, (plan.table + (plan.output_channels << 4))[:bits], "lookup_at")
        m.d.sync += [settle.eq(Mux(settle == 0, 0, settle - 1)), settled.eq(settle <= 1)]

        def go(state: str) -> None:
            m.d.sync += [settle.eq(SETTLE), settled.eq(0)]
            m.next = state

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [runs.eq(outer), first.eq(1), clear.eq(CLEAR), at.eq(lookup_at)]
                with m.If(~self.start):
                    m.d.sync += [settle.eq(SETTLE), settled.eq(0)]
                with m.Elif(settled):
                    go("RUN")
                    with m.If(plan.lookup):
                        go("LOOKUP")
            with m.State("LOOKUP"):  # after the records of all channels
                m.d.sync += clear.eq(Mux(clear == 0, 0, clear - 1))
                m.d.comb += [
                    port.address.eq(at),
                    port.beats.eq(LOOKUP_BEATS),
                    valid.eq(settled & may_lookup & ~taken),
                    run.lookup.eq(1),
                ]
                with m.If(taken):
                    go("RUN")
            with m.State("RUN"):
                m.d.sync += [
                    weights.eq(plan.weights),
                    table.eq(plan.table),
                    groups.eq(plan.groups),
                    left.eq(plan.outputs),
                    uses.eq(inner),
                    again.eq(0),
                ]
                go("BLOCK")
            with m.State("BLOCK"):
                with m.If(settled):
                    m.next = "TABLE"
                    with m.If(fresh):
                        m.d.sync += [at.eq(weights), words.eq(all_words)]
                        go("WEIGHTS")
            with m.State("WEIGHTS"):
                m.d.comb += [
                    port.address.eq(at),
                    port.beats.eq(beats),
                    valid.eq(settled & may_weights & ~taken),
                ]
                if self.unit > self.words * WORD:
                    m.d.comb += run.beats.eq(piece)
                with m.If(taken):
                    m.d.sync += [asked.eq(asked + piece), at.eq(next_at), words.eq(words - piece)]
                    go("WEIGHTS")
                    with m.If(words_end):
                        go("TABLE")
            with m.State("TABLE"):
                m.d.comb += [valid.eq(settled & may_table & ~taken), run.table.eq(1)]
                with m.If(taken):
                    m.d.sync += [tables_asked.eq(tables_asked + 1), uses.eq(uses - 1), again.eq(1)]
                    go("BLOCK")
                    with m.If(uses_end):
                        m.next = "NEXT"
            with m.State("NEXT"):
                m.d.sync += [
                    table.eq(next_table),
                    weights.eq(at),
                    left.eq(left - channels),
                    uses.eq(inner),
                    again.eq(0),
                ]
                go("BLOCK")
                with m.If(block_end):
                    m.d.sync += [left.eq(plan.outputs), groups.eq(groups - 1)]
                    with m.If(groups_end):
                        m.d.sync += [runs.eq(runs - 1), first.eq(0)]
                        m.next = "RUN"
                        with m.If(runs_end):
                            m.d.comb += self.taken.eq(1)
                            m.next = "IDLE"

    def _store_weights(self, m: Module, store: data.View) -> None:
        inputs, bits = self.overlay.array.inputs, self.overlay.buffers.weights.word_bits
        style = ram_style(self.overlay.buffers.weights)
        m.submodules.weights_ring = ring = Memory(shape=unsigned(bits), depth=self.depth, init=[], attrs=style)
        units = bits // self.unit
        reader, writer = ring.read_port(), ring.write_port(granularity=self.unit)
        part = Signal(range(units))
        last = Mux(store.narrow, ceil_div(8 * inputs, self.unit), units) - 1
        m.d.comb += [
            reader.addr.eq(self.word),
            self.weights.eq(later(m, reader.data, "weights_read")),  # the memory's output register
            writer.addr.eq(self.written),
            writer.data.eq(store.payload.replicate(units)),
            writer.en.eq(store.weights << part),
        ]
        with m.If(store.weights):
            m.d.sync += part.eq(part + 1)
            with m.If(part == last):
                m.d.sync += [part.eq(0), self.written.eq(self.written + 1)]

    def _store_tables(self, m: Module, store: data.View) -> None:
        whole = Const(1)  # a record has come
        record, beat = store.payload[: 2 * WORD], store.beat
        if self.words == 1:
            record, beat, whole = Cat(held := register(WORD, "held"), store.payload), store.beat[1:], store.beat[0]
            with m.If(store.table):
                m.d.sync += held.eq(store.payload)
        entry = data.View(table_record(self.overlay), record)
        with m.If(store.end):
            m.d.sync += self.tables.eq(self.tables + 1)
        slot = self.tables[: log2(TABLES)]
        lane, plane = beat[: log2(self.lanes)], beat[log2(self.lanes) :][: len(self.plane)]
        for i in range(self.lanes):
            m.submodules[f"table_{i}"] = memory = Memory(shape=self.record, depth=TABLES << len(self.plane), init=[])
            reader, writer = memory.read_port(), memory.write_port()
            m.d.comb += [
                reader.addr.eq(Cat(self.plane, self.table)),
                self.records[i].eq(reader.data),
                writer.addr.eq(Cat(plane, slot)),
                writer.en.eq(store.table & whole & (lane == i)),
            ]
            m.d.comb += [writer.data[name].eq(entry[name]) for name in self.record.members]


def block_size(plan: Value, inputs: int, outputs: int) -> Value:
    """Return the output channels of a full block."""
    return Mux(plan.depthwise, inputs, outputs)
