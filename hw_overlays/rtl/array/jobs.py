"""The jobs of a Task: a tile for a block of outputs each, in the order that lets inputs or weights stay."""

from types import SimpleNamespace

from amaranth import Module, Mux, Signal, signed, unsigned
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay import Overlay

from ..ports import BEAT, log2
from ..streams import later, product, register
from .constants import block_size
from .loader import CHUNKS, clamped, distance
from .plan import SIDE, WORDS, plan

SETTLE = 5  # cycles from a step until what follows from it is in registers
ACTS = ("next_tile", "next_image", "first_image", "same_image", "first_block", "next_block")


def pixel_count(overlay: Overlay) -> int:
    """Return the bits of a number of pixels of a tile."""
    return (overlay.buffers.accumulators.depth * overlay.array.lanes).bit_length()


def job(overlay: Overlay) -> data.StructLayout:
    """Return the layout of a job.

    ``slot``           of the plan
    ``address``        in the input ring, of the top left of the tile's window in the first block of inputs
    ``y``, ``x``       row and column of that pixel; in the padding they are negative
    ``rows``, ``columns``, ``pixels``  of the output
    ``chunk``, ``segment``  that must be complete for the first block of inputs
    ``output``, ``channels``  byte address of the first plane, and the channels of the block
    ``last``           of the Task
    ``free``, ``rewind``  weights are not needed any more; the ones after these begin at the first that is not freed
    ``release``        words of the input ring that no later job reads
    ``narrow``         weights of one input each, on the diagonal of the array
    ``top``, ``bottom``  its tile has the image's first row, its last one
    ``again``          its tile is that of the job before
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
            "pixels": size,
            "chunk": CHUNKS,
            "segment": 13,
            "output": overlay.address_bits,
            "channels": range(overlay.array.outputs + 1),
            "last": 1,
            "free": 1,
            "rewind": 1,
            "release": unsigned(WORDS),
            "narrow": 1,
            **dict.fromkeys(("top", "bottom", "again"), 1),
        }
    )


class Jobs(wiring.Component):
    """Walk through images, tiles and blocks of outputs; a job is there ``SETTLE`` + 3 cycles after the one before is taken.

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
        """Return the loops: a job, the step to the next, and some cycles until all that follows from it is in registers."""
        m = Module()
        plan = self.plan
        at = self._position()
        ends, job = self._follow(m, at)
        acts = {name: register(1, f"act_{name}") for name in ACTS}
        steps = Signal()  # the acts are those of a step
        m.d.sync += [*(act.eq(0) for act in acts.values()), steps.eq(0)]
        self._step(m, at, ends, acts, steps)
        settle, offer = register(range(SETTLE + 1), "settle"), register(self.layout, "offer")
        m.d.comb += self.jobs.payload.eq(offer)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += at.task.output.eq(plan.output)
                with m.If(self.start):
                    m.next = "START"
            with m.State("START"):
                m.d.sync += [
                    *(act.eq(name in ("first_image", "first_block")) for name, act in acts.items()),
                    steps.eq(1),
                ]
                m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += settle.eq(SETTLE)
                m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += settle.eq(settle - 1)
                with m.If(settle == 1):
                    m.next = "JOB"
            with m.State("JOB"):
                m.d.sync += [offer.eq(job), self.jobs.valid.eq(1)]
                m.next = "TAKEN"
            with m.State("TAKEN"):
                with m.If(self.jobs.ready):
                    m.d.sync += self.jobs.valid.eq(0)
                    with m.If(offer.last):
                        m.d.sync += [at.task.ring.eq(ends.next_ring), at.task.chunk.eq(ends.next_chunk)]
                        m.d.comb += self.taken.eq(1)
                        m.next = "IDLE"
                    with m.Else():
                        m.d.sync += steps.eq(1)
                        self._act(m, ends, acts)
                        m.next = "STEP"
        return m

    def _position(self) -> SimpleNamespace:
        """Return the registers of the place in the loops: image, tile (row and column), block of outputs."""
        bits, depth = self.overlay.address_bits, self.overlay.buffers.input.depth
        position = data.StructLayout({"ring": range(depth), "chunk": CHUNKS, "output": bits})
        shapes = {
            **dict.fromkeys(("images", "tops", "columns"), 16),  # left, this one included
            **dict.fromkeys(("groups", "left"), 16),  # groups and channels of outputs
            "image": position,  # where it begins, as ``task`` does, which goes on from Task to Task
            "words": distance(),  # of the tile from the image's first
            **dict.fromkeys(("y", "x"), signed(SIDE)),
            "chunk": CHUNKS,
            **dict.fromkeys(("row_output", "tile_output", "plane_output"), bits),
            "segment": 13,
            "segment_words": range(depth),
            "again": 1,
        }
        at = {name: register(shape, f"at_{name}") for name, shape in shapes.items()}
        return SimpleNamespace(**at, task=Signal(position, name="at_task"))

    def _follow(self, m: Module, at: SimpleNamespace) -> tuple[SimpleNamespace, data.View]:
        """Return what is the last of its kind and where the next begins, and the job; ``SETTLE`` cycles after a step."""
        plan, job = self.plan, Signal(self.layout)
        array, depth, bits = self.overlay.array, self.overlay.buffers.input.depth, self.overlay.address_bits
        step = log2(self.overlay.layout.channels_per_word)

        def kept(name: str, value: Value, width: int | None = None) -> Signal:
            return later(m, Value.cast(value)[:width] if width else value, name)

        block = block_size(plan, array.inputs, array.outputs)
        group_end, row_end = kept("group_end", at.left <= block), kept("row_end", at.columns <= plan.tile_columns)
        bottom = kept("bottom", at.tops <= plan.tile_rows)
        images_end, groups_end = kept("images_end", at.images == 1), kept("groups_end", at.groups == 1)
        channels = kept("channels", Mux(at.left <= block, at.left, block), len(job.channels))
        rows = kept("rows", Mux(at.tops <= plan.tile_rows, at.tops, plan.tile_rows), len(job.rows))
        columns = kept("columns", Mux(at.columns <= plan.tile_columns, at.columns, plan.tile_columns), len(job.rows))
        next_words = kept("next_words", at.words + plan.step_words, len(at.words)).as_signed()
        blocks_end, tiles_end = kept("blocks_end", group_end & groups_end), kept("tiles_end", row_end & bottom)
        begin = kept("begin", clamped(at.words, plan.image_words), WORDS)
        end = kept("end", Mux(tiles_end, plan.image_words, clamped(next_words, plan.image_words)), WORDS)
        free = kept("free", ~plan.shares & (~plan.keep | (tiles_end & (images_end | plan.between))))
        planes = kept("planes", (channels + ((1 << step) - 1)) >> step)
        tile_ring, window_ring = (at.image.ring + at.words)[: log2(depth)], (at.segment_words + at.x)[: log2(depth)]
        job_fields = {
            "slot": self.slot,
            "address": kept("address", kept("tile_ring", tile_ring) + kept("window_ring", window_ring)),
            "y": at.y,
            "x": at.x,
            "rows": rows,
            "columns": columns,
            "pixels": product(m, rows, columns, len(job.pixels), "pixels"),
            "chunk": at.chunk,
            "segment": at.segment,
            "output": kept(
                "output", kept("tile_place", at.plane_output + at.tile_output, bits) + at.image.output, bits
            ),
            "channels": channels,
            "last": kept("last", blocks_end & tiles_end & images_end),
            "free": free,
            "rewind": kept("rewind", ~free & (blocks_end | plan.outside | plan.between)),
            "release": kept("release", Mux(blocks_end & row_end, kept("released", end - begin, WORDS), 0)),
            "narrow": plan.depthwise,
            "top": kept("top", at.tops == plan.output_height),
            "bottom": bottom,
            "again": at.again,
        }
        m.d.comb += [job[name].eq(value) for name, value in job_fields.items()]
        segment_step = kept("segment_step", Mux(plan.depthwise, plan.input_width, plan.group_words))
        size = product(m, plan.output_pitch, planes, bits, "size")
        nexts = {
            "next_words": next_words,
            "next_ring": kept("next_ring", at.image.ring + plan.image_words, log2(depth)),
            "next_chunk": kept("next_chunk", at.chunk + 1, CHUNKS),
            "next_image": kept("next_image", at.image.output + plan.output_image, bits),
            "next_row": kept("next_row", at.row_output + plan.output_step * BEAT, bits),
            "next_plane": kept("next_plane", at.plane_output + size, bits),
            "next_tops": kept("next_tops", at.tops - plan.tile_rows, len(at.tops)),
            "next_y": kept("next_y", at.y + plan.tile_step, SIDE),
            "next_x": kept("next_x", at.x + plan.tile_width, SIDE),
            "next_columns": kept("next_columns", at.columns - plan.tile_columns, len(at.columns)),
            "next_tile": kept("next_tile", at.tile_output + plan.tile_columns * BEAT, bits),
            "next_left": kept("next_left", at.left - channels, len(at.left)),
            "next_segment": kept("next_segment", at.segment + Mux(plan.depthwise, 1, plan.blocks), len(at.segment)),
            "next_segment_words": kept("next_segment_words", at.segment_words + segment_step, log2(depth)),
            # where an image begins
            "first_words": kept("first_words", -plan.pad_words),
            "first_y": kept("first_y", -plan.pad_h),
            "first_x": kept("first_x", -plan.pad_w),
        }
        flags = {"row_end": row_end, "group_end": group_end, "blocks_end": blocks_end}
        flags |= {"tiles_end": tiles_end, "images_end": images_end}
        return SimpleNamespace(**nexts, **flags), job

    def _act(self, m: Module, ends: SimpleNamespace, acts: dict[str, Signal]) -> None:
        """Choose which parts of the position the next step sets."""

        def set_(*names: str) -> None:
            m.d.sync += [acts[name].eq(1) for name in names]

        with m.If(~self.plan.outside & ~self.plan.between):
            with m.If(~ends.blocks_end):
                set_("next_block")
            with m.Elif(ends.tiles_end):
                set_("first_block", "next_image")
            with m.Else():
                set_("first_block", "next_tile")
        with m.Elif(~ends.tiles_end):
            set_("next_tile")
        with m.Elif(self.plan.outside & ~ends.images_end):
            set_("next_image")
        with m.Elif(ends.blocks_end):
            set_("first_block", "next_image")
        with m.Elif(self.plan.outside):
            set_("next_block", "first_image")
        with m.Else():
            set_("next_block", "same_image")

    def _step(
        self, m: Module, at: SimpleNamespace, ends: SimpleNamespace, acts: dict[str, Signal], steps: Signal
    ) -> None:
        """Set the position of the next job."""
        plan = self.plan
        with m.If(steps):
            m.d.sync += at.again.eq(acts["next_block"] & ~acts["first_image"] & ~acts["same_image"])
        with m.If(acts["next_tile"]):
            m.d.sync += [
                at.columns.eq(ends.next_columns),
                at.x.eq(ends.next_x),
                at.tile_output.eq(ends.next_tile),
            ]
            with m.If(ends.row_end):
                m.d.sync += [
                    at.tops.eq(ends.next_tops),
                    at.columns.eq(plan.output_width),
                    at.words.eq(ends.next_words),
                    at.y.eq(ends.next_y),
                    at.x.eq(ends.first_x),
                    at.chunk.eq(ends.next_chunk),
                    at.row_output.eq(ends.next_row),
                    at.tile_output.eq(ends.next_row),
                ]
        with m.If(acts["next_image"] | acts["first_image"] | acts["same_image"]):
            m.d.sync += [
                at.tops.eq(plan.output_height),
                at.columns.eq(plan.output_width),
                at.words.eq(ends.first_words),
                at.y.eq(ends.first_y),
                at.x.eq(ends.first_x),
                at.row_output.eq(0),
                at.tile_output.eq(0),
            ]
        with m.If(acts["next_image"]):
            m.d.sync += [at.images.eq(at.images - 1), at.chunk.eq(ends.next_chunk), at.image.chunk.eq(ends.next_chunk)]
            m.d.sync += [at.image.ring.eq(ends.next_ring), at.image.output.eq(ends.next_image)]
        with m.If(acts["first_image"]):
            m.d.sync += [at.images.eq(plan.batch), at.chunk.eq(at.task.chunk), at.image.eq(at.task)]
        with m.If(acts["same_image"]):
            m.d.sync += at.chunk.eq(at.image.chunk)
        with m.If(acts["first_block"]):
            m.d.sync += [at.groups.eq(plan.groups), at.left.eq(plan.outputs), at.plane_output.eq(0)]
            m.d.sync += [at.segment.eq(0), at.segment_words.eq(0)]
        with m.If(acts["next_block"]):
            m.d.sync += [at.left.eq(ends.next_left), at.plane_output.eq(ends.next_plane)]
            with m.If(ends.group_end):
                m.d.sync += [at.groups.eq(at.groups - 1), at.left.eq(plan.outputs)]
            with m.If(plan.depthwise | ends.group_end):
                m.d.sync += [at.segment.eq(ends.next_segment), at.segment_words.eq(ends.next_segment_words)]
