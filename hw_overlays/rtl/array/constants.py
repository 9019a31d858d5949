"""Weights and tables, fetched ahead through one port: what is requested always has room, so that it never blocks others."""

from amaranth import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import table_record
from ..lookup import BEATS as LOOKUP_BEATS, ENTRIES
from ..ports import BEAT, BEATS_BITS, ReadPort, address_bits
from ..requantise import LATENCY
from .plan import log2, plan, ram_style

TABLES = 4  # blocks whose tables are there or on the way
REQUESTS = 16  # on the way
CLEAR = LATENCY + 6  # cycles from the last sum that a Task's drain reads to the last code that it looks up, or more
COUNT = 16  # bits of a count of words, which runs over all Tasks


def record(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a table's record without the bits that nothing needs."""
    bits = overlay.requant.mult_bits
    return data.StructLayout({"bias": signed(overlay.accumulator_bits), "multiplier": bits, "negative": bits})


class Constants(wiring.Component):
    """Fetch the constants of a Task in the order in which its blocks are computed.

    ``plan``, ``start``  of the next Task; ``taken``: 1 for one cycle when all its requests are made
    ``written``          words of weights that have come, of all Tasks
    ``freed``            words of them that are not needed any more
    ``word``, ``weights``  read a word (its count): in the next cycle
    ``tables``, ``tables_used``  tables that have come and that are drained, of all Tasks
    ``slot``             of the plan; ``entries`` are beats of its table of codes
    ``plane``, ``records``  read the records of a plane of 8 channels (the table's number, and the plane's in its block):
                         in the next cycle
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        array, weights = overlay.array, overlay.buffers.weights
        self.depth = weights.depth * weights.banks
        self.step = overlay.layout.channels_per_word
        self.parts = array.outputs // self.step  # beats of a word, and planes of a block
        log2(self.depth)  # addresses wrap around
        if array.outputs % self.step or weights.word_bits != 8 * array.outputs or array.outputs < array.inputs:
            raise ValueError(f"array of {array.inputs} x {array.outputs}: outputs are no whole planes, or too few")
        self.record = record(overlay)
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
                "weights": Out(8 * array.outputs),
                "tables": Out(COUNT),
                "tables_used": In(COUNT),
                "table": In(range(TABLES)),
                "plane": In(range(self.parts)),
                "records": Out(data.ArrayLayout(self.record, self.step)),
                "memory": Out(ReadPort(address_bits(overlay))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the part that requests, and the ones that store."""
        m = Module()
        layout = data.StructLayout({"beats": BEATS_BITS, "table": 1, "narrow": 1, "lookup": 1, "slot": 1})
        m.submodules.runs = fifo = SyncFIFOBuffered(width=layout.size, depth=REQUESTS)
        self._request(m, fifo, layout)
        run = data.View(layout, fifo.r_data)
        stream = self.memory.data
        beat = Signal(BEATS_BITS)
        taken = Signal()
        m.d.comb += [
            stream.ready.eq(fifo.r_rdy),
            taken.eq(stream.valid & stream.ready),
            fifo.r_en.eq(taken & (beat == run.beats - 1)),
        ]
        with m.If(taken):
            m.d.sync += beat.eq(Mux(fifo.r_en, 0, beat + 1))
        self._store_weights(m, taken & ~run.table & ~run.lookup, run.narrow)
        m.d.comb += [
            self.entries.write.eq(taken & run.lookup),
            self.entries.bank.eq(run.slot),
            self.entries.beat.eq(beat),
            self.entries.codes.eq(stream.payload),
        ]
        self._store_tables(m, taken & run.table, beat, fifo.r_en & run.table)
        return m

    def _request(self, m: Module, fifo: SyncFIFOBuffered, layout: data.StructLayout) -> None:
        plan, port, array = self.plan, self.memory.request, self.overlay.array
        bits = len(port.payload.address)
        runs = Signal(24)  # through all blocks: one for each tile, if tiles are the outer loop
        uses = Signal(24)  # of a block, one after the other
        first, again = Signal(), Signal()  # run; use
        groups, left, block = Signal(16), Signal(16), Signal(range(array.outputs + 1))
        weights, at, table = Signal(bits), Signal(bits), Signal(bits)
        words, piece, beats = Signal(24), Signal(range(array.inputs + 1)), Signal(BEATS_BITS)
        asked, tables_asked = Signal(COUNT), Signal(COUNT)
        room, table_room = Signal(COUNT), Signal(COUNT)
        fresh = Signal()  # these weights are not in the ring
        channels = Signal(range(array.outputs + 1))
        run = Signal(layout)
        clear = Signal(range(CLEAR + 1))  # cycles until no code of the last Task in this slot can be on its way
        size = self.overlay.table.bytes
        m.d.comb += [
            block.eq(block_size(plan, array.inputs, array.outputs)),
            channels.eq(Mux(left > block, block, left)),
            fresh.eq(~plan.keep | (~again & (first | plan.outside | plan.between))),
            piece.eq(Mux(words > array.inputs, array.inputs, words)),
            beats.eq(Mux(plan.depthwise, piece * (array.inputs // self.step), piece * self.parts)),
            room.eq(asked + piece - self.freed),
            table_room.eq(tables_asked - self.tables_used),
            run.beats.eq(port.payload.beats),
            run.narrow.eq(plan.depthwise),
            run.slot.eq(self.slot),
            fifo.w_data.eq(run),
            fifo.w_en.eq(port.valid & port.ready),
        ]
        outer = Mux(plan.outside, 1, Mux(plan.between, plan.batch, plan.runs))
        inner = Mux(plan.outside, plan.runs, Mux(plan.between, plan.tiles, 1))
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    runs.eq(outer),
                    first.eq(1),
                    clear.eq(CLEAR),
                    at.eq(plan.table + (plan.output_channels << 4)),
                ]
                with m.If(self.start):
                    m.next = "RUN"
                    with m.If(plan.lookup):
                        m.next = "LOOKUP"
            with m.State("LOOKUP"):  # after the records of all channels
                m.d.sync += clear.eq(Mux(clear == 0, 0, clear - 1))
                m.d.comb += [
                    port.payload.address.eq(at),
                    port.payload.beats.eq(LOOKUP_BEATS),
                    port.valid.eq(fifo.w_rdy & (clear == 0)),
                    run.lookup.eq(1),
                ]
                with m.If(port.valid & port.ready):
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.sync += [
                    weights.eq(plan.weights),
                    table.eq(plan.table),
                    groups.eq(plan.groups),
                    left.eq(plan.outputs),
                    uses.eq(inner),
                    again.eq(0),
                ]
                m.next = "BLOCK"
            with m.State("BLOCK"):
                m.next = "TABLE"
                with m.If(fresh):
                    m.d.sync += [
                        at.eq(weights),
                        words.eq(Mux(plan.depthwise, plan.taps, plan.passes << log2(array.inputs))),
                    ]
                    m.next = "WEIGHTS"
            with m.State("WEIGHTS"):
                m.d.comb += [
                    port.payload.address.eq(at),
                    port.payload.beats.eq(beats),
                    port.valid.eq(fifo.w_rdy & (room <= self.depth)),
                ]
                with m.If(port.valid & port.ready):
                    m.d.sync += [asked.eq(asked + piece), at.eq(at + beats * BEAT), words.eq(words - piece)]
                    with m.If(words == piece):
                        m.next = "TABLE"
            with m.State("TABLE"):
                m.d.comb += [
                    port.payload.address.eq(table),
                    port.payload.beats.eq(channels * (size // BEAT)),
                    port.valid.eq(fifo.w_rdy & (table_room < TABLES)),
                    run.table.eq(1),
                ]
                with m.If(port.valid & port.ready):
                    m.d.sync += [tables_asked.eq(tables_asked + 1), uses.eq(uses - 1), again.eq(1)]
                    m.next = "BLOCK"
                    with m.If(uses == 1):
                        m.next = "NEXT"
            with m.State("NEXT"):
                m.d.sync += [
                    table.eq(table + channels * size),
                    weights.eq(at),
                    left.eq(left - channels),
                    uses.eq(inner),
                    again.eq(0),
                ]
                m.next = "BLOCK"
                with m.If(left == channels):
                    m.d.sync += [left.eq(plan.outputs), groups.eq(groups - 1)]
                    with m.If(groups == 1):
                        m.d.sync += [runs.eq(runs - 1), first.eq(0)]
                        m.next = "RUN"
                        with m.If(runs == 1):
                            m.d.comb += self.taken.eq(1)
                            m.next = "IDLE"

    def _store_weights(self, m: Module, taken: Value, narrow: Value) -> None:
        array, stream = self.overlay.array, self.memory.data
        style = ram_style(self.overlay.buffers.weights)
        m.submodules.weights_ring = ring = Memory(
            shape=unsigned(8 * array.outputs), depth=self.depth, init=[], attrs=style
        )
        reader, writer = ring.read_port(), ring.write_port(granularity=64)
        part = Signal(range(self.parts))
        last = Mux(narrow, array.inputs // self.step, self.parts) - 1
        m.d.comb += [
            reader.addr.eq(self.word),
            self.weights.eq(reader.data),
            writer.addr.eq(self.written),
            writer.data.eq(Cat(stream.payload for _ in range(self.parts))),
            writer.en.eq(taken << part),
        ]
        with m.If(taken):
            m.d.sync += part.eq(part + 1)
            with m.If(part == last):
                m.d.sync += [part.eq(0), self.written.eq(self.written + 1)]

    def _store_tables(self, m: Module, taken: Value, beat: Value, end: Value) -> None:
        entry = data.View(table_record(self.overlay), Cat(held := Signal(64), self.memory.data.payload))
        with m.If(taken):
            m.d.sync += held.eq(self.memory.data.payload)
        with m.If(end):
            m.d.sync += self.tables.eq(self.tables + 1)
        slot = self.tables[: log2(TABLES)]
        lane, plane = beat[1 : 1 + log2(self.step)], beat[1 + log2(self.step) :][: len(self.plane)]
        for i in range(self.step):
            m.submodules[f"table_{i}"] = memory = Memory(shape=self.record, depth=TABLES << len(self.plane), init=[])
            reader, writer = memory.read_port(), memory.write_port()
            m.d.comb += [
                reader.addr.eq(Cat(self.plane, self.table)),
                self.records[i].eq(reader.data),
                writer.addr.eq(Cat(plane, slot)),
                writer.en.eq(taken & beat[0] & (lane == i)),
            ]
            m.d.comb += [writer.data[name].eq(entry[name]) for name in self.record.members]


def block_size(plan: Value, inputs: int, outputs: int) -> Value:
    """Return the output channels of a full block."""
    return Mux(plan.depthwise, inputs, outputs)
