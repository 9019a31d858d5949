"""Store: codes to memory, word by word, with zeros in the channels after a blob's last."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import descriptor
from ..ports import WritePort
from ..streams import Queue, Slice, counted, later, register
from .side_by_side import Groups, PlaneRuns, Queues, mask, one_by_one, plane_run
from .walk import RUN, Walk, words_written

REQUESTS = 8  # runs whose words go to the port next


def waiting_words(planes: int) -> int:
    """Return the words of a plane that wait for the port, where runs of so many planes follow each other."""
    return RUN if planes == 1 else 4 * RUN


class Store(wiring.Component):
    """Writes the words of a Task in the order of its output's memory.

    ``task``   the descriptor; taken after the last word of the last one
    ``claim``  makes sure of room for a word that will come; ``room`` if there is some
    ``word``   codes of all channels of the planes that go side by side, with ``write``, in the order of the claims

    A queue has the words of each of these planes, whose runs are written one after the other. The last one's also take what the
    queues of planes have that a group does not have.
    """

    def __init__(self, overlay: Overlay, opcodes: dict[str, int]) -> None:
        self.opcodes = opcodes
        self.bits = overlay.address_bits
        self.overlay, self.planes = overlay, overlay.window.planes
        self.lanes = overlay.layout.channels_per_word * self.planes
        super().__init__(
            {
                "task": In(stream.Signature(descriptor(overlay))),
                "room": Out(1),
                "claim": In(1),
                "word": In(8 * self.lanes),
                "write": In(1),
                "output": Out(WritePort(self.bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the walk over the output, the queue before the port, and the counters of words and planes."""
        m = Module()
        m.submodules.walk = walk = Walk(self.bits)
        m.submodules.request_slice = cut = Slice(self.output.request.payload.shape())  # the port's ``ready`` comes late
        wiring.connect(m, cut.output, wiring.flipped(self.output.request))
        m.submodules.runs = plane_runs = PlaneRuns(self.bits, self.planes)
        most = waiting_words(self.planes)
        # one of several words is chosen for the port: look-up tables have registers before that, a block RAM may have none
        style = {"ram_style": "distributed"} if self.planes > 1 else {}
        m.submodules.queues = queues = Queues(self.planes, most, style=style)
        new, area, runs, request = self.task.payload, walk.area.payload, plane_runs.runs, cut.input
        wiring.connect(m, walk.runs, plane_runs.groups)
        groups = Groups(self.overlay, one_by_one(new.opcode, self.opcodes), new.output_channels)
        planes, tag = groups.count, register(new.tag.shape(), "tag")
        room, leaves = self._leave(m, runs, queues)
        m.d.comb += [
            area.address.eq(new.output),
            area.pitch.eq(groups.pitch(new.output_pitch)),
            area.image.eq(new.output_image),
            area.words.eq(words_written(new)),
            area.planes.eq(planes),
            area.images.eq(new.batch),
            area.across.eq(new.opcode == self.opcodes["lrn"]),
            area.times.eq(1),
            request.valid.eq(runs.valid & room),
            request.payload.address.eq(runs.payload.address),
            request.payload.beats.eq(runs.payload.beats),
            request.payload.last.eq(runs.payload.last),
            request.payload.tag.eq(tag),
            runs.ready.eq(request.ready & room),
        ]

        claimed = Signal(range(most + 1))
        m.d.comb += self.room.eq(claimed < most - 3)  # two more claims may come before this is seen
        m.d.sync += claimed.eq(claimed + later(m, self.claim, "claim") - leaves)

        # left: of the run of words in a plane, of the plane (its last runs), of the image, of the Task; the current one included
        # and of the current runs: their length, and whether that is one word
        words, rest, length = (register(area.words.shape(), name) for name in ("words", "rest", "length"))
        planes_left, images = register(area.planes.shape(), "planes_left"), Signal.like(area.images)
        whole = register(area.shape(), "whole")  # the sizes to begin with
        of_planes = {
            name: register(signal.shape(), name) for name, signal in groups.of_planes(new.output_pitch).items()
        }
        m.d.comb += [getattr(plane_runs, name).eq(signal) for name, signal in of_planes.items()]
        tail = register(range(self.lanes), "tail")  # channels in the last plane, or group of them, 0 for all
        flags = "last_word", "last_plane", "last_run", "short"
        last_word, last_plane, last_run, short = (register(1, name) for name in flags)
        first_length = later(m, Mux(whole.across & (whole.words > RUN), RUN, whole.words), "first_length")
        first_short, one_plane = later(m, whole.words == 1, "first_short"), later(m, whole.planes == 1, "one_plane")
        one_run = later(m, ~whole.across | (whole.words <= RUN), "one_run")
        # of the next runs; by the end of those before, which are long, they are right
        next_length = later(m, Mux(rest <= 2 * RUN, (rest - RUN)[: RUN.bit_length()], RUN), "next_length")
        next_short, next_last = later(m, rest == RUN + 1, "next_short"), later(m, rest <= 2 * RUN, "next_last")
        idle = later(m, images == 0, "idle")
        free = idle & plane_runs.idle
        m.d.comb += [walk.area.valid.eq(self.task.valid & free), self.task.ready.eq(walk.area.ready & free)]
        begins = Signal(2)  # what follows from a Task is in registers two cycles later
        m.d.sync += begins.eq(Cat(self.task.valid & self.task.ready, begins))
        with m.If(self.task.valid & self.task.ready):
            m.d.sync += [whole.eq(area), images.eq(new.batch), tail.eq(groups.tail), tag.eq(new.tag)]
            m.d.sync += [of_planes[name].eq(value) for name, value in groups.of_planes(new.output_pitch).items()]
            # an image begins as after the last word of the one before
            m.d.sync += [flag.eq(1) for flag in (last_word, last_plane, last_run)]
        next_word = Mux(last_plane, Mux(last_run, first_length, next_length), length)
        next_is_last = Mux(last_plane, Mux(last_run, first_short, next_short), short)
        with m.If(self.write | begins[-1]):
            m.d.sync += [
                words.eq(Mux(last_word, next_word, words - 1)),
                last_word.eq(Mux(last_word, next_is_last, words == 2)),
            ]
            with m.If(last_word):
                m.d.sync += planes_left.eq(Mux(last_plane, whole.planes, planes_left - 1))
                m.d.sync += last_plane.eq(Mux(last_plane, one_plane, planes_left == 2))
                with m.If(last_plane):
                    m.d.sync += [length.eq(next_word), short.eq(next_is_last)]
                    m.d.sync += [
                        rest.eq(Mux(last_run, whole.words, rest - RUN)),
                        last_run.eq(Mux(last_run, one_run, next_last)),
                    ]
        with m.If(self.write & last_word & last_plane & last_run):  # an image
            m.d.sync += images.eq(images - 1)
        arrived = Signal()
        m.d.sync += arrived.eq(self.write)
        m.d.comb += queues.write.eq(arrived.replicate(self.planes))
        word = later(m, self.word, "word_later")
        for i in range(self.lanes):
            beyond = later(m, last_plane & (tail != 0) & (tail <= i), f"beyond_{i}")
            m.d.comb += queues.come.as_value().word_select(i, 8).eq(Mux(beyond, 0, word.word_select(i, 8)))
        return m

    def _leave(self, m: Module, runs: stream.Interface, queues: Queues) -> tuple[Value, Value]:
        """Lead words to the port, run by run; return whether a run may be asked for, and whether the last queue's word leaves."""
        port = self.output.data
        if self.planes == 1:
            m.d.comb += [port.valid.eq(queues.there), port.payload.eq(queues.words[0])]
            m.d.comb += queues.taken.eq(queues.there & port.ready)
            return Const(1, 1), queues.taken
        layout = plane_run(self.bits, self.planes)
        layout = data.StructLayout({name: layout.members[name] for name in ("beats", "plane", "ends")})
        m.submodules.routes = routes = Queue(width=layout.size, depth=REQUESTS, block=True)
        asked, taken = data.View(layout, routes.w_data), Signal()
        m.d.comb += [asked[name].eq(runs.payload[name]) for name in layout.members]
        m.d.comb += routes.w_en.eq(runs.valid & runs.ready)
        there, route, _ = counted(m, routes, layout, taken)
        wanted = mask(route.plane, route.ends, self.planes)
        m.d.comb += [
            port.valid.eq(there & ((queues.there & wanted) == wanted)),
            port.payload.eq(queues.words[route.plane]),
            taken.eq(port.valid & port.ready),
            queues.taken.eq(Mux(taken, wanted, 0)),
        ]
        return routes.w_rdy, queues.taken[-1]
