"""Arrival times and levels of all nets, and the ends of their paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from . import delays
from .cells import REGISTERS, Arc, arcs, begins, crosses, ends, is_block, is_inside
from .memories import read_ports
from .netlist import Cell, Netlist, Pin, input_bits


class Way(NamedTuple):
    """A way from net to net through a cell: delay of the cell, and of the net before it at scale 1."""

    source: int
    target: int
    cell: Cell
    arc: Arc
    net: float


class Levels(NamedTuple):
    """Most levels on any path: in all, look-up tables, carry chains. They may be those of different paths."""

    all: int = 0
    luts: int = 0
    chains: int = 0


@dataclass(frozen=True)
class End:
    """Where paths end: an input of a register, a memory or a DSP."""

    pin: Pin
    net: int
    setup: float
    wire: float  # the delay of the net before it at scale 1


class Paths:
    """The graph of a netlist. Raises ValueError if its combinational logic has a loop."""

    def __init__(self, netlist: Netlist) -> None:
        self.netlist = netlist
        paired = [port for port in read_ports(netlist) if port.registers]
        inside = {net for port in paired for net in port.nets}
        self.begins: dict[int, float] = {}
        for cell in netlist.cells:
            for pin, bits in cell.outputs.items():
                delay = begins(cell, pin)
                if delay is not None:
                    self.begins.update({bit: delay for bit in bits if isinstance(bit, int) and bit not in inside})
        for port in paired:
            for register in port.registers:
                self.begins.update(
                    {bit: delays.BLOCK_RAM_REGISTER for bit in register.outputs["Q"] if isinstance(bit, int)}
                )
        self.ways = self._sorted()
        self.ends = [end for end in self._ends() if end.net not in inside]

    def _wire(self, net: int, pin: Pin) -> float:
        """Return the delay of a net to one of its loads at scale 1."""
        driver, fan_out = self.netlist.drivers.get(net), self.netlist.fan_out[net]
        if driver is None:
            return delays.net(fan_out, crosses(pin.cell))
        if is_inside(pin, driver[0], fan_out):
            return 0.0
        return delays.net(fan_out, crosses(pin.cell) or crosses(driver[0]))

    def _sorted(self) -> list[Way]:
        """Return all ways, those into a net before those out of it."""
        out: dict[int, list[Way]] = defaultdict(list)
        open_ways: dict[int, int] = defaultdict(int)
        for cell in self.netlist.cells:
            if cell.kind in REGISTERS or is_block(cell.kind):
                continue
            wires = {(pin, index): self._wire(bit, Pin(cell, pin, index)) for pin, index, bit in input_bits(cell)}
            for arc in arcs(cell):
                source, target = bit_of(cell.inputs, arc.pin, arc.bit), bit_of(cell.outputs, arc.out, arc.out_bit)
                if source is not None and target is not None:
                    out[source].append(Way(source, target, cell, arc, wires[arc.pin, arc.bit]))
                    open_ways[target] += 1
        ready = [net for net in out if not open_ways[net]]
        ways = []
        while ready:
            for way in out[ready.pop()]:
                ways.append(way)
                open_ways[way.target] -= 1
                if not open_ways[way.target]:
                    ready.append(way.target)
        loop = [self.netlist.name(net) for net, count in open_ways.items() if count]
        if loop:
            raise ValueError(f"a loop of logic, or behind one: {', '.join(sorted(loop)[:5])}")
        return ways

    def _ends(self) -> Iterator[End]:
        for cell in self.netlist.cells:
            for name, index, bit in input_bits(cell):
                pin = Pin(cell, name, index)
                setup = ends(pin)
                if setup is not None:
                    yield End(pin, bit, setup, self._wire(bit, pin))

    def arrivals(self, scale: float) -> tuple[dict[int, float], dict[int, Way]]:
        """Return the time at which each net has its value, and the way that is the last to come."""
        times, last = dict(self.begins), {}
        for way in self.ways:
            if way.source in times:
                time = times[way.source] + scale * way.net + way.arc.delay
                if time > times.get(way.target, -1.0):
                    times[way.target], last[way.target] = time, way
        return times, last

    def levels(self) -> dict[int, Levels]:
        """Return the levels before each net that a path goes to."""
        levels = dict.fromkeys(self.begins, Levels())
        for way in self.ways:
            if way.source in levels:
                before, now = levels[way.source], levels.get(way.target, Levels())
                luts, chains = way.arc.luts, way.arc.chains
                levels[way.target] = Levels(
                    max(now.all, before.all + luts + chains),
                    max(now.luts, before.luts + luts),
                    max(now.chains, before.chains + chains),
                )
        return levels


def bit_of(pins: object, name: str, index: int) -> int | None:
    """Return the net of a pin's bit, None if it has none or is a constant."""
    bits = pins.get(name, [])  # type: ignore[attr-defined]
    return bits[index] if index < len(bits) and isinstance(bits[index], int) else None
