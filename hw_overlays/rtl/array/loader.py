"""The input ring: rows of the input, fetched a tile ahead, in one memory for each plane of a word.

A tile's new rows are a chunk. Its planes come one after the other, each in a single request, so that the array may begin
with the first ones; a segment is the part of a chunk in one word of all planes. Of a strip each row is a request.
"""

from amaranth import Const, Module, Mux, Signal, signed, unsigned
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..beats import WORD
from ..ports import BEAT, BEATS_BITS, ReadPort, log2
from ..streams import Queue, counted_pairs, later, ram_style, register
from .plan import WORDS, plan

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
    ``address``, ``data``     read a word's plane for each lane: two cycles later
    """

    def __init__(self, overlay: Overlay, index: int) -> None:
        self.overlay, self.index = overlay, index
        self.depth, self.words = overlay.buffers.input.depth, overlay.ports.words
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
                "data": Out(data.ArrayLayout(WORD, lanes)),
                "memory": Out(ReadPort(overlay.address_bits, self.words)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the part that requests, and the one that stores."""
        m = Module()
        ring = unsigned(log2(self.depth))
        # gap: from the last word of a row to the next row's first
        layout = data.StructLayout(
            {"address": ring, "beats": BEATS_BITS, "width": 13, "gap": ring, "last": 1, "empty": 1, "more": 1}
        )
        m.submodules.segments = fifo = Queue(width=layout.size, depth=REQUESTS, block=True)
        self._request(m, fifo, layout)
        self._store(m, fifo, layout)
        return m

    def _request(self, m: Module, fifo: Queue, layout: data.StructLayout) -> None:
        """Ask for segments; a state waits until what follows from the one before is in registers."""
        plan, port = self.plan, self.memory.request
        bits = len(port.payload.address)
        images, rows = register(16, "images"), register(16, "rows")
        image, plane = register(bits, "image"), register(bits, "plane")
        base, word = Signal(range(self.depth)), register(range(self.depth), "word")  # of the image, of the segment
        row, row_word = register(WORDS, "row"), register(range(self.depth), "row_word")  # of the request
        group, block = register(16, "group"), register(13, "block")
        # distances from the image's first pixel, and from its first word: of the tile's window; of what is in the ring
        pixel, words = register(distance(), "pixel"), register(distance(), "words")
        end_pixel, end_words = register(WORDS, "end_pixel"), register(WORDS, "end_words")
        first_pixel, first_words = register(WORDS, "first_pixel"), register(WORDS, "first_words")
        next_pixel, next_words = register(WORDS, "next_pixel"), register(WORDS, "next_words")
        level, adds, added = Signal(signed(LEVEL)), Signal(), register(WORDS, "added")
        first_image = later(m, (plan.input + self.index * plan.input_pitch)[:bits], "first_image")
        next_image = later(m, (image + plan.input_image)[:bits], "next_image")
        last_image = later(m, images == 1, "last_image")
        change = later(m, Mux(adds, added, 0) - later(m, self.release, "released"), "change")
        m.d.sync += level.eq(level + change)

        pixels = later(m, (next_pixel - first_pixel)[:WORDS], "pixels")
        some = later(m, pixels.any(), "some")
        beats = later(m, Mux(plan.strip, plan.input_width, pixels), "beats")
        next_row = later(m, row + plan.input_row, "next_row")
        more = later(m, plan.strip & (next_row < next_pixel), "more")  # rows of the segment
        number = later(m, ((block << log2(self.planes)) + self.index)[: len(plan.planes) + 1], "number")
        exists = later(m, (number < plan.planes) & some, "exists")
        block_end = later(m, block == later(m, plan.blocks - 1, "last_block"), "block_end")
        group_end = later(m, group == later(m, plan.groups - 1, "last_group"), "group_end")
        common = later(m, first_pixel < end_pixel, "common")  # the tile has rows in common with the last one
        grown = later(m, next_words - end_words, "grown")
        fits = later(m, later(m, level + grown, "full") <= self.depth, "fits")
        rest = later(m, plan.image_words - end_words, "rest")
        end_of_pixels = later(m, pixel + plan.tile_pixels, "end_of_pixels")
        end_of_words = later(m, words + plan.tile_words, "end_of_words")
        rows_end = later(m, rows <= plan.tile_rows, "rows_end")
        gap = later(m, plan.row_words - plan.input_width + 1, "gap")
        odd = later(m, plan.planes[0] & (self.planes > 1), "odd")
        next_plane = later(m, (plane + (plan.input_pitch << log2(self.planes)))[:bits], "next_plane")
        next_odd = later(m, (plane + plan.input_pitch)[:bits], "next_odd")
        segment = Signal(layout)
        m.d.comb += [
            segment.address.eq(row_word),
            segment.beats.eq(Mux(exists, beats, 1)),
            segment.width.eq(plan.input_width),
            segment.gap.eq(gap),
            segment.last.eq(block_end & group_end),
            segment.empty.eq(~exists),
            segment.more.eq(more & exists),
            port.payload.address.eq(later(m, (plane + (row << log2(BEAT)))[:bits], "address")),
            port.payload.beats.eq(beats),
            port.payload.tag.eq(plan.tag),
            fifo.w_data.eq(segment),
        ]
        settle, settled = Signal(range(4)), Signal()
        m.d.sync += [settle.eq(Mux(settle == 0, 0, settle - 1)), settled.eq(settle <= 1)]
        # only this part fills the queue, and not for some cycles after a segment
        may, taken = later(m, fifo.w_rdy, "may"), Signal()
        asks = settled & may & ~taken
        m.d.sync += [taken.eq(0), adds.eq(0), added.eq(grown)]
        m.d.comb += fifo.w_en.eq(taken)

        def wait(cycles: int) -> None:
            m.d.sync += [settle.eq(cycles), settled.eq(0)]

        def within(value: Value, most: Value, name: str) -> Value:
            """Return the nearest number from 0 to ``most``, by registers that compare: it is right a cycle later."""
            return Mux(value < 0, 0, Mux(later(m, value > most, f"beyond_{name}"), most, value))

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [images.eq(plan.batch), image.eq(first_image)]
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
                wait(2)
                m.next = "TILE"
            with m.State("TILE"):
                m.d.sync += [
                    next_pixel.eq(within(end_of_pixels, plan.image_pixels, "next_pixel")),
                    next_words.eq(within(end_of_words, plan.image_words, "next_words")),
                    first_pixel.eq(within(pixel, plan.image_pixels, "pixel")),
                    first_words.eq(within(words, plan.image_words, "words")),
                ]
                with m.If(settled):
                    wait(3)
                    m.next = "ROOM"
            with m.State("ROOM"):
                with m.If(settled & common):
                    m.d.sync += [first_pixel.eq(end_pixel), first_words.eq(end_words)]
                with m.If(settled & fits):
                    m.d.sync += adds.eq(1)
                    m.next = "CHUNK"
            with m.State("CHUNK"):
                m.d.sync += [
                    end_pixel.eq(next_pixel),
                    end_words.eq(next_words),
                    plane.eq(image),
                    word.eq(base + first_words),
                    row.eq(first_pixel),
                    row_word.eq(base + first_words),
                    group.eq(0),
                    block.eq(0),
                ]
                wait(3)
                m.next = "SEGMENT"
            with m.State("SEGMENT"):
                m.d.comb += port.valid.eq(asks & exists)
                m.d.sync += taken.eq(asks & (port.ready | ~exists))
                with m.If(taken & segment.more):
                    wait(3)
                    m.d.sync += [row.eq(next_row), row_word.eq(row_word + plan.row_words)]
                with m.Elif(taken):
                    m.d.sync += [block.eq(block + 1), word.eq(word + plan.input_width)]
                    m.next = "NEXT"
            with m.State("NEXT"):
                wait(2)
                m.d.sync += [plane.eq(next_plane), row.eq(first_pixel), row_word.eq(word)]
                m.next = "SEGMENT"
                with m.If(block_end):
                    # the next group begins with the plane after this one's last, which is not always at a word's end
                    with m.If(odd):
                        m.d.sync += plane.eq(next_odd)
                    m.d.sync += [block.eq(0), group.eq(group + 1)]
                    with m.If(group_end):
                        m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += [
                    pixel.eq(pixel + plan.step_pixels),
                    words.eq(words + plan.step_words),
                    rows.eq(rows - plan.tile_rows),
                ]
                wait(2)
                m.next = "TILE"
                with m.If(rows_end):
                    m.next = "END"
            with m.State("END"):  # of an image: rows that no window reads count as loaded, since they are released too
                m.d.sync += [
                    adds.eq(1),
                    added.eq(rest),
                    images.eq(images - 1),
                    image.eq(next_image),
                    base.eq(base + plan.image_words),
                ]
                m.next = "IMAGE"
                with m.If(last_image):
                    m.d.comb += self.taken.eq(1)
                    m.next = "IDLE"

    def _store(self, m: Module, fifo: Queue, layout: data.StructLayout) -> None:
        """Store a group of words in a cycle, or one word where a row of the image ends between two."""
        groups, taken = self.memory.data, Signal()
        address, columns = register(range(self.depth), "place"), register(13, "columns")
        row_end = register(1, "row_end")
        half, row_pair = Signal(), register(1, "row_pair")  # the group's first word is stored; a row has two more words
        wanted = ~half & ~row_end if self.words > 1 else None
        there, segment, last, pair = counted_pairs(m, fifo, layout, taken, wanted)
        m.d.comb += [
            groups.ready.eq(there & ~segment.empty),
            taken.eq(there & (segment.empty | groups.valid)),
        ]
        ends, payload = row_end, groups.payload
        if self.words > 1:
            ends, payload = Mux(pair, row_pair, row_end), Mux(half, payload[WORD:], payload)
            done = pair | half | last
            m.d.comb += groups.ready.eq(there & ~segment.empty & done)
            with m.If(taken):
                m.d.sync += half.eq(~done)
        self._banks(m, address, payload, pair, groups.valid & there & ~segment.empty)
        with m.If(taken):
            m.d.sync += [
                address.eq(address + pair + Mux(ends, segment.gap, 1)),
                columns.eq(Mux(ends, segment.width, columns - 1 - pair)),
                row_end.eq(Mux(ends, segment.width == 1, columns == 2 + pair)),
                row_pair.eq(Mux(ends, segment.width == 2, columns == 3 + pair)),
            ]
        with m.If(fifo.r_en):
            head = data.View(layout, fifo.r_data)
            m.d.sync += [address.eq(head.address), columns.eq(head.width)]
            m.d.sync += [row_end.eq(head.width == 1), row_pair.eq(head.width == 2)]
        with m.If(taken & last & ~segment.more):
            m.d.sync += self.segments.eq(self.segments + 1)
            with m.If(segment.last):
                m.d.sync += [self.segments.eq(0), self.chunks.eq(self.chunks + 1)]

    def _banks(self, m: Module, address: Value, payload: Value, pair: Value, writes: Value) -> None:
        """Write a word, or two if they are a ``pair``, and read one for each lane; of two banks one has even addresses."""
        style, bank = ram_style(self.overlay.buffers.input), log2(self.words)
        read: list[list[Value]] = [[] for _ in self.data]
        for number in range(self.words):
            name = f"ring_{number}" if bank else "ring"
            m.submodules[name] = memory = Memory(shape=unsigned(WORD), depth=self.depth >> bank, init=[], attrs=style)
            writer = memory.write_port()
            second = Const(0) if number == 0 and not bank else address[:bank] != number  # of the pair
            m.d.comb += [
                writer.addr.eq((address + (second if number == 0 else 0)) >> bank),
                writer.data.eq(Mux(second, payload[-WORD:], payload[:WORD])),
                writer.en.eq(writes & (~second | pair)),
            ]
            for lane, words in enumerate(read):  # synthesis makes a copy for each port that reads
                reader = memory.read_port()
                m.d.comb += reader.addr.eq(self.address[lane] >> bank)
                words.append(later(m, reader.data, f"data_{lane}_{number}"))  # the memory's output register
        for lane, words in enumerate(read):
            upper = later(m, self.address[lane][:bank], f"upper_{lane}", 2)
            m.d.comb += self.data[lane].eq(Mux(upper, words[-1], words[0]) if bank else words[0])
