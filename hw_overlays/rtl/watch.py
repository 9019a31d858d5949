"""Notice a chain that stands still: its descriptors contradict each other in a way that no limit excludes."""

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

PATIENCE = 1 << 16  # cycles: hundreds of times the latency of any DDR


class Watch(Component):
    """``stuck`` is 1 when nothing has moved for ``PATIENCE`` cycles in which ``on`` was 1."""

    def __init__(self) -> None:
        super().__init__({"on": In(1), "moves": In(1), "stuck": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        still = Signal(range(PATIENCE))
        m.d.sync += [self.stuck.eq(still == PATIENCE - 1), still.eq(still + 1)]
        with m.If(~self.on | self.moves):
            m.d.sync += still.eq(0)
        return m
