"""Planes that go side by side: groups of them, the runs of each, and their queues."""

from collections.abc import Mapping

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai import tasks
from chai.overlay import Overlay

from ..streams import Queue, Slice, later, register
from .walk import run


def one_by_one(opcode: Value, opcodes: dict[str, int]) -> Value:
    """Return whether a Task with this opcode takes one plane of a blob at a time."""
    return Cat(opcode == code for kind, code in opcodes.items() if not tasks.find(kind).side_by_side).any()


class Groups:
    """Groups of ``size`` planes as values of a Task, of which the last one of an image may have fewer: ``rest``.

    ``single``    of a Task that takes one plane at a time
    ``channels``  of its blob, ``lanes`` of them in a group, and ``tail`` in the last one, 0 for all
    """

    def __init__(self, overlay: Overlay, single: Value, channels: Value) -> None:
        step, self.most = overlay.layout.channels_per_word, overlay.window.planes
        self.single = single
        planes, self.lanes = quotient(channels, step), step * self.most
        self.count = Mux(single, planes, quotient(channels, self.lanes))
        self.size = Mux(single, 1, self.most)
        last = (planes - 1)[: self.most.bit_length() - 1]
        self.rest = Mux(single, 0, last) + 1
        self.tail = Mux(single, channels[: step.bit_length() - 1], channels[: self.lanes.bit_length() - 1])

    def of_planes(self, pitch: Value) -> dict[str, Value]:
        """Return what PlaneRuns need of a Task whose planes are ``pitch`` bytes apart."""
        return {"size": self.size, "rest": self.rest, "pitch": pitch}

    def pitch(self, pitch: Value) -> Value:
        """Return the bytes from group to group, of those from plane to plane."""
        return Mux(self.single, pitch, pitch << (self.most.bit_length() - 1))


def quotient(number: Value, size: int) -> Value:
    """Return how many groups of ``size``, a power of two, a number takes."""
    return (number + size - 1) >> (size.bit_length() - 1)


def plane_run(bits: int, planes: int) -> data.StructLayout:
    """Return the layout of a run of a plane: its number in its group, and whether it ``ends`` the group."""
    return data.StructLayout(run(bits).members | {"plane": range(planes), "ends": 1})


class PlaneRuns(wiring.Component):
    """Gives each run of a Walk over groups once for each plane of the group, one in two cycles; wires where that is one.

    ``size``, ``rest``  planes of a group, and of the last one of an image
    ``pitch``           bytes from plane to plane
    ``idle``            no run is under way
    """

    def __init__(self, bits: int, planes: int) -> None:
        self.planes = planes
        count = range(planes + 1)
        members = {"groups": In(stream.Signature(run(bits))), "size": In(count), "rest": In(count), "pitch": In(32)}
        super().__init__(members | {"runs": Out(stream.Signature(plane_run(bits, planes))), "idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Return the run, and the counter of its planes."""
        m = Module()
        if self.planes == 1:
            m.d.comb += [self.groups.ready.eq(self.runs.ready), self.runs.valid.eq(self.groups.valid), self.idle.eq(1)]
            m.d.comb += [
                self.runs.payload[name].eq(self.groups.payload[name]) for name in self.groups.payload.shape().members
            ]
            m.d.comb += self.runs.payload.ends.eq(1)
            return m
        now, busy, offered = register(self.groups.payload.shape(), "now"), Signal(), Signal()
        plane, left = register(self.runs.payload.plane.shape(), "plane"), register(self.size.shape(), "left")
        taken, ends = offered & self.runs.ready, later(m, left == 1, "ends")
        next_address = later(m, (now.address + self.pitch)[: len(now.address)], "next_address")
        m.d.comb += [self.groups.ready.eq(~busy), self.idle.eq(~busy), self.runs.valid.eq(offered)]
        m.d.comb += [self.runs.payload[name].eq(now[name]) for name in ("address", "beats", "tail")]
        m.d.comb += [self.runs.payload.plane.eq(plane), self.runs.payload.ends.eq(ends)]
        m.d.comb += self.runs.payload.last.eq(now.last & ends)
        m.d.sync += offered.eq(busy & ~taken)  # a cycle after a run, when all that follows from its counters is there
        with m.If(taken):
            m.d.sync += [now.address.eq(next_address), plane.eq(plane + 1), left.eq(left - 1), busy.eq(~ends)]
        with m.If(self.groups.valid & ~busy):
            m.d.sync += [now.eq(self.groups.payload), busy.eq(1), plane.eq(0)]
            m.d.sync += left.eq(Mux(self.groups.payload.tail, self.rest, self.size))
        return m


def mask(plane: Value, ends: Value, planes: int) -> Value:
    """Return a bit for this plane of a group, and for all after it if it ``ends`` the group."""
    return Cat((plane == i) | (ends & (plane < i)) for i in range(planes))


class Queues(wiring.Component):
    """A queue for each plane of a group, of words or of another shape.

    ``come``, ``write``  words, and the queues that they go into
    ``there``, ``words``  the queues that have a word, and the first one of each
    ``taken``            the queues, of those that have one, whose first word leaves
    ``style``            of their memories, as of a Queue
    """

    def __init__(
        self, planes: int, depth: int, shape: object = unsigned(64), style: Mapping[str, str] | None = None
    ) -> None:
        self.planes, self.depth, self.style = planes, depth, style
        self.width = Shape.cast(shape).width
        words = data.ArrayLayout(shape, planes)
        super().__init__(
            {"come": In(words), "write": In(planes), "there": Out(planes), "words": Out(words), "taken": In(planes)}
        )

    def elaborate(self, platform: object) -> Module:
        """Return the queues."""
        m = Module()
        for i in range(self.planes):
            m.submodules[f"queue_{i}"] = queue = Queue(width=self.width, depth=self.depth, block=True, style=self.style)
            m.d.comb += [queue.w_data.eq(Value.cast(self.come[i])), queue.w_en.eq(self.write[i])]
            m.d.comb += [
                self.there[i].eq(queue.r_rdy),
                Value.cast(self.words[i]).eq(queue.r_data),
                queue.r_en.eq(self.taken[i]),
            ]
        return m


def beat(words: int) -> data.StructLayout:
    """Return the layout of a beat of so many words, of which only the first may be one of the plane: then it is ``short``."""
    return data.StructLayout({"words": data.ArrayLayout(64, words), "short": int(words > 1)})


class Words(wiring.Component):
    """The words of all planes of a group, from queues of beats.

    ``come``, ``write``  a beat, and the planes it is for
    ``words``            of all planes, a stream; ``taken`` when the first beat of each leaves its queue
    """

    def __init__(self, planes: int, depth: int, words: int, style: Mapping[str, str]) -> None:
        self.planes, self.depth, self.beat, self.style = planes, depth, beat(words), style
        out = stream.Signature(64 * planes)
        super().__init__({"come": In(self.beat), "write": In(planes), "taken": Out(1), "words": Out(out)})

    def elaborate(self, platform: object) -> Module:
        """Return the queues, the memories' output register, and one that cuts the way of ``ready``."""
        m = Module()
        m.submodules.queues = queues = Queues(self.planes, self.depth, self.beat, self.style)
        m.submodules.slice = cut = Slice(64 * self.planes)
        wiring.connect(m, cut.output, wiring.flipped(self.words))
        m.d.comb += [queues.write.eq(self.write), *(come.eq(self.come) for come in queues.come)]
        held, there = register(queues.words.shape(), "held"), Signal()
        upper, last = Signal(), Const(1)  # of the two words of a beat
        words = [plane.words[0] for plane in held]
        if len(self.come.words) > 1:
            last = upper | held[0].short  # all planes have as many words
            words = [Mux(upper, plane.words[1], plane.words[0]) for plane in held]
        m.d.comb += [cut.input.valid.eq(there), cut.input.payload.eq(Cat(words))]
        free = ~there | (cut.input.ready & last)
        m.d.comb += [self.taken.eq(free & queues.there.all()), queues.taken.eq(self.taken.replicate(self.planes))]
        with m.If(there & cut.input.ready):
            m.d.sync += upper.eq(~last)
        with m.If(free):
            m.d.sync += [there.eq(self.taken), held.eq(queues.words)]
        return m
