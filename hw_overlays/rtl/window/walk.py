"""The runs of words of which a blob, or a table, consists."""

from amaranth import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from chai.overlay.sections import RUN

from ..ports import BEAT
from ..streams import later, register


def words_read(task: data.View) -> Value:
    """Return the words that a Task reads of each plane: those of its band, or all."""
    return Mux(task.tile_rows == 0, task.input_pitch // BEAT, task.tile_rows)


def words_written(task: data.View) -> Value:
    """Return the words that a Task writes of each plane: those of its band, or all."""
    return Mux(task.tile_columns == 0, task.output_pitch // BEAT, task.tile_columns)


def area(bits: int) -> data.StructLayout:
    """Return the layout of what is walked over: ``images`` times ``planes`` times ``words`` of 8 bytes.

    ``pitch`` and ``image`` are the bytes from plane to plane and from image to image, 0 to read the same again. Each plane comes
    ``times`` times, at least once, ``hop`` bytes further on each time. ``across``: a run of each plane before the next run of the
    first plane; then once.
    """
    members = {"address": unsigned(bits), "pitch": 32, "image": 32, "hop": 32, "words": 30, "planes": 16, "images": 16}
    return data.StructLayout(members | {"across": 1, "times": 8})


def run(bits: int) -> data.StructLayout:
    """Return the layout of a run: ``beats`` from ``address``; in an image's ``tail``, its last plane; the ``last`` of an area."""
    return data.StructLayout({"address": unsigned(bits), "beats": range(RUN + 1), "tail": 1, "last": 1})


class Walk(wiring.Component):
    """Gives the runs of each ``area`` in order, one in three cycles; it takes the next area after the last run."""

    def __init__(self, bits: int) -> None:
        super().__init__({"area": In(stream.Signature(area(bits))), "runs": Out(stream.Signature(run(bits)))})

    def elaborate(self, platform: object) -> Module:
        """Return the counters of words, planes and images, and what follows from them, a register later."""
        m = Module()
        busy = Signal()
        # address: of the run; words, planes, images: that are left, this one included
        now = register(self.area.payload.shape(), "now")
        plane, image, time = (register(now.address.shape(), name) for name in ("plane", "image", "time"))
        words, planes = (register(now[name].shape(), name) for name in ("words", "planes"))
        runs, bits = self.runs.payload, len(now.address)
        left = register(now.times.shape(), "left")  # times of the plane, this one included
        row_ends, last_time = later(m, now.words <= RUN, "row_ends"), later(m, left == 1, "last_time")
        plane_ends = later(m, (now.words <= RUN) & (left == 1), "plane_ends")
        image_ends, last_image = later(m, now.planes == 1, "image_ends"), later(m, now.images == 1, "last_image")
        across, run = now.across, 8 * RUN
        inner = later(m, Mux(across, now.pitch, run), "inner")  # bytes to the next run of a plane or a part
        outer = later(m, Mux(across, run, now.pitch), "outer")  # from the first of these to the first one after them
        next_address = later(m, (now.address + inner)[:bits], "next_address")
        next_plane = later(m, (plane + outer)[:bits], "next_plane")
        next_image = later(m, (image + now.image)[:bits], "next_image")
        next_time = later(m, (time + now.hop)[:bits], "next_time")
        again = later(m, row_ends & ~last_time, "again")  # the same plane
        # what the next run begins, if not only a run: a plane (of the part, if they go across), an image
        new_plane = later(m, Mux(across, image_ends, plane_ends), "new_plane")
        new_image = later(m, plane_ends & image_ends, "new_image")
        new_words, new_planes = later(m, ~across | image_ends, "new_words"), later(m, across | plane_ends, "new_planes")
        # a run is offered when all that follows from its counters is in registers
        offered, steps = Signal(), Signal(2)
        taken = offered & self.runs.ready
        m.d.sync += steps.eq(Cat(Mux(busy, taken & ~runs.last, self.area.valid), steps))
        m.d.sync += offered.eq(steps[-1] | (offered & ~self.runs.ready))
        m.d.comb += [
            self.area.ready.eq(~busy),
            self.runs.valid.eq(offered),
            runs.address.eq(now.address),
            runs.beats.eq(later(m, Mux(row_ends, now.words[: len(runs.beats)], RUN), "beats")),
            runs.tail.eq(image_ends),
            runs.last.eq(later(m, plane_ends & image_ends & last_image, "last")),
        ]
        with m.If(~busy):
            new = self.area.payload
            m.d.sync += [busy.eq(self.area.valid), now.eq(new)]
            m.d.sync += [signal.eq(new.address) for signal in (plane, image, time)]
            m.d.sync += [words.eq(new.words), planes.eq(new.planes), left.eq(new.times)]
        with m.Elif(taken):
            m.d.sync += now.address.eq(next_address)
            with m.If(row_ends):
                m.d.sync += left.eq(Mux(last_time, now.times, left - 1))
            with m.If(again):
                m.d.sync += [signal.eq(next_time) for signal in (now.address, time)]
            with m.If(new_plane):
                m.d.sync += [signal.eq(next_plane) for signal in (now.address, plane, time)]
            with m.If(new_image):
                m.d.sync += [signal.eq(next_image) for signal in (now.address, plane, image, time)]
                m.d.sync += now.images.eq(now.images - 1)
            with m.If(new_words):
                m.d.sync += now.words.eq(Mux(row_ends, words, now.words - RUN))
            with m.If(new_planes):
                m.d.sync += now.planes.eq(Mux(image_ends, planes, now.planes - 1))
            with m.If(runs.last):
                m.d.sync += busy.eq(0)
        return m
