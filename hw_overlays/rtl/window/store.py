"""Store: codes to memory, word by word, with zeros in the channels after a blob's last."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import descriptor
from ..ports import BEAT, WritePort, address_bits
from ..streams import Slice, later, register
from .walk import RUN, Walk

WORDS = 64  # that wait for the port


class Store(wiring.Component):
    """Writes the words of a Task in the order of its output's memory.

    ``task``   the descriptor; taken after the last word of the last one
    ``claim``  makes sure of room for a word that will come; ``room`` if there is some
    ``word``   codes of all channels, with ``write``, in the order of the claims
    """

    def __init__(self, overlay: Overlay, opcodes: dict[str, int]) -> None:
        self.opcodes = opcodes
        self.bits = address_bits(overlay)
        self.step = overlay.layout.channels_per_word
        super().__init__(
            {
                "task": In(stream.Signature(descriptor(overlay))),
                "room": Out(1),
                "claim": In(1),
                "word": In(8 * self.step),
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
        m.submodules.queue = queue = fifo.SyncFIFOBuffered(width=64, depth=WORDS)
        new, area, runs, request, output = self.task.payload, walk.area.payload, walk.runs, cut.input, self.output
        planes = (new.output_channels + self.step - 1) >> (self.step.bit_length() - 1)
        tag = register(new.tag.shape(), "tag")
        m.d.comb += [
            area.address.eq(new.output),
            area.pitch.eq(new.output_pitch),
            area.image.eq(new.output_image),
            area.words.eq(new.output_pitch // BEAT),
            area.planes.eq(planes),
            area.images.eq(new.batch),
            area.across.eq(new.opcode == self.opcodes["lrn"]),
            area.times.eq(1),
            request.valid.eq(runs.valid),
            request.payload.address.eq(runs.payload.address),
            request.payload.beats.eq(runs.payload.beats),
            request.payload.last.eq(runs.payload.last),
            request.payload.tag.eq(tag),
            runs.ready.eq(request.ready),
            output.data.valid.eq(queue.r_rdy),
            output.data.payload.eq(queue.r_data),
            queue.r_en.eq(output.data.ready),
        ]

        claimed = Signal(range(WORDS + 1))
        m.d.comb += self.room.eq(claimed < WORDS - 3)  # two more claims may come before this is seen
        m.d.sync += claimed.eq(claimed + later(m, self.claim, "claim") - (queue.r_rdy & queue.r_en))

        # left: of the run of words in a plane, of the plane (its last runs), of the image, of the Task; the current one included
        # and of the current runs: their length, and whether that is one word
        words, rest, length = (register(area.words.shape(), name) for name in ("words", "rest", "length"))
        planes_left, images = register(area.planes.shape(), "planes_left"), Signal.like(area.images)
        whole = register(area.shape(), "whole")  # the sizes to begin with
        tail = register(range(self.step), "tail")  # channels in the last plane, 0 for all
        flags = "last_word", "last_plane", "last_run", "short"
        last_word, last_plane, last_run, short = (register(1, name) for name in flags)
        first_length = later(m, Mux(whole.across & (whole.words > RUN), RUN, whole.words), "first_length")
        first_short, one_plane = later(m, whole.words == 1, "first_short"), later(m, whole.planes == 1, "one_plane")
        one_run = later(m, ~whole.across | (whole.words <= RUN), "one_run")
        # of the next runs; by the end of those before, which are long, they are right
        next_length = later(m, Mux(rest <= 2 * RUN, (rest - RUN)[: RUN.bit_length()], RUN), "next_length")
        next_short, next_last = later(m, rest == RUN + 1, "next_short"), later(m, rest <= 2 * RUN, "next_last")
        idle = later(m, images == 0, "idle")
        m.d.comb += [walk.area.valid.eq(self.task.valid & idle), self.task.ready.eq(walk.area.ready & idle)]
        begins = Signal(2)  # what follows from a Task is in registers two cycles later
        m.d.sync += begins.eq(Cat(self.task.valid & self.task.ready, begins))
        with m.If(self.task.valid & self.task.ready):
            m.d.sync += [whole.eq(area), images.eq(new.batch), tail.eq(new.output_channels), tag.eq(new.tag)]
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
        m.d.comb += queue.w_en.eq(arrived)
        word = later(m, self.word, "word_later")
        for i in range(self.step):
            beyond = later(m, last_plane & (tail != 0) & (tail <= i), f"beyond_{i}")
            m.d.comb += queue.w_data.word_select(i, 8).eq(Mux(beyond, 0, word.word_select(i, 8)))
        return m
