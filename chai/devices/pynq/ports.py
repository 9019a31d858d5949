"""Widths of the processor's memory ports: what the hardware handoff says, and what their registers are set to.

A bitstream does not set them: boot files do, and pynq for an UltraScale+ if the handoff has the parameters that it knows. A
port of another width delivers parts of words, or words from elsewhere, and no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from .memory import answering


class MemoryPorts(NamedTuple):
    """The memory ports of a family of chips, by number.

    ``used``, ``width``  parameters of the handoff that say whether a port is used and how wide it is
    ``registers``        addresses of each port's registers
    ``widths``           in bits, by the value of a register's lowest bits
    """

    names: Sequence[str]
    used: str
    width: str
    registers: range
    widths: tuple[int, ...]


NUMBERED = [f"S_AXI_HP{n}" for n in range(4)]
# AFI_RDCHAN_CTRL (UG585): bit 0. AFIFM_RDCTRL (UG1087): bits 0 and 1; pynq sets the same registers
FAMILIES = {
    "zynq7000": MemoryPorts(
        names=NUMBERED,
        used="PCW_USE_S_AXI_HP{}",
        width="PCW_S_AXI_HP{}_DATA_WIDTH",
        registers=range(0xF800_8000, 0xF800_C000, 0x1000),
        widths=(64, 32),
    ),
    "zynqmp": MemoryPorts(
        names=[f"{name}_FPD" for name in ("S_AXI_HPC0", "S_AXI_HPC1", *NUMBERED)],
        used="PSU__USE__S_AXI_GP{}",
        width="PSU__SAXIGP{}__DATA_WIDTH",
        registers=range(0xFD36_0000, 0xFD3C_0000, 0x1_0000),
        widths=(128, 64, 32, 0),
    ),
}
REMEDY = (
    "codes come from elsewhere in memory; use the .hwh of this bitstream's build, and a boot file that sets the port"
)
CHANNELS = {"reads": 0x00, "writes": 0x14}  # offsets of their registers


def wrong(family: str, handoff: Path, device: Any) -> Iterator[str]:
    """Yield what is wrong with each port whose width is not that of the handoff. Raises Lost."""
    import pynq

    ports = FAMILIES[family]
    # the processor is the only block that has parameters of such names
    parameters = {each.get("NAME"): each.get("VALUE", "") for each in ElementTree.parse(handoff).iter("PARAMETER")}
    for number, (name, address) in enumerate(zip(ports.names, ports.registers)):
        said = parameters.get(ports.width.format(number), "")
        if parameters.get(ports.used.format(number)) != "1" or not said.isdigit():
            continue
        with answering(f"the width of {name} cannot be read"):
            registers = pynq.MMIO(address, 0x20, device=device)
            values = {channel: registers.read(offset) for channel, offset in CHANNELS.items()}
        for channel, value in values.items():
            width = ports.widths[value & len(ports.widths) - 1]
            if width != int(said):
                yield f"{name} {channel} {width} bits at a time, the .hwh says {said}"
