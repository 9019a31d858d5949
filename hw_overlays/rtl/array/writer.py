"""Planes side by side: words that come together, one of each plane, to a port that writes plane after plane.

A queue for each plane has its beats, as they are in memory; bursts of one plane and the next take turns.
"""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..beats import WORD
from ..ports import BEAT, BEATS_BITS, WritePort, log2
from ..streams import Queue, counted, later, register

BURST = 16  # beats of a plane that are asked for at a time
QUEUE = 64  # beats of a plane that wait
OUTPUTS = "memory", "memory_too"  # ports
RUNS = 4  # that are known ahead
ENDS = 16  # runs that are asked for and not yet written
REQUESTS = 8  # on the way


def planes_of(overlay: Overlay, channels: Value) -> Value:
    """Return the planes that leave the array together where so many channels are left."""
    step = overlay.layout.channels_per_word
    return Mux(channels > overlay.requant.lanes - step, overlay.planes_at_once, (channels + (step - 1)) >> log2(step))


def run_of(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a run: a WritePort's, or that of ``planes`` planes, ``pitch`` bytes apart."""
    plain, planes = WritePort(overlay.address_bits).request, overlay.planes_at_once
    return plain if planes == 1 else data.StructLayout({**plain.members, "pitch": 32, "planes": range(planes + 1)})


class PortWriter(wiring.Component):
    """Write runs of the planes that leave the array together, or of some of them, by whole beats through one port.

    Of ``overlay.ports.outputs`` ports this is the one with ``number``: its planes are that one and each so many after it.

    ``runs``      of all planes, in order; the words of the first one are taken when it is known
    ``codes``     a word of each of its planes
    ``finished``  1 for one cycle when all that it writes of a Task, which may be nothing, has been answered
    """

    def __init__(self, overlay: Overlay, number: int) -> None:
        self.bits, self.words = overlay.address_bits, overlay.ports.words
        self.number, self.step = number, overlay.ports.outputs
        self.planes = overlay.planes_at_once // self.step
        super().__init__(
            {
                "runs": In(stream.Signature(run_of(overlay))),
                "codes": In(stream.Signature(self.planes * WORD)),
                "memory": Out(WritePort(self.bits, self.words)),
                "finished": Out(1),
            }
        )

    def _exist(self, run: data.View) -> Value:
        """Return a bit for each of its planes that a run has."""
        return Cat(run.planes > self.number + i * self.step for i in range(self.planes))

    def elaborate(self, platform: object) -> Module:
        """Return the queues of runs and of beats, what fills them, and what asks for their bursts."""
        m = Module()
        layout = self.runs.payload.shape()
        coming = data.StructLayout({"beats": BEATS_BITS, "single": 1, "exists": self.planes, "upper": self.planes})
        m.submodules.asks = asks = Queue(width=layout.size, depth=RUNS)
        m.submodules.comes = comes = Queue(width=coming.size, depth=RUNS)
        run, known = self.runs.payload, data.View(coming, comes.w_data)
        odd, step = run.address[log2(BEAT)], run.pitch[log2(BEAT)]
        m.d.comb += [
            self.runs.ready.eq(asks.w_rdy & comes.w_rdy),
            asks.w_data.eq(run),
            asks.w_en.eq(self.runs.valid & self.runs.ready),
            comes.w_en.eq(asks.w_en),
            known.beats.eq(run.beats),
            known.single.eq(run.beats == 1),
            known.exists.eq(self._exist(run)),
            known.upper.eq(Cat(odd ^ step if (self.number + i * self.step) % 2 else odd for i in range(self.planes))),
        ]
        queues = []
        for i in range(self.planes):
            m.submodules[f"queue_{i}"] = queue = Queue(width=self.words * WORD, depth=QUEUE, block=True)
            queues.append(queue)
        self._fill(m, queues, comes, coming)
        self._ask(m, queues, asks, layout)
        return m

    def _end(self, m: Module, begins: Value, last: Value, empty: Value) -> Value:
        """Tell when the runs of a Task have been answered, of which some may be empty; return whether another may begin."""
        m.submodules.ends = ends = Queue(width=2, depth=ENDS)
        answers, ended = Signal(range(ENDS + 1)), Signal()
        m.d.comb += [ends.w_en.eq(begins), ends.w_data.eq(Cat(last, empty)), ends.r_en.eq(ended)]
        m.d.comb += ended.eq(ends.r_rdy & (ends.r_data[1] | (answers != 0)))
        m.d.sync += answers.eq(answers + self.memory.finished - (ended & ~ends.r_data[1]))
        m.d.sync += self.finished.eq(ended & ends.r_data[0])
        return ends.w_rdy

    def _fill(self, m: Module, queues: list[Queue], comes: Queue, layout: data.StructLayout) -> None:
        """Put words into beats: with two in a beat, into the lower or the upper half, as their addresses say."""
        taken, begins = Signal(), Signal(init=1)
        there, run, last = counted(m, comes, layout, taken)
        room = later(m, Cat(queue.level < QUEUE - 2 for queue in queues).all(), "room")
        m.d.comb += [self.codes.ready.eq(there & room), taken.eq(self.codes.valid & self.codes.ready)]
        with m.If(taken):
            m.d.sync += begins.eq(last)
        for i, queue in enumerate(queues):
            word, whole = self.codes.payload.word_select(i, WORD), 1
            m.d.comb += queue.w_data.eq(word)
            if self.words > 1:
                upper, low = register(1, f"upper_{i}"), register(WORD, f"low_{i}")
                now = Mux(begins, run.upper[i], upper)
                whole = now | last
                m.d.comb += queue.w_data.eq(Cat(Mux(now, low, word), word))
                with m.If(taken):
                    m.d.sync += [upper.eq(~now), low.eq(word)]
            m.d.comb += queue.w_en.eq(taken & run.exists[i] & whole)

    def _ask(self, m: Module, queues: list[Queue], asks: Queue, layout: data.StructLayout) -> None:
        """Ask for a burst of each plane in turns, until nothing of a run is left, and lead its beats to the port."""
        route = data.StructLayout({"plane": range(max(2, self.planes)), "beats": range(BURST + 1)})
        m.submodules.routes = routes = Queue(width=route.size, depth=REQUESTS, block=True)
        port, wide = self.memory.request, log2(self.words)
        run, at = register(layout, "run"), register(self.bits, "at")
        places = Array(register(self.bits, f"place_{i}") for i in range(self.planes))
        lefts = Array(register(BEATS_BITS, f"left_{i}") for i in range(self.planes))
        some = register(self.planes, "some")  # planes of which something is left
        plane = register(range(max(2, self.planes)), "plane")
        here, left = register(self.bits, "here"), register(BEATS_BITS, "left")
        skips = here[log2(BEAT) :][:wide]  # words before the first one in its beat
        most = later(m, (BURST << wide) - skips, "most")
        piece = later(m, Mux(left > most, most, left)[: len(most)], "piece")
        rest = later(m, (left - piece)[:BEATS_BITS], "rest")
        more = later(m, rest != 0, "more")
        beats = later(m, (skips + piece + ((1 << wide) - 1)) >> wide, "beats")
        others = later(m, (some & ~(1 << plane)).any(), "others")
        final = later(m, ~more & ~others, "final")  # of the run
        next_here = later(m, (here + piece * BEAT)[: self.bits], "next_here")
        settle = register(range(6), "settle")
        asked = data.View(route, routes.w_data)
        m.d.comb += [
            port.payload.address.eq(here),
            port.payload.beats.eq(piece),
            port.payload.last.eq(final),
            port.payload.tag.eq(run.tag),
            asked.plane.eq(plane),
            asked.beats.eq(beats),
        ]
        following = Mux(plane == self.planes - 1, 0, plane + 1)
        begins, exist = Signal(), self._exist(run)
        may_end = self._end(m, begins, run.last, ~exist[0])
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += asks.r_en.eq(1)
                m.d.sync += [run.eq(data.View(layout, asks.r_data)), plane.eq(0)]
                with m.If(asks.r_rdy):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += [at.eq(run.address + (run.pitch if self.number else 0)), some.eq(exist)]
                m.d.comb += begins.eq(may_end)
                with m.If(begins):
                    m.next = "IDLE"
                    with m.If(exist[0]):
                        m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [
                    places[plane].eq(at),
                    lefts[plane].eq(run.beats),
                    at.eq(at + (run.pitch << log2(self.step))),
                    plane.eq(following),
                ]
                with m.If(plane == self.planes - 1):
                    m.next = "PLANE"
            with m.State("PLANE"):
                m.d.sync += [here.eq(places[plane]), left.eq(lefts[plane]), settle.eq(5)]
                with m.If(some.bit_select(plane, 1)):
                    m.next = "SETTLE"
                with m.Else():
                    m.d.sync += plane.eq(following)
            with m.State("SETTLE"):
                m.d.sync += settle.eq(settle - 1)
                with m.If((settle == 1) & routes.w_rdy):
                    m.next = "ASK"
                with m.Elif(settle == 1):
                    m.d.sync += settle.eq(1)
            with m.State("ASK"):
                m.d.comb += [port.valid.eq(1), routes.w_en.eq(port.ready)]
                with m.If(port.ready):
                    m.d.sync += [places[plane].eq(next_here), lefts[plane].eq(rest), plane.eq(following)]
                    m.d.sync += some.bit_select(plane, 1).eq(more)
                    m.next = "PLANE"
                    with m.If(~more & ~others):
                        m.next = "IDLE"
        taken, payload = Signal(), self.memory.data
        there, way, _ = counted(m, routes, route, taken)
        chosen: Value = Array(Cat(queue.r_data, queue.r_rdy) for queue in queues)[way.plane]
        m.d.comb += [
            payload.payload.eq(chosen[:-1]),
            payload.valid.eq(there & chosen[-1]),
            taken.eq(payload.valid & payload.ready),
        ]
        for i, queue in enumerate(queues):
            m.d.comb += queue.r_en.eq(taken & (way.plane == i))


class Writer(wiring.Component):
    """Write runs of all planes that leave the array together, or of some of them, through the ports that it has.

    ``runs``, ``codes``  as of a PortWriter; ``codes`` has a word of each plane
    ``finished``         1 for one cycle when all that is written of a Task has been answered
    """

    def __init__(self, overlay: Overlay) -> None:
        self.writers = [PortWriter(overlay, number) for number in range(overlay.ports.outputs)]
        memory = self.writers[0].memory.signature
        super().__init__(
            {
                "runs": In(stream.Signature(run_of(overlay))),
                "codes": In(stream.Signature(overlay.planes_at_once * WORD)),
                "finished": Out(1),
                **{name: Out(memory) for name, _ in zip(OUTPUTS, self.writers)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return a writer for each port, which take runs and words together."""
        m = Module()
        several = len(self.writers)
        takes = Cat(writer.runs.ready for writer in self.writers).all()
        goes = Cat(writer.codes.ready for writer in self.writers).all()
        m.d.comb += [self.runs.ready.eq(takes), self.codes.ready.eq(goes)]
        ahead = [Signal(range(ENDS + 2), name=f"ahead_{i}") for i in range(several)]  # Tasks that this one has finished
        m.d.comb += self.finished.eq(Cat(count != 0 for count in ahead).all())
        for i, (name, writer) in enumerate(zip(OUTPUTS, self.writers)):
            m.submodules[name] = writer
            wiring.connect(m, writer.memory, wiring.flipped(getattr(self, name)))
            mine = [self.codes.payload.word_select(k, WORD) for k in range(i, several * writer.planes, several)]
            m.d.comb += [
                writer.runs.payload.eq(self.runs.payload),
                writer.runs.valid.eq(self.runs.valid & takes),
                writer.codes.payload.eq(Cat(mine)),
                writer.codes.valid.eq(self.codes.valid & goes),
            ]
            m.d.sync += ahead[i].eq(ahead[i] + writer.finished - self.finished)
        return m
