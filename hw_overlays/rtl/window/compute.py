"""Compute: the words of a Task to its codes."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay
from chai.tasks.eltwise import OPERATIONS

from ..descriptor import descriptor
from ..lookup import ENTRIES, has_lookups
from ..requantise import LATENCY, Requantise
from ..streams import later, register
from .depthwise import Depthwise
from .elements import Elements
from .fetch import any_of, has_vectors
from .lrn import LRN
from .pool import Pool
from .side_by_side import Groups
from .unit import lanes_of
from .whole import Whole

OPERATION = "operation"  # the field that an overlay has which computes more than sums


class Compute(wiring.Component):
    """One Task at a time: the next one begins when the codes of the last one are out of the lanes.

    Inputs come a word of each of the planes side by side. Of a Task that takes one plane at a time only the first one counts.

    ``task``    descriptors
    ``first``, ``second``  words of the inputs
    ``entries``  of tables of codes, those of a Task before its first word
    ``record``  of the table, two cycles after ``read``; ``there``, ``two_there`` if one or two can be claimed; ``done_with``
                after the last
    ``begin``, ``beat``, ``segment``  of an LRN: its table follows, and is written
    ``room``    1 if a word of codes may come; ``claim`` says that one will: ``word``, with ``write``
    ``record_claim``  the same of records
    ``works``, ``starved``, ``unset``  whether it goes on, or waits for words, or for a record
    """

    def __init__(self, overlay: Overlay, opcodes: dict[str, int], record: data.Layout) -> None:
        self.overlay = overlay
        self.lanes = lanes_of(overlay)
        self.opcodes = opcodes
        word = stream.Signature(8 * self.lanes)
        super().__init__(
            {
                "task": In(stream.Signature(descriptor(overlay))),
                "first": In(word),
                "second": In(word),
                "entries": In(ENTRIES),
                "there": In(1),
                "two_there": In(1),
                "record_claim": Out(1),
                "read": Out(1),
                "record": In(record),
                "done_with": Out(1),
                "begin": In(1),
                "beat": In(64),
                "segment": In(1),
                "room": In(1),
                "claim": Out(1),
                "word": Out(8 * self.lanes),
                "write": Out(1),
                "works": Out(1),
                "starved": Out(1),
                "unset": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the units, the lanes between them and the codes, and the count of planes."""
        m = Module()
        m.submodules.pool = pool = Pool(self.overlay)
        m.submodules.whole = whole = Whole(self.overlay)
        m.submodules.elements = elements = Elements(self.overlay)
        has_lrn = "lrn" in self.overlay.kinds
        m.submodules.lanes = lanes = Requantise(self.overlay, self.lanes, self.overlay.accumulator_bits)
        now = register(self.task.payload.shape(), "now")
        sides = Cat(now.kernel_h == now.input_height, now.kernel_w == now.input_width)
        covers = later(m, sides.all() & (now.pad_h == 0) & (now.pad_w == 0), "covers")  # the window covers the image
        pools, norms = (later(m, now.opcode == self.opcodes[kind], kind) for kind in ("pool", "lrn"))
        interleaves = now.opcode == self.opcodes["interleave"]
        pairs = later(m, (now.opcode == self.opcodes["eltwise"]) | interleaves, "pairs")
        averages, image = later(m, pools & now.average, "averages"), later(m, pools & covers, "image")
        filters = later(m, now.opcode == self.opcodes["depthwise"], "filters")
        chosen = {pool: pools & ~image, whole: pools & image, elements: ~pools & ~norms & ~filters}
        if has_lrn:
            m.submodules.lrn = lrn = LRN(self.overlay)
            m.d.comb += [lrn.begin.eq(self.begin), lrn.beat.eq(self.beat), lrn.write.eq(self.segment)]
            chosen[lrn] = norms
        deep = None
        if "depthwise" in self.overlay.kinds:
            m.submodules.depthwise = deep = Depthwise(self.overlay, self.record.shape())
            chosen[deep] = filters
        repeats = later(m, (now.opcode == self.opcodes["upsample"]) | interleaves, "repeats")  # rows, one by one
        self._planes(m, now, pool, deep, chosen, averages | filters | norms, norms, repeats)

        # -- what the units share
        room = later(m, self.room & (~averages | Mux(self.claim, self.two_there, self.there)), "may_claim")
        for unit in chosen:
            m.d.comb += [unit.task.eq(now), unit.first.payload.eq(self.first.payload), unit.room.eq(room)]
            m.d.comb += unit.first.valid.eq(self.first.valid)
        maximum = Const(0)
        if OPERATION in self.overlay.descriptor.values:
            maximum = later(m, pairs & (now.operation == OPERATIONS.index("MAX")), "maximum")
            m.d.comb += elements.times.eq(later(m, pairs & (now.operation == OPERATIONS.index("PROD")), "times"))
        if has_vectors(self.overlay):
            m.d.comb += elements.vector.eq(now.vector)
        m.d.comb += [elements.repeats.eq(repeats), elements.maximum.eq(maximum)]
        m.d.comb += [elements.pairs.eq(pairs), elements.second.payload.eq(self.second.payload)]
        m.d.comb += elements.second.valid.eq(self.second.valid)
        takes_second, takes_record, unset = elements.second.ready, Const(0), Const(0)
        if deep is not None:
            m.d.comb += [deep.second.valid.eq(self.second.valid), deep.second.payload.eq(self.second.payload)]
            m.d.comb += [deep.active.eq(filters), deep.there.eq(self.there), deep.record.eq(self.record)]
            takes_second, takes_record, unset = takes_second | deep.second.ready, deep.takes, deep.unset
        m.d.comb += [
            self.second.ready.eq(takes_second),
            self.first.ready.eq(any_of(unit.first.ready for unit in chosen)),
            self.claim.eq(any_of(unit.claim for unit in chosen)),
            self.record_claim.eq((self.claim & averages) | takes_record),
            self.read.eq(((pool.soon | whole.soon) & averages) | takes_record),
            self.works.eq(any_of(unit.works for unit in chosen)),
            self.starved.eq(any_of(unit.starved for unit in chosen)),
            self.unset.eq(any_of(unit.held & choice for unit, choice in chosen.items()) & self.room | unset),
        ]

        # -- into the lanes, through a register
        record, bank = self.record, Signal()  # which table of codes: that of each Task that has one in turn
        factor = later(m, elements.multiplier, "factor")
        for lane in range(self.lanes):
            code, multiplier = elements.values[lane], factor
            if has_lrn and lane < len(lrn.values):
                code = Mux(norms, lrn.factors[lane], code)
                multiplier = Mux(norms, later(m, lrn.values[lane], f"value_{lane}"), factor)
            sums = Mux(pools, Mux(pool.valid, pool.sums[lane], whole.sums[lane]), code)
            negative = Mux(averages, record.negative, now.negative)
            multiplier = Mux(averages, record.multiplier, Mux(pools, 1, multiplier))
            if deep is not None:  # both are 0 in a Task of filters, whose records are 0 in others
                sums, own = Mux(filters, deep.sums[lane], sums), deep.records[lane]
                negative, multiplier = negative | own.negative, multiplier | own.multiplier
            m.d.comb += [
                lanes.sums[lane].eq(later(m, sums, f"sums_{lane}")),
                lanes.bias[lane].eq(Mux(averages, record.bias, 0)),
                lanes.multiplier[lane].eq(multiplier),
                lanes.negative[lane].eq(negative),
            ]
        m.d.comb += [
            lanes.more.eq(later(m, elements.more & ~pools, "more")),
            lanes.rule.shift.eq(now.shift),
            lanes.rule.leaky.eq(now.leaky & ~pairs),
            lanes.rule.zero.eq(now.output_zero),
            lanes.rule.low.eq(now.low),
            lanes.rule.high.eq(now.high),
            lanes.entries.eq(self.entries),
            lanes.choice.bank.eq(bank),
        ]
        if has_lookups(self.overlay):
            m.d.comb += lanes.choice.looks.eq(now.lookup)
            with m.If(self.task.valid & self.task.ready & self.task.payload.lookup):
                m.d.sync += bank.eq(~bank)

        # -- out of the lanes; a leaky eltwise has codes for both signs, a maximum of both inputs, one after the other
        valid, aside = Signal(LATENCY + 1), Signal(LATENCY + 1)
        m.d.sync += valid.eq(Cat(any_of(unit.valid for unit in chosen), valid))
        m.d.sync += aside.eq(Cat(elements.aside, aside))
        codes, below = register(lanes.codes.shape(), "codes"), register(self.lanes, "below")
        with m.If(aside[-1]):
            m.d.sync += [codes.eq(lanes.codes), below.eq(lanes.below)]
        m.d.comb += self.write.eq(valid[-1])
        for lane in range(self.lanes):
            first = Mux(maximum, codes[lane] > lanes.codes[lane], pairs & now.leaky & ~below[lane])
            choice = Mux(first, codes[lane], lanes.codes[lane])
            m.d.comb += self.word.word_select(lane, 8).eq(choice)
        return m

    def _planes(
        self,
        m: Module,
        now: Signal,
        pool: Pool,
        deep: Depthwise | None,
        chosen: dict[wiring.Component, object],
        tables: object,
        norms: object,
        repeats: object,
    ) -> None:
        """Begin plane after plane of a Task in its unit, images of an LRN, and the next Task after the last code."""
        # left, the current ones included
        planes, images = register(16, "planes"), register(16, "images")
        groups = Groups(self.overlay, Const(0), now.input_channels).count
        of_image = later(m, Mux(repeats, now.tiles, Mux(norms, 1, groups)), "of_image")
        last_plane, last_image = later(m, planes == 1, "last_plane"), later(m, images == 1, "last_image")
        some = register(1, "some")  # planes
        begins, over = Signal(), Signal()  # the next plane may begin; all have
        under_way = Signal(8)  # codes that are claimed and not yet written
        claim = later(m, self.claim, "claim_later")
        m.d.sync += under_way.eq(under_way + claim - self.write)
        none = (under_way == 0) & ~claim
        m.d.sync += [begins.eq(0), over.eq(0)]
        settle = Signal(range(4))  # from a new Task until what follows from it is in registers
        for unit, choice in chosen.items():
            m.d.comb += unit.start.eq(choice & unit.ready & begins)
            with m.If(unit.start):
                m.d.sync += planes.eq(planes - 1)
                with m.If(last_plane):
                    m.d.sync += [planes.eq(of_image), images.eq(images - 1), some.eq(~last_image)]
        more = Signal()  # planes that have not begun, of a Task whose first one may; a cycle late, as ``begins``
        m.d.sync += more.eq(0)
        if deep is not None:
            m.d.comb += deep.more.eq(more & chosen[deep])
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.task.ready.eq(1)
                m.d.sync += [now.eq(self.task.payload), settle.eq(3)]
                with m.If(self.task.valid):
                    m.next = "PREPARE"
            with m.State("PREPARE"):
                m.d.sync += [planes.eq(of_image), images.eq(now.batch), some.eq(1), settle.eq(settle - 1)]
                with m.If(settle == 0):
                    m.d.comb += [unit.prepare.eq(chosen[unit]) for unit in (pool, deep) if unit is not None]
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += [begins.eq(some), more.eq(some)]
                m.next = "PLANES"
            with m.State("PLANES"):
                m.d.sync += [begins.eq(some), more.eq(some), over.eq(~some)]
                for unit, choice in chosen.items():
                    with m.If(choice & unit.ready & over & none):
                        m.d.comb += self.done_with.eq(tables)
                        m.next = "IDLE"
