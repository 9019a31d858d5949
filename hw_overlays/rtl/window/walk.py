"""The runs of words of which a blob, or a table, consists."""

from amaranth import Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

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
    """Gives the runs of each ``area`` in order, one a cycle; it takes the next area after the last run."""

    def __init__(self, bits: int) -> None:
        super().__init__({"area": In(stream.Signature(area(bits))), "runs": Out(stream.Signature(run(bits)))})

    def elaborate(self, platform: object) -> Module:
        """Return the counters of words, planes and images."""
        m = Module()
        busy = Signal()
        now = Signal.like(
            self.area.payload
        )  # address: of the run; words, planes, images: that are left, this one included
        plane = Signal.like(now.address)
        image = Signal.like(now.address)
        words = Signal.like(now.words)
        planes = Signal.like(now.planes)
        runs = self.runs.payload
        plane_ends, image_ends = now.words <= RUN, now.planes == 1
        m.d.comb += [
            self.area.ready.eq(~busy),
            self.runs.valid.eq(busy),
            runs.address.eq(now.address),
            runs.beats.eq(Mux(plane_ends, now.words[: len(runs.beats)], RUN)),
            runs.last.eq(plane_ends & image_ends & (now.images == 1)),
        ]
        with m.If(self.area.valid & self.area.ready):
            new = self.area.payload
            m.d.sync += [busy.eq(1), now.eq(new), plane.eq(new.address), image.eq(new.address)]
            m.d.sync += [words.eq(new.words), planes.eq(new.planes)]
        with m.Elif(self.runs.valid & self.runs.ready):
            across, run = now.across, 8 * RUN
            m.d.sync += now.address.eq(now.address + Mux(across, now.pitch, run))
            with m.If(Mux(across, image_ends, plane_ends)):  # `plane` is then the first plane's run
                m.d.sync += [signal.eq(plane + Mux(across, run, now.pitch)) for signal in (now.address, plane)]
            with m.If(plane_ends & image_ends):
                m.d.sync += [signal.eq(image + now.image) for signal in (now.address, plane, image)]
                m.d.sync += now.images.eq(now.images - 1)
            with m.If(~across | image_ends):
                m.d.sync += now.words.eq(Mux(plane_ends, words, now.words - RUN))
            with m.If(across | plane_ends):
                m.d.sync += now.planes.eq(Mux(image_ends, planes, now.planes - 1))
            with m.If(runs.last):
                m.d.sync += busy.eq(0)
        return m
