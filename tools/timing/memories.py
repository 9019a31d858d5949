"""Read ports of block RAMs whose data only registers take: the registers become the RAM's own (DO_REG).

Vivado moves them into the RAM; yosys leaves them outside, and writes DOA_REG = DOB_REG = 0 always. They can be moved if they
have no reset, one clock enable, and if nothing else reads the port.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .cells import REGISTERS, is_block
from .netlist import Cell, Netlist

PORT_A = ("DOADO", "DOPADOP", "DOUTADOUT", "DOUTPADOUTP", "DOUT_A")
PORT_B = ("DOBDO", "DOPBDOP", "DOUTBDOUT", "DOUTPBDOUTP", "DOUT_B")


@dataclass(frozen=True)
class ReadPort:
    """A port's nets that something reads, and the registers that may become its own: all of its loads, or none."""

    cell: Cell
    nets: tuple[int, ...]
    registers: tuple[Cell, ...]


def read_ports(netlist: Netlist) -> Iterator[ReadPort]:
    """Yield the ports of all block RAMs from which something is read."""
    for cell in netlist.cells:
        if is_block(cell.kind):
            for nets in ports(cell):
                used = tuple(net for net in nets if netlist.fan_out[net])
                if used:
                    yield ReadPort(cell, used, registers_of(netlist, used))


def ports(cell: Cell) -> list[list[int]]:
    """Return the nets of each read port: one port has both halves where words are as wide as the RAM."""
    sides = [
        [bit for pin in pins for bit in cell.outputs.get(pin, []) if isinstance(bit, int)] for pins in (PORT_A, PORT_B)
    ]
    width = cell.parameter("READ_WIDTH_A")
    if isinstance(width, int) and width > (36 if cell.kind.startswith("RAMB36") else 18):
        return [sides[0] + sides[1]]
    return sides


def registers_of(netlist: Netlist, nets: tuple[int, ...]) -> tuple[Cell, ...]:
    """Return the registers that take these nets, none if they cannot be the RAM's."""
    loads = [load for net in nets for load in netlist.loads[net]]
    cells = [load.cell for load in loads]
    plain = all(
        load.name == "D"
        and load.cell.kind in REGISTERS
        and load.cell.inputs.get("R", load.cell.inputs.get("S")) == ["0"]
        for load in loads
    )
    enables = {str(cell.inputs.get("CE")) for cell in cells}
    return tuple(cells) if plain and len(loads) == len(nets) and len(enables) == 1 else ()
