"""The input ring: rows of the input, fetched a tile ahead, in one memory for each plane of a word.

A tile's new rows are a chunk. Its planes come one after the other, each in a single request, so that the array may begin
with the first ones; a segment is the part of a chunk in one word of all planes.
"""

from amaranth import Module, Mux, Signal, signed, unsigned
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..ports import BEAT, BEATS_BITS, ReadPort, address_bits
from .plan import WORDS, log2, plan, ram_style

CHUNKS = 16  # bits of a count of chunks, which runs over all Tasks
LEVEL = WORDS + 2  # bits of the words in the ring, rows that are skipped included
REQUESTS = 16  # on the way


def distance(bits: int = WORDS) -> object:
    """Return the shape of a distance that may be negative."""
    return signed(bits + 1)


def clamped(value: Value, most: Value) -> Value:
    """Return the nearest number from 0 to ``most``."""
    return Mux(value < 0, 0, Mux(value > most, most, value))


class Loader(wiring.Component):
    """Fetch every ``planes``-th plane of all images of a Task, from plane ``index`` of each group on.

    ``plan``, ``start``  of the next Task; ``allowed``: its input may be read
    ``waits``            there is a next Task, but its input may not be read yet
    ``taken``            1 for one cycle when all its requests are made
    ``release``          words that are no longer needed, oldest first
    ``chunks``, ``segments``  complete chunks of all Tasks, and complete segments of the one that is coming
    ``address``, ``data``     read a word's plane for each lane: in the next cycle
    """

    def __init__(self, overlay: Overlay, index: int) -> None:
        self.overlay, self.index = overlay, index
        self.depth = overlay.buffers.input.depth
        self.planes = overlay.array.inputs // overlay.layout.channels_per_word
        log2(self.depth)  # addresses wrap around
        if self.planes not in (1, 2):
            raise ValueError(f"array of {overlay.array.inputs} inputs: {self.planes} planes of a blob, expected 1 or 2")
        lanes = overlay.array.lanes
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "start": In(1),
                "allowed": In(1),
                "waits": Out(1),
                "taken": Out(1),
                "release": In(WORDS),
                "chunks": Out(CHUNKS),
                "segments": Out(13),
                "address": In(data.ArrayLayout(range(self.depth), lanes)),
                "data": Out(data.ArrayLayout(64, lanes)),
                "memory": Out(ReadPort(address_bits(overlay))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the part that requests, and the one that stores."""
        m = Module()
        ring = unsigned(log2(self.depth))
        layout = data.StructLayout(
            {"address": ring, "beats": BEATS_BITS, "width": 13, "row_words": ring, "last": 1, "empty": 1}
        )
        m.submodules.segments = fifo = SyncFIFOBuffered(width=layout.size, depth=REQUESTS)
        self._request(m, fifo, layout)
        self._store(m, fifo, layout)
        return m

    def _request(self, m: Module, fifo: SyncFIFOBuffered, layout: data.StructLayout) -> None:
        plan, port = self.plan, self.memory.request
        images, rows = Signal(16), Signal(signed(18))
        image, plane = Signal(len(port.payload.address)), Signal(len(port.payload.address))
        base, word = Signal(range(self.depth)), Signal(range(self.depth))  # of the image, of the segment
        group, block = Signal(16), Signal(13)
        # distances from the image's first pixel, and from its first word: of the tile's window; of what is in the ring
        pixel, words = Signal(distance()), Signal(distance())
        end_pixel, end_words = Signal(WORDS), Signal(WORDS)
        first_pixel, first_words = Signal(WORDS), Signal(WORDS)
        next_pixel, next_words = Signal(WORDS), Signal(WORDS)
        level, added = Signal(signed(LEVEL)), Signal(WORDS)
        m.d.sync += level.eq(level + added - self.release)

        beats = Signal(WORDS)
        exists, last = Signal(), Signal()
        segment = Signal(layout)
        m.d.comb += [
            beats.eq(next_pixel - first_pixel),
            exists.eq(((block << log2(self.planes)) + self.index < plan.planes) & beats.any()),
            last.eq((block == plan.blocks - 1) & (group == plan.groups - 1)),
            segment.address.eq(word),
            segment.beats.eq(beats),
            segment.width.eq(plan.input_width),
            segment.row_words.eq(plan.row_words),
            segment.last.eq(last),
            segment.empty.eq(~exists),
            port.payload.address.eq(plane + (first_pixel << log2(BEAT))),
            port.payload.beats.eq(beats),
            port.payload.tag.eq(plan.tag),
            fifo.w_data.eq(segment),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [images.eq(plan.batch), image.eq(plan.input + self.index * plan.input_pitch)]
                m.d.comb += self.waits.eq(self.start & ~self.allowed)
                with m.If(self.start & self.allowed):
                    m.next = "IMAGE"
            with m.State("IMAGE"):
                m.d.sync += [
                    pixel.eq(-plan.pad_pixels),
                    words.eq(-plan.pad_words),
                    end_pixel.eq(0),
                    end_words.eq(0),
                    rows.eq(plan.output_height),
                ]
                m.next = "TILE"
            with m.State("TILE"):
                m.d.sync += [
                    next_pixel.eq(clamped(pixel + plan.tile_pixels, plan.image_pixels)),
                    next_words.eq(clamped(words + plan.tile_words, plan.image_words)),
                    first_pixel.eq(clamped(pixel, plan.image_pixels)),
                    first_words.eq(clamped(words, plan.image_words)),
                ]
                m.next = "ROOM"
            with m.State("ROOM"):
                with m.If(first_pixel < end_pixel):  # rows that this tile has in common with the last one
                    m.d.sync += [first_pixel.eq(end_pixel), first_words.eq(end_words)]
                with m.If((level + next_words - end_words) <= self.depth):
                    m.d.comb += added.eq(next_words - end_words)
                    m.next = "CHUNK"
            with m.State("CHUNK"):
                m.d.sync += [
                    end_pixel.eq(next_pixel),
                    end_words.eq(next_words),
                    plane.eq(image),
                    word.eq(base + first_words),
                    group.eq(0),
                    block.eq(0),
                ]
                m.next = "SEGMENT"
            with m.State("SEGMENT"):
                m.d.comb += [port.valid.eq(exists & fifo.w_rdy), fifo.w_en.eq(port.ready | ~exists)]
                with m.If(fifo.w_rdy & fifo.w_en):
                    m.d.sync += [
                        block.eq(block + 1),
                        plane.eq(plane + (plan.input_pitch << log2(self.planes))),
                        word.eq(word + plan.input_width),
                    ]
                    with m.If(block == plan.blocks - 1):
                        # the next group begins with the plane after this one's last, which is not always at a word's end
                        with m.If(plan.planes[0] & (self.planes > 1)):
                            m.d.sync += plane.eq(plane + plan.input_pitch)
                        m.d.sync += [block.eq(0), group.eq(group + 1)]
                    with m.If(last):
                        m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += [
                    pixel.eq(pixel + plan.step_pixels),
                    words.eq(words + plan.step_words),
                    rows.eq(rows - plan.tile_rows),
                ]
                m.next = "TILE"
                with m.If(rows <= plan.tile_rows):
                    m.next = "END"
            with m.State("END"):  # of an image: rows that no window reads count as loaded, since they are released too
                m.d.comb += added.eq(plan.image_words - end_words)
                m.d.sync += [
                    images.eq(images - 1),
                    image.eq(image + plan.input_image),
                    base.eq(base + plan.image_words),
                ]
                m.next = "IMAGE"
                with m.If(images == 1):
                    m.d.comb += self.taken.eq(1)
                    m.next = "IDLE"

    def _store(self, m: Module, fifo: SyncFIFOBuffered, layout: data.StructLayout) -> None:
        m.submodules.ring = memory = Memory(
            shape=unsigned(64), depth=self.depth, init=[], attrs=ram_style(self.overlay.buffers.input)
        )
        writer = memory.write_port()
        for lane in range(self.overlay.array.lanes):  # synthesis makes a copy for each port that reads
            reader = memory.read_port()
            m.d.comb += [reader.addr.eq(self.address[lane]), self.data[lane].eq(reader.data)]
        stream = self.memory.data
        segment = data.View(layout, fifo.r_data)
        column, beat = Signal(13), Signal(BEATS_BITS)
        offset = Signal(range(self.depth))
        end = Signal()
        m.d.comb += [
            stream.ready.eq(fifo.r_rdy & ~segment.empty),
            writer.addr.eq(segment.address + offset),
            writer.data.eq(stream.payload),
            writer.en.eq(stream.valid & stream.ready),
            end.eq(fifo.r_rdy & (segment.empty | (stream.valid & (beat == segment.beats - 1)))),
            fifo.r_en.eq(end),
        ]
        with m.If(writer.en):
            m.d.sync += [beat.eq(beat + 1), column.eq(column + 1), offset.eq(offset + 1)]
            with m.If(column == segment.width - 1):
                m.d.sync += [column.eq(0), offset.eq(offset + segment.row_words - segment.width + 1)]
        with m.If(end):
            m.d.sync += [beat.eq(0), column.eq(0), offset.eq(0), self.segments.eq(self.segments + 1)]
            with m.If(segment.last):
                m.d.sync += [self.segments.eq(0), self.chunks.eq(self.chunks + 1)]
