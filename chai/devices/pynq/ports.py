"""Widths of the processor's memory ports: what the hardware handoff says, and what their registers are set to.

A bitstream does not set them: boot files do, and pynq for an UltraScale+ if the handoff has the parameters that it knows. A
port of another width delivers parts of words, or words from elsewhere, and no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from .memory import answering


class MemoryPort(NamedTuple):
    """A memory port: its ``registers``, and the parameters of the handoff that say whether it is used and how wide it is."""

    name: str
    used: str
    width: str
    registers: int


class MemoryPorts(NamedTuple):
    """The ports of a family of chips, and their ``widths`` in bits by the value of a register's lowest bits."""

    ports: tuple[MemoryPort, ...]
    widths: tuple[int, ...]


# AFI_RDCHAN_CTRL (UG585): bit 0. AFIFM_RDCTRL (UG1087): bits 0 and 1; pynq sets the same registers
FAMILIES = {
    "zynq7000": MemoryPorts(
        tuple(
            MemoryPort(
                f"S_AXI_HP{n}", f"PCW_USE_S_AXI_HP{n}", f"PCW_S_AXI_HP{n}_DATA_WIDTH", 0xF800_8000 + n * 0x1000
            )
            for n in range(4)
        ),
        (64, 32),
    ),
    "zynqmp": MemoryPorts(
        tuple(
            MemoryPort(name, f"PSU__USE__S_AXI_GP{n}", f"PSU__SAXIGP{n}__DATA_WIDTH", 0xFD36_0000 + n * 0x1_0000)
            for n, name in enumerate(
                ("S_AXI_HPC0_FPD", "S_AXI_HPC1_FPD", *(f"S_AXI_HP{i}_FPD" for i in range(4)))
            )
        ),
        (128, 64, 32, 0),
    ),
}  # fmt: skip
REMEDY = (
    "codes come from elsewhere in memory; use the .hwh of this bitstream's build, and a boot file that sets the port"
)
CHANNELS = {"reads": 0x00, "writes": 0x14}  # offsets of their registers


def wrong(family: str, handoff: Path, device: Any) -> Iterator[str]:
    """Yield what is wrong with each port whose width is not that of the handoff. Raises Lost."""
    import pynq

    ports, widths = FAMILIES[family]
    parameters = _parameters(handoff)
    for port in ports:
        said = parameters.get(port.width, "")
        if parameters.get(port.used) != "1" or not said.isdigit():
            continue
        with answering(f"the width of {port.name} cannot be read"):
            registers = pynq.MMIO(port.registers, 0x20, device=device)
            values = {channel: registers.read(offset) for channel, offset in CHANNELS.items()}
        for channel, value in values.items():
            width = widths[value & len(widths) - 1]
            if width != int(said):
                yield f"{port.name} {channel} {width} bits at a time, the .hwh says {said}"


def _parameters(handoff: Path) -> dict[str, str]:
    """Return the parameters of the processor, the only block that has such names."""
    return {each.get("NAME", ""): each.get("VALUE", "") for each in ElementTree.parse(handoff).iter("PARAMETER")}
