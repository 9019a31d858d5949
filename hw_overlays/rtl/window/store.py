"""Store: codes to memory, word by word, with zeros in the channels after a blob's last."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..descriptor import descriptor
from ..ports import BEAT, WritePort, address_bits
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
        m.submodules.queue = queue = fifo.SyncFIFOBuffered(width=64, depth=WORDS)
        new, area, runs, output = self.task.payload, walk.area.payload, walk.runs, self.output
        planes = (new.output_channels + self.step - 1) >> (self.step.bit_length() - 1)
        tag = Signal.like(new.tag)
        m.d.comb += [
            area.address.eq(new.output),
            area.pitch.eq(new.output_pitch),
            area.image.eq(new.output_image),
            area.words.eq(new.output_pitch // BEAT),
            area.planes.eq(planes),
            area.images.eq(new.batch),
            area.across.eq(new.opcode == self.opcodes["lrn"]),
            output.request.valid.eq(runs.valid),
            output.request.payload.address.eq(runs.payload.address),
            output.request.payload.beats.eq(runs.payload.beats),
            output.request.payload.last.eq(runs.payload.last),
            output.request.payload.tag.eq(tag),
            runs.ready.eq(output.request.ready),
            output.data.valid.eq(queue.r_rdy),
            output.data.payload.eq(queue.r_data),
            queue.r_en.eq(output.data.ready),
        ]

        claimed = Signal(range(WORDS + 1))
        m.d.comb += self.room.eq(claimed != WORDS)
        m.d.sync += claimed.eq(claimed + self.claim - (queue.r_rdy & queue.r_en))

        # left: of the run of words in a plane, of the plane (its last runs), of the image, of the Task; the current one included
        words, rest = Signal.like(area.words), Signal.like(area.words)
        planes_left, images = Signal.like(area.planes), Signal.like(area.images)
        whole = Signal.like(area)  # the sizes to begin with
        tail = Signal(range(self.step))  # channels in the last plane, 0 for all
        idle = images == 0
        m.d.comb += [walk.area.valid.eq(self.task.valid & idle), self.task.ready.eq(walk.area.ready & idle)]
        with m.If(self.task.valid & self.task.ready):
            m.d.sync += [whole.eq(area), planes_left.eq(planes), images.eq(new.batch)]
            m.d.sync += [words.eq(run_of(area, area.words)), rest.eq(area.words)]
            m.d.sync += [tail.eq(new.output_channels), tag.eq(new.tag)]
        runs_end, planes_end = ~whole.across | (rest <= RUN), planes_left == 1
        with m.If(self.write):
            m.d.sync += words.eq(words - 1)
            with m.If(words == 1):
                m.d.sync += words.eq(run_of(whole, rest))
                m.d.sync += planes_left.eq(Mux(planes_end, whole.planes, planes_left - 1))
                with m.If(planes_end & ~runs_end):
                    m.d.sync += [rest.eq(rest - RUN), words.eq(run_of(whole, (rest - RUN)[: len(rest)]))]
                with m.If(planes_end & runs_end):
                    m.d.sync += [rest.eq(whole.words), words.eq(run_of(whole, whole.words)), images.eq(images - 1)]
        m.d.comb += queue.w_en.eq(self.write)
        for i in range(self.step):
            beyond = (planes_left == 1) & (tail != 0) & (tail <= i)
            m.d.comb += queue.w_data.word_select(i, 8).eq(Mux(beyond, 0, self.word.word_select(i, 8)))
        return m


def run_of(area: data.View, words: Value) -> Value:
    """Return the words of a plane that are written before those of the next plane, of ``words`` that are left of it."""
    return Mux(area.across & (words > RUN), RUN, words)
