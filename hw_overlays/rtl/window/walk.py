"""The runs of words of which a blob, or a table, consists."""

from amaranth import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..streams import later

RUN = 64  # beats of a run at most: 4 bursts of AXI3


def area(bits: int) -> data.StructLayout:
    """Return the layout of what is walked over: ``images`` times ``planes`` times ``words`` of 8 bytes.

    ``pitch`` and ``image`` are the bytes from plane to plane and from image to image, 0 to read the same again. ``across``: a run
    of each plane before the next run of the first plane.
    """
    return data.StructLayout(
        {"address": unsigned(bits), "pitch": 32, "image": 32, "words": 30, "planes": 16, "images": 16, "across": 1}
    )


def run(bits: int) -> data.StructLayout:
    """Return the layout of a run: ``beats`` from ``address``; ``last`` is that of its area."""
    return data.StructLayout({"address": unsigned(bits), "beats": range(RUN + 1), "last": 1})


class Walk(wiring.Component):
    """Gives the runs of each ``area`` in order, one in three cycles; it takes the next area after the last run."""

    def __init__(self, bits: int) -> None:
        super().__init__({"area": In(stream.Signature(area(bits))), "runs": Out(stream.Signature(run(bits)))})

    def elaborate(self, platform: object) -> Module:
        """Return the counters of words, planes and images, and what follows from them, a register later."""
        m = Module()
        busy, settle = Signal(), Signal(range(3))
        # address: of the run; words, planes, images: that are left, this one included
        now = Signal(self.area.payload.shape(), reset_less=True)
        plane, image = (Signal.like(now.address, name=name, reset_less=True) for name in ("plane", "image"))
        words, planes = (Signal.like(now[name], name=name, reset_less=True) for name in ("words", "planes"))
        runs, bits = self.runs.payload, len(now.address)
        plane_ends = later(m, now.words <= RUN, "plane_ends")
        image_ends, last_image = later(m, now.planes == 1, "image_ends"), later(m, now.images == 1, "last_image")
        across, run = now.across, 8 * RUN
        inner = later(m, Mux(across, now.pitch, run), "inner")  # bytes to the next run of a plane or a part
        outer = later(m, Mux(across, run, now.pitch), "outer")  # from the first of these to the first one after them
        next_address = later(m, (now.address + inner)[:bits], "next_address")
        next_plane = later(m, (plane + outer)[:bits], "next_plane")
        next_image = later(m, (image + now.image)[:bits], "next_image")
        m.d.comb += [
            self.area.ready.eq(~busy),
            self.runs.valid.eq(busy & (settle == 0)),
            runs.address.eq(now.address),
            runs.beats.eq(later(m, Mux(plane_ends, now.words[: len(runs.beats)], RUN), "beats")),
            runs.last.eq(plane_ends & image_ends & last_image),
        ]
        with m.If(settle != 0):
            m.d.sync += settle.eq(settle - 1)
        with m.If(~busy):
            new = self.area.payload
            m.d.sync += [busy.eq(self.area.valid), now.eq(new), plane.eq(new.address), image.eq(new.address)]
            m.d.sync += [words.eq(new.words), planes.eq(new.planes), settle.eq(2)]
        with m.Elif(self.runs.valid & self.runs.ready):
            m.d.sync += [now.address.eq(next_address), settle.eq(2)]
            with m.If(Mux(across, image_ends, plane_ends)):  # `plane` is then the first plane's run
                m.d.sync += [signal.eq(next_plane) for signal in (now.address, plane)]
            with m.If(plane_ends & image_ends):
                m.d.sync += [signal.eq(next_image) for signal in (now.address, plane, image)]
                m.d.sync += now.images.eq(now.images - 1)
            with m.If(~across | image_ends):
                m.d.sync += now.words.eq(Mux(plane_ends, words, now.words - RUN))
            with m.If(across | plane_ends):
                m.d.sync += now.planes.eq(Mux(image_ends, planes, now.planes - 1))
            with m.If(runs.last):
                m.d.sync += busy.eq(0)
        return m
