"""Engines that copy: as small as engines can be, with every port of the real ones."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Component

from chai.hw_overlays.rtl.ports import Stall, array_ports, window_ports
from chai.hw_overlays.rtl.top import Accelerator
from chai.overlay import Overlay


class CopyEngine(Component):
    """Copies ``input_width`` words from ``input`` to ``output``; the array's reads two beats of weights before, on two ports."""

    def __init__(self, overlay: Overlay, kind: str) -> None:
        self.kind = kind
        super().__init__({"array": array_ports, "window": window_ports}[kind](overlay))

    def elaborate(self, platform):
        m = Module()
        task, out = self.task, self.output
        read = self.even if self.kind == "array" else self.input
        fields = task.payload
        allowed = Signal()
        m.d.comb += allowed.eq((self.array_done >= fields.after_array) & (self.window_done >= fields.after_window))
        beats = fields.input_width
        m.d.comb += [
            read.request.payload.address.eq(fields.input),
            read.request.payload.beats.eq(beats),
            read.request.payload.tag.eq(fields.tag),
            out.request.payload.address.eq(fields.output),
            out.request.payload.beats.eq(beats),
            out.request.payload.last.eq(1),
            out.request.payload.tag.eq(fields.tag),
        ]
        with m.FSM():
            with m.State("WEIGHTS"):
                if self.kind == "array":
                    asked = Cat(port.request.ready for port in (self.constants, self.odd)).all()
                    for port in (self.constants, self.odd):
                        m.d.comb += [
                            port.request.payload.address.eq(fields.weights),
                            port.request.payload.beats.eq(2),
                            port.request.payload.tag.eq(fields.tag),
                            port.request.valid.eq(task.valid & asked),
                            port.data.ready.eq(1),
                        ]
                    with m.If(task.valid & asked):
                        m.next = "READ"
                else:
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += read.request.valid.eq(task.valid & allowed)
                m.d.comb += self.stall.eq(Mux(task.valid & ~allowed, Stall.DEPENDENCY, Stall.NONE))
                with m.If(read.request.valid & read.request.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [out.request.valid.eq(1), task.ready.eq(out.request.ready)]
                with m.If(out.request.ready):
                    m.next = "WEIGHTS"
        m.submodules.fifo = fifo = SyncFIFO(width=64, depth=4)
        m.d.comb += [
            fifo.w_data.eq(read.data.payload),
            fifo.w_en.eq(read.data.valid),
            read.data.ready.eq(fifo.w_rdy),
            out.data.payload.eq(fifo.r_data),
            out.data.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(out.data.ready),
            self.mac.eq(out.data.valid & out.data.ready),
            self.finished.eq(out.finished),
        ]
        return m


def accelerator(overlay: Overlay) -> Accelerator:
    """The accelerator with two engines that copy."""
    return Accelerator(overlay, CopyEngine(overlay, "array"), CopyEngine(overlay, "window"))
