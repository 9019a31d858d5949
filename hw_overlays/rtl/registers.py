"""The manifest's registers, on an AXI-Lite port."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib.wiring import Component, In, Out, Signature

from chai.overlay import Overlay


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


def address_bits(overlay: Overlay) -> int:
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
        members: dict[str, object] = {"bus": In(AxiLite(address_bits(overlay)))}
        for register in self.registers.list:
            name = register.name
            if register.value is not None:
                continue
            if register.access == "r":
                members |= {name: In(32), f"read_{name}": Out(1)}
            elif register.access == "w1c":
                members |= {name: Out(32), f"set_{name}": In(32)}
            else:
                members[name] = Out(32)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus

        written, value = Signal(), Signal(32)
        m.d.comb += [
            written.eq(bus.awvalid & bus.wvalid & ~bus.bvalid),
            bus.awready.eq(written),
            bus.wready.eq(written),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(written):
            m.d.sync += bus.bvalid.eq(1)
        mask = Cat(bit.replicate(8) for bit in bus.wstrb)
        m.d.comb += value.eq(bus.wdata & mask)

        taken = Signal()
        m.d.comb += [taken.eq(bus.arvalid & (~bus.rvalid | bus.rready)), bus.arready.eq(taken)]
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(taken):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(0)]

        for register in self.registers.list:
            here = register.offset >> 2
            now = Const(register.value or 0, 32) if register.value is not None else getattr(self, register.name)
            with m.If(taken & (bus.araddr[2:] == here)):
                if register.access != "w":
                    m.d.sync += bus.rdata.eq(now)
                if register.access == "r" and register.value is None:
                    m.d.comb += getattr(self, f"read_{register.name}").eq(1)
            writes = written & (bus.awaddr[2:] == here)
            if register.access == "w":
                with m.If(writes):
                    m.d.comb += now.eq(value)
            elif register.access == "rw":
                with m.If(writes):
                    m.d.sync += now.eq(now & ~mask | value)
            elif register.access == "w1c":
                events = getattr(self, f"set_{register.name}")
                m.d.sync += now.eq(now | events)
                with m.If(writes):
                    m.d.sync += now.eq(now & ~value | events)
        return m
