"""What each type of cell is for a path: where it begins, ends and goes through, and how many levels it adds.

A level is a look-up table (also one that is a memory), or a carry chain, however long; wide multiplexers belong to their
look-up tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from . import delays
from .netlist import Cell, Pin

REGISTERS = frozenset({"FDRE", "FDSE", "FDCE", "FDPE"})
RESETS = frozenset({"R", "S", "CLR", "PRE"})
CARRIES = {"CARRY4": 4, "CARRY8": 8}
DSPS = frozenset({"DSP48E1", "DSP48E2"})
CASCADES = frozenset({"PCIN", "ACIN", "BCIN"})


class Arc(NamedTuple):
    """A way from an input bit to an output bit: delay, and what it adds to look-up tables and to carry chains."""

    pin: str
    bit: int
    out: str
    out_bit: int
    delay: float
    luts: int = 0
    chains: int = 0


def is_block(kind: str) -> bool:
    """Return whether it is a block RAM or an UltraRAM."""
    return kind.startswith(("RAMB", "URAM"))


def is_lut_ram(kind: str) -> bool:
    """Return whether it is a memory of look-up tables."""
    return kind.startswith("RAM") and not is_block(kind)


def is_lut(kind: str) -> bool:
    """Return whether it is logic in a look-up table."""
    return kind.startswith("LUT") or kind == "INV"


@cache
def carry_arcs(bits: int) -> tuple[Arc, ...]:
    """Return the ways of a carry cell. One of 8 bits has the delays of 4, which only its levels are asked for."""
    arcs = []
    for out, in_, begin, select, data in zip(
        ("CO", "O"), delays.CARRY_IN, delays.CARRY_BEGIN, delays.CARRY_S, delays.CARRY_DI
    ):
        for k in range(bits):
            arcs += [Arc("CI", 0, out, k, in_[k % 4]), Arc("CYINIT", 0, out, k, begin[k % 4], 0, 1)]
            for j in range(k + 1):
                for pin, table in (("S", select), ("DI", data)):
                    delay = table[min(j, 3)][min(k, 3)]
                    if delay is not None:
                        arcs.append(Arc(pin, j, out, k, delay, 0, 1))
    return tuple(arcs)


def arcs(cell: Cell) -> Iterator[Arc]:
    """Yield the ways through a cell."""
    kind = cell.kind
    if is_lut(kind):
        for pin in cell.inputs:
            yield Arc(pin, 0, "O", 0, delays.LUT, 1)
    elif kind in ("MUXF7", "MUXF8"):
        for pin, delay in (delays.MUX7 if kind == "MUXF7" else delays.MUX8).items():
            yield Arc(pin, 0, "O", 0, delay)
    elif kind == "MUXF9":
        for pin, delay in delays.MUX8.items():
            yield Arc(pin, 0, "O", 0, delay)
    elif kind in CARRIES:
        yield from carry_arcs(CARRIES[kind])
    elif is_lut_ram(kind) or kind.startswith("SRL"):
        addresses = [pin for pin in cell.inputs if pin.startswith(("A", "DPRA"))]
        for pin in addresses:
            for index in range(len(cell.inputs[pin])):
                for out, bits in cell.outputs.items():
                    for k in range(len(bits)):
                        yield Arc(pin, index, out, k, delays.LUT_RAM_READ, 1)
    elif kind in DSPS and not begins(cell, "P"):
        for pin in ("A", "B", "C", "D"):
            for index in range(len(cell.inputs.get(pin, []))):
                for k in range(len(cell.outputs.get("P", []))):
                    yield Arc(pin, index, "P", k, delays.DSP_THROUGH)


def begins(cell: Cell, pin: str) -> float | None:
    """Return the time from the clock to an output, None if no path begins there."""
    kind = cell.kind
    if kind in REGISTERS:
        return delays.FLIP_FLOP
    if is_block(kind):
        output = "DOB_REG" if pin.startswith(("DOB", "DOPB", "DOUTB", "DOUTPB")) else "DOA_REG"
        return delays.BLOCK_RAM_REGISTER if cell.parameter(output) else delays.BLOCK_RAM
    if kind in DSPS:
        for register, delay in (("PREG", delays.DSP_P), ("MREG", delays.DSP_M), ("AREG", delays.DSP_A)):
            if cell.parameter(register):
                return delay
        return None
    if kind.startswith("SRL"):
        return delays.SHIFT_CLOCK
    return delays.LUT_RAM_CLOCK if is_lut_ram(kind) else None


def ends(pin: Pin) -> float | None:
    """Return the setup time of an input before the clock, None if no path ends there."""
    kind, name = pin.cell.kind, pin.name
    if kind in REGISTERS:
        return delays.FLIP_FLOP_SETUP.get(name)
    if is_block(kind):
        return prefixed(delays.BLOCK_RAM_SETUP, name, delays.BLOCK_RAM_SETUP["RST"])
    if kind in DSPS:
        return dsp_setup(pin)
    if kind.startswith("SRL"):
        return delays.SHIFT_SETUP.get(name)
    if is_lut_ram(kind) and not name.startswith(("ADDRA", "ADDRB", "ADDRC", "DPRA")):
        return prefixed(delays.LUT_RAM_SETUP, name, delays.LUT_RAM_SETUP["DI"])
    return None


def prefixed(table: dict[str, float], name: str, other: float) -> float:
    """Return the entry with whose key a name begins."""
    return next((delay for prefix, delay in table.items() if name.startswith(prefix)), other)


def dsp_setup(pin: Pin) -> float | None:
    """Return the setup time of an input of a DSP: to its first register."""
    cell, name = pin.cell, pin.name
    if name == "PCIN":
        return delays.DSP_CASCADE if cell.parameter("PREG") else None
    if name not in delays.DSP_SETUP:
        registered = cell.parameter(f"{name}REG") or name.startswith(("CE", "RST", "AC", "BC"))
        return delays.DSP_CONTROL if registered else delays.DSP_MODE
    own, adder, product, result = delays.DSP_SETUP[name]
    adds = cell.parameter("USE_DPORT") == "TRUE" or str(cell.parameter("AMULTSEL")) == "AD"
    if name == "A" and not adds:
        adder, (product, result) = None, delays.DSP_A_DIRECT
    ways = [(f"{name}REG", own), ("ADREG", adder if adds else None), ("MREG", product), ("PREG", result)]
    return next((setup for register, setup in ways if setup is not None and cell.parameter(register)), None)


def crosses(cell: Cell) -> bool:
    """Return whether a cell is in a column of its own."""
    return is_block(cell.kind) or cell.kind in DSPS


def is_inside(pin: Pin, driver: Cell, fan_out: int) -> bool:
    """Return whether a net is inside a slice or a column of DSPs, and takes no time."""
    kind, alone = pin.cell.kind, fan_out == 1
    if kind in CARRIES:
        return pin.name == "CI" or (pin.name in ("S", "DI") and alone and is_lut(driver.kind))
    if kind.startswith("MUXF"):
        return pin.name != "S"
    if kind in DSPS:
        return pin.name in CASCADES
    own = is_lut(driver.kind) or driver.kind.startswith("MUXF") or driver.kind in CARRIES
    return kind in REGISTERS and pin.name == "D" and alone and own
