"""Fetch: the words of a Task's blobs, and the records of its table, into queues, ahead of the Task that is computed."""

from math import prod
from typing import NamedTuple

from amaranth import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay
from chai.tasks.depthwise import KERNEL
from chai.tasks.lrn import SEGMENT, SEGMENTS

from ..descriptor import descriptor
from ..lookup import BEATS as LOOKUP_BEATS, ENTRIES, has_lookups
from ..ports import BEAT, INPUTS, ReadPort
from ..streams import Queue, Slice, counted, later, ram_style, register
from .side_by_side import Groups, PlaneRuns, Words, mask, one_by_one, quotient
from .table import BEATS, RECORDS
from .unit import lanes_of
from .walk import RUN, Walk, words_read

BEATS_IN_QUEUE = 512  # of each queue of an input: in flight and waiting
REQUESTS = 32  # in flight
FILTER = prod(KERNEL)  # words of a plane's filters


class To(enum.Enum, shape=2):
    """Where the beats of a request go."""

    FIRST = 0
    SECOND = 1
    TABLE = 2
    LOOKUP = 3


def route_layout(planes: int, words: int) -> data.StructLayout:
    """Return the layout of what comes of a request: ``beats`` of so many words, the last of which is ``short`` of one.

    ``plane``, ``ends``  of its group, and whether it is the last one there
    ``spread``           a word for each plane of all groups
    """
    several, wide = int(planes > 1), int(words > 1)
    members = {"to": To, "beats": range(RUN + 1), "short": wide, "plane": range(planes), "ends": several}
    return data.StructLayout(members | {"spread": several | wide})


class Source(NamedTuple):
    """Runs that a port is asked for, when it is their turn."""

    runs: stream.Interface
    in_turn: Value


class Fetch(wiring.Component):
    """Requests a run only where there is room for all of it, so that no beat waits and the order of runs is free.

    Of planes that go side by side there is a run each in turn, and a word when each has one. The last plane of a group, or the
    only one, also fills the queues of those that the group does not have: whatever comes after need not know how many there are.

    ``INPUTS``   read from memory: with two of them the other one reads second inputs alone
    ``task``     descriptors; the next one is taken when all runs of the last one are requested
    ``reached``  1 if the Tasks that the current one waits for had finished a cycle before; ``waits`` if it has to wait
    ``work``     the same descriptors for the next part, as soon as they are there
    ``entries``  of the table of codes of that Task, before its first word
    ``first``, ``second``  words of the inputs of all Tasks in order
    ``begin``, ``count``, ``keeps``, ``beat``, ``write``, ``freed``  of a Table; ``done_with`` after the last use of its records
    """

    def __init__(self, overlay: Overlay, opcodes: dict[str, int]) -> None:
        self.overlay, self.bits = overlay, overlay.address_bits
        self.looks, self.lookup_at = Signal(), Signal(self.bits)  # whether to ask for a table of codes, and where
        self.planes, self.words = overlay.window.planes, overlay.ports.words
        self.opcodes = opcodes
        layout = descriptor(overlay)
        words = stream.Signature(64 * self.planes)
        super().__init__(
            {
                "task": In(stream.Signature(layout)),
                "now": Out(layout),
                "reached": In(1),
                "waits": Out(1),
                **{name: Out(ReadPort(self.bits, self.words)) for name in INPUTS[: overlay.ports.window]},
                "work": Out(stream.Signature(layout)),
                "entries": Out(ENTRIES),
                "first": Out(words),
                "second": Out(words),
                "begin": Out(1),
                "count": Out(30),
                "keeps": Out(1),
                "beat": Out(64),
                "write": Out(1),
                "freed": In(1),
                "done_with": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the walks over blobs and table, the choice among their runs, and the way of the beats."""
        m = Module()
        m.submodules.first_walk = first = Walk(self.bits)
        m.submodules.second_walk = second = Walk(self.bits)
        m.submodules.table_walk = table = Walk(self.bits)
        style = ram_style(self.overlay.buffers.input)
        m.submodules.first_queue = first_queue = Words(self.planes, BEATS_IN_QUEUE, self.words, style)
        m.submodules.second_queue = second_queue = Words(self.planes, BEATS_IN_QUEUE, self.words, style)
        m.submodules.first_runs = first_runs = PlaneRuns(self.bits, self.planes)
        m.submodules.second_runs = second_runs = PlaneRuns(self.bits, self.planes)
        self._walks(m, first, second, table, {first: first_runs, second: second_runs})

        # room: what is not yet asked for
        room = {to: Signal(range(BEATS_IN_QUEUE + 1), init=BEATS_IN_QUEUE) for to in (To.FIRST, To.SECOND)}
        room[To.TABLE] = Signal(range(BEATS * RECORDS + 1))
        more = {
            To.FIRST: first_queue.taken,
            To.SECOND: second_queue.taken,
            To.TABLE: self.freed * BEATS,
        }
        two = (self.now.opcode == self.opcodes[kind] for kind in ("eltwise", "interleave"))
        pair = later(m, any_of(two), "pair")
        vector = later(m, pair & self.now.vector, "vector") if has_vectors(self.overlay) else Const(0)
        # filters and their records come before the input, but only those of the next planes
        filters = later(m, self.now.opcode == self.opcodes["depthwise"], "filters_now")
        # runs of the table are before those of the inputs, though it takes some cycles until the next one is offered
        table_first = later(m, ~table.area.ready & (room[To.TABLE] >= RUN), "table_first")
        sources = {
            To.TABLE: Source(table.runs, Const(1)),
            To.FIRST: Source(first_runs.runs, ~table_first),
            To.SECOND: Source(second_runs.runs, Const(1)),
        }
        kinds = [To.TABLE, To.FIRST]
        if self.overlay.ports.window == 1:
            # the inputs of a pair take turns; a vector or a filter, which has few runs, is before the other
            turn, few = Signal(To), vector | filters
            least = Mux(filters, BEATS_IN_QUEUE - RUN, RUN)
            second_first = later(m, few & second_runs.runs.valid & (room[To.SECOND] >= least), "second_first")
            for to in (To.FIRST, To.SECOND):
                own_turn = Mux(few, second_first == (to is To.SECOND), turn == to)
                sources[to] = sources[to]._replace(in_turn=own_turn & ~table_first)
                with m.If(sources[to].runs.ready):
                    m.d.sync += turn.eq(Mux(pair & ~few & (turn == To.FIRST), To.SECOND, To.FIRST))
            kinds.append(To.SECOND)
        queues = {To.FIRST: first_queue, To.SECOND: second_queue}
        for queue, out in ((first_queue, self.first), (second_queue, self.second)):
            wiring.connect(m, queue.words, wiring.flipped(out))
        routes = self._ask(m, "input", {to: sources[to] for to in kinds}, room, more, vector)
        self._come(m, self.input, routes, {to: queues[to] for to in kinds[1:]}, tables=True)
        if self.overlay.ports.window > 1:
            routes = self._ask(m, "input_too", {To.SECOND: sources[To.SECOND]}, room, more, vector)
            self._come(m, self.input_too, routes, {To.SECOND: second_queue}, tables=False)
        with m.If(self.begin):
            m.d.sync += room[To.TABLE].eq(
                Mux(filters, max(2 * RUN, 4 * BEATS * lanes_of(self.overlay)), BEATS * RECORDS)
            )
        return m

    def _ask(self, m: Module, name: str, sources: dict[To, Source], room: dict, more: dict, vector: Value) -> Queue:
        """Choose among runs and ask the port of this name for them; return the queue of where their beats go."""
        port, layout, which = getattr(self, name), route_layout(self.planes, self.words), name.removeprefix("input")
        m.submodules[f"routes{which}"] = routes = Queue(width=layout.size, depth=REQUESTS, block=True)
        # the port's ``ready`` comes late
        m.submodules[f"request_slice{which}"] = cut = Slice(port.request.payload.shape())
        wiring.connect(m, cut.output, wiring.flipped(port.request))
        request = cut.input
        # one of them is chosen, and asked for from the next cycle on
        takes = {to: Signal(name=f"takes_{to.name.lower()}") for to in To if to in sources or To.TABLE in sources}
        asks = any_of(takes.values())
        m.d.comb += [request.valid.eq(asks), routes.w_en.eq(asks & request.ready), request.payload.tag.eq(self.now.tag)]
        with m.If(request.ready):
            m.d.sync += [signal.eq(0) for signal in takes.values()]
        chosen_before: object = asks | ~routes.w_rdy
        if To.TABLE in sources:  # and so tables of codes
            with m.If(self.looks & ~chosen_before):
                m.d.sync += takes[To.LOOKUP].eq(1)
            with m.If(takes[To.LOOKUP]):
                m.d.comb += [request.payload.address.eq(self.lookup_at), request.payload.beats.eq(LOOKUP_BEATS)]
                m.d.comb += routes.w_data.eq(layout.const({"to": To.LOOKUP, "beats": LOOKUP_BEATS // self.words}))
                with m.If(request.ready):
                    m.d.sync += self.looks.eq(0)
            chosen_before = chosen_before | self.looks
        for to, (runs, in_turn) in sources.items():
            kind, needs = to.name.lower(), runs.payload.beats
            if to is not To.TABLE:  # the first plane's run makes room in all queues
                needs = Mux(runs.payload.plane == 0, quotient(needs, self.words), 0)
                needs = Mux(vector if to is To.SECOND else 0, quotient(runs.payload.beats, self.planes), needs)
                if self.planes > 1:
                    needs = later(m, needs, f"needs_{kind}")  # a run is there a cycle before it is offered
            # a run is offered some cycles after the last one is taken: by then its room is known
            fits = later(m, runs.valid & (room[to] >= needs), f"fits_{kind}")
            wants, taken = runs.valid & fits & in_turn, takes[to] & request.ready
            with m.If(wants & ~chosen_before):
                m.d.sync += takes[to].eq(1)
            chosen_before = chosen_before | wants
            m.d.comb += runs.ready.eq(taken)
            change = Signal(signed(len(runs.payload.beats) + 2), name=f"change_{kind}")
            m.d.sync += [change.eq(more[to] - Mux(taken, needs, 0)), room[to].eq(room[to] + change)]
            with m.If(takes[to]):
                m.d.comb += [
                    request.payload.address.eq(runs.payload.address),
                    request.payload.beats.eq(runs.payload.beats),
                    routes.w_data.eq(layout.const({"to": to})),
                ]
                its_route = data.View(layout, routes.w_data)
                m.d.comb += its_route.beats.eq(quotient(runs.payload.beats, self.words))
                m.d.comb += its_route.short.eq(runs.payload.beats[0])
                if to is not To.TABLE:
                    m.d.comb += [its_route.plane.eq(runs.payload.plane), its_route.ends.eq(runs.payload.ends)]
                    m.d.comb += its_route.spread.eq(vector if to is To.SECOND else 0)
        return routes

    def _come(self, m: Module, port: stream.Interface, routes: Queue, queues: dict[To, Words], tables: bool) -> None:
        """Lead the beats of a port where the oldest request wants them: into queues, and to ``tables``."""
        arrived, taken = port.data, Signal()
        there, route, last = counted(m, routes, route_layout(self.planes, self.words), taken)
        # tables, and a vector's words, go one by one: a beat of two takes two cycles
        comes, upper, short, whole = arrived.valid & there, Signal(), Const(0), Const(1)
        if self.words > 1:
            short = last & route.short
            singly = route.spread | (((route.to == To.TABLE) | (route.to == To.LOOKUP)) if tables else 0)
            whole = upper | short | ~singly
            with m.If(comes):
                m.d.sync += upper.eq(~whole)
        words = data.View(data.ArrayLayout(64, self.words), arrived.payload)
        word, last_word = words[upper], last & whole
        m.d.comb += [arrived.ready.eq(there & whole), taken.eq(comes & whole)]
        plane = Signal.like(route.plane)
        with m.If(comes & route.spread):
            m.d.sync += plane.eq(Mux(last_word, 0, plane + 1))
        fills = route.ends & (~route.spread | last_word)
        of_beat = mask(Mux(route.spread, plane, route.plane), fills, self.planes)
        for to, queue in queues.items():
            m.d.comb += [queue.write.eq(Mux(comes & (route.to == to), of_beat, 0)), queue.come.words.eq(words)]
            m.d.comb += queue.come.short.eq(route.spread | short)
            with m.If(route.spread):
                m.d.comb += queue.come.words[0].eq(word)
        if tables:
            m.d.comb += [self.beat.eq(word), self.write.eq(comes & (route.to == To.TABLE))]
            # another Task may be here, and this one in the next part, before its table has come: they take turns as they come
            entries, bank, beat = self.entries, Signal(init=1), Signal.like(self.entries.beat)
            m.d.comb += entries.write.eq(comes & (route.to == To.LOOKUP))
            m.d.comb += [entries.bank.eq(bank), entries.beat.eq(beat), entries.codes.eq(word)]
            with m.If(entries.write):
                m.d.sync += [beat.eq(beat + 1), bank.eq(bank ^ last_word)]  # a table has as many as ``beat`` has values

    def _walks(self, m: Module, first: Walk, second: Walk, table: Walk, runs: dict[Walk, PlaneRuns]) -> None:
        """Start the walks of a Task: the inputs when the Tasks before them have finished, the table when it is free."""
        now = register(self.now.shape(), "now")
        m.d.comb += self.now.eq(now)
        start = {
            walk: Signal(name=f"start_{name}")
            for walk, name in ((first, "first"), (second, "second"), (table, "table"))
        }
        hand, table_used, new_task = Signal(), Signal(), Signal()
        idle, ready = Signal(), Signal()
        soon = Signal()  # its table of codes has an address in the next cycle
        m.d.comb += idle.eq(
            ~hand
            & ~new_task
            & ~soon
            & ~self.looks
            & ~any_of(start.values())
            & first.area.ready
            & second.area.ready
            & table.area.ready
            & runs[first].idle
            & runs[second].idle
        )
        taken = self.task.valid & ready
        m.d.comb += [self.task.ready.eq(ready), self.work.valid.eq(hand), self.work.payload.eq(now)]
        m.d.sync += [ready.eq(idle & ~taken), new_task.eq(taken)]
        with m.If(taken):
            m.d.sync += now.eq(self.task.payload)
        kinds = {
            kind: now.opcode == self.opcodes[kind]
            for kind in ("eltwise", "pool", "lrn", "upsample", "interleave", "depthwise")
        }
        filters = later(m, kinds["depthwise"], "filters")
        averages, norms = kinds["pool"] & now.average, later(m, kinds["lrn"], "norms")
        with m.If(new_task):  # by the next cycle ``reached`` is that of this Task
            m.d.sync += [hand.eq(1), start[first].eq(1)]
            m.d.sync += start[second].eq(kinds["eltwise"] | kinds["interleave"] | kinds["depthwise"])
            m.d.sync += start[table].eq(averages | kinds["lrn"] | kinds["depthwise"])
        with m.If(hand & self.work.ready):
            m.d.sync += hand.eq(0)

        planes = later(m, quotient(now.input_channels, self.overlay.layout.channels_per_word), "planes")
        groups = Groups(self.overlay, one_by_one(now.opcode, self.opcodes), now.input_channels)
        count, size, rest = (later(m, getattr(groups, name), f"groups_{name}") for name in ("count", "size", "rest"))
        # an upsample reads the rows of all planes one by one, an interleave those of the next two parts in between
        rows = later(m, kinds["upsample"] | kinds["interleave"], "rows")
        vector = later(m, now.vector, "is_vector") if has_vectors(self.overlay) else Const(0)
        # filters are a second input, FILTER words for each plane
        of_first = later(m, words_read(now), "words_first")
        of_second = later(m, Mux(kinds["depthwise"], FILTER, words_read(now)), "words_second")
        words = {first: Mux(rows, now.input_width, of_first)}
        words[second] = Mux(vector, planes, Mux(rows, now.input_width, of_second))
        counts = {first: Mux(rows, now.tiles, count)}
        # a vector is the words of all planes
        counts[second] = Mux(vector, 1, counts[first])
        second_pitch = later(m, Mux(kinds["depthwise"], FILTER * BEAT, now.input_pitch), "second_pitch")
        second_address = later(m, Mux(kinds["depthwise"], now.weights, now.second), "second_address")
        pitches = {first: now.input_pitch, second: second_pitch}
        times = Mux(rows, now.stride_h, 1)
        for walk, address, image in ((first, now.input, now.input_image), (second, second_address, now.second_image)):
            blob, pitch = walk.area.payload, Mux(rows, now.input_width * BEAT, groups.pitch(pitches[walk]))
            m.d.comb += [blob.address.eq(address), blob.pitch.eq(pitch), blob.image.eq(image), blob.times.eq(times)]
            m.d.comb += [blob.words.eq(words[walk]), blob.planes.eq(counts[walk]), blob.images.eq(now.batch)]
            m.d.comb += [blob.across.eq(norms), blob.hop.eq(now.weights_block)]
            whole = vector if walk is second else 0  # one piece
            m.d.comb += [
                runs[walk].size.eq(Mux(whole, 1, size)),
                runs[walk].rest.eq(Mux(whole, 1, rest)),
                runs[walk].pitch.eq(pitches[walk]),
            ]
            wiring.connect(m, walk.runs, runs[walk].groups)
            # the table of codes is asked for first, so that it is there before a word of the Task
            m.d.comb += walk.area.valid.eq(start[walk] & self.reached & ~soon & ~self.looks)
        m.d.comb += self.waits.eq((start[first] | start[second]) & ~self.reached)
        # an average has a record for each word of a plane, filters one each; segments of an LRN take the bytes of some records
        of_records = Mux(kinds["depthwise"], now.output_channels, now.output_pitch // BEAT)
        records = table.area.payload
        segments = SEGMENTS * SEGMENT.bytes // (BEATS * BEAT)
        m.d.comb += [
            self.count.eq(Mux(norms, segments, later(m, of_records, "of_records"))),
            self.keeps.eq(
                later(m, (kinds["lrn"] | (now.output_pitch // BEAT <= RECORDS)) & ~kinds["depthwise"], "few")
            ),
            records.address.eq(now.table),
            records.words.eq(self.count * BEATS),
            records.planes.eq(Mux(self.keeps | filters, 1, count)),
            records.images.eq(Mux(self.keeps, 1, now.batch)),
            records.times.eq(1),
            table.area.valid.eq(start[table] & ~table_used),
            self.begin.eq(table.area.valid & table.area.ready),
        ]
        if has_lookups(self.overlay):
            records_end = now.output_channels * (BEATS * BEAT)
            offset = later(m, Mux(kinds["depthwise"], records_end, Mux(averages, now.output_pitch << 1, 0)), "offset")
            m.d.comb += self.lookup_at.eq(later(m, (now.table + offset)[: self.bits], "place"))
            m.d.sync += soon.eq(new_task & now.lookup)
            with m.If(soon):
                m.d.sync += self.looks.eq(1)
        with m.If(self.begin):
            m.d.sync += table_used.eq(1)
        with m.If(self.done_with):
            m.d.sync += table_used.eq(0)
        for walk in start:
            with m.If(walk.area.valid & walk.area.ready):
                m.d.sync += start[walk].eq(0)


def has_vectors(overlay: Overlay) -> bool:
    """Return whether the second input of an eltwise may have one pixel."""
    return "vector" in overlay.descriptor.values


def any_of(signals: object) -> object:
    """Return 1 if one of these signals is 1."""
    either: object = 0
    for signal in signals:
        either = either | signal
    return either
