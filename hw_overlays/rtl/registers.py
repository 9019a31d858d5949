"""The manifest's registers, on an AXI-Lite port."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out, Signature

from chai.overlay import Overlay
from chai.overlay.sections import Register

from .streams import later, register


class AxiLite(Signature):
    """The channels of AXI-Lite with 32 bits of data, with AXI's names, seen from the master."""

    def __init__(self, bits: int) -> None:
        super().__init__(
            {
                "awaddr": Out(bits), "awprot": Out(3), "awvalid": Out(1), "awready": In(1),
                "wdata": Out(32), "wstrb": Out(4), "wvalid": Out(1), "wready": In(1),
                "bresp": In(2), "bvalid": In(1), "bready": Out(1),
                "araddr": Out(bits), "arprot": Out(3), "arvalid": Out(1), "arready": In(1),
                "rdata": In(32), "rresp": In(2), "rvalid": In(1), "rready": Out(1),
            }
        )  # fmt: skip


def register_bits(overlay: Overlay) -> int:
    """Return the bits of an address in the window of registers."""
    return (overlay.registers.window - 1).bit_length()


class Registers(Component):
    """One member per register that is not constant, with its name.

    r    ``NAME`` is its value, an input; ``read_NAME`` is 1 in the cycle in which it is read
    rw   ``NAME`` is what was written last
    w    ``NAME`` is what is written, for one cycle, else 0
    w1c  ``NAME`` is its value; ``set_NAME`` sets bits, and writing 1 clears them
    """

    def __init__(self, overlay: Overlay) -> None:
        self.registers = overlay.registers
        members: dict[str, object] = {"bus": In(AxiLite(register_bits(overlay)))}
        for row in self.registers.list:
            name = row.name
            if row.value is not None:
                continue
            if row.access == "r":
                members |= {name: In(32), f"read_{name}": Out(1)}
            elif row.access == "w1c":
                members |= {name: Out(32), f"set_{name}": In(32)}
            else:
                members[name] = Out(32)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus

        # a register is written in the cycle after its value is taken, and answered when it has it
        taken, written = Signal(), Signal()
        m.d.comb += [
            taken.eq(bus.awvalid & bus.wvalid & ~bus.bvalid & ~written),
            bus.awready.eq(taken),
            bus.wready.eq(taken),
        ]
        m.d.sync += written.eq(taken)
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(written):
            m.d.sync += bus.bvalid.eq(1)
        mask = Cat(bit.replicate(8) for bit in bus.wstrb)
        address, value = later(m, bus.awaddr[2:], "address"), later(m, bus.wdata & mask, "value")
        mask = later(m, mask, "mask")

        asked, answer = Signal(), register(32, "answer")
        m.d.comb += [asked.eq(bus.arvalid & (~bus.rvalid | bus.rready)), bus.arready.eq(asked), bus.rdata.eq(answer)]
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(asked):
            m.d.sync += [bus.rvalid.eq(1), answer.eq(0)]
            with m.Switch(bus.araddr[2:]):
                for row in self.registers.list:
                    with m.Case(row.offset >> 2):
                        if row.access != "w":
                            m.d.sync += answer.eq(self._value(row))
                        if row.access == "r" and row.value is None:
                            m.d.comb += getattr(self, f"read_{row.name}").eq(1)

        for row in self.registers.list:
            now = self._value(row)
            writes = written & (address == row.offset >> 2)
            if row.access == "w":
                m.d.sync += now.eq(Mux(writes, value, 0))
            elif row.access == "rw":
                with m.If(writes):
                    m.d.sync += now.eq(now & ~mask | value)
            elif row.access == "w1c":
                events = getattr(self, f"set_{row.name}")
                m.d.sync += now.eq(now | events)
                with m.If(writes):
                    m.d.sync += now.eq(now & ~value | events)
        return m

    def _value(self, row: Register) -> Value:
        """Return the constant, or the member."""
        return Const(row.value, 32) if row.value is not None else getattr(self, row.name)
