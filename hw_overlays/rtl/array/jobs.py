"""The jobs of a Task: a tile for a block of outputs each, in the order that lets inputs or weights stay."""

from amaranth import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..ports import BEAT, address_bits
from .constants import block_size
from .loader import CHUNKS, clamped, distance
from .plan import SIDE, WORDS, log2, plan


def pixel_count(overlay: Overlay) -> int:
    """Return the bits of a number of pixels of a tile."""
    return (overlay.buffers.accumulators.depth * overlay.array.lanes).bit_length()


def job(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a job.

    ``slot``           of the plan
    ``address``        in the input ring, of the top left of the tile's window in the first block of inputs
    ``y``, ``x``       row and column of that pixel; in the padding they are negative
    ``rows``, ``columns``  of the output
    ``chunk``, ``segment``  that must be complete for the first block of inputs
    ``output``, ``channels``  byte address of the first plane, and the channels of the block
    ``last``           of the Task
    ``free``, ``rewind``  weights are not needed any more; the ones after these begin at the first that is not freed
    ``release``        words of the input ring that no later job reads
    """
    ring = log2(overlay.buffers.input.depth)
    size = pixel_count(overlay)
    return data.StructLayout(
        {
            "slot": 1,
            "address": ring,
            "y": signed(SIDE),
            "x": signed(SIDE),
            "rows": size,
            "columns": size,
            "chunk": CHUNKS,
            "segment": 13,
            "output": address_bits(overlay),
            "channels": range(overlay.array.outputs + 1),
            "last": 1,
            "free": 1,
            "rewind": 1,
            "release": unsigned(WORDS),
        }
    )


class Jobs(wiring.Component):
    """Walk through images, tiles and blocks of outputs.

    ``plan``, ``start``, ``slot``  of the next Task; ``taken``: 1 for one cycle after its last job
    """

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.layout = job(overlay)
        super().__init__(
            {
                "plan": In(plan(overlay)),
                "start": In(1),
                "slot": In(1),
                "taken": Out(1),
                "jobs": Out(stream.Signature(self.layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Return the loops, as steps between a job and the next."""
        m = Module()
        plan, job = self.plan, Signal(self.layout)
        array, depth = self.overlay.array, self.overlay.buffers.input.depth
        bits = address_bits(self.overlay)
        # position: image, tile (row and column), block of outputs
        images, tops, columns = Signal(16), Signal(16), Signal(16)  # left, this one included
        groups, left = Signal(16), Signal(16)  # groups and channels of outputs
        position = data.StructLayout({"ring": range(depth), "chunk": CHUNKS, "output": bits})
        task, image = Signal(position), Signal(position)  # where they begin
        words = Signal(distance())  # of the tile from the image's first
        y, x = Signal(signed(SIDE)), Signal(signed(SIDE))
        chunk = Signal(CHUNKS)
        row_output, tile_output, plane_output = Signal(bits), Signal(bits), Signal(bits)
        segment, segment_words = Signal(13), Signal(range(depth))
        # what is the last of its kind
        block, channels = Signal(range(array.outputs + 1)), Signal(range(array.outputs + 1))
        group_end, blocks_end = Signal(), Signal()
        row_end, tiles_end, images_end = Signal(), Signal(), Signal()
        next_words = Signal(distance())
        m.d.comb += [
            block.eq(block_size(plan, array.inputs, array.outputs)),
            channels.eq(Mux(left > block, block, left)),
            group_end.eq(left == channels),
            blocks_end.eq(group_end & (groups == 1)),
            row_end.eq(columns <= plan.tile_columns),
            tiles_end.eq(row_end & (tops <= plan.tile_rows)),
            images_end.eq(images == 1),
            next_words.eq(words + plan.step_words),
        ]
        free = Signal()  # weights that stay are used for the last time
        m.d.comb += [
            free.eq(~plan.keep | (tiles_end & (images_end | plan.between))),
            job.free.eq(free),
            job.rewind.eq(~free & (blocks_end | plan.outside | plan.between)),
        ]
        released = Signal(WORDS)
        m.d.comb += released.eq(
            Mux(tiles_end, plan.image_words, clamped(next_words, plan.image_words)) - clamped(words, plan.image_words)
        )
        m.d.comb += [
            job.slot.eq(self.slot),
            job.address.eq(image.ring + words + segment_words + x),
            job.y.eq(y),
            job.x.eq(x),
            job.rows.eq(Mux(tops > plan.tile_rows, plan.tile_rows, tops)),
            job.columns.eq(Mux(columns > plan.tile_columns, plan.tile_columns, columns)),
            job.chunk.eq(chunk),
            job.segment.eq(segment),
            job.output.eq(image.output + plane_output + tile_output),
            job.channels.eq(channels),
            job.last.eq(blocks_end & tiles_end & images_end),
            job.release.eq(Mux(blocks_end & row_end, released, 0)),
        ]

        def first_tile(start: data.View) -> None:
            m.d.sync += [
                tops.eq(plan.output_height),
                columns.eq(plan.output_width),
                words.eq(-plan.pad_words),
                y.eq(-plan.pad_h),
                x.eq(-plan.pad_w),
                chunk.eq(start.chunk),
                row_output.eq(0),
                tile_output.eq(0),
            ]

        def next_tile() -> None:
            m.d.sync += [
                columns.eq(columns - plan.tile_columns),
                x.eq(x + plan.tile_width),
                tile_output.eq(tile_output + plan.tile_columns * BEAT),
            ]
            with m.If(row_end):
                m.d.sync += [
                    tops.eq(tops - plan.tile_rows),
                    columns.eq(plan.output_width),
                    words.eq(next_words),
                    y.eq(y + plan.tile_step),
                    x.eq(-plan.pad_w),
                    chunk.eq(chunk + 1),
                    row_output.eq(row_output + plan.output_step * BEAT),
                    tile_output.eq(row_output + plan.output_step * BEAT),
                ]

        following = Signal(position)  # the image after this one
        m.d.comb += [
            following.ring.eq(image.ring + plan.image_words),
            following.chunk.eq(chunk + 1),
            following.output.eq(image.output + plan.output_image),
        ]

        def next_image() -> None:
            m.d.sync += [image.eq(following), images.eq(images - 1)]
            first_tile(following)

        def first_image() -> None:
            m.d.sync += [image.eq(task), images.eq(plan.batch)]
            first_tile(task)

        def first_block() -> None:
            m.d.sync += [
                groups.eq(plan.groups),
                left.eq(plan.outputs),
                plane_output.eq(0),
                segment.eq(0),
                segment_words.eq(0),
            ]

        def next_block() -> None:
            step = log2(self.overlay.layout.channels_per_word)
            planes = Signal(range(array.outputs // (1 << step) + 1))
            m.d.comb += planes.eq((channels + ((1 << step) - 1)) >> step)
            size = sum(Mux(bit, plan.output_pitch << i, 0) for i, bit in enumerate(planes))
            m.d.sync += [left.eq(left - channels), plane_output.eq(plane_output + size)]
            with m.If(group_end):
                m.d.sync += [groups.eq(groups - 1), left.eq(plan.outputs)]
            with m.If(plan.depthwise):
                m.d.sync += [segment.eq(segment + 1), segment_words.eq(segment_words + plan.input_width)]
            with m.Elif(group_end):
                m.d.sync += [segment.eq(segment + plan.blocks), segment_words.eq(segment_words + plan.group_words)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += task.output.eq(plan.output)
                with m.If(self.start):
                    m.next = "START"
            with m.State("START"):
                first_image()
                first_block()
                m.next = "JOB"
            with m.State("JOB"):
                m.d.sync += [self.jobs.payload.eq(job), self.jobs.valid.eq(1)]
                m.next = "TAKEN"
            with m.State("TAKEN"):
                with m.If(self.jobs.ready):
                    m.d.sync += self.jobs.valid.eq(0)
                    m.next = "JOB"
                    with m.If(self.jobs.payload.last):
                        m.d.sync += [task.ring.eq(following.ring), task.chunk.eq(following.chunk)]
                        m.d.comb += self.taken.eq(1)
                        m.next = "IDLE"
                    with m.Elif(~plan.outside & ~plan.between):
                        with m.If(~blocks_end):
                            next_block()
                        with m.Else():
                            first_block()
                            with m.If(tiles_end):
                                next_image()
                            with m.Else():
                                next_tile()
                    with m.Elif(~tiles_end):
                        next_tile()
                    with m.Elif(plan.outside & ~images_end):
                        next_image()
                    with m.Elif(~blocks_end):
                        next_block()
                        with m.If(plan.outside):
                            first_image()
                        with m.Else():
                            first_tile(image)
                    with m.Else():
                        first_block()
                        next_image()
        return m
